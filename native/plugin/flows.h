// Flows: one channel, peer and direction of an operation, from ProxyOp start to its last step.
#pragma once

#include <cstdint>

#include "abi.h"
#include "process.h"

namespace mycroft {

void* start_flow(uint64_t context, uint64_t parent, int rank, const abi::ProxyOp& facts);

void set_flow_state(uint64_t handle, int state);

void stop_flow(uint64_t handle);

// The last step has stopped, or the proxy has let go of it: one record, and the slot is free. Nothing happens
// if the slot has changed hands since it had this generation.
void finish_flow(Flow& flow, uint32_t generation, uint64_t now, uint32_t flags);

// The first step of a flow has started; its GPU has shown itself for the first time.
void flow_began(Flow& flow, uint64_t now);
void flow_moved(Flow& flow, uint64_t now);

}  // namespace mycroft
