// Full tables and rings, many communicators, and what a callback may cost.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <atomic>
#include <thread>

#include "harness.h"

namespace mycroft::test {
namespace {

class Tables : public PluginTest {};

TEST_F(Tables, ManyCommunicators) {
    load();
    std::vector<void*> comms;
    for (uint64_t id = 1; id <= 300; ++id) comms.push_back(open_comm(id));
    const File now = file();
    ASSERT_EQ(now.capacity(Table::kCommunicators), 256U);
    EXPECT_EQ(now.drops(kDropCommunicator), 44U);
    EXPECT_NE(comms[255], nullptr);
    EXPECT_EQ(comms[256], nullptr);
    EXPECT_NE(mask, 0);
    close(comms[7]);
    void* const again = open_comm(1000);
    EXPECT_EQ(handle_slot(as_integer(again)), handle_slot(as_integer(comms[7])));
    EXPECT_EQ(read_comm(again).comm_id.get(), 1000U);
    EXPECT_EQ(coll(comms[7], nullptr, 0), nullptr);  // the old context is refused now
    EXPECT_EQ(read_comm(again).launches.get(), 0U);
}

TEST_F(Tables, OpenedAndClosedForEver) {
    load();
    for (uint64_t id = 1; id <= 2000; ++id) {
        void* const comm = open_comm(id);
        ASSERT_NE(comm, nullptr);
        EXPECT_EQ(read_operation(p2p(comm, nullptr, true, 1)).seq.get(), 1U);
        close(comm);
    }
    EXPECT_EQ(file().drops(kDropCommunicator), 0U);
    EXPECT_EQ(file().drops(kDropPair), 0U);
}

TEST_F(Tables, FullOfOperationsUnderWay) {
    set("MYCROFT_SHM_BYTES", "256K");
    load();
    void* const comm = open_comm();
    uint64_t seq = 0;
    std::vector<Collective> open;
    for (; seq < 300; ++seq) {
        open.push_back(collective(comm, seq, 2));
        void* const first = step(comm, open.back().send, 0);
        state(first, abi::kStepSendGpuWait);
    }
    const File full = file();
    EXPECT_GT(full.drops(kDropOperation), 0U);
    EXPECT_GT(full.drops(kDropFlow), 0U);
    EXPECT_EQ(full.comm(comm).launched[1].get(), 300U);
    for (const Collective& one : open) {
        send_step(comm, one.send, 1);
        run(comm, one, 2);
    }
    run(comm, collective(comm, seq, 1), 1);
    EXPECT_EQ(read_comm(comm).ended[1].get(), 301U);
}

TEST_F(Tables, TheRingOverwritesTheOldest) {
    set("MYCROFT_SHM_BYTES", "256K");
    load();
    void* const comm = open_comm();
    for (uint64_t seq = 0; seq < 1000; ++seq) run(comm, collective(comm, seq, 1), 1);
    const File now = file();
    EXPECT_EQ(now.header().ring_next.get(), 3000U);
    EXPECT_LT(now.capacity(Table::kRing), 1000U);
    EXPECT_EQ(now.operations().size() + now.flows().size(), now.capacity(Table::kRing));
    EXPECT_EQ(now.operations().back().seq.get(), 1000U);
    EXPECT_EQ(now.drops(kDropRing), 0U);
}

TEST_F(Tables, ManyCallsBeforeAnyLaunch) {
    load();
    void* const comm = open_comm();
    void* const api = group_api(comm, 2);
    std::vector<void*> calls;
    for (int peer = 0; peer < 1000; ++peer) {
        calls.push_back(coll_api(comm, api, as_pointer(0x10 + static_cast<uint64_t>(peer))));
        stop(calls.back());
    }
    for (size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(read_operation(p2p(comm, calls[i], true, static_cast<int>(i))).stream.get(), 0x10 + i) << i;
        if (i % 100 != 0) i += 99;
    }
    EXPECT_EQ(file().drops(kDropCall), 0U);
    stop(api);
    for (int i = 0; i < 10'000; ++i) coll_api(comm, nullptr);  // never stopped
    EXPECT_GT(file().drops(kDropCall), 0U);
}

TEST_F(Tables, ARowOfCallsOfAnOpenGroupKeepsItsSlots) {
    load();
    void* const comm = open_comm();
    void* const api = group_api(comm, 2);
    std::vector<void*> calls;
    for (uint64_t call = 0; call < 100; ++call) {
        calls.push_back(coll_api(comm, api, as_pointer(0x10 + call)));
        stop(calls.back());
    }
    for (int i = 0; i < 10'000; ++i) stop(coll_api(comm, nullptr));  // of another thread, one after another
    for (uint64_t call = 0; call < calls.size(); ++call)
        EXPECT_EQ(read_operation(coll(comm, calls[call], call)).stream.get(), 0x10 + call);
    EXPECT_EQ(file().drops(kDropCall), 0U);
}

TEST_F(Tables, OfAFullTableACallThatIsUnderWayGivesWayLast) {
    load();
    void* const comm = open_comm();
    void* const api = group_api(comm, 2);
    void* const open = coll_api(comm, api, as_pointer(0x77));
    const uint32_t capacity = file().capacity(Table::kCalls);
    for (uint32_t i = 0; i < 3 * capacity; ++i) stop(coll_api(comm, api));
    EXPECT_EQ(read_operation(coll(comm, open, 0)).stream.get(), 0x77U);
    EXPECT_GT(file().drops(kDropCall), 0U);
}

TEST_F(Tables, EverythingFitsInTheFile) {
    for (const char* size : {"256K", "1M", "4M", "64M"}) {
        const std::string setting = size;
        SCOPED_TRACE(setting);
        set("MYCROFT_SHM_BYTES", setting);
    }
    set("MYCROFT_SHM_BYTES", "300K");
    load();
    open_comm();
    const File now = file();
    uint64_t end = kHeaderBytes;
    for (const TableInfo& info : now.header().tables) {
        EXPECT_GE(info.offset, end);
        EXPECT_EQ(info.offset % 64, 0U);
        EXPECT_GT(info.capacity, 0U);
        end = info.offset + uint64_t{info.stride} * info.capacity;
    }
    EXPECT_LE(end, now.header().file_bytes);
    EXPECT_EQ(now.header().file_bytes, 300U << 10);
}

TEST_F(Tables, SeveralThreadsAtOnceLoseNothing) {
    load();
    constexpr int kThreads = 4;
    constexpr uint64_t kEach = 300;
    std::vector<std::thread> threads;
    std::vector<void*> comms(kThreads);
    for (int i = 0; i < kThreads; ++i)
        comms[static_cast<size_t>(i)] = open_comm(static_cast<uint64_t>(i) + 1);
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            void* const comm = comms[static_cast<size_t>(i)];
            for (uint64_t seq = 0; seq < kEach; ++seq) run(comm, collective(comm, seq, 2, comm), 2);
        });
    }
    for (std::thread& thread : threads) thread.join();
    const File now = file();
    for (void* comm : comms) EXPECT_EQ(now.comm(comm).ended[1].get(), kEach);
    EXPECT_EQ(now.operations().size(), kThreads * kEach);
    EXPECT_EQ(now.flows().size(), 2 * kThreads * kEach);
    for (uint32_t drop = 0; drop < kDropKinds; ++drop) EXPECT_EQ(now.header().drops[drop].get(), 0U) << drop;
}

TEST_F(Tables, ACallbackAllocatesNothing) {
    load();
    void* const comm = open_comm();
    run(comm, collective(comm, 0, 8), 8);
    const struct mallinfo2 before = mallinfo2();
    for (uint64_t seq = 1; seq < 200; ++seq) run(comm, collective(comm, seq, 8), 8);
    const struct mallinfo2 after = mallinfo2();
    EXPECT_EQ(before.uordblks, after.uordblks);
    EXPECT_EQ(before.fordblks, after.fordblks);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// Kills the process at any system call of this thread but exit. (The kernel's own strict mode would forbid
// the time stamp counter too.)
bool forbid_system_calls() {
    sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const sock_fprog program{4, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST_F(Tables, ACallbackMakesNoSystemCall) {
    load();
    void* const comm = open_comm();
    run(comm, collective(comm, 0, 8), 8);
    void* const operation = coll(comm, nullptr, 1);
    const pid_t self = getpid();
    std::atomic<int> done{0};
    // A thread that may do nothing but exit: any other call kills the process. It calls the
    // plugin bare, since the test framework allocates.
    std::thread strict([&] {
        if (!forbid_system_calls()) {
            done = 2;
            return;
        }
        abi::Descr6 descr{};
        abi::StateArgs args{};
        auto begin = [&](uint64_t type, void* parent) {
            void* handle = nullptr;
            descr.type = type;
            descr.parent = parent;
            v6->start(comm, &handle, &descr);
            return handle;
        };
        for (int round = 0; round < 200; ++round) {
            descr = {};
            void* const api = begin(abi::kGroupApi, nullptr);
            v6->stop(begin(abi::kCollApi, api));
            v6->stop(begin(abi::kKernelLaunch, api));
            descr.coll.func = "AllReduce";
            v6->stop(begin(abi::kColl, nullptr));
            v6->stop(api);
            v6->stop(begin(abi::kProxyCtrl, nullptr));
            descr.proxy_op = {self, 0, 1, 8, 0, 1};
            void* const flow = begin(abi::kProxyOp, operation);
            for (int number = 0; number < 8; ++number) {
                descr.proxy_step.step = number;
                void* const one = begin(abi::kProxyStep, flow);
                v6->state(one, abi::kStepSendGpuWait, &args);
                v6->state(one, abi::kStepSendPeerWait, &args);
                v6->state(one, abi::kStepSendWait, &args);
                v6->stop(one);
            }
        }
        done = 1;
        syscall(SYS_exit, 0);
    });
    while (done == 0) std::this_thread::yield();
    if (done == 2) {
        strict.join();
        GTEST_SKIP() << "no seccomp here";
    }
    strict.detach();
    EXPECT_EQ(read_comm(comm).launched[1].get(), 2U);
    EXPECT_EQ(read_comm(comm).launches.get(), 202U);
    EXPECT_EQ(file().flows().size(), 202U);
}
#endif

}  // namespace
}  // namespace mycroft::test
