// What becomes of an operation: when it is open, when it ends and why, and the positions that outlive its
// slot.
#include "harness.h"

namespace mycroft::test {
namespace {

class Operations : public PluginTest {};

TEST_F(Operations, StopOfACollIsNotItsEnd) {
    load();
    void* const comm = open_comm();
    const Collective first = collective(comm, 0, 4);
    EXPECT_EQ(state_of(read_operation(first.operation)), kOpen);
    EXPECT_NE(read_operation(first.operation).control.get() & uint64_t{kEnqueued} << 32, 0U);
    run(comm, first, 4);
    const Operation ended = read_operation(first.operation);
    EXPECT_EQ(state_of(ended), kEnded);
    EXPECT_EQ(ended.end_reason.get(), kByFlows);
    EXPECT_GT(ended.end_tick.get(), ended.launch_tick.get());
    EXPECT_EQ(ended.visibility.get(), 3);
    ASSERT_EQ(file().operations().size(), 1U);
    EXPECT_EQ(file().operations()[0].seq.get(), 1U);
    EXPECT_EQ(file().flows().size(), 2U);
}

TEST_F(Operations, FlowsMayFinishBeforeTheCollStops) {
    load();
    void* const comm = open_comm();
    void* const operation = coll(comm, nullptr, 0);
    void* const flow = proxy_op(comm, operation, true, 1);
    send_step(comm, flow, 0);
    EXPECT_EQ(state_of(read_operation(operation)), kOpen);
    stop(operation);
    EXPECT_EQ(state_of(read_operation(operation)), kEnded);
    EXPECT_EQ(file().operations().size(), 1U);
}

TEST_F(Operations, FlowsThatComeLateReopenIt) {
    load();
    void* const comm = open_comm();
    void* const operation = launch(comm, 0);
    send_step(comm, proxy_op(comm, operation, true, 1), 0);
    EXPECT_EQ(file().operations().size(), 1U);
    void* const late = proxy_op(comm, operation, false, 1);
    EXPECT_EQ(state_of(read_operation(operation)), kOpen);
    receive_step(comm, late, 0);
    ASSERT_EQ(file().operations().size(), 2U);
    EXPECT_EQ(file().operations()[1].amended.get(), 1);
    EXPECT_EQ(file().operations()[1].flows_finished.get(), 2U);
    EXPECT_EQ(file().drops(kAmended), 1U);
    EXPECT_EQ(read_comm(comm).ended_count.get(), 1U);
}

TEST_F(Operations, ALaunchWithoutFlowsEndsWhenItsStreamMoves) {
    load();
    void* const local = open_comm(1, 2, 0, 1);
    void* const wide = open_comm(2);
    void* const stream = as_pointer(0x5000);
    void* const unseen = launch(local, 0, stream);
    EXPECT_EQ(read_operation(unseen).visibility.get(), 1);
    const Collective later = collective(wide, 0, 1, stream);
    EXPECT_EQ(state_of(read_operation(unseen)), kOpen);
    run(wide, later, 1);
    const Stream row = file().slot<Stream>(Table::kStreams, read_operation(unseen).stream_slot.get());
    EXPECT_GT(row.moved_base.get(), read_operation(unseen).order.get());
    for (uint64_t seq = 1; seq < 8; ++seq)
        run(wide, collective(wide, seq, 1, stream), 1);  // noticed at launches
    bool found = false;
    for (const Operation& record : file().operations()) {
        if (record.handle.get() != as_integer(unseen)) continue;
        found = true;
        EXPECT_EQ(record.end_reason.get(), kBySuccessor);
        EXPECT_EQ(record.end_tick.get(), 0U);
    }
    EXPECT_TRUE(found);
}

TEST_F(Operations, OfOneKernelLaunchNoneEndsAnother) {
    load();
    void* const comm = open_comm();
    void* const launch_group = group(comm);
    void* const call = coll_api(comm, nullptr, as_pointer(0x5000));
    void* const first = coll(comm, call, 0, launch_group);
    void* const second = coll(comm, call, 1, launch_group);
    stop(first);
    stop(second);
    EXPECT_EQ(read_operation(first).base.get(), read_operation(second).base.get());
    send_step(comm, proxy_op(comm, second, true, 2), 0);
    EXPECT_LT(read_comm(comm).moved_base.get(), read_operation(first).order.get());
    const Collective later = collective(comm, 2, 1, as_pointer(0x5000));
    send_step(comm, later.send, 0);
    EXPECT_GT(read_comm(comm).moved_base.get(), read_operation(second).order.get());
}

TEST_F(Operations, DataThatArriveAreNoSignOfItsGpu) {
    load();
    void* const comm = open_comm();
    const Collective queued = collective(comm, 0, 2);
    void* const receive = step(comm, queued.receive, 0);
    state(receive, abi::kStepRecvWait);
    state(receive, abi::kStepRecvFlushWait, 100);
    state(receive, abi::kStepRecvGpuWait, 100);
    EXPECT_EQ(read_operation(queued.operation).moved_tick.get(), 0U);
    EXPECT_NE(read_operation(queued.operation).first_tick.get(), 0U);
    stop(receive);
    EXPECT_NE(read_operation(queued.operation).moved_tick.get(), 0U);
}

TEST_F(Operations, PositionsOutliveTheirSlots) {
    load();
    void* const comm = open_comm(1, 2, 0, 1);
    constexpr uint64_t kMany = 5000;
    for (uint64_t seq = 0; seq < kMany; ++seq) stop(coll(comm, nullptr, seq));
    const File now = file();
    EXPECT_EQ(now.comm(comm).launched[1].get(), kMany);
    EXPECT_EQ(now.comm(comm).launches.get(), kMany);
    EXPECT_EQ(now.comm(comm).last_order.get(), kMany);
    EXPECT_EQ(now.header().launches.get(), kMany);
    EXPECT_EQ(now.used(Table::kOperations), now.capacity(Table::kOperations));
    EXPECT_EQ(now.drops(kDropOperation), 0U);
    uint64_t recycled = 0;
    for (const Operation& record : now.operations()) recycled += record.end_reason.get() == kRecycled ? 1 : 0;
    EXPECT_EQ(recycled, kMany - now.capacity(Table::kOperations));
}

// One communicator's proxy thread is behind while another's operations come and go: those that wait lie side
// by side in the table, and none of them is in the way while most of it is free.
TEST_F(Operations, ARowOfWaitingOperationsKeepsItsSlots) {
    set("MYCROFT_SHM_BYTES", "256K");
    load();
    void* const late = open_comm(1);
    void* const busy = open_comm(2);
    constexpr uint64_t kWaiting = 40;
    std::vector<void*> waiting;
    for (uint64_t seq = 0; seq < kWaiting; ++seq) {
        waiting.push_back(coll(late, nullptr, seq));
        stop(waiting.back());
    }
    for (uint64_t seq = 0; seq < 2000; ++seq) run(busy, collective(busy, seq, 1), 1);
    for (void* const operation : waiting) {
        EXPECT_EQ(read_operation(operation).handle.get(), as_integer(operation));
        EXPECT_EQ(state_of(read_operation(operation)), kOpen);
    }
    const File now = file();
    EXPECT_GT(now.capacity(Table::kOperations), 2 * kWaiting);
    for (const Operation& record : now.operations()) EXPECT_NE(record.end_reason.get(), kRecycled);
}

TEST_F(Operations, ATableThatWasFullKeepsARowOfWaitingOperationsAgain) {
    set("MYCROFT_SHM_BYTES", "256K");
    load();
    void* const first = open_comm(1);
    void* const late = open_comm(2);
    const uint64_t capacity = file().capacity(Table::kOperations);
    uint64_t seq = 0;
    while (seq < 2 * capacity + 3) stop(coll(first, nullptr, seq++));
    run(first, collective(first, seq++, 1), 1);  // its stream has moved: those before it have ended
    std::vector<void*> waiting;
    for (uint64_t at = 0; at < 40; ++at) {
        waiting.push_back(coll(late, nullptr, at));
        stop(waiting.back());
    }
    for (int i = 0; i < 1000; ++i) run(first, collective(first, seq++, 1), 1);
    for (void* const operation : waiting)
        EXPECT_EQ(read_operation(operation).handle.get(), as_integer(operation));
}

// Of those that could give way, one that is only just being launched comes last: what follows would be lost.
TEST_F(Operations, AnOperationThatIsBeingLaunchedIsNotTheFirstToGiveWay) {
    set("MYCROFT_SHM_BYTES", "256K");
    load();
    void* const comm = open_comm();
    void* const slow = coll(comm, nullptr, 0);
    const uint64_t capacity = file().capacity(Table::kOperations);
    for (uint64_t seq = 1; seq < 2 * capacity; ++seq) stop(coll(comm, nullptr, seq));
    stop(slow);
    EXPECT_NE(read_operation(slow).enqueued_tick.get(), 0U);
    EXPECT_EQ(read_operation(slow).seq.get(), 1U);
    EXPECT_EQ(file().drops(kRefusedHandle), 0U);
}

TEST_F(Operations, AQuietJobKeepsFewSlotsInUse) {
    load();
    void* const comm = open_comm();
    for (uint64_t seq = 0; seq < 1000; ++seq) run(comm, collective(comm, seq, 1), 1);
    EXPECT_EQ(file().used(Table::kOperations), 64U);
    EXPECT_LE(file().used(Table::kFlows), 4U);
    EXPECT_EQ(read_comm(comm).ended[1].get(), 1000U);
}

TEST_F(Operations, SendsAndReceivesAreNumberedByPairAndDirection) {
    load();
    void* const comm = open_comm();
    void* const other = open_comm(2);
    EXPECT_EQ(read_operation(p2p(comm, nullptr, true, 1)).seq.get(), 1U);
    EXPECT_EQ(read_operation(p2p(comm, nullptr, true, 1)).seq.get(), 2U);
    EXPECT_EQ(read_operation(p2p(comm, nullptr, false, 1)).seq.get(), 1U);
    EXPECT_EQ(read_operation(p2p(comm, nullptr, true, 2)).seq.get(), 1U);
    EXPECT_EQ(read_operation(p2p(other, nullptr, true, 1)).seq.get(), 1U);
    EXPECT_EQ(read_operation(p2p(comm, nullptr, true, 1)).seq.get(), 3U);
    EXPECT_EQ(read_comm(comm).launched[9].get(), 4U);
    EXPECT_EQ(read_comm(comm).launched[10].get(), 1U);
}

TEST_F(Operations, CallsSayWhereTheHostIs) {
    load();
    void* const comm = open_comm();
    void* const api = group_api(comm, 2);
    EXPECT_EQ(v6->state(api, abi::kGroupStartApiStop, nullptr), 0);
    void* const call = coll_api(comm, api, as_pointer(0x42));
    EXPECT_EQ(read_call(api).stage.get(), kStageInGroup);
    EXPECT_EQ(read_call(api).left.get(), 0U);
    EXPECT_EQ(read_call(api).func.get(), 1);
    EXPECT_EQ(read_comm(comm).called[1].get(), 1U);
    EXPECT_EQ(read_comm(comm).launched[1].get(), 0U);
    stop(call);
    v6->state(api, abi::kGroupEndApiStart, nullptr);
    EXPECT_EQ(read_call(api).stage.get(), kStageGroupEnd);
    void* const operation = coll(comm, call, 0);
    EXPECT_EQ(read_operation(operation).stream.get(), 0x42U);
    EXPECT_EQ(read_operation(operation).group.get(), read_call(api).group.get());
    EXPECT_NE(read_operation(operation).flags.get() & 16, 0U);
    stop(api);
    EXPECT_NE(read_call(api).left.get(), 0U);
}

TEST_F(Operations, KernelChannelsEndThemAtTheKernelTier) {
    set("MYCROFT_TIER", "kernel");
    set("MYCROFT_KERNEL_ANY", "1");
    load();
    void* const comm = open_comm(1, 2, 0, 1);
    EXPECT_NE(mask & abi::kKernelCh, 0);
    void* const operation = launch(comm, 0, nullptr, 2);
    void* const first = kernel(comm, operation, 0, 1'000'000);
    void* const second = kernel(comm, operation, 1, 1'000'100);
    EXPECT_EQ(read_operation(operation).visibility.get(), 2);
    kernel_stop(first, 1'000'200);
    EXPECT_EQ(state_of(read_operation(operation)), kOpen);
    kernel_stop(second, 1'000'300);
    const Operation ended = read_operation(operation);
    EXPECT_EQ(state_of(ended), kEnded);
    EXPECT_EQ(ended.end_reason.get(), kByKernels);
    EXPECT_EQ(ended.kernel_start_ns.get(), 1'000'000U);
    EXPECT_EQ(ended.kernel_end_ns.get(), 1'000'300U);
}

TEST_F(Operations, StaleKernelEventsAndImpossibleTimesAreRefused) {
    set("MYCROFT_TIER", "kernel");
    set("MYCROFT_KERNEL_ANY", "1");
    load();
    void* const comm = open_comm();
    void* const operation = launch(comm, 0, nullptr, 2);
    void* const channel = kernel(comm, operation, 0, 1'000'000);
    kernel_stop(channel, 999'000);  // before its start
    EXPECT_EQ(read_operation(operation).kernel_end_ns.get(), 0U);
    EXPECT_EQ(file().drops(kRefusedKernel), 1U);
    stop(channel);  // again
    kernel_stop(channel, 2'000'000);
    EXPECT_EQ(state_of(read_operation(operation)), kOpen);
    EXPECT_EQ(read_operation(operation).kernels_stopped.get(), 1U);
    void* const other = kernel(comm, operation, 1, 1'000'000);
    kernel_stop(other, 3'600'000'000'000);  // an hour later: a later operation's
    EXPECT_EQ(read_operation(operation).kernel_end_ns.get(), 0U);
    EXPECT_EQ(kernel(comm, operation, 1, 5), nullptr);
    EXPECT_EQ(kernel(comm, operation, 200, 5), nullptr);
}

TEST_F(Operations, ALostKernelChannelDoesNotKeepItOpen) {
    set("MYCROFT_TIER", "kernel");
    set("MYCROFT_KERNEL_ANY", "1");
    load();
    void* const comm = open_comm();
    const Collective first = collective(comm, 0, 1);
    run(comm, first, 1);
    EXPECT_EQ(state_of(read_operation(first.operation)), kOpen);
    for (uint64_t seq = 1; seq < 4; ++seq) run(comm, collective(comm, seq, 1), 1);
    EXPECT_EQ(state_of(read_operation(first.operation)), kEnded);
    EXPECT_EQ(read_operation(first.operation).end_reason.get(), kByFlows);
    EXPECT_NE(read_operation(first.operation).end_tick.get(), 0U);
}

TEST_F(Operations, TheKernelTierNeedsAnNcclThatBearsIt) {
    set("MYCROFT_TIER", "kernel");
    load();
    open_comm();  // called by a test, not by an NCCL whose version is known
    EXPECT_EQ(mask & abi::kKernelCh, 0);
    EXPECT_EQ(file().header().kernel_allowed.get(), 0U);
}

TEST_F(Operations, CapturedCallsAreCountedApart) {
    load();
    void* const comm = open_comm();
    abi::Descr6 descr{};
    descr.type = abi::kCollApi;
    descr.coll_api.func = "AllReduce";
    descr.coll_api.captured = true;
    void* const call = start(comm, descr);
    EXPECT_EQ(read_comm(comm).captured[1].get(), 1U);
    EXPECT_EQ(read_comm(comm).called[1].get(), 0U);
    EXPECT_NE(read_operation(coll(comm, call, 0)).flags.get() & 8, 0U);
}

TEST_F(Operations, CountAndDatatypeAreThoseOfTheCall) {
    load();
    void* const comm = open_comm();
    abi::Descr6 descr{};
    descr.type = abi::kColl;
    descr.parent = coll_api(comm, nullptr, nullptr, "AllGather");  // 1024 floats
    descr.coll.func = "AllGather";
    descr.coll.count = 4096;  // NCCL launches bytes
    descr.coll.datatype = "ncclInt8";
    const Operation told = read_operation(start(comm, descr));
    EXPECT_EQ(told.count.get(), 1024U);
    EXPECT_EQ(told.datatype.get(), read_operation(coll(comm, nullptr, 0)).datatype.get());
    EXPECT_EQ(told.bytes.get(), 4096U);
    descr.parent = nullptr;
    const Operation alone = read_operation(start(comm, descr));
    EXPECT_EQ(alone.count.get(), 4096U);
    EXPECT_EQ(alone.bytes.get(), 4096U);
    descr.parent = coll_api(comm, nullptr);  // an AllReduce: not its call
    EXPECT_EQ(read_operation(start(comm, descr)).count.get(), 4096U);
}

TEST_F(Operations, CopyEngineCollectivesAreLaunches) {
    load();
    void* const comm = open_comm();
    abi::Descr6 descr{};
    descr.type = abi::kCeColl;
    descr.ce_coll.func = "AllGather";
    descr.ce_coll.seq = 3;
    descr.ce_coll.count = 16;
    descr.ce_coll.datatype = "ncclInt8";
    descr.ce_coll.stream = as_pointer(0x77);
    const Operation operation = read_operation(start(comm, descr));
    EXPECT_EQ(operation.func.get(), 2);
    EXPECT_EQ(operation.seq.get(), 4U);
    EXPECT_EQ(operation.stream.get(), 0x77U);
    EXPECT_EQ(operation.bytes.get(), 16U);
}

}  // namespace
}  // namespace mycroft::test
