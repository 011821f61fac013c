#include "ring.h"

#include "process.h"

namespace mycroft {

void record(RecordKind kind, uint32_t slot, const void* body, uint64_t first_word) {
    const uint64_t number = g.header->ring_next.add();
    Record& place = g.ring[number % g.ring_count];
    const uint64_t writing = 2 * number + 1;
    uint64_t before = place.sequence.acquire();
    // Odd: another writer is still in this slot, a whole ring behind us, or ahead. One of us gives way.
    if ((before & 1) != 0 || before > writing || !place.sequence.swap(before, writing)) {
        count_drop(kDropRing);
        return;
    }
    release_fence();
    place.kind.set(kind);
    place.slot.set(slot);
    const Cell<uint64_t>* words = static_cast<const Cell<uint64_t>*>(body);
    place.body[0].set(first_word);
    for (int word = 1; word < 32; ++word) place.body[word].set(words[word].get());
    place.sequence.release(writing + 1);
}

}  // namespace mycroft
