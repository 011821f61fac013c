// Steps: the hot path. Some 190,000 of them a second pass through a proxy thread, five callbacks each.
//
// A flow has one writer, its proxy thread, so its counters are plain loads and stores. The clock is read only
// where the oldest open step changes what it waits for (head-of-line time), and where something happens for
// the first time. Nothing here can fail but by leaving things as they are.
#pragma once

#include <cstdint>

#include "abi.h"
#include "clock.h"
#include "flows.h"
#include "process.h"

namespace mycroft {

constexpr uint16_t kStepMask = 0x0f;
constexpr uint16_t kStepRepeated = 0x80;

inline Cell<uint16_t>& step_place(Flow& flow, uint32_t step) {
    return flow.window[step % kWindow];
}

inline bool is_step(uint16_t entry, uint32_t step) {
    return (entry & kStepMask) != kStepClosed && (entry >> 8) == (step & 0xff);
}

// The flow of a step's handle, null if it was not made by us or its slot has another flow by now.
inline Flow* flow_of_step(uint64_t handle) {
    if (__builtin_expect(handle >> 40 != g.step_head, false)) return nullptr;
    const uint32_t slot = handle_slot(handle);
    if (__builtin_expect(slot >= g.flow_count, false)) return nullptr;
    Flow& flow = g.flows[slot];
    if (__builtin_expect((flow.generation.get() & kGeneration16) != generation16(handle), false))
        return nullptr;
    return &flow;
}

// The head leaves `state`: what it spent there is added.
inline void pass_time(Flow& flow, uint8_t state, uint64_t now) {
    const uint64_t since = flow.since.get();
    if (now > since) flow.time[head_time(flow.direction.get(), state)].bump(now - since);
    flow.since.set(now);
}

// The oldest step after the head that is open becomes the head.
inline void advance_head(Flow& flow) {
    const uint32_t head = flow.head.get();
    for (uint32_t ahead = 1; ahead < kWindow; ++ahead) {
        const uint16_t entry = step_place(flow, head + ahead).get();
        if (!is_step(entry, head + ahead)) continue;
        flow.head.set(head + ahead);
        flow.head_state.set(entry & kStepMask);
        return;
    }
    flow.head_state.set(kStepClosed);
}

inline void* start_step(uint64_t parent, int number) {
    const uint32_t slot = handle_slot(parent);
    if (parent >> 40 != g.flow_head || slot >= g.flow_count) return refuse(kRefusedParent);
    Flow& flow = g.flows[slot];
    const uint32_t generation = flow.generation.get();
    if ((generation & kGeneration24) != generation24(parent)) return refuse(kRefusedParent);
    flow.calls.bump();
    const uint32_t step = static_cast<uint32_t>(number);
    Cell<uint16_t>& place = step_place(flow, step);
    const uint16_t entry = place.get();
    if ((entry & kStepMask) != kStepClosed) {
        if (!is_step(entry, step)) return refuse(kDropStep);
        place.set(entry | kStepRepeated);  // started again before irecv was accepted: the same step
    } else {
        place.set(static_cast<uint16_t>((step & 0xff) << 8 | kStepStarted));
        if (flow.head_state.get() == kStepClosed) {
            const uint64_t now = ticks();
            flow.head.set(step);
            flow.since.set(now);
            flow.head_state.set(kStepStarted);
            if (__builtin_expect(flow.first_tick.get() == 0, false)) flow_began(flow, now);
        }
    }
    return as_pointer(g.step_head << 40 | uint64_t{slot} << 24 | (generation & kGeneration16) << 8 |
                      (step & 0xff));
}

// Marks progress of one step to `target`, counting the states it may have skipped. Returns whether the first
// data of the flow have just appeared.
inline bool count_progress(Flow& flow, uint8_t from, uint8_t target) {
    bool first = false;
    if (flow.direction.get() == 1) {
        if (from < kSendCredit && target >= kSendCredit) {
            first = flow.counters[kReady].get() == 0;
            flow.counters[kReady].bump();
        }
        if (from < kSendNet && target >= kSendNet) flow.counters[kTransmitted].bump();
    } else {
        if (from < kRecvNet && target >= kRecvNet) flow.counters[kPosted].bump();
        if (from < kRecvFlush && target >= kRecvFlush) {
            first = flow.counters[kReceived].get() == 0;
            flow.counters[kReceived].bump();
        }
        if (from < kRecvGpu && target >= kRecvGpu) flow.counters[kFlushed].bump();
    }
    return first;
}

// Which state NCCL's state number means in this direction, kStepClosed if none.
inline uint8_t step_state(uint8_t direction, int state) {
    if (direction == 1) {
        if (state == abi::kStepSendPeerWait) return kSendCredit;
        if (state == abi::kStepSendWait) return kSendNet;
        return state == abi::kStepSendGpuWait ? kSendGpu : kStepClosed;
    }
    if (state == abi::kStepRecvWait) return kRecvNet;
    if (state == abi::kStepRecvFlushWait) return kRecvFlush;
    return state == abi::kStepRecvGpuWait ? kRecvGpu : kStepClosed;
}

// Whether leaving `from` for `target` is worth a clock read.
inline bool timed(uint8_t direction, uint16_t from, uint8_t target) {
    const uint8_t state = from & kStepMask;
    if (head_time(direction, state) == head_time(direction, target)) return false;
    // Credit, or a posted receive, had at the first attempt: no time passed there.
    const bool at_once =
        (state == kSendCredit && target == kSendNet) || (state == kStepStarted && target == kRecvNet);
    return !at_once || (from & kStepRepeated) != 0;
}

inline void set_step_state(uint64_t handle, int state, const abi::StateArgs* args) {
    Flow* const found = flow_of_step(handle);
    if (__builtin_expect(found == nullptr, false)) {
        count_drop(kRefusedHandle);
        return;
    }
    Flow& flow = *found;
    flow.calls.bump();
    const uint32_t step = handle_number(handle);
    Cell<uint16_t>& place = step_place(flow, step);
    const uint16_t entry = place.get();
    const uint8_t from = entry & kStepMask;
    const uint8_t direction = flow.direction.get();
    const uint8_t target = step_state(direction, state);
    if (target <= from || !is_step(entry, step)) {
        if (target == from && target == kSendCredit && is_step(entry, step)) {
            flow.no_credit.bump();
            if ((entry & kStepRepeated) == 0) place.set(entry | kStepRepeated);
        } else if (target != from || !is_step(entry, step)) {
            count_drop(kRefusedHandle);
        }
        return;
    }
    // The restart of a receive says nothing about later states, nor the repeats of one state about another.
    place.set(static_cast<uint16_t>((entry & 0xff00) | target));
    const bool first = count_progress(flow, from, target);
    if ((target == kSendNet || target == kRecvFlush) && args != nullptr)
        flow.bytes.bump(args->step.trans_size);
    const bool is_head = flow.head_state.get() != kStepClosed && (flow.head.get() & 0xff) == step;
    const bool counts = is_head && timed(direction, entry, target);
    if (counts || first) {
        const uint64_t now = ticks();
        if (counts) pass_time(flow, from, now);
        if (first) {
            flow.first_data_tick.set(now);
            if (direction == 1) flow_moved(flow, now);
        }
    }
    if (is_head) flow.head_state.set(target);
}

inline void stop_step(uint64_t handle) {
    Flow* const found = flow_of_step(handle);
    if (__builtin_expect(found == nullptr, false)) {
        count_drop(kRefusedHandle);
        return;
    }
    Flow& flow = *found;
    flow.calls.bump();
    const uint32_t step = handle_number(handle);
    Cell<uint16_t>& place = step_place(flow, step);
    const uint16_t entry = place.get();
    if (__builtin_expect(!is_step(entry, step), false)) {
        count_drop(kRefusedHandle);
        return;
    }
    const uint8_t from = entry & kStepMask;
    const uint8_t direction = flow.direction.get();
    place.set(entry & 0xff00);
    const bool first = count_progress(flow, from, direction == 1 ? kSendNet : kRecvGpu);
    Cell<uint32_t>& last = direction == 1 ? flow.counters[kDone] : flow.counters[kConsumed];
    last.bump();
    const uint32_t done = last.get();
    const bool is_head = flow.head_state.get() != kStepClosed && (flow.head.get() & 0xff) == step;
    const bool ends = done == flow.total.get();
    const bool moved = direction == 1 ? first : done == 1;
    if (!(is_head || first || moved || ends)) return;
    const uint64_t now = ticks();
    if (is_head) {
        pass_time(flow, from, now);
        advance_head(flow);
    }
    if (first) flow.first_data_tick.set(now);
    if (moved) flow_moved(flow, now);
    if (!ends) return;
    const uint32_t generation = flow.generation.get();
    if ((generation & kGeneration16) == generation16(handle)) finish_flow(flow, generation, now, 0);
}

}  // namespace mycroft
