#include "calls.h"

#include "clock.h"
#include "names.h"
#include "slots.h"

namespace mycroft {
namespace {

// A call may still be asked for as a parent after its stop, until its group has left.
bool reusable(const Call& call) {
    if (call.left.get() == 0) return false;
    const uint32_t parent = call.parent.get();
    if (parent >= g.call_count) return true;
    const Call& group = g.calls[parent];
    return group.generation.acquire() != call.parent_generation.get() || group.left.get() != 0;
}

// A slot that is ours to write (odd generation), kNone if none could be had. Of a full table calls give way
// that have stopped but whose group is open, then those that have not: after an error they never will.
uint32_t take_slot(uint32_t& generation) {
    return find_slot(g.call_hand, g.call_count, [&](uint32_t at, From from) {
        Call& call = g.calls[at];
        uint32_t now = call.generation.acquire();
        const bool unused = call.kind.get() == 0 || reusable(call);
        const bool waits = call.left.get() != 0;
        if ((now & 1) != 0 || !(unused || from == From::kFresh || (from == From::kWaiting && waits)))
            return false;
        if (!call.generation.swap(now, now + 1)) return false;
        if (!unused) count_drop(kDropCall);
        generation = now + 2;
        return true;
    });
}

}  // namespace

Call* call_of(uint64_t handle) {
    if (!ours(handle, kCallHandle) && !ours(handle, kLaunchHandle)) return nullptr;
    const uint32_t slot = handle_slot(handle);
    if (slot >= g.call_count) return nullptr;
    Call& call = g.calls[slot];
    return (call.generation.acquire() & kGeneration24) == generation24(handle) ? &call : nullptr;
}

CallCopy copy_call(uint64_t handle) {
    CallCopy copy;
    const Call* const call = call_of(handle);
    if (call == nullptr) return copy;
    copy.kind = call->kind.acquire();
    copy.func = call->func.acquire();
    copy.datatype = call->datatype.acquire();
    copy.captured = call->captured.acquire() != 0;
    copy.explicit_group = call->explicit_group.acquire() != 0;
    copy.group = call->group.acquire();
    copy.stream = call->stream.acquire();
    copy.count = call->count.acquire();
    copy.entered = call->entered.acquire();
    // A call that has left may give its slot to another at any time.
    return call_of(handle) != nullptr ? copy : CallCopy{};
}

void* start_call(uint32_t comm, uint64_t parent, const CallFacts& facts) {
    g.header->callbacks.add();
    uint32_t generation = 0;
    const uint32_t slot = take_slot(generation);
    Communicator& where = g.comms[comm];
    const uint8_t func = code_of(kFuncNames, facts.func);
    if (facts.kind == kCallCollApi || facts.kind == kCallP2pApi) {
        (facts.captured ? where.captured : where.called)[func < kFuncs - 1 ? func : kFuncs - 1].add();
    }
    if (slot == kNone) return refuse(kDropCall);
    Call& call = g.calls[slot];
    Call* const group = call_of(parent);
    uint64_t number = 0;
    if (facts.kind == kCallGroupApi) number = g.header->group_calls.add() + 1;
    if (facts.kind == kCallGroup) number = g.header->order.add() + 1;
    if (group != nullptr && group->kind.get() == kCallGroupApi) {
        number = group->group.get();
        group->func.set(func);
        group->count.bump();
    }
    call.comm.set(comm);
    call.kind.set(facts.kind);
    call.func.set(func);
    call.stage.set(kStageEntered);
    call.captured.set(facts.captured ? 1 : 0);
    call.explicit_group.set(group != nullptr ? group->explicit_group.get() : facts.depth > 1 ? 1 : 0);
    call.datatype.set(code_of(kDatatypeNames, facts.datatype));
    call.group.set(number);
    call.stream.set(facts.stream);
    call.count.set(facts.count);
    call.entered.set(ticks());
    call.left.set(0);
    call.parent.set(group != nullptr ? static_cast<uint32_t>(group - g.calls) : kNone);
    call.parent_generation.set(group != nullptr ? group->generation.get() : 0);
    call.generation.release(generation);
    table(Table::kCalls).used.raise(slot + 1);
    return as_pointer(make_handle(kCallHandle, g.nonce_tag, slot, generation));
}

void stop_call(uint64_t handle) {
    g.header->callbacks.add();
    Call* const call = call_of(handle);
    uint64_t open = 0;
    if (call == nullptr || !call->left.swap(open, ticks())) count_drop(kRefusedHandle);
}

void set_stage(uint64_t handle, CallStage stage) {
    g.header->callbacks.add();
    Call* const call = call_of(handle);
    if (call == nullptr) {
        count_drop(kRefusedHandle);
    } else if (call->left.get() == 0) {
        call->stage.set(stage);
    }
}

void* start_launch(uint64_t parent) {
    g.header->callbacks.add();
    Call* const call = call_of(parent);
    if (call == nullptr) return refuse(kRefusedParent);
    call->stage.set(kStageLaunching);
    return as_pointer(make_handle(kLaunchHandle, g.nonce_tag, handle_slot(parent), generation24(parent)));
}

void stop_launch(uint64_t handle) {
    g.header->callbacks.add();
    Call* const call = call_of(handle);
    if (call == nullptr || call->stage.get() != kStageLaunching) {
        count_drop(kRefusedHandle);
    } else {
        call->stage.set(kStageLaunched);
    }
}

}  // namespace mycroft
