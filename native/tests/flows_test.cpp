// Steps and flows: the counters, the time at the head of the line, and everything odd that proxies do.
#include <time.h>

#include "harness.h"

namespace mycroft::test {
namespace {

class Flows : public PluginTest {};

void sleep_ms(long ms) {
    const timespec time{0, ms * 1'000'000};
    nanosleep(&time, nullptr);
}

double ms_of(const File& file, uint64_t ticks) {
    return static_cast<double>(ticks) * 1e3 / static_cast<double>(file.header().tick_hz);
}

TEST_F(Flows, CountersOfASender) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 8);
    void* const first = step(comm, flow, 0);
    void* const second = step(comm, flow, 1);
    state(first, abi::kStepSendGpuWait);
    state(second, abi::kStepSendGpuWait);
    EXPECT_EQ(read_flow(flow).counters[kReady].get(), 0U);
    state(first, abi::kStepSendPeerWait);
    EXPECT_EQ(read_flow(flow).counters[kReady].get(), 1U);
    state(first, abi::kStepSendWait, 1000);
    EXPECT_EQ(read_flow(flow).counters[kTransmitted].get(), 1U);
    EXPECT_EQ(read_flow(flow).bytes.get(), 1000U);
    stop(first);
    const Flow now = read_flow(flow);
    EXPECT_EQ(now.counters[kReady].get(), 1U);
    EXPECT_EQ(now.counters[kDone].get(), 1U);
    EXPECT_EQ(now.head.get(), 1U);
    EXPECT_EQ(now.head_state.get(), kSendGpu);
    EXPECT_EQ(now.total.get(), 8U);
    EXPECT_EQ(now.seq.get(), 1U);
    EXPECT_NE(now.first_data_tick.get(), 0U);
}

TEST_F(Flows, CountersOfAReceiver) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), false, 8);
    void* const first = step(comm, flow, 0);
    state(first, abi::kStepRecvWait);
    EXPECT_EQ(read_flow(flow).counters[kPosted].get(), 1U);
    state(first, abi::kStepRecvFlushWait, 500);
    EXPECT_EQ(read_flow(flow).counters[kReceived].get(), 1U);
    EXPECT_EQ(read_flow(flow).bytes.get(), 500U);
    state(first, abi::kStepRecvGpuWait, 500);
    EXPECT_EQ(read_flow(flow).counters[kFlushed].get(), 1U);
    EXPECT_EQ(read_flow(flow).counters[kConsumed].get(), 0U);
    EXPECT_EQ(read_flow(flow).bytes.get(), 500U);
    stop(first);
    EXPECT_EQ(read_flow(flow).counters[kConsumed].get(), 1U);
}

TEST_F(Flows, TimeCountsForTheOldestStepAlone) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 8);
    void* const first = step(comm, flow, 0);
    void* const second = step(comm, flow, 1);
    state(first, abi::kStepSendGpuWait);
    state(second, abi::kStepSendGpuWait);
    state(second, abi::kStepSendPeerWait);
    state(second, abi::kStepSendWait);
    sleep_ms(20);  // the first waits for its GPU, the second for the network
    state(first, abi::kStepSendPeerWait);
    sleep_ms(10);
    state(first, abi::kStepSendPeerWait);
    state(first, abi::kStepSendWait);
    sleep_ms(30);
    stop(first);
    const File now = file();
    // A busy machine sleeps longer, never shorter; and all of it is somewhere.
    const double gpu = ms_of(now, now.flow(flow).time[kTimeGpu].get());
    const double credit = ms_of(now, now.flow(flow).time[kTimeCredit].get());
    const double net = ms_of(now, now.flow(flow).time[kTimeNet].get());
    EXPECT_GE(gpu, 19.5);
    EXPECT_GE(credit, 9.5);
    EXPECT_GE(net, 29.5);
    EXPECT_NEAR(gpu + credit + net, ms_of(now, now.flow(flow).since.get() - now.flow(flow).first_tick.get()),
                0.1);
    EXPECT_EQ(now.flow(flow).head_state.get(), kSendNet);
    EXPECT_EQ(now.flow(flow).no_credit.get(), 1U);
}

TEST_F(Flows, AReceiveMayBeStartedAgain) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), false, 2);
    void* const first = step(comm, flow, 0);
    void* again = nullptr;
    for (int i = 0; i < 1000; ++i) again = step(comm, flow, 0);
    EXPECT_EQ(first, again);
    sleep_ms(5);
    state(again, abi::kStepRecvWait);
    EXPECT_GT(read_flow(flow).time[kTimeCredit].get(), 0U);
    state(again, abi::kStepRecvFlushWait);
    state(again, abi::kStepRecvGpuWait);
    stop(again);
    receive_step(comm, flow, 1);
    EXPECT_EQ(file().flows().size(), 1U);
    EXPECT_EQ(file().flows()[0].counters[kPosted].get(), 2U);
}

TEST_F(Flows, PeerWaitRepeatsAreCounted) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 2);
    void* const first = step(comm, flow, 0);
    state(first, abi::kStepSendGpuWait);
    for (int i = 0; i < 500'000; ++i) v6->state(first, abi::kStepSendPeerWait, nullptr);
    EXPECT_EQ(read_flow(flow).no_credit.get(), 499'999U);
    EXPECT_EQ(read_flow(flow).counters[kReady].get(), 1U);
    EXPECT_EQ(read_flow(flow).calls.get(), 500'002U);
}

TEST_F(Flows, StatesThatWereNotSeenAreMadeUpFor) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 4);
    stop(step(comm, flow, 0));  // tracing began in between
    EXPECT_EQ(read_flow(flow).counters[kReady].get(), 1U);
    EXPECT_EQ(read_flow(flow).counters[kTransmitted].get(), 1U);
    EXPECT_EQ(read_flow(flow).counters[kDone].get(), 1U);
}

TEST_F(Flows, ThereMayBeNoArguments) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 4);
    void* const first = step(comm, flow, 0);
    v6->state(first, abi::kStepSendWait, nullptr);
    stop(first);
    EXPECT_EQ(read_flow(flow).counters[kDone].get(), 1U);
    EXPECT_EQ(read_flow(flow).bytes.get(), 0U);
}

TEST_F(Flows, ProxyOpsOfOneOperationMayStopTogether) {
    load();
    void* const comm = open_comm();
    const Collective first = collective(comm, 0, 2);
    for (int number = 0; number < 2; ++number) {
        send_step(comm, first.send, number);
    }
    const uint64_t ended = file().flows().at(0).end_tick.get();
    for (int number = 0; number < 2; ++number) receive_step(comm, first.receive, number);
    stop(first.send);
    stop(first.receive);
    EXPECT_EQ(file().flows().size(), 2U);
    EXPECT_EQ(file().flows()[0].end_tick.get(), ended);  // its last step's, not the fused stop's
}

TEST_F(Flows, AProxyOpThatStopsEarlyIsCut) {
    load();
    void* const comm = open_comm();
    void* const operation = launch(comm, 0);
    void* const flow = proxy_op(comm, operation, true, 8);
    send_step(comm, flow, 0);
    stop(flow);
    ASSERT_EQ(file().flows().size(), 1U);
    EXPECT_NE(file().flows()[0].flags.get() & kFlowCut, 0U);
    EXPECT_EQ(state_of(read_operation(operation)), kEnded);
}

TEST_F(Flows, StepsOfAProxyOpThatWasNotTakenHaveNoParent) {
    load();
    void* const comm = open_comm();
    for (int number = 0; number < 10; ++number) EXPECT_EQ(step(comm, nullptr, number), nullptr);
    EXPECT_EQ(file().drops(kRefusedParent), 10U);
}

TEST_F(Flows, CollNetReceivesNeverStopAndDoNotHoldAnythingUp) {
    load();
    void* const comm = open_comm();
    void* const sharp = launch(comm, 0);
    void* const silent = proxy_op(comm, sharp, false, 16);
    EXPECT_NE(silent, nullptr);
    for (uint64_t seq = 1; seq < 200; ++seq) run(comm, collective(comm, seq, 1), 1);
    bool ended = false;
    for (const Operation& record : file().operations())
        ended = ended || record.handle.get() == as_integer(sharp);
    EXPECT_TRUE(ended);
    // Their slots come back when the table is full.
    for (uint64_t seq = 200; seq < 6000; ++seq) {
        void* const operation = launch(comm, seq);
        proxy_op(comm, operation, false, 16);
        if (seq % 8 == 0) run(comm, collective(comm, seq, 1), 1);
    }
    EXPECT_EQ(file().drops(kDropFlow), 0U);
    EXPECT_EQ(file().drops(kDropOperation), 0U);
}

TEST_F(Flows, SplitCommunicatorsShareAThread) {
    load();
    void* const tp = open_comm(1);
    void* const dp = open_comm(2);
    const Collective first = collective(tp, 0, 2);
    const Collective second = collective(dp, 0, 2);
    for (int number = 0; number < 2; ++number) {
        send_step(tp, first.send, number);
        send_step(dp, second.send, number);
        receive_step(dp, second.receive, number);
        receive_step(tp, first.receive, number);
    }
    EXPECT_EQ(file().operations().size(), 2U);
    EXPECT_EQ(read_comm(tp).ended[1].get(), 1U);
    EXPECT_EQ(read_comm(dp).ended[1].get(), 1U);
}

TEST_F(Flows, TheProxyThreadsOwnState) {
    load();
    void* const comm = open_comm();
    abi::Descr6 descr{};
    descr.type = abi::kProxyCtrl;
    void* const control = start(comm, descr);
    abi::StateArgs args{};
    v6->state(control, abi::kCtrlSleep, &args);
    EXPECT_EQ(read_comm(comm).proxy_state.get(), 15U);
    EXPECT_NE(read_comm(comm).proxy_tick.get(), 0U);
    args.ctrl.appended = 3;
    v6->state(control, abi::kCtrlAppendEnd, &args);
    stop(control);
    EXPECT_EQ(read_comm(comm).proxy_appended.get(), 3U);
    EXPECT_EQ(read_comm(comm).proxy_calls.get(), 4U);
}

TEST_F(Flows, AQueuedFlowIsNotInProgress) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 4);
    EXPECT_EQ(read_flow(flow).flags.get() & kFlowInProgress, 0U);
    v6->state(flow, abi::kOpInProgress, nullptr);
    EXPECT_NE(read_flow(flow).flags.get() & kFlowInProgress, 0U);
}

TEST_F(Flows, FarMoreStepsThanTheNumberInAHandle) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 1000);
    for (int number = 0; number < 1000; ++number) send_step(comm, flow, number, 7);
    ASSERT_EQ(file().flows().size(), 1U);
    EXPECT_EQ(file().flows()[0].counters[kDone].get(), 1000U);
    EXPECT_EQ(file().flows()[0].bytes.get(), 7000U);
}

TEST_F(Flows, MoreOpenStepsThanFitAreCounted) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 100);
    for (int number = 0; number < 20; ++number) step(comm, flow, number);
    EXPECT_EQ(file().drops(kDropStep), 4U);
}

}  // namespace
}  // namespace mycroft::test
