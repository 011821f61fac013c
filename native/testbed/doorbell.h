// A word that sleepers watch, between threads and, in shared memory, between processes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace mycroft::testbed {

struct Doorbell {
    std::atomic<uint32_t> rings{0};
    std::atomic<uint32_t> sleepers{0};

    void ring() {
        rings.fetch_add(1);
        if (sleepers.load() != 0) syscall(SYS_futex, &rings, FUTEX_WAKE, 1, nullptr, nullptr, 0);
    }

    // Returns when it has rung since `seen` was read, or after the time-out.
    void wait(uint32_t seen, int milliseconds) {
        const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
        sleepers.fetch_add(1);
        if (rings.load() == seen) syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &limit, nullptr, 0);
        sleepers.fetch_sub(1);
    }
};

}  // namespace mycroft::testbed
