// Operations from launch to end (layout.h, "Life of an operation").
#pragma once

#include <cstdint>

#include "process.h"

namespace mycroft {

// Of schemas.enums.Flag.
constexpr uint32_t kFlagP2p = 4;
constexpr uint32_t kFlagGraph = 8;
constexpr uint32_t kFlagGrouped = 16;
constexpr uint32_t kFlagSymmetric = 32;

constexpr int func_index(uint8_t func) {
    return func < kFuncs - 1 ? func : kFuncs - 1;
}

struct OperationFacts {
    uint64_t number;  // collectives: NCCL's seqNumber
    const char* func;
    const char* datatype;
    const char* algo = nullptr;
    const char* proto = nullptr;
    uint64_t count;
    int32_t peer;  // root or peer
    uint8_t channels = 0;
    bool p2p = false;
    bool symmetric = false;
    int rank = -1;
    uint64_t stream = 0;        // where the descriptor has one
    uint64_t launch_group = 0;  // handle of its Group
    uint64_t user_tag = 0;
    uint64_t comm_hash = 0;  // v3
    const char* comm_name = nullptr;
};

void* start_operation(uint32_t comm, uint64_t parent, const OperationFacts& facts);

// "Enqueued", not done.
void stop_operation(uint64_t handle);

// A flow of it has started: false if the operation is gone. Then its first step, and one of the other two: it
// has finished, or its slot was taken back without anybody knowing.
bool retain_flow(uint32_t slot, uint32_t generation);
void flow_stepped(uint32_t slot, uint32_t generation, uint64_t now);
void release_flow(uint32_t slot, uint32_t generation, uint64_t now);
void abandon_flow(uint32_t slot, uint32_t generation);

void* start_kernel(uint64_t parent, uint8_t channel, uint64_t timer);
void set_kernel_stop(uint64_t handle, uint64_t timer);
void stop_kernel(uint64_t handle);

// Its GPU has shown that it runs this operation: all earlier ones of the stream and communicator have ended.
void operation_moved(uint32_t slot, uint32_t generation, uint64_t now);

// The communicator is finalised: nothing of it may look open. True if work was visibly unfinished.
bool close_operations(uint32_t comm, uint32_t comm_generation);

// What a chained plugin or NCCL holds instead of our own handle, for PXN's sake.
void set_outward_handle(uint64_t ours, uint64_t outward);

constexpr uint32_t control_generation(uint64_t control) {
    return static_cast<uint32_t>(control >> 40);
}
constexpr uint8_t control_state(uint64_t control) {
    return static_cast<uint8_t>(control >> 32) & kStateMask;
}
constexpr uint32_t control_flows(uint64_t control) {
    return static_cast<uint32_t>(control >> 16) & 0xffff;
}
constexpr uint32_t control_kernels(uint64_t control) {
    return static_cast<uint32_t>(control) & 0xff;
}
constexpr uint64_t kEnqueuedBit = uint64_t{kEnqueued} << 32;
constexpr uint64_t kSteppedBit = uint64_t{kStepped} << 8;
constexpr uint64_t kEndingBit = uint64_t{kEnding} << 8;
constexpr uint64_t kTouchedBit = uint64_t{kTouched} << 8;
constexpr uint64_t kOneFlow = uint64_t{1} << 16;
constexpr uint64_t kOneKernel = 1;

// The operation of the handle, null if the slot cannot be; the generation is checked by what is done with it.
inline Operation* operation_slot(uint64_t handle) {
    if (!ours(handle, kOperationHandle)) return nullptr;
    const uint32_t slot = handle_slot(handle);
    return slot < g.operation_count ? &g.operations[slot] : nullptr;
}

constexpr bool control_is(uint64_t control, uint32_t generation) {
    const uint8_t state = control_state(control);
    return control_generation(control) == generation && (state == kOpen || state == kEnded);
}

inline bool operation_is(const Operation& operation, uint32_t generation) {
    return control_is(operation.control.acquire(), generation);
}

}  // namespace mycroft
