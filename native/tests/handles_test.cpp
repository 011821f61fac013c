// Whatever NCCL may hand back: null, unset, stale, stopped twice, another process's.
#include <sys/wait.h>

#include "harness.h"

namespace mycroft::test {
namespace {

class Handles : public PluginTest {};

TEST_F(Handles, NullEverything) {
    load();
    EXPECT_EQ(v6->init(nullptr, 1, nullptr, nullptr, 0, 0, 0, nullptr), 0);
    void* const comm = open_comm();
    abi::Descr6 descr{};
    void* handle = nullptr;
    EXPECT_EQ(v6->start(nullptr, nullptr, nullptr), 0);
    EXPECT_EQ(v6->start(comm, &handle, nullptr), 0);
    EXPECT_EQ(v6->start(comm, nullptr, &descr), 0);
    for (int bit = -1; bit < 64; ++bit) {
        descr.type = bit < 0 ? 0 : uint64_t{1} << bit;
        void* const first = start(nullptr, descr);
        void* const second = start(comm, descr);
        for (void* made : {first, second}) {
            EXPECT_EQ(v6->state(made, 0, nullptr), 0);
            for (int number = -1; number < 40; ++number) EXPECT_EQ(v6->state(made, number, nullptr), 0);
            EXPECT_EQ(v6->stop(made), 0);
        }
    }
    EXPECT_EQ(v6->stop(nullptr), 0);
    EXPECT_EQ(v6->state(nullptr, 8, nullptr), 0);
    EXPECT_EQ(v6->finalize(nullptr), 0);
}

TEST_F(Handles, HandleIsWrittenEvenWhereNothingIsMade) {
    load();
    open_comm();
    abi::Descr6 descr{};
    descr.type = abi::kProxyStep;
    void* handle = as_pointer(0x1234);
    v6->start(nullptr, &handle, &descr);
    EXPECT_EQ(handle, nullptr);
    handle = as_pointer(0x1234);
    v6->start(nullptr, &handle, nullptr);
    EXPECT_EQ(handle, nullptr);
}

TEST_F(Handles, PointersAreNeverFollowed) {
    load();
    void* const comm = open_comm();
    int local = 7;
    void* const odd[] = {&local, as_pointer(1), as_pointer(0xffffffffffffffff),
                         as_pointer(0x8000000000000000), this};
    for (void* value : odd) {
        EXPECT_EQ(v6->stop(value), 0);
        EXPECT_EQ(v6->state(value, 9, nullptr), 0);
        EXPECT_EQ(v6->finalize(value), 0);
        EXPECT_EQ(coll(value, value, 0), nullptr);
        EXPECT_EQ(step(value, value, 0), nullptr);
        EXPECT_EQ(kernel(value, value, 0, 1), nullptr);
        EXPECT_NE(coll(comm, value, 0), nullptr);  // an unknown parent is no reason to lose an operation
    }
}

TEST_F(Handles, DoubleAndLateStops) {
    load();
    void* const comm = open_comm();
    void* const call = coll_api(comm, nullptr);
    stop(call);
    stop(call);
    void* const operation = coll(comm, call, 0);
    stop(operation);
    stop(operation);
    void* const flow = proxy_op(comm, operation, true, 1);
    void* const first = step(comm, flow, 0);
    stop(first);
    stop(first);
    stop(flow);
    stop(flow);
    stop(operation);
    EXPECT_EQ(file().operations().size(), 1U);
    EXPECT_EQ(file().flows().size(), 1U);
    // The slot has another flow by now: the old handles touch nothing of it.
    void* const next = proxy_op(comm, operation, true, 4);
    EXPECT_EQ(handle_slot(as_integer(next)), handle_slot(as_integer(flow)));
    stop(first);
    state(first, abi::kStepSendWait, 99);
    stop(flow);
    EXPECT_EQ(step(comm, flow, 0), nullptr);
    EXPECT_EQ(read_flow(next).counters[kDone].get(), 0U);
    EXPECT_EQ(read_flow(next).calls.get(), 0U);
    EXPECT_GE(file().drops(kRefusedHandle), 3U);
}

TEST_F(Handles, StepsMayBeStoppedInAnyOrderAndNumberedAnyhow) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 6);
    void* const odd[] = {step(comm, flow, 4), step(comm, flow, 2), step(comm, flow, 9), step(comm, flow, -3)};
    stop(odd[2]);
    stop(odd[0]);
    stop(odd[3]);
    stop(odd[1]);
    EXPECT_EQ(read_flow(flow).counters[kDone].get(), 4U);
    EXPECT_EQ(read_flow(flow).head_state.get(), kStepClosed);
}

TEST_F(Handles, StatesOfTheOtherDirectionMeanNothing) {
    load();
    void* const comm = open_comm();
    void* const flow = proxy_op(comm, launch(comm, 0), true, 6);
    void* const first = step(comm, flow, 0);
    for (int value : {10, 11, 12, 13, 19, 22, 31, -1, 255, 1 << 30}) state(first, value, 1000);
    EXPECT_EQ(read_flow(flow).counters[0].get(), 0U);
    EXPECT_EQ(read_flow(flow).bytes.get(), 0U);
}

TEST_F(Handles, ContextNullAfterAFailedInit) {
    load();
    void* const comm = open_comm();
    EXPECT_EQ(coll(nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(proxy_op(nullptr, nullptr, true, 4), nullptr);
    EXPECT_EQ(file().drops(kRefusedContext), 2U);
    EXPECT_NE(coll(comm, nullptr, 0), nullptr);
}

TEST_F(Handles, AFinalisedContextIsUsedOn) {
    load();
    void* const comm = open_comm();
    const Collective first = collective(comm, 0, 2);
    send_step(comm, first.send, 0);
    close(comm);
    EXPECT_EQ(read_comm(comm).state.get(), kCommAborted);
    EXPECT_EQ(file().operations().at(0).end_reason.get(), kAborted);
    send_step(comm, first.send, 1);
    receive_step(comm, first.receive, 0);
    abi::Descr6 descr{};
    descr.type = abi::kProxyCtrl;
    stop(start(comm, descr));
    close(comm);  // twice
    EXPECT_EQ(file().drops(kRefusedContext), 1U);
}

TEST_F(Handles, FinaliseWithNothingVisiblyOpenIsClean) {
    load();
    void* const comm = open_comm();
    void* const unseen = launch(comm, 0);
    run(comm, collective(comm, 1, 1), 1);
    void* const last = launch(comm, 2);
    close(comm);
    EXPECT_EQ(read_comm(comm).state.get(), kCommFinalised);
    EXPECT_EQ(state_of(read_operation(unseen)), kEnded);
    EXPECT_EQ(read_operation(last).end_reason.get(), kFinalised);
    EXPECT_EQ(file().operations().size(), 3U);
}

// What the owner's process would hand to its relay, made by the same program in another process.
struct Foreign {
    uint64_t context;
    uint64_t operation;
    pid_t pid;
};

TEST_F(Handles, PxnHandlesOfAnotherProcessWithTheSameSlots) {
    int channel[2];
    ASSERT_EQ(pipe(channel), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        load();
        void* const comm = open_comm();
        const Foreign made{as_integer(comm), as_integer(launch(comm, 0)), getpid()};
        _exit(write(channel[1], &made, sizeof made) == sizeof made ? 0 : 1);
    }
    Foreign foreign{};
    ASSERT_EQ(read(channel[0], &foreign, sizeof foreign), static_cast<ssize_t>(sizeof foreign));
    waitpid(child, nullptr, 0);

    load();
    void* const comm = open_comm();
    void* const operation = launch(comm, 0);
    const uint64_t mine = as_integer(operation);
    ASSERT_EQ(handle_slot(mine), handle_slot(foreign.operation));
    EXPECT_NE(mine, foreign.operation);
    EXPECT_NE(generation24(mine), generation24(foreign.operation));
    // By its pid, and where pids coincide (another PID namespace) by its handles.
    for (pid_t pid : {foreign.pid, getpid()}) {
        void* const flow =
            proxy_op(as_pointer(foreign.context), as_pointer(foreign.operation), true, 2, 0, pid);
        ASSERT_NE(flow, nullptr);
        void* const first = step(as_pointer(foreign.context), flow, 0);
        ASSERT_NE(first, nullptr);
        state(first, abi::kStepSendPeerWait);
        std::vector<std::string> found = files();
        for (const std::string& path : found) {
            const File now(path);
            if (now.header().pid != static_cast<uint32_t>(getpid())) continue;
            EXPECT_EQ(now.flow(flow).flags.get(), kFlowForeign);
            EXPECT_EQ(now.flow(flow).parent.get(), foreign.operation);
            EXPECT_EQ(now.flow(flow).context.get(), foreign.context);
            EXPECT_EQ(now.flow(flow).op.get(), kNone);
            EXPECT_EQ(now.flow(flow).comm.get(), kNone);
            EXPECT_EQ(now.operation(operation).flows_started.get(), 0U);
        }
    }
    // The relay's collector finds the owner's operation by nonce and handle.
    bool resolved = false;
    for (const std::string& path : files()) {
        const File theirs(path);
        if (theirs.header().nonce_tag != handle_nonce(foreign.operation)) continue;
        const Operation owner = theirs.slot<Operation>(Table::kOperations, handle_slot(foreign.operation));
        resolved =
            owner.handle.get() == foreign.operation &&
            theirs.slot<Communicator>(Table::kCommunicators, owner.comm.get()).context == foreign.context;
    }
    EXPECT_TRUE(resolved);
    // Every other kind of handle from there is refused.
    EXPECT_EQ(kernel(as_pointer(foreign.context), as_pointer(foreign.operation), 0, 1), nullptr);
    EXPECT_EQ(coll(as_pointer(foreign.context), nullptr, 0), nullptr);
    stop(as_pointer(foreign.operation));
    close(as_pointer(foreign.context));
}

}  // namespace
}  // namespace mycroft::test
