// What the kernel of a collective does on one rank, as lists of actions: take what every upstream leg has
// brought, add one's own, hand it to every downstream leg, keep it. NCCL's primitives are made of the same.
#pragma once

#include <cstddef>
#include <vector>

#include "layout.h"
#include "plan.h"

namespace mycroft::testbed {

// Offsets and counts in elements. `source`: of the input, added to what is received; `target`: of the output.
struct Action {
    static constexpr size_t kNone = static_cast<size_t>(-1);
    bool receive = false;
    bool send = false;
    size_t source = kNone;
    size_t target = kNone;
    size_t count = 0;
};

struct End {
    LegKind kind;
    int peer;
};

// One thread block's part: its actions one after another, each on all of its ends.
struct Work {
    int channel = 0;
    int depth = 8;  // steps that a leg may hold
    std::vector<End> from;
    std::vector<End> to;
    std::vector<Action> actions;

    int steps_received() const;
    int steps_sent() const;
};

constexpr int kRingDepth = 4;  // two of NCCL's eight slots make a step of a ring's AllReduce and its halves
constexpr int kOtherDepth = 8;
constexpr size_t kSmall = 4096;  // elements up to which one channel is used

int channels_used(size_t count, int channels);

// Of one rank in one collective. `slice`: elements that a slot holds. `count` as in the API call: of
// AllReduce and Broadcast all, of AllGather what a rank sends, of ReduceScatter what a rank receives.
std::vector<Work> collective(const Plan& plan, const Communicator& communicator, int rank, Func func,
                             int root, size_t count);

Work sending(int channel, int peer, size_t count, size_t slice);
Work receiving(int channel, int peer, size_t count, size_t slice);

}  // namespace mycroft::testbed
