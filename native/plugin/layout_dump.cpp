// Prints layout.h as JSON: what a reader in another language is checked against.
//   {"version", "constants": {name: value}, "structs": {name: {"size", "fields": {name: [offset, size]}}},
//    "enums": {name: {member: value}}, "names": {vocabulary: {NCCL's name: code}},
//    "kernel_rules": [{"from", "to", "allowed", "reason"}]}
#include <cstdio>

#include "layout.h"
#include "names.h"
#include "versions.h"

using namespace mycroft;

namespace {

const char* comma = "";

void open_struct(const char* name, size_t size) {
    std::printf("%s\n  \"%s\": {\"size\": %zu, \"fields\": {", comma, name, size);
    comma = "";
}

void field(const char* name, size_t offset, size_t size) {
    std::printf("%s\"%s\": [%zu, %zu]", comma, name, offset, size);
    comma = ", ";
}

void close_struct() {
    std::printf("}}");
    comma = ",";
}

void value(const char* name, unsigned long long number) {
    std::printf("%s\"%s\": %llu", comma, name, number);
    comma = ", ";
}

template <int N>
void vocabulary(const char* name, const Name (&names)[N]) {
    std::printf("%s\n  \"%s\": {", comma, name);
    comma = "";
    for (const Name& known : names) value(known.name, known.code);
    std::printf("}");
    comma = ",";
}

void open_group(const char* name) {
    std::printf("%s\n  \"%s\": {", comma, name);
    comma = "";
}

void close_group() {
    std::printf("}");
    comma = ",";
}

}  // namespace

#define FIELD(type, name) field(#name, offsetof(type, name), sizeof(type::name))
#define VALUE(name) value(#name, static_cast<unsigned long long>(name))

int main() {
    std::printf("{\"version\": %u, \"constants\": {", kLayoutVersion);
    VALUE(kMagic);
    VALUE(kLayoutVersion);
    VALUE(kHeaderBytes);
    VALUE(kNone);
    VALUE(kFuncs);
    VALUE(kWindow);
    VALUE(kDropKinds);
    std::printf("},\n \"structs\": {");
    comma = "";

    open_struct("TableInfo", sizeof(TableInfo));
    FIELD(TableInfo, offset);
    FIELD(TableInfo, stride);
    FIELD(TableInfo, capacity);
    FIELD(TableInfo, used);
    close_struct();

    open_struct("Anchor", sizeof(Anchor));
    FIELD(Anchor, version);
    FIELD(Anchor, ticks);
    FIELD(Anchor, monotonic_ns);
    FIELD(Anchor, wall_ns);
    close_struct();

    open_struct("Header", sizeof(Header));
    FIELD(Header, magic);
    FIELD(Header, layout_version);
    FIELD(Header, header_bytes);
    FIELD(Header, file_bytes);
    FIELD(Header, nonce);
    FIELD(Header, nonce_tag);
    FIELD(Header, pid);
    FIELD(Header, start_ticks);
    FIELD(Header, pid_namespace);
    FIELD(Header, boot_id);
    FIELD(Header, uid);
    FIELD(Header, plugin_version);
    FIELD(Header, clock_source);
    FIELD(Header, nccl_version);
    FIELD(Header, tick_hz);
    FIELD(Header, start_anchor);
    FIELD(Header, anchor);
    FIELD(Header, tables);
    FIELD(Header, requested_tier);
    FIELD(Header, applied_tier);
    FIELD(Header, kernel_allowed);
    FIELD(Header, state);
    FIELD(Header, off_reason);
    FIELD(Header, chained);
    FIELD(Header, order);
    FIELD(Header, launches);
    FIELD(Header, last_launch_tick);
    FIELD(Header, group_calls);
    FIELD(Header, moved_order);
    FIELD(Header, moved_tick);
    FIELD(Header, ring_next);
    FIELD(Header, callbacks);
    FIELD(Header, drops);
    FIELD(Header, environment);
    FIELD(Header, job);
    close_struct();

    open_struct("Communicator", sizeof(Communicator));
    FIELD(Communicator, generation);
    FIELD(Communicator, state);
    FIELD(Communicator, comm_id);
    FIELD(Communicator, context);
    FIELD(Communicator, nranks);
    FIELD(Communicator, nnodes);
    FIELD(Communicator, rank);
    FIELD(Communicator, api);
    FIELD(Communicator, opened_tick);
    FIELD(Communicator, closed_tick);
    FIELD(Communicator, name);
    FIELD(Communicator, device);
    FIELD(Communicator, bus_id);
    FIELD(Communicator, uuid);
    FIELD(Communicator, nccl_version);
    FIELD(Communicator, kernel_tier);
    FIELD(Communicator, last_order);
    FIELD(Communicator, moved_base);
    FIELD(Communicator, moved_tick);
    FIELD(Communicator, launches);
    FIELD(Communicator, ended_count);
    FIELD(Communicator, last_launch_tick);
    FIELD(Communicator, launched);
    FIELD(Communicator, ended);
    FIELD(Communicator, called);
    FIELD(Communicator, captured);
    FIELD(Communicator, proxy_calls);
    FIELD(Communicator, proxy_tick);
    FIELD(Communicator, proxy_state);
    FIELD(Communicator, proxy_appended);
    close_struct();

    open_struct("Stream", sizeof(Stream));
    FIELD(Stream, stream);
    FIELD(Stream, last_order);
    FIELD(Stream, moved_base);
    FIELD(Stream, moved_tick);
    FIELD(Stream, launches);
    close_struct();

    open_struct("Call", sizeof(Call));
    FIELD(Call, generation);
    FIELD(Call, comm);
    FIELD(Call, kind);
    FIELD(Call, func);
    FIELD(Call, stage);
    FIELD(Call, captured);
    FIELD(Call, explicit_group);
    FIELD(Call, datatype);
    FIELD(Call, group);
    FIELD(Call, stream);
    FIELD(Call, count);
    FIELD(Call, entered);
    FIELD(Call, left);
    FIELD(Call, parent);
    FIELD(Call, parent_generation);
    close_struct();

    open_struct("Operation", sizeof(Operation));
    FIELD(Operation, control);
    FIELD(Operation, handle);
    FIELD(Operation, seq);
    FIELD(Operation, order);
    FIELD(Operation, base);
    FIELD(Operation, group);
    FIELD(Operation, stream);
    FIELD(Operation, count);
    FIELD(Operation, comm);
    FIELD(Operation, comm_generation);
    FIELD(Operation, peer);
    FIELD(Operation, flags);
    FIELD(Operation, func);
    FIELD(Operation, datatype);
    FIELD(Operation, algo);
    FIELD(Operation, proto);
    FIELD(Operation, channels);
    FIELD(Operation, visibility);
    FIELD(Operation, end_reason);
    FIELD(Operation, amended);
    FIELD(Operation, stream_slot);
    FIELD(Operation, kernels_expected);
    FIELD(Operation, bytes);
    FIELD(Operation, api_tick);
    FIELD(Operation, launch_tick);
    FIELD(Operation, enqueued_tick);
    FIELD(Operation, first_tick);
    FIELD(Operation, moved_tick);
    FIELD(Operation, last_tick);
    FIELD(Operation, end_tick);
    FIELD(Operation, kernel_start_ns);
    FIELD(Operation, kernel_end_ns);
    FIELD(Operation, kernel_start_tick);
    FIELD(Operation, kernel_end_tick);
    FIELD(Operation, kernels_started);
    FIELD(Operation, kernels_stopped);
    FIELD(Operation, flows_started);
    FIELD(Operation, flows_finished);
    FIELD(Operation, user_tag);
    close_struct();

    open_struct("Flow", sizeof(Flow));
    FIELD(Flow, generation);
    FIELD(Flow, state);
    FIELD(Flow, direction);
    FIELD(Flow, channel);
    FIELD(Flow, head_state);
    FIELD(Flow, head);
    FIELD(Flow, total);
    FIELD(Flow, counters);
    FIELD(Flow, window);
    FIELD(Flow, since);
    FIELD(Flow, time);
    FIELD(Flow, bytes);
    FIELD(Flow, no_credit);
    FIELD(Flow, calls);
    FIELD(Flow, parent);
    FIELD(Flow, context);
    FIELD(Flow, op);
    FIELD(Flow, op_generation);
    FIELD(Flow, comm);
    FIELD(Flow, comm_generation);
    FIELD(Flow, peer);
    FIELD(Flow, rank);
    FIELD(Flow, owner_pid);
    FIELD(Flow, flags);
    FIELD(Flow, chunk);
    FIELD(Flow, seq);
    FIELD(Flow, order);
    FIELD(Flow, launch_tick);
    FIELD(Flow, start_tick);
    FIELD(Flow, first_tick);
    FIELD(Flow, first_data_tick);
    FIELD(Flow, end_tick);
    FIELD(Flow, func);
    close_struct();

    open_struct("Pair", sizeof(Pair));
    FIELD(Pair, key);
    FIELD(Pair, count);
    close_struct();

    open_struct("Record", sizeof(Record));
    FIELD(Record, sequence);
    FIELD(Record, kind);
    FIELD(Record, slot);
    FIELD(Record, body);
    close_struct();

    std::printf("},\n \"enums\": {");
    comma = "";
    open_group("State");
    VALUE(kStarting);
    VALUE(kOn);
    VALUE(kOff);
    close_group();
    open_group("OffReason");
    VALUE(kNotOff);
    VALUE(kOffTruncated);
    VALUE(kOffForked);
    close_group();
    open_group("Tier");
    VALUE(kTierOps);
    VALUE(kTierFlows);
    VALUE(kTierKernel);
    VALUE(kTierIdle);
    close_group();
    open_group("ClockSource");
    VALUE(kClockMonotonic);
    VALUE(kClockTsc);
    VALUE(kClockCntvct);
    close_group();
    open_group("Table");
    VALUE(Table::kCommunicators);
    VALUE(Table::kStreams);
    VALUE(Table::kCalls);
    VALUE(Table::kOperations);
    VALUE(Table::kFlows);
    VALUE(Table::kPairs);
    VALUE(Table::kRing);
    close_group();
    open_group("Drop");
    VALUE(kDropCommunicator);
    VALUE(kDropCall);
    VALUE(kDropOperation);
    VALUE(kDropFlow);
    VALUE(kDropRing);
    VALUE(kDropPair);
    VALUE(kDropStream);
    VALUE(kDropStep);
    VALUE(kRefusedContext);
    VALUE(kRefusedHandle);
    VALUE(kRefusedParent);
    VALUE(kRefusedKernel);
    VALUE(kAmended);
    close_group();
    open_group("CommunicatorState");
    VALUE(kCommFree);
    VALUE(kCommOpen);
    VALUE(kCommFinalised);
    VALUE(kCommAborted);
    close_group();
    open_group("CallKind");
    VALUE(kCallGroupApi);
    VALUE(kCallCollApi);
    VALUE(kCallP2pApi);
    VALUE(kCallGroup);
    close_group();
    open_group("CallStage");
    VALUE(kStageEntered);
    VALUE(kStageInGroup);
    VALUE(kStageGroupEnd);
    VALUE(kStageLaunching);
    VALUE(kStageLaunched);
    close_group();
    open_group("OperationState");
    VALUE(kFree);
    VALUE(kWriting);
    VALUE(kOpen);
    VALUE(kEnded);
    VALUE(kStateMask);
    VALUE(kEnqueued);
    close_group();
    open_group("OperationMark");
    VALUE(kStepped);
    VALUE(kEnding);
    VALUE(kTouched);
    close_group();
    open_group("EndReason");
    VALUE(kNotEnded);
    VALUE(kByFlows);
    VALUE(kByKernels);
    VALUE(kBySuccessor);
    VALUE(kRecycled);
    VALUE(kFinalised);
    VALUE(kAborted);
    close_group();
    open_group("FlowState");
    VALUE(kFlowFree);
    VALUE(kFlowOpen);
    VALUE(kFlowFinished);
    close_group();
    open_group("FlowFlag");
    VALUE(kFlowForeign);
    VALUE(kFlowInProgress);
    VALUE(kFlowUnowned);
    VALUE(kFlowCut);
    close_group();
    open_group("StepState");
    VALUE(kStepClosed);
    VALUE(kStepStarted);
    VALUE(kSendGpu);
    VALUE(kSendCredit);
    VALUE(kSendNet);
    VALUE(kRecvNet);
    VALUE(kRecvFlush);
    VALUE(kRecvGpu);
    close_group();
    open_group("SendCounter");
    VALUE(kReady);
    VALUE(kTransmitted);
    VALUE(kDone);
    close_group();
    open_group("RecvCounter");
    VALUE(kPosted);
    VALUE(kReceived);
    VALUE(kFlushed);
    VALUE(kConsumed);
    close_group();
    open_group("HeadTime");
    VALUE(kTimeGpu);
    VALUE(kTimeCredit);
    VALUE(kTimeNet);
    VALUE(kTimeFlush);
    close_group();
    open_group("RecordKind");
    VALUE(kRecordOperation);
    VALUE(kRecordFlow);
    close_group();
    std::printf("},\n \"names\": {");
    comma = "";
    vocabulary("func", kFuncNames);
    vocabulary("datatype", kDatatypeNames);
    vocabulary("algo", kAlgoNames);
    vocabulary("proto", kProtoNames);
    std::printf("},\n \"kernel_rules\": [");
    comma = "";
    for (const KernelRule& rule : kKernelRules) {
        std::printf("%s\n  {\"from\": %u, \"to\": %u, \"allowed\": %s, \"reason\": \"%s\"}", comma, rule.from,
                    rule.to, rule.allowed ? "true" : "false", rule.reason);
        comma = ",";
    }
    std::printf("]}\n");
}
