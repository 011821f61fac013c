// What a plugin built with MYCROFT_SHAKE calls before it reads or writes shared words: on a machine with few
// cores threads hardly ever meet between two of them otherwise.
#include <sched.h>
#include <time.h>

#include <cstdint>

#include "cell.h"

namespace mycroft {

void shake() {
    static uint64_t seeds = 0;
    static thread_local uint64_t state = 0;
    if (state == 0) state = (__atomic_add_fetch(&seeds, 1, __ATOMIC_RELAXED)) * 0x9e3779b97f4a7c15ULL;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const uint64_t dice = (state * 0x2545f4914f6cdd1dULL) >> 48;
    if (dice < 16) {
        const timespec time{0, 50'000};
        nanosleep(&time, nullptr);
    } else if (dice < 512) {
        sched_yield();
    }
}

}  // namespace mycroft
