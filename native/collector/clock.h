// Ticks of a traced process as times of this host.
#pragma once

#include <cstdint>

#include "layout.h"

namespace mycroft::collector {

// The same instant as ticks, on the monotonic clock and on the wall clock, and ticks per ns.
struct Clock {
    int64_t ticks;
    int64_t monotonic_ns;
    int64_t wall_ns;
    double rate;
};

// The clock that a header tells; false where it is being written or cannot be.
bool clock_of(const Header& header, Clock& clock);

// What the ticks were at that time, never negative.
int64_t ticks_at(const Clock& clock, int64_t monotonic_ns);

// What cannot be a tick is 0, "not known".
inline int64_t as_tick(uint64_t value) {
    return value < uint64_t{1} << 62 ? static_cast<int64_t>(value) : 0;
}

}  // namespace mycroft::collector
