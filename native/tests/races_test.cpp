// Threads that meet: operations are launched on one thread and worked on by another, slots turn over at once,
// and every record has to tell of one operation, whole.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <set>
#include <thread>

#include "harness.h"

namespace mycroft::test {
namespace {

// ThreadSanitizer makes all of it some 30 times slower; the races themselves need few operations.
#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kShare = 5;
#else
constexpr uint64_t kShare = 1;
#endif
constexpr int kLanes = 3;
constexpr uint64_t kBacklog =
    8;  // operations of a lane under way: slots turn over, none is needed for another

// Waits for what the other threads will do; false if that takes so long that a thread must be stuck. Time,
// not a number of tries: a thread that the machine does not run for a second is not stuck.
template <class Condition>
bool await(Condition condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        sched_yield();
    }
    return true;
}

struct Launched {
    void* operation = nullptr;
    uint64_t seq = 0;
    int flows = 0;       // that go through all their steps
    bool ghost = false;  // has a flow that never takes a step, nor stops
};

// A launching thread and its proxy thread, with a communicator and a stream of their own.
struct Lane {
    void* context = nullptr;
    std::vector<Launched> launched;
    std::atomic<uint64_t> handed{0};  // how many of them the proxy may work on
    std::atomic<uint64_t> worked{0};  // and has
};

// Reads the ring while it is written, every record of it.
class Drain {
  public:
    explicit Drain(const std::string& path) {
        const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat info{};
        if (file < 0 || fstat(file, &info) != 0) return;
        bytes_ = static_cast<size_t>(info.st_size);
        base_ = static_cast<const char*>(mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, 0));
        ::close(file);
    }
    ~Drain() { munmap(const_cast<char*>(base_), bytes_); }
    Drain(const Drain&) = delete;
    Drain& operator=(const Drain&) = delete;

    const Header& header() const { return *reinterpret_cast<const Header*>(base_); }

    // Takes the next record if it is there.
    bool take() {
        const TableInfo& info = header().tables[static_cast<int>(Table::kRing)];
        const uint64_t at = next_.load(std::memory_order_relaxed);
        const auto& place = *reinterpret_cast<const Record*>(base_ + info.offset +
                                                             uint64_t{info.stride} * (at % info.capacity));
        if (place.sequence.acquire() != 2 * at + 2) return false;
        if (place.kind.get() == kRecordOperation) {
            Operation body;
            auto* words = reinterpret_cast<Cell<uint64_t>*>(&body);
            for (int word = 0; word < 32; ++word) words[word].word = place.body[word].get();
            operations.push_back(body);
        } else {
            ++flows;
        }
        next_.store(at + 1, std::memory_order_release);
        return true;
    }

    // Writers wait for this, so that the ring never runs over.
    bool has_room() const {
        const uint32_t capacity = header().tables[static_cast<int>(Table::kRing)].capacity;
        return header().ring_next.acquire() - next_.load(std::memory_order_acquire) < capacity / 2;
    }

    std::vector<Operation> operations;
    uint64_t flows = 0;

  private:
    const char* base_ = nullptr;
    size_t bytes_ = 0;
    std::atomic<uint64_t> next_{0};
};

class Races : public PluginTest {
  protected:
    void launch_all(Lane& lane, const Drain& drain, uint64_t operations) {
        for (uint64_t seq = 0; seq < operations; ++seq) {
            const bool ready = await([&] {
                return drain.has_room() && seq < lane.worked.load(std::memory_order_acquire) + kBacklog;
            });
            ASSERT_TRUE(ready) << "stuck at operation " << seq;
            Launched& one = lane.launched[seq];
            one.operation = coll(lane.context, nullptr, seq);
            one.seq = seq + 1;
            one.flows = static_cast<int>(seq % 3);
            one.ghost = seq % 12 == 9;        // one without others
            const bool first = seq % 2 == 0;  // the proxy may be faster than the stop
            if (first) lane.handed.store(seq + 1, std::memory_order_release);
            stop(one.operation);
            if (!first) lane.handed.store(seq + 1, std::memory_order_release);
        }
    }

    void work(Lane& lane, uint64_t operations) {
        for (uint64_t at = 0; at < operations; ++at) {
            const bool ready = await([&] { return lane.handed.load(std::memory_order_acquire) > at; });
            ASSERT_TRUE(ready) << "stuck at operation " << at;
            Launched& one = lane.launched[at];
            if (one.ghost) one.ghost = proxy_op(lane.context, one.operation, false, 4, 9) != nullptr;
            std::vector<void*> flows;
            for (int flow = 0; flow < one.flows; ++flow) {
                void* const made = proxy_op(lane.context, one.operation, flow % 2 == 0, 2, 0);
                if (made != nullptr) flows.push_back(made);
            }
            one.flows = static_cast<int>(flows.size());
            for (size_t flow = 0; flow < flows.size(); ++flow) {
                for (int number = 0; number < 2; ++number) {
                    flow % 2 == 0 ? send_step(lane.context, flows[flow], number)
                                  : receive_step(lane.context, flows[flow], number);
                }
                stop(flows[flow]);
            }
            lane.worked.store(at + 1, std::memory_order_release);
        }
    }

    // What the records say of one lane's operations is what was done to them.
    static void check(const Lane& lane, const std::map<uint64_t, std::vector<Operation>>& records,
                      uint64_t& seen_to_end) {
        for (const Launched& one : lane.launched) {
            const auto found = records.find(as_integer(one.operation));
            ASSERT_NE(found, records.end()) << "operation " << one.seq << " has no record";
            const Operation& last = found->second.back();
            EXPECT_EQ(found->second.size(), 1U + last.amended.get()) << "operation " << one.seq;
            EXPECT_EQ(state_of(last), kEnded);
            EXPECT_EQ(control_generation_of(last), generation24(last.handle.get()));
            EXPECT_EQ(last.seq.get(), one.seq);
            EXPECT_EQ(last.comm.get(), handle_slot(as_integer(lane.context)));
            EXPECT_EQ(last.flows_finished.get(), static_cast<uint32_t>(one.flows)) << "operation " << one.seq;
            EXPECT_EQ(last.flows_started.get(), static_cast<uint32_t>(one.flows + (one.ghost ? 1 : 0)));
            EXPECT_NE(last.enqueued_tick.get(), 0U);
            if (one.flows != 0 && !one.ghost) {
                ++seen_to_end;
                EXPECT_EQ(last.end_reason.get(), kByFlows) << "operation " << one.seq;
                EXPECT_GE(last.end_tick.get(), last.launch_tick.get());
            } else {
                EXPECT_NE(last.end_reason.get(), kByFlows) << "operation " << one.seq;
                EXPECT_NE(last.end_reason.get(), kNotEnded) << "operation " << one.seq;
                EXPECT_EQ(last.end_tick.get(), 0U);
            }
            if (HasFailure()) return;  // one is enough
        }
    }

    static uint32_t control_generation_of(const Operation& operation) {
        return static_cast<uint32_t>(operation.control.get() >> 40);
    }

    void turn_over(const char* plugin, uint64_t operations) {
        set("MYCROFT_SHM_BYTES", "256K");
        load(plugin);
        std::vector<Lane> lanes(kLanes);
        for (int i = 0; i < kLanes; ++i) {
            lanes[i].context = open_comm(static_cast<uint64_t>(i) + 1);
            lanes[i].launched.resize(operations);
        }
        Drain drain(files().at(0));
        std::atomic<bool> over{false};
        std::thread drainer([&] {
            while (drain.take() || !over.load(std::memory_order_acquire)) sched_yield();
            while (drain.take()) {
            }
        });
        std::vector<std::thread> threads;
        for (Lane& lane : lanes) {
            threads.emplace_back([&] { launch_all(lane, drain, operations); });
            threads.emplace_back([&] { work(lane, operations); });
        }
        for (std::thread& thread : threads) thread.join();
        for (const Lane& lane : lanes) close(lane.context);
        over.store(true, std::memory_order_release);
        drainer.join();

        std::map<uint64_t, std::vector<Operation>> records;
        for (const Operation& record : drain.operations) records[record.handle.get()].push_back(record);
        uint64_t seen_to_end = 0;
        for (const Lane& lane : lanes) {
            uint64_t ended = seen_to_end;
            ASSERT_NO_FATAL_FAILURE(check(lane, records, seen_to_end));
            ended = seen_to_end - ended;
            EXPECT_EQ(read_comm(lane.context).ended_count.get(), ended);
        }
        const File now = file();
        EXPECT_EQ(now.drops(kDropRing), 0U);
        EXPECT_EQ(drain.operations.size() + drain.flows, now.header().ring_next.get());
        every_flow_slot_once();
    }

    // No slot was lost, none is on the free list twice: as many flows as there are slots, each in its own.
    void every_flow_slot_once() {
        const uint32_t capacity = file().capacity(Table::kFlows);
        void* const comm = open_comm(99);
        std::set<uint32_t> slots;
        uint32_t made = 0;
        for (uint32_t i = 0; i < 2 * capacity; ++i) {
            void* const operation = i % 8 == 0 || slots.empty() ? coll(comm, nullptr, i) : last_;
            last_ = operation;
            void* const flow = proxy_op(comm, operation, true, 2);
            if (flow == nullptr) continue;
            ++made;
            slots.insert(handle_slot(as_integer(flow)));
        }
        EXPECT_EQ(made, capacity);
        EXPECT_EQ(slots.size(), capacity);
    }

    void* last_ = nullptr;
};

TEST_F(Races, SlotsTurnOverUnderManyThreads) {
    turn_over(PLUGIN_PATH, 20'000 / kShare);
}

TEST_F(Races, SlotsTurnOverWhileThreadsLetEachOtherPass) {
    turn_over(SHAKEN_PATH, 30'000 / kShare);
}

// The proxy thread of one communicator is late: another's on the same stream shows that its GPU is further
// on.
TEST_F(Races, AnOperationOvertakenBeforeItsStepsIsSeenToEnd) {
    load();
    void* const late = open_comm(1);
    void* const fast = open_comm(2);
    void* const stream = as_pointer(0x5000);
    const Collective first = collective(late, 0, 2, stream);
    for (uint64_t seq = 0; seq < 40; ++seq) run(fast, collective(fast, seq, 1, stream), 1);
    EXPECT_EQ(read_operation(first.operation).end_reason.get(), kBySuccessor);
    send_step(late, first.send, 0);
    EXPECT_EQ(state_of(read_operation(first.operation)), kOpen);
    send_step(late, first.send, 1);
    receive_step(late, first.receive, 0);
    receive_step(late, first.receive, 1);
    const Operation ended = read_operation(first.operation);
    EXPECT_EQ(state_of(ended), kEnded);
    EXPECT_EQ(ended.end_reason.get(), kByFlows);
    EXPECT_EQ(ended.amended.get(), 1);
    EXPECT_NE(ended.end_tick.get(), 0U);
    EXPECT_EQ(read_comm(late).ended_count.get(), 1U);
    std::vector<uint8_t> reasons;
    for (const Operation& record : file().operations()) {
        if (record.handle.get() == as_integer(first.operation)) reasons.push_back(record.end_reason.get());
    }
    EXPECT_EQ(reasons, (std::vector<uint8_t>{kBySuccessor, kByFlows}));
}

TEST_F(Races, AFlowStartedWhileTheTableIsSearchedIsNotTakenForAnOldOne) {
    set("MYCROFT_SHM_BYTES", "256K");
    load(SHAKEN_PATH);
    const uint32_t capacity = [&] {
        open_comm(1);
        return file().capacity(Table::kFlows);
    }();
    // Flows of another process: nothing tells when their operation has ended, so only long silence does.
    constexpr pid_t kElsewhere = 1;
    std::atomic<uint32_t> lost{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            std::deque<void*> mine;
            auto finish_oldest = [&] {
                void* const one = step(nullptr, mine.front(), 0);
                if (one == nullptr) lost.fetch_add(1);
                stop(one);
                mine.pop_front();
            };
            for (uint32_t round = 0; round < 20'000 / kShare; ++round) {
                void* const flow = proxy_op(nullptr, as_pointer(0x1234), true, 1, 0, kElsewhere);
                if (flow != nullptr) mine.push_back(flow);
                if (flow == nullptr || mine.size() > capacity / 4) finish_oldest();
            }
            while (!mine.empty()) finish_oldest();
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(lost.load(), 0U);
    every_flow_slot_once();
}

}  // namespace
}  // namespace mycroft::test
