// What may stand around the core: another profiler plugin behind it (chain.cpp), a recorder (record.cpp).
//
// Both are off unless set, and then cost one test of a flag a callback. They may lock and allocate.
#pragma once

#include <cstdint>

#include "abi.h"
#include "core.h"

namespace mycroft {

enum Hook : uint32_t { kHookNone = 0, kHookChain = 1, kHookRecord = 2 };

extern Cell<uint32_t> g_hooks;

inline bool hooked() {
    return __builtin_expect(g_hooks.get() != kHookNone, false);
}

}  // namespace mycroft
