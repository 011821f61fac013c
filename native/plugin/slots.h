// Finding a slot in a table whose slots come back in any order. A hand goes round over the part that is in
// use, which stays small while slots come back soon.
#pragma once

#include <cstdint>

#include "cell.h"
#include "layout.h"

namespace mycroft {

// The next slot to look at is next % window; the window grows up to the table's capacity.
struct Hand {
    Cell<uint64_t> next;
    Cell<uint32_t> window;
    Cell<uint32_t> barren;  // so many more slots are had without a search: the last one found nothing
};

// From whom a slot may be taken.
enum class From : uint8_t {
    kNobody,   // one that nobody needs
    kWaiting,  // or of one who only waits (for its GPU, its group)
    kFresh     // or even of one who has only just come
};

constexpr uint32_t kFew = 16;    // slots looked at before the window grows
constexpr uint32_t kMany = 256;  // and before a holder has to give way

// A slot for which take(slot, from) was true, kNone if there was none. Holders that wait lie side by side, so
// a row of busy slots does not make a full table: the window grows first, then a good part of the table is
// searched, and only then has a holder to give way.
template <class Take>
uint32_t find_slot(Hand& hand, uint32_t capacity, Take take) {
    const auto look = [&](uint32_t probes, uint32_t window, From from) {
        for (uint32_t i = 0; i < probes; ++i) {
            const auto slot = static_cast<uint32_t>(hand.next.add() % window);
            if (take(slot, from)) return slot;
        }
        return kNone;
    };
    for (;;) {
        uint32_t window = hand.window.get();
        const uint32_t found = look(kFew, window, From::kNobody);
        if (found != kNone) {
            if (hand.barren.get() != 0) hand.barren.set(0);
            return found;
        }
        if (window >= capacity) break;
        const uint32_t old = window;
        const uint32_t twice = window * 2 < capacity ? window * 2 : capacity;
        if (hand.window.swap(window, twice)) hand.next.set(old);
    }
    // Where nothing ever shows that an operation has ended the table stays full: once round, one slot each.
    uint32_t found = kNone;
    const uint32_t barren = hand.barren.get();
    if (barren == 0) found = look(kMany, capacity, From::kNobody);
    if (found == kNone) hand.barren.set(barren == 0 ? kMany : barren - 1);
    if (found == kNone) found = look(kFew, capacity, From::kWaiting);
    if (found == kNone) found = look(kFew, capacity, From::kFresh);
    return found;
}

}  // namespace mycroft
