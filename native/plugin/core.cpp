#include "core.h"

#include "clock.h"
#include "flows.h"
#include "identity.h"
#include "steps.h"

namespace mycroft {
namespace {

Communicator* comm_of_control(uint64_t handle) {
    const uint32_t slot = handle_slot(handle);
    if (slot >= g.comm_count) return nullptr;
    Communicator& comm = g.comms[slot];
    return (comm.generation.get() & kGeneration24) == generation24(handle) ? &comm : nullptr;
}

void set_control_state(uint64_t handle, int state, const abi::StateArgs* args) {
    Communicator* const comm = comm_of_control(handle);
    if (comm == nullptr) {
        count_drop(kRefusedHandle);
        return;
    }
    comm->proxy_calls.bump();
    if (state < abi::kCtrlIdle || state > abi::kCtrlAppendEnd) return;
    const uint32_t now = static_cast<uint32_t>(state);
    if (comm->proxy_state.get() != now) {
        comm->proxy_state.set(now);
        // Only what may last: the others follow one another in microseconds.
        if (state == abi::kCtrlSleep || state == abi::kCtrlIdle) comm->proxy_tick.set(ticks());
    }
    if (state == abi::kCtrlAppendEnd && args != nullptr && args->ctrl.appended > 0) {
        comm->proxy_appended.bump(static_cast<uint64_t>(args->ctrl.appended));
    }
}

}  // namespace

void core_open(void** context, int* mask, const CommFacts& facts, abi::Logger log, const void* caller) {
    if (context != nullptr) *context = nullptr;
    if (mask != nullptr) __atomic_store_n(mask, 0, __ATOMIC_RELAXED);
    if (!process_start(log)) return;
    CommFacts known = facts;
    known.nccl_version = nccl_version(caller);
    void* const opened = open_communicator(known, mask);
    if (context != nullptr) *context = opened;
}

void core_close(void* context) {
    if (on()) close_communicator(as_integer(context));
}

void* start_control(uint64_t context) {
    const uint32_t slot = communicator_of(context);
    if (slot == kNone) return refuse(kRefusedContext);
    follow_tier(slot);
    g.comms[slot].proxy_calls.bump();
    return as_pointer(make_handle(kControlHandle, g.nonce_tag, slot, generation24(context)));
}

void core_stop(void* pointer) {
    const uint64_t handle = as_integer(pointer);
    if (handle == 0 || !on()) return;
    if (__builtin_expect(handle >> 40 == g.step_head, true)) return stop_step(handle);
    if (handle_nonce(handle) != g.nonce_tag) return count_drop(kRefusedHandle);
    switch (handle_kind(handle)) {
        case kControlHandle: {
            Communicator* const comm = comm_of_control(handle);
            return comm != nullptr ? comm->proxy_calls.bump() : count_drop(kRefusedHandle);
        }
        case kFlowHandle:
            return stop_flow(handle);
        case kOperationHandle:
            return stop_operation(handle);
        case kKernelHandle:
            return stop_kernel(handle);
        case kCallHandle:
            return stop_call(handle);
        case kLaunchHandle:
            return stop_launch(handle);
        default:
            return count_drop(kRefusedHandle);
    }
}

void core_state(void* pointer, int state, const abi::StateArgs* args) {
    const uint64_t handle = as_integer(pointer);
    if (handle == 0 || !on()) return;
    if (__builtin_expect(handle >> 40 == g.step_head, true)) return set_step_state(handle, state, args);
    if (handle_nonce(handle) != g.nonce_tag) return count_drop(kRefusedHandle);
    switch (handle_kind(handle)) {
        case kControlHandle:
            return set_control_state(handle, state, args);
        case kFlowHandle:
            return set_flow_state(handle, state);
        case kKernelHandle:
            if (state == abi::kKernelChStop && args != nullptr) set_kernel_stop(handle, args->kernel.timer);
            return;
        case kCallHandle:
            if (state == abi::kGroupStartApiStop) set_stage(handle, kStageInGroup);
            if (state == abi::kGroupEndApiStart) set_stage(handle, kStageGroupEnd);
            return;
        case kOperationHandle:
        case kLaunchHandle:
            return;
        default:
            return count_drop(kRefusedHandle);
    }
}

}  // namespace mycroft
