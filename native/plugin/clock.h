// Ticks: the cheapest monotonic clock of the machine that all its cores share.
#pragma once

#include <cstdint>
#include <ctime>

#include "layout.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace mycroft {

inline int64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// Whether the time stamp counter runs at one rate in all power states.
inline ClockSource clock_source() {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1U << 8))) return kClockTsc;
    return kClockMonotonic;
#elif defined(__aarch64__)
    return kClockCntvct;
#else
    return kClockMonotonic;
#endif
}

extern bool g_cheap_clock;  // set once, before the first callback

inline uint64_t ticks() {
#if defined(__x86_64__)
    if (__builtin_expect(g_cheap_clock, true)) return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(g_cheap_clock, true)) {
        uint64_t value;
        asm volatile("mrs %0, cntvct_el0" : "=r"(value));
        return value;
    }
#endif
    return static_cast<uint64_t>(clock_ns(CLOCK_MONOTONIC));
}

// The same moment by three clocks.
struct Instant {
    uint64_t ticks;
    int64_t monotonic_ns;
    int64_t wall_ns;
};

// Now by all clocks. A thread that loses its core between two readings would tie moments together that are
// milliseconds apart: of some tries the quickest counts, and its ticks are those of its middle.
inline Instant instant() {
    constexpr int kTries = 4;
    Instant best{};
    uint64_t least = ~uint64_t{0};
    for (int i = 0; i < kTries; ++i) {
        const uint64_t before = ticks();
        const int64_t monotonic_ns = clock_ns(CLOCK_MONOTONIC);
        const int64_t wall_ns = clock_ns(CLOCK_REALTIME);
        const uint64_t took = ticks() - before;
        if (took >= least) continue;
        least = took;
        best = {before + took / 2, monotonic_ns, wall_ns};
    }
    return best;
}

}  // namespace mycroft
