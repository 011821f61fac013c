#include "ending.h"

#include "ring.h"

namespace mycroft {
namespace {

constexpr uint64_t with_state(uint64_t control, OperationState state) {
    return (control & ~(uint64_t{kStateMask} << 32)) | uint64_t{state} << 32;
}

bool is_p2p(const Operation& operation) {
    return (operation.flags.get() & kFlagP2p) != 0;
}

// Whether an operation with this control, were it open, has shown all that it will show.
bool complete(const Operation& operation, uint64_t control) {
    if (control_state(control) != kOpen || (control & kEnqueuedBit) == 0) return false;
    if (control_flows(control) != 0 || control_kernels(control) != 0) return false;
    const uint32_t expected = operation.kernels_expected.get();
    if (expected == 0) return operation.flows_started.get() != 0 || operation.kernels_started.get() != 0;
    return static_cast<uint32_t>(__builtin_popcountll(operation.kernels_stopped.get())) >= expected;
}

EndReason seen_reason(const Operation& operation) {
    return operation.kernels_expected.get() != 0 || operation.flows_started.get() == 0 ? kByKernels
                                                                                       : kByFlows;
}

void count_end(Operation& operation) {
    const uint32_t slot = operation.comm.get();
    if (slot >= g.comm_count) return;
    Communicator& comm = g.comms[slot];
    if (comm.generation.acquire() != operation.comm_generation.get()) return;  // finalised, and another's now
    comm.ended_count.add();
    Cell<uint64_t>& ended = comm.ended[func_index(operation.func.get())];
    is_p2p(operation) ? static_cast<void>(ended.add()) : ended.raise(operation.seq.get());
}

// The end's fields, and the one record of it.
void write_end(Operation& operation, EndReason reason) {
    const bool seen = reason == kByFlows || reason == kByKernels;
    const uint8_t before = operation.end_reason.get();
    operation.end_reason.set(reason);
    operation.end_tick.set(seen ? operation.last_tick.get() : 0);
    if (before != kNotEnded) {
        operation.amended.set(1);
        count_drop(kAmended);
    }
    if (seen && before != kByFlows && before != kByKernels) count_end(operation);
    const uint64_t control = operation.control.acquire() & ~(kEndingBit | kTouchedBit);
    record(kRecordOperation, static_cast<uint32_t>(&operation - g.operations), &operation,
           with_state(control, kEnded));
}

// The caller has just set kEnding.
void conclude(Operation& operation, EndReason reason) {
    for (;;) {
        write_end(operation, reason);
        uint64_t control = operation.control.acquire();
        bool again = false;
        uint64_t next = 0;
        do {
            const bool touched = (control & kTouchedBit) != 0;
            next = control & ~(kEndingBit | kTouchedBit);
            again = touched && complete(operation, next);
            if (again) next |= kEndingBit;
            if (!touched) next = with_state(next, kEnded);
        } while (!operation.control.swap(control, next));
        if (!again) return;
        reason = seen_reason(operation);
    }
}

// Changes control to what `next` makes of it, unless that is the same; ends the operation if it then has
// nothing to wait for. `next` is asked about operations of this generation only, open or ended.
template <class Next>
bool change(Operation& operation, uint32_t generation, Next next) {
    uint64_t control = operation.control.acquire();
    for (;;) {
        if (!control_is(control, generation)) return false;
        uint64_t changed = next(control);
        if (changed == control) return false;
        const bool ending = (control & kEndingBit) != 0;
        const bool ends = !ending && complete(operation, changed);
        if (ends) changed |= kEndingBit;
        if (!operation.control.swap(control, changed)) continue;
        if (ends) conclude(operation, seen_reason(operation));
        return true;
    }
}

// More of it has shown up: it is open, ended or not, and an end that is just being written is not the last
// word.
constexpr uint64_t reopened(uint64_t control) {
    return with_state(control, kOpen) | ((control & kEndingBit) != 0 ? kTouchedBit : 0);
}

constexpr bool has(uint64_t control, uint64_t child) {
    return (child == kOneFlow ? control_flows(control) : control_kernels(control)) != 0;
}

// A launch further on in its stream or communicator has been moved by the GPU.
bool overtaken(const Operation& operation) {
    const uint64_t order = operation.order.get();
    const uint32_t stream = operation.stream_slot.get();
    const uint32_t comm = operation.comm.get();
    if (stream < g.stream_count && g.streams[stream].moved_base.get() > order) return true;
    return comm < g.comm_count && g.comms[comm].generation.get() == operation.comm_generation.get() &&
           g.comms[comm].moved_base.get() > order;
}

// Nothing that it showed is under way: flows that never had a step (CollNet, SHM) do not count.
bool inert(uint64_t control) {
    return control_kernels(control) == 0 && (control_flows(control) == 0 || (control & kSteppedBit) == 0);
}

}  // namespace

bool retain(Operation& operation, uint32_t generation, uint64_t child) {
    return change(operation, generation, [child](uint64_t control) {
        const bool full = control_flows(control) == 0xffff || control_kernels(control) == 0xff;
        return full ? control : reopened(control + child);
    });
}

void release(Operation& operation, uint32_t generation, uint64_t child) {
    change(operation, generation,
           [child](uint64_t control) { return has(control, child) ? reopened(control - child) : control; });
}

void abandon(Operation& operation, uint32_t generation, uint64_t child) {
    change(operation, generation,
           [child](uint64_t control) { return has(control, child) ? control - child : control; });
}

void mark_stepped(Operation& operation, uint32_t generation) {
    change(operation, generation, [](uint64_t control) {
        return has(control, kOneFlow) ? reopened(control) | kSteppedBit : control;
    });
}

void mark_enqueued(Operation& operation, uint32_t generation) {
    change(operation, generation, [](uint64_t control) { return control | kEnqueuedBit; });
}

bool end_unseen(Operation& operation, uint64_t control, EndReason reason) {
    if (control_flows(control) == 0 && operation.flows_started.get() != 0) reason = kByFlows;  // kernels lost
    if (!operation.control.swap(control, control | kEndingBit)) return false;
    conclude(operation, reason);
    return true;
}

bool retire(Operation& operation) {
    const uint64_t control = operation.control.acquire();
    if (!endable(control) || (control & kEnqueuedBit) == 0) return false;
    return inert(control) && overtaken(operation) && end_unseen(operation, control, kBySuccessor);
}

bool recycle(Operation& operation, bool launching) {
    const uint64_t control = operation.control.acquire();
    if (!launching && (control & kEnqueuedBit) == 0) return false;
    return endable(control) && inert(control) && control_flows(control) == 0 &&
           end_unseen(operation, control, kRecycled);
}

}  // namespace mycroft
