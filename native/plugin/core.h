// The one core behind all versions of the interface; events.h leads there from each version's descriptor.
#pragma once

#include <cstdint>

#include "abi.h"
#include "calls.h"
#include "comms.h"
#include "operations.h"
#include "process.h"

namespace mycroft {

void core_open(void** context, int* mask, const CommFacts& facts, abi::Logger log, const void* caller);
void core_close(void* context);

void* start_control(uint64_t context);  // ProxyCtrl

void core_stop(void* handle);
void core_state(void* handle, int state, const abi::StateArgs* args);

}  // namespace mycroft
