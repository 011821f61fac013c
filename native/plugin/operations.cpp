#include "operations.h"

#include "calls.h"
#include "clock.h"
#include "comms.h"
#include "ending.h"
#include "names.h"
#include "pairs.h"
#include "slots.h"

namespace mycroft {
namespace {

constexpr uint32_t kSwept = 2;  // slots looked at at each launch for operations that a successor has ended
constexpr uint64_t kGpuWindowSlack = 1'000'000;  // ns

constexpr uint64_t control_of(uint32_t generation, uint8_t state) {
    return uint64_t{generation & kGeneration24} << 40 | uint64_t{state} << 32;
}

// A slot in state kWriting, null if all that were tried are busy.
Operation* take_slot(uint32_t& generation) {
    const uint32_t slot = find_slot(g.operation_hand, g.operation_count, [&](uint32_t at, From from) {
        Operation& operation = g.operations[at];
        if (endable(operation.control.acquire()) && !retire(operation) && from != From::kNobody)
            recycle(operation, from == From::kFresh);
        uint64_t control = operation.control.acquire();
        const uint8_t state = control_state(control);
        if (state != kFree && state != kEnded) return false;
        generation = (control_generation(control) + 1) & kGeneration24;
        return operation.control.swap(control, control_of(generation, kWriting));
    });
    return slot != kNone ? &g.operations[slot] : nullptr;
}

void sweep() {
    const uint32_t used = table(Table::kOperations).used.get();
    if (used == 0) return;
    for (uint32_t i = 0; i < kSwept; ++i) retire(g.operations[g.sweep_hand.add() % used]);
}

uint32_t stream_slot(uint64_t stream) {
    TableInfo& info = table(Table::kStreams);
    if (stream == 0) {
        info.used.raise(1);
        return 0;
    }
    for (uint32_t slot = 1; slot < g.stream_count; ++slot) {
        uint64_t held = g.streams[slot].stream.acquire();
        if (held == 0 && g.streams[slot].stream.swap(held, stream)) held = stream;
        if (held == stream) {
            info.used.raise(slot + 1);
            return slot;
        }
    }
    count_drop(kDropStream);
    return kNone;
}

void refresh_anchor(uint64_t now) {
    Anchor& anchor = g.header->anchor;
    if (now - anchor.ticks.get() < g.header->tick_hz) return;
    uint32_t version = anchor.version.acquire();
    if ((version & 1) != 0 || !anchor.version.swap(version, version + 1)) return;
    const Instant all = instant();
    anchor.ticks.set(all.ticks);
    anchor.monotonic_ns.set(all.monotonic_ns);
    anchor.wall_ns.set(all.wall_ns);
    anchor.version.release(version + 2);
}

// v3 says which communicator it is only here.
void learn_communicator(Communicator& comm, const OperationFacts& facts) {
    uint64_t unknown = 0;
    if (facts.comm_hash != 0 && comm.comm_id.get() == 0) {
        if (comm.comm_id.swap(unknown, facts.comm_hash))
            set_text(comm.name, sizeof comm.name, facts.comm_name);
    }
    if (facts.rank >= 0 && comm.rank.get() < 0) comm.rank.set(facts.rank);
}

// The position: what stays true whether or not a slot is to be had.
uint64_t count_launch(uint32_t slot, const OperationFacts& facts, uint8_t func, uint64_t order,
                      uint64_t now) {
    Communicator& comm = g.comms[slot];
    uint64_t seq = facts.number + 1;
    if (facts.p2p) {
        comm.launched[func_index(func)].add();
        seq = number_pair(slot, comm.generation.get(), facts.peer, func == kRecv);
    } else {
        comm.launched[func_index(func)].raise(seq);
    }
    comm.launches.add();
    comm.last_order.raise(order);
    comm.last_launch_tick.set(now);
    g.header->launches.add();
    g.header->last_launch_tick.set(now);
    return seq;
}

}  // namespace

void* start_operation(uint32_t comm, uint64_t parent, const OperationFacts& facts) {
    const uint64_t now = ticks();
    g.header->callbacks.add();
    refresh_anchor(now);
    learn_communicator(g.comms[comm], facts);
    const uint8_t func = code_of(kFuncNames, facts.func);
    const uint8_t datatype = code_of(kDatatypeNames, facts.datatype);
    const CallCopy call = copy_call(parent);
    const CallCopy group = facts.launch_group != 0 ? copy_call(facts.launch_group) : call;
    const uint64_t order = g.header->order.add() + 1;
    const uint64_t seq = count_launch(comm, facts, func, order, now);
    const uint64_t stream = facts.stream != 0 ? facts.stream : call.stream;
    const bool knows_stream = g.activations[comm].api.get() >= 5 && (call.kind != 0 || facts.stream != 0);
    const uint32_t place = knows_stream ? stream_slot(stream) : kNone;
    if (place != kNone) {
        g.streams[place].last_order.raise(order);
        g.streams[place].launches.add();
    }
    sweep();
    uint32_t generation = 0;
    Operation* const operation = take_slot(generation);
    if (operation == nullptr) return refuse(kDropOperation);

    const uint32_t slot = static_cast<uint32_t>(operation - g.operations);
    const uint64_t handle = make_handle(kOperationHandle, g.nonce_tag, slot, generation);
    const bool grouped = call.api() && call.explicit_group;
    // NCCL launches some collectives (AllGather, Broadcast) as so many bytes: their call says what the user
    // gave.
    const bool told = !facts.p2p && call.kind == kCallCollApi && call.func == func && call.datatype != 0;
    operation->handle.set(handle);
    operation->seq.set(seq);
    operation->order.set(order);
    operation->base.set(group.kind == kCallGroup ? group.group : order);
    operation->group.set(grouped ? call.group : 0);
    operation->stream.set(stream);
    operation->count.set(told ? call.count : facts.count);
    operation->comm.set(comm);
    operation->comm_generation.set(g.comms[comm].generation.get());
    operation->peer.set(facts.peer);
    operation->flags.set((facts.p2p ? kFlagP2p : 0) | (call.captured ? kFlagGraph : 0) |
                         (grouped ? kFlagGrouped : 0) | (facts.symmetric ? kFlagSymmetric : 0));
    operation->func.set(func);
    operation->datatype.set(told ? call.datatype : datatype);
    operation->algo.set(code_of(kAlgoNames, facts.algo));
    operation->proto.set(code_of(kProtoNames, facts.proto));
    operation->channels.set(facts.channels);
    operation->visibility.set(kLaunch);
    operation->end_reason.set(kNotEnded);
    operation->amended.set(0);
    operation->stream_slot.set(place);
    operation->kernels_expected.set(kernels_traced(comm) ? facts.channels : 0);
    operation->bytes.set(facts.count * datatype_size(datatype));
    operation->api_tick.set(call.api() ? call.entered : 0);
    operation->launch_tick.set(now);
    operation->enqueued_tick.set(0);
    operation->first_tick.set(0);
    operation->moved_tick.set(0);
    operation->last_tick.set(0);
    operation->end_tick.set(0);
    operation->kernel_start_ns.set(0);
    operation->kernel_end_ns.set(0);
    operation->kernel_start_tick.set(0);
    operation->kernel_end_tick.set(0);
    operation->kernels_started.set(0);
    operation->kernels_stopped.set(0);
    operation->flows_started.set(0);
    operation->flows_finished.set(0);
    operation->user_tag.set(facts.user_tag);
    operation->control.release(control_of(generation, kOpen));
    table(Table::kOperations).used.raise(slot + 1);
    return as_pointer(handle);
}

void stop_operation(uint64_t handle) {
    g.header->callbacks.add();
    Operation* const operation = operation_slot(handle);
    const uint32_t generation = generation24(handle);
    const uint64_t control = operation != nullptr ? operation->control.acquire() : 0;
    if (operation == nullptr || !control_is(control, generation) || (control & kEnqueuedBit) != 0) {
        count_drop(kRefusedHandle);
        return;
    }
    if (control_state(control) == kOpen) operation->enqueued_tick.set(ticks());
    mark_enqueued(*operation, generation);
}

bool retain_flow(uint32_t slot, uint32_t generation) {
    Operation& operation = g.operations[slot];
    if (!retain(operation, generation, kOneFlow)) return false;
    operation.flows_started.add();
    operation.visibility.raise(kFlows);
    return true;
}

void flow_stepped(uint32_t slot, uint32_t generation, uint64_t now) {
    if (slot >= g.operation_count) return;
    Operation& operation = g.operations[slot];
    const uint64_t control = operation.control.acquire();
    if (!control_is(control, generation)) return;
    uint64_t unset = 0;
    operation.first_tick.swap(unset, now);
    if ((control & kSteppedBit) != 0 && control_state(control) == kOpen) return;
    mark_stepped(operation, generation);
}

void release_flow(uint32_t slot, uint32_t generation, uint64_t now) {
    if (slot >= g.operation_count) return;
    Operation& operation = g.operations[slot];
    if (!operation_is(operation, generation) || control_flows(operation.control.get()) == 0) return;
    operation.flows_finished.add();
    operation.last_tick.raise(now);
    release(operation, generation, kOneFlow);
}

void abandon_flow(uint32_t slot, uint32_t generation) {
    if (slot >= g.operation_count) return;
    abandon(g.operations[slot], generation, kOneFlow);
}

void* start_kernel(uint64_t parent, uint8_t channel, uint64_t timer) {
    g.header->callbacks.add();
    Operation* const operation = operation_slot(parent);
    const uint32_t generation = generation24(parent);
    if (operation == nullptr) return refuse(kRefusedParent);
    const uint64_t bit = channel < 64 ? uint64_t{1} << channel : 0;
    if (bit == 0 || (operation->kernels_started.get() & bit) != 0) return refuse(kRefusedKernel);
    if (!retain(*operation, generation, kOneKernel)) return refuse(kRefusedParent);
    if ((operation->kernels_started.mark(bit) & bit) != 0) {  // on another thread, just now
        release(*operation, generation, kOneKernel);
        return refuse(kRefusedKernel);
    }
    operation->visibility.raise(kKernel);
    const uint64_t now = ticks();
    uint64_t unset = 0;
    operation->first_tick.swap(unset, now);
    unset = 0;
    operation->kernel_start_tick.swap(unset, now);
    unset = 0;
    if (timer != 0 && !operation->kernel_start_ns.swap(unset, timer)) operation->kernel_start_ns.lower(timer);
    operation_moved(handle_slot(parent), generation, now);
    return as_pointer(make_handle(kKernelHandle, g.nonce_tag, handle_slot(parent), generation, channel));
}

namespace {

// The operation of a kernel channel that is open, null if there is no such one.
Operation* open_kernel(uint64_t handle, uint64_t& bit, uint64_t& control) {
    if (!ours(handle, kKernelHandle) || handle_slot(handle) >= g.operation_count) return nullptr;
    Operation& operation = g.operations[handle_slot(handle)];
    control = operation.control.acquire();
    const uint32_t channel = handle_number(handle);
    const uint8_t state = control_state(control);
    if ((control_generation(control) & kGeneration16) != generation16(handle) || channel >= 64)
        return nullptr;
    if (state != kOpen && state != kEnded) return nullptr;
    bit = uint64_t{1} << channel;
    const bool open = (operation.kernels_started.get() & ~operation.kernels_stopped.get() & bit) != 0;
    return open ? &operation : nullptr;
}

}  // namespace

void set_kernel_stop(uint64_t handle, uint64_t timer) {
    g.header->callbacks.add();
    uint64_t bit = 0;
    uint64_t control = 0;
    Operation* const operation = open_kernel(handle, bit, control);
    if (operation == nullptr) {
        count_drop(kRefusedHandle);
        return;
    }
    // NCCL reads these times from a short ring: a late reader gets those of a later operation.
    const uint64_t start = operation->kernel_start_ns.get();
    const uint64_t from =
        operation->api_tick.get() != 0 ? operation->api_tick.get() : operation->launch_tick.get();
    const double window = static_cast<double>(ticks() - from) * g.ns_per_tick;
    if (start == 0 || timer <= start || static_cast<double>(timer - start) > window + kGpuWindowSlack) {
        count_drop(kRefusedKernel);
        return;
    }
    operation->kernel_end_ns.raise(timer);
}

void stop_kernel(uint64_t handle) {
    g.header->callbacks.add();
    uint64_t bit = 0;
    uint64_t control = 0;
    Operation* const operation = open_kernel(handle, bit, control);
    if (operation == nullptr || (operation->kernels_stopped.mark(bit) & bit) != 0) {
        count_drop(kRefusedHandle);
        return;
    }
    const uint64_t now = ticks();
    operation->kernel_end_tick.raise(now);
    operation->last_tick.raise(now);
    release(*operation, control_generation(control), kOneKernel);
}

void operation_moved(uint32_t slot, uint32_t generation, uint64_t now) {
    if (slot >= g.operation_count) return;
    Operation& operation = g.operations[slot];
    if (!operation_is(operation, generation) || operation.moved_tick.get() != 0) return;
    const uint64_t base = operation.base.acquire();
    const uint64_t order = operation.order.acquire();
    const uint32_t comm = operation.comm.acquire();
    const uint32_t stream = operation.stream_slot.acquire();
    if (!operation_is(operation, generation)) return;  // what was read may be another's
    uint64_t unset = 0;
    if (!operation.moved_tick.swap(unset, now)) return;
    if (comm < g.comm_count && base > g.comms[comm].moved_base.get()) {
        g.comms[comm].moved_base.raise(base);
        g.comms[comm].moved_tick.raise(now);
    }
    if (stream < g.stream_count && base > g.streams[stream].moved_base.get()) {
        g.streams[stream].moved_base.raise(base);
        g.streams[stream].moved_tick.raise(now);
    }
    g.header->moved_order.raise(order);
    g.header->moved_tick.raise(now);
}

bool close_operations(uint32_t comm, uint32_t comm_generation) {
    bool aborted = false;
    const uint32_t used = table(Table::kOperations).used.get();
    for (uint32_t slot = 0; slot < used && slot < g.operation_count; ++slot) {
        Operation& operation = g.operations[slot];
        for (int attempt = 0; attempt < 8; ++attempt) {
            const uint64_t control = operation.control.acquire();
            if (!endable(control) || operation.comm.get() != comm ||
                operation.comm_generation.get() != comm_generation) {
                break;
            }
            const bool unfinished = control_flows(control) != 0 || control_kernels(control) != 0;
            if (end_unseen(operation, control, unfinished ? kAborted : kFinalised)) {
                aborted = aborted || unfinished;
                break;
            }
        }
    }
    return aborted;
}

void set_outward_handle(uint64_t ours, uint64_t outward) {
    Operation* const operation = operation_slot(ours);
    if (operation != nullptr && operation_is(*operation, generation24(ours))) operation->handle.set(outward);
}

}  // namespace mycroft
