// API calls and launch groups: where the host is, and what an operation inherits from its call.
#pragma once

#include <cstdint>

#include "process.h"

namespace mycroft {

struct CallFacts {
    CallKind kind;
    const char* func = nullptr;
    const char* datatype = nullptr;
    uint64_t stream = 0;
    uint64_t count = 0;
    bool captured = false;
    int depth = 0;  // GroupApi: 1 for a call of its own, more inside the caller's group
};

void* start_call(uint32_t comm, uint64_t parent, const CallFacts& facts);
void stop_call(uint64_t handle);
void set_stage(uint64_t handle, CallStage stage);

// KernelLaunch: a stage of its GroupApi.
void* start_launch(uint64_t parent);
void stop_launch(uint64_t handle);

// What an operation takes over from its call, read in one piece; all zero where there is none.
struct CallCopy {
    uint8_t kind = 0;  // CallKind
    uint8_t func = 0;
    uint8_t datatype = 0;
    bool captured = false;
    bool explicit_group = false;
    uint64_t group = 0;
    uint64_t stream = 0;
    uint64_t count = 0;
    uint64_t entered = 0;

    bool api() const { return kind != 0 && kind != kCallGroup; }
};
CallCopy copy_call(uint64_t handle);

// The call that the handle stands for, null if it is not ours or its slot was handed out again.
Call* call_of(uint64_t handle);

}  // namespace mycroft
