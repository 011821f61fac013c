// Who is connected to whom: rings that go host by host, trees over hosts, and the legs that both are made of.
#pragma once

#include <vector>

#include "plan.h"

namespace mycroft::testbed {

enum class LegKind { ring, tree_up, tree_down, pair };

// One direction from a rank to another on a channel: a FIFO in the host's memory, or a connection.
struct Leg {
    int communicator;
    int channel;
    LegKind kind;
    int from;  // ranks of the communicator
    int to;
    bool local;
    int place;  // of local ones: which of its host's
};

struct TreePlace {
    int parent = -1;
    std::vector<int> children;
};

// Ranks of the communicator in ring order: hosts in order of their first rank, ranks of a host together.
std::vector<int> ring_order(const Plan& plan, const Communicator& communicator);

// A binary tree over the hosts, another one on each channel; inside a host a chain behind the rank that has
// the parent, the second child of the host at the chain's second rank.
std::vector<TreePlace> tree_of(const Plan& plan, const Communicator& communicator, int channel);

int host_count(const Plan& plan, const Communicator& communicator);

// The channel of a pair's point-to-point operations.
int pair_channel(const Communicator& communicator, int from, int to, int channels);

// All legs of all communicators, the same on every rank: an index in here names a leg.
std::vector<Leg> legs_of(const Plan& plan);

// How many of them lie in the memory of a host.
int local_legs(const Plan& plan, const std::vector<Leg>& legs, int host);

}  // namespace mycroft::testbed
