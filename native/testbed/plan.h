// What the starter has written for all ranks: who is where, the communicators, and what each rank runs in a
// training step. Lines of words:
//
//     channels 2 · slot BYTES · network sockets|credits
//     rank HOST ADDRESS PORT                              one a rank, in order; where it is connected to
//     communicator ID NAME ring|tree WORLD-RANK…          in rank order; the algorithm is AllReduce's
//     pair COMMUNICATOR FROM TO                           a point-to-point connection, ranks of the
//     communicator programme RANK                                      what follows is that rank's step:
//     compute MS · uneven MS · host MS · coll FUNC COMMUNICATOR COUNT ROOT · send|recv COMMUNICATOR PEER
//     COUNT · alltoall COMMUNICATOR COUNT each of them also as: every N INSTRUCTION, only in every Nth step,
//     not in the first
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace mycroft::testbed {

enum class Network { sockets, credits };
enum class Algorithm { ring, tree };
enum class Func { all_reduce, all_gather, reduce_scatter, broadcast };

const char* name_of(Func func);

struct Communicator {
    uint64_t id = 0;
    std::string name;
    Algorithm algorithm = Algorithm::ring;
    std::vector<int> members;  // world rank of each rank
    std::vector<std::pair<int, int>> pairs;

    int size() const { return static_cast<int>(members.size()); }
    int rank_of(int world_rank) const;  // -1: no member
};

struct Instruction {
    // uneven: the GPU computes up to so long, another time on each rank and in each step; host: the main
    // thread is busy.
    enum class Kind { compute, uneven, host, coll, send, recv, all_to_all };
    Kind kind = Kind::compute;
    double milliseconds = 0;
    long every = 1;
    Func func = Func::all_reduce;
    int communicator = -1;
    int peer = -1;     // of send and recv; the root of a collective
    size_t count = 0;  // elements as the API call has them; of all_to_all: to each peer

    bool communicates() const { return communicator >= 0; }
    bool due(long step) const { return every == 1 || step % every == every - 1; }
};

struct Place {
    int host = 0;
    std::string address;
    int port = 0;
};

struct Plan {
    int channels = 2;
    size_t slot_bytes = 65536;
    Network network = Network::sockets;
    std::vector<Place> ranks;
    std::vector<Communicator> communicators;
    std::vector<std::vector<Instruction>> programmes;  // by world rank

    int host_of(const Communicator& communicator, int rank) const {
        return ranks.at(static_cast<size_t>(communicator.members.at(static_cast<size_t>(rank)))).host;
    }
};

// Throws std::runtime_error with the line that cannot be read.
Plan read_plan(std::istream& text);

}  // namespace mycroft::testbed
