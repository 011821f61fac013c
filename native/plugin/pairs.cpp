#include "pairs.h"

#include "process.h"

namespace mycroft {
namespace {

constexpr uint32_t kProbes = 32;
constexpr uint64_t kChanging = ~uint64_t{0};  // no key: the entry is being given to another pair

uint64_t key_of(uint32_t comm, uint32_t generation, int32_t peer, bool receive) {
    // Generations of communicators in use are even, and 0 would be an unused entry: count them from 1.
    return uint64_t{((generation >> 1) & 0x7fff) + 1} << 48 | uint64_t{comm & 0xfff} << 36 |
           uint64_t{receive ? 2U : 1U} << 32 | static_cast<uint32_t>(peer);
}

// Whether the entry's communicator has given its slot to another.
bool outdated(uint64_t key) {
    if (key == kChanging) return false;
    const uint32_t comm = static_cast<uint32_t>(key >> 36) & 0xfff;
    if (comm >= g.comm_count) return true;
    return ((g.comms[comm].generation.get() >> 1) & 0x7fff) + 1 != key >> 48;
}

}  // namespace

uint64_t number_pair(uint32_t comm, uint32_t comm_generation, int32_t peer, bool receive) {
    const uint64_t key = key_of(comm, comm_generation, peer, receive);
    const uint64_t hash = (key ^ key >> 29) * 0x9e3779b97f4a7c15ULL >> 20;
    Pair* spare = nullptr;
    for (uint32_t probe = 0; probe < kProbes; ++probe) {
        Pair& pair = g.pairs[(hash + probe) % g.pair_count];
        uint64_t held = pair.key.acquire();
        if (held == 0 && pair.key.swap(held, key)) held = key;
        if (held == key) return pair.count.add() + 1;
        if (spare == nullptr && outdated(held)) spare = &pair;
    }
    if (spare != nullptr) {
        uint64_t held = spare->key.acquire();
        if (outdated(held) && spare->key.swap(held, kChanging)) {
            spare->count.set(1);
            spare->key.release(key);
            return 1;
        }
    }
    count_drop(kDropPair);
    return 0;
}

}  // namespace mycroft
