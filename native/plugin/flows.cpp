#include "flows.h"

#include "clock.h"
#include "comms.h"
#include "names.h"
#include "operations.h"
#include "ring.h"

namespace mycroft {
namespace {

constexpr uint32_t kReclaimed = 64;  // flows looked at when the table is full
constexpr double kForgotten = 60e9;  // ns

// A stack: the slots used last come first, so that few cache lines serve many flows.
uint32_t pop_free() {
    uint64_t top = g.free_flows.acquire();
    for (;;) {
        const uint32_t slot = static_cast<uint32_t>(top) - 1;
        if (slot >= g.flow_count) return kNone;
        const uint64_t next = ((top >> 32) + 1) << 32 | g.flows[slot].next_free.get();
        if (g.free_flows.swap(top, next)) return slot;
    }
}

void push_free(uint32_t slot) {
    uint64_t top = g.free_flows.acquire();
    for (;;) {
        g.flows[slot].next_free.set(static_cast<uint32_t>(top));
        const uint64_t next = ((top >> 32) + 1) << 32 | (slot + 1);
        if (g.free_flows.swap(top, next)) return;
    }
}

// Takes a flow from whoever has its handle: its generation is odd from here on. False if it is another by
// now.
bool claim(Flow& flow, uint32_t generation) {
    return (generation & 1) == 0 && flow.generation.swap(generation, generation + 1);
}

// Of a flow that was claimed: what it did counts with the rest, and its slot is free.
void let_go(Flow& flow) {
    g.header->callbacks.add(flow.calls.get());
    flow.state.set(kFlowFree);
    push_free(static_cast<uint32_t>(&flow - g.flows));
}

// Proxies of CollNet and shared memory never stop, nor does any on abort: their slots come back once their
// operation has ended without them. What is read here may be of two flows: who claims the one finds out.
bool abandoned(const Flow& flow, uint64_t now) {
    const uint32_t slot = flow.op.get();
    if (slot < g.operation_count) {
        const Operation& operation = g.operations[slot];
        const uint64_t control = operation.control.acquire();
        if (control_generation(control) != flow.op_generation.get()) return true;
        return control_state(control) == kEnded;
    }
    // Nothing tells when one without an operation here has ended: long ago queued, and never a step.
    const uint64_t start = flow.start_tick.get();
    const double age = now > start ? static_cast<double>(now - start) * g.ns_per_tick : 0;
    if (flow.first_tick.get() == 0 && age > kForgotten) return true;
    const uint32_t comm = flow.comm.get();
    if (comm >= g.comm_count) return false;  // PXN: only its owner knows
    return g.comms[comm].generation.get() != flow.comm_generation.get() ||
           g.comms[comm].state.get() != kCommOpen;
}

void reclaim(Flow& flow, uint64_t now) {
    const uint32_t generation = flow.generation.acquire();
    if ((generation & 1) != 0 || !abandoned(flow, now)) return;
    const uint32_t operation = flow.op.get();
    const uint32_t operation_generation = flow.op_generation.get();
    if (!claim(flow, generation)) return;
    let_go(flow);
    abandon_flow(operation, operation_generation);
}

uint32_t take_slot() {
    const uint32_t slot = pop_free();
    if (slot != kNone) return slot;
    const uint64_t now = ticks();
    for (uint32_t i = 0; i < kReclaimed; ++i) reclaim(g.flows[g.reclaim_hand.add() % g.flow_count], now);
    return pop_free();
}

Flow* flow_of(uint64_t handle) {
    if (handle >> 40 != g.flow_head) return nullptr;
    const uint32_t slot = handle_slot(handle);
    if (slot >= g.flow_count) return nullptr;
    Flow& flow = g.flows[slot];
    return (flow.generation.acquire() & kGeneration24) == generation24(handle) ? &flow : nullptr;
}

// The flow's generation, state, direction, channel and state of its head as they lie in memory.
uint64_t first_word(const Flow& flow, uint32_t generation) {
    return uint64_t{flow.head_state.get()} << 56 | uint64_t{flow.channel.get()} << 48 |
           uint64_t{flow.direction.get()} << 40 | uint64_t{flow.state.get()} << 32 | generation;
}

void copy_owner(Flow& flow, const Operation* operation, uint32_t generation, uint32_t comm) {
    const bool known = operation != nullptr;
    flow.op.set(known ? static_cast<uint32_t>(operation - g.operations) : kNone);
    flow.op_generation.set(known ? generation : 0);
    flow.comm.set(comm);
    flow.comm_generation.set(comm != kNone ? g.comms[comm].generation.get() : 0);
    flow.seq.set(known ? operation->seq.acquire() : 0);
    flow.order.set(known ? operation->order.acquire() : 0);
    flow.launch_tick.set(known ? operation->launch_tick.acquire() : 0);
    flow.func.set(known ? operation->func.acquire() : 0);
}

}  // namespace

void* start_flow(uint64_t context, uint64_t parent, int rank, const abi::ProxyOp& facts) {
    g.header->callbacks.add();
    const uint32_t comm = communicator_of(context);
    const bool foreign =
        static_cast<uint32_t>(facts.pid) != g.pid || (context != 0 && handle_nonce(context) != g.nonce_tag);
    if (!foreign && comm == kNone) return refuse(kRefusedContext);
    if (comm != kNone && !foreign) follow_tier(comm);
    Operation* operation = foreign ? nullptr : operation_slot(parent);
    const uint32_t generation = generation24(parent);
    const uint32_t slot = take_slot();
    if (slot == kNone) return refuse(kDropFlow);
    if (operation != nullptr && !retain_flow(handle_slot(parent), generation)) operation = nullptr;

    // Ours from here to the release of its generation: odd while free, even in use.
    Flow& flow = g.flows[slot];
    const uint32_t next = flow.generation.get() + 1;
    flow.direction.set(facts.is_send != 0 ? 1 : 2);
    flow.channel.set(facts.channel);
    flow.head_state.set(kStepClosed);
    flow.head.set(0);
    flow.total.set(facts.steps > 0 ? static_cast<uint32_t>(facts.steps) : 0);
    for (Cell<uint32_t>& counter : flow.counters) counter.set(0);
    for (Cell<uint16_t>& step : flow.window) step.set(0);
    const uint64_t now = ticks();
    flow.since.set(now);
    for (Cell<uint64_t>& time : flow.time) time.set(0);
    flow.bytes.set(0);
    flow.no_credit.set(0);
    flow.calls.set(0);
    flow.parent.set(parent);
    flow.context.set(context);
    copy_owner(flow, operation, generation, foreign ? kNone : comm);
    if (operation != nullptr && !operation_is(*operation, generation)) {  // gone while its fields were read
        operation = nullptr;
        copy_owner(flow, operation, generation, comm);
    }
    flow.peer.set(facts.peer);
    flow.rank.set(rank);
    flow.owner_pid.set(static_cast<uint32_t>(facts.pid));
    flow.flags.set(foreign ? kFlowForeign : operation == nullptr ? kFlowUnowned : kNoFlag);
    flow.chunk.set(facts.chunk);
    flow.start_tick.set(now);
    flow.first_tick.set(0);
    flow.first_data_tick.set(0);
    flow.end_tick.set(0);
    flow.state.set(kFlowOpen);
    flow.generation.release(next);
    table(Table::kFlows).used.raise(slot + 1);
    return as_pointer(make_handle(kFlowHandle, g.nonce_tag, slot, next));
}

void set_flow_state(uint64_t handle, int state) {
    Flow* const flow = flow_of(handle);
    if (flow == nullptr) {
        count_drop(kRefusedHandle);
        return;
    }
    flow->calls.bump();
    if (state == abi::kOpInProgress) flow->flags.mark(kFlowInProgress);
}

void stop_flow(uint64_t handle) {
    Flow* const flow = flow_of(handle);
    if (flow == nullptr) {  // the usual case: its last step has finished it
        g.header->callbacks.add();
        return;
    }
    flow->calls.bump();
    const uint32_t generation = flow->generation.get();
    if ((generation & kGeneration24) != generation24(handle)) return;
    finish_flow(*flow, generation, ticks(), flow->total.get() != 0 ? kFlowCut : kNoFlag);
}

void finish_flow(Flow& flow, uint32_t generation, uint64_t now, uint32_t flags) {
    const uint32_t operation = flow.op.get();
    const uint32_t operation_generation = flow.op_generation.get();
    if (!claim(flow, generation)) return;
    flow.state.set(kFlowFinished);
    flow.end_tick.set(now);
    if (flags != 0) flow.flags.mark(flags);
    record(kRecordFlow, static_cast<uint32_t>(&flow - g.flows), &flow, first_word(flow, generation));
    let_go(flow);
    release_flow(operation, operation_generation, now);
}

void flow_began(Flow& flow, uint64_t now) {
    flow.first_tick.set(now);
    flow_stepped(flow.op.get(), flow.op_generation.get(), now);
}

void flow_moved(Flow& flow, uint64_t now) {
    operation_moved(flow.op.get(), flow.op_generation.get(), now);
}

}  // namespace mycroft
