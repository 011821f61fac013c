// The collector's native part on files made by hand: what a glance says, second copies, rings, and garbage.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "host.h"
#include "ring.h"

namespace mycroft::collector {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000'000'000;  // ticks are ns of the monotonic clock in these files
constexpr int64_t kAge = 150 * kMs;
constexpr uint32_t kSlots = 16;
constexpr size_t kRows[] = {sizeof(Communicator), sizeof(Stream), sizeof(Call),  sizeof(Operation),
                            sizeof(Flow),         sizeof(Pair),   sizeof(Record)};

// A file of the plugin, in memory.
class Made {
  public:
    Made(uint64_t id, uint32_t longer = 0) : fd_(memfd_create("made", MFD_CLOEXEC)) {
        source.id = id;
        source.nonce = id * 0x1111;
        source.fd = fd_;
        source.pid = 7;
        source.cursor = &cursor;
        uint64_t offset = sizeof(Header);
        for (int table = 0; table < kTables; ++table) {
            const auto stride = static_cast<uint32_t>(kRows[table]) + longer;
            source.places[table] = {offset, stride, kSlots};
            offset += uint64_t{stride} * kSlots;
        }
        size_ = offset;
        EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size_)), 0);
        bytes_ = static_cast<uint8_t*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
        header().magic = kMagic;
        header().layout_version = kLayoutVersion;
        header().nonce = source.nonce;
        header().pid = source.pid;
        header().tick_hz = 1'000'000'000;
        header().start_anchor.ticks.set(kStart);
        header().start_anchor.monotonic_ns.set(kStart);
        for (TableInfo& info : header().tables) info.used.set(kSlots);
    }
    ~Made() {
        munmap(bytes_, size_);
        close(fd_);
    }
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;

    Header& header() { return *reinterpret_cast<Header*>(bytes_); }
    template <class Row>
    Row& row(Table table, uint64_t slot) {
        const Place& place = source.place(table);
        return *reinterpret_cast<Row*>(bytes_ + place.offset + place.stride * slot);
    }
    Operation& operation(uint64_t slot, int64_t launched, Visible visible = kFlows) {
        auto& made = row<Operation>(Table::kOperations, slot);
        made.control.set(uint64_t{5} << 40 | uint64_t{kOpen} << 32);
        made.handle.set(100 + slot);
        made.launch_tick.set(static_cast<uint64_t>(launched));
        made.visibility.set(visible);
        return made;
    }
    Flow& flow(uint64_t slot) {
        auto& made = row<Flow>(Table::kFlows, slot);
        made.generation.set(2);
        made.state.set(kFlowOpen);
        return made;
    }
    void finish(RecordKind kind, uint64_t mark) {
        const uint64_t number = header().ring_next.get();
        auto& record = row<Record>(Table::kRing, number % kSlots);
        record.kind.set(kind);
        record.body[1].set(mark);
        record.sequence.set(2 * number + 2);
        header().ring_next.set(number + 1);
    }
    void cut(uint64_t bytes) { ASSERT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0); }
    uint8_t* bytes() { return bytes_; }
    size_t size() const { return size_; }

    Source source{};
    Cursor cursor{};

  private:
    int fd_;
    size_t size_ = 0;
    uint8_t* bytes_ = nullptr;
};

// What Python keeps: room for everything, exactly as much as there may be, so that a sanitizer sees one more.
class Reading {
  public:
    explicit Reading(std::vector<Made*> files) : files_(std::move(files)) {
        std::vector<Source> sources;
        for (const Made* each : files_) sources.push_back(each->source);
        host.sources(sources.data(), sources.size());
        const size_t count = files_.size(), rows = count * kSlots;
        headers_.resize(count * kHotHeaderBytes);
        failed.resize(count);
        clocks.resize(count);
        heard.resize(count);
        counts_.resize(count * kTables);
        for (auto* each : {&operations_, &second_operations_}) each->resize(rows * sizeof(Operation));
        for (auto* each : {&flows_, &second_flows_}) each->resize(rows * sizeof(Flow));
        for (auto* each : {&places_, &where_, &flow_places_, &flow_where_, &a_, &b_, &c_}) each->resize(rows);
        shown_.resize(rows);
        communicators_.resize(rows * sizeof(Communicator));
        streams_.resize(rows * sizeof(Stream));
        found = {headers_.data(),
                 failed.data(),
                 clocks.data(),
                 heard.data(),
                 counts_.data(),
                 operations_.data(),
                 places_.data(),
                 where_.data(),
                 shown_.data(),
                 flows_.data(),
                 flow_places_.data(),
                 flow_where_.data(),
                 rows,
                 rows,
                 0,
                 0,
                 0,
                 0};
    }

    Verdict glance(int64_t now, bool looks = false) {
        const Verdict verdict = host.headers(found);
        return verdict >= kFailed ? verdict : host.glance(found, now, kAge, looks);
    }
    Verdict look() {
        const Verdict verdict = host.tables(found, communicators_.data(), streams_.data());
        if (verdict == kFailed) return verdict;
        const std::vector<uint8_t> all(found.operations_open, 1);
        again = {second_operations_.data(), a_.data(), second_flows_.data(), b_.data(), c_.data(), 0, 0, 0};
        return host.again(found, all.data(), again);
    }
    std::vector<uint64_t> handles() const {
        std::vector<uint64_t> handles;
        for (uint64_t at = 0; at < again.operation_count; ++at)
            handles.push_back(reinterpret_cast<const Operation*>(again.operations)[at].handle.get());
        return handles;
    }

    Host host;
    Found found{};
    Again again{};
    std::vector<int32_t> failed;
    std::vector<Clock> clocks;
    std::vector<Heard> heard;

  private:
    std::vector<Made*> files_;
    std::vector<uint8_t> headers_, operations_, second_operations_, flows_, second_flows_, shown_;
    std::vector<uint8_t> communicators_, streams_;
    std::vector<int64_t> counts_, places_, where_, flow_places_, flow_where_, a_, b_, c_;
};

TEST(Glance, WhatIsYoungOrNotThereIsCalm) {
    Made made(1);
    Reading reading({&made});
    EXPECT_EQ(reading.glance(kStart), kCalm);
    made.operation(3, kStart);
    EXPECT_EQ(reading.glance(kStart + kAge - 1), kCalm);
    EXPECT_EQ(reading.glance(kStart + kAge), kMoved);
    EXPECT_EQ(reading.glance(kStart + kAge + 100 * kMs), kStill);
}

TEST(Glance, OperationsWithoutSignsCountWhereTheirGpuIsAtRest) {
    Made made(1), other(2);
    Reading reading({&made, &other});
    made.operation(0, kStart, kLaunch);
    made.header().moved_tick.set(kStart + 1000 * kMs);
    EXPECT_EQ(reading.glance(kStart + 1100 * kMs), kCalm);
    EXPECT_EQ(reading.glance(kStart + 1150 * kMs), kStill);  // it shows nothing that could have moved
    EXPECT_EQ(reading.glance(kStart + 1250 * kMs), kStill);
    other.operation(0, kStart, kLaunch);
    EXPECT_EQ(reading.glance(kStart + 1350 * kMs), kStill);
}

TEST(Glance, AnOldFlowOfAnotherProcessIsNotCalm) {
    Made made(1);
    Reading reading({&made});
    made.flow(2).start_tick.set(kStart);
    EXPECT_EQ(reading.glance(kStart + 1000 * kMs), kCalm);
    made.flow(2).flags.set(kFlowForeign);
    EXPECT_EQ(reading.glance(kStart + 1100 * kMs), kMoved);
}

TEST(Glance, CountersAndStatesAreMovementAndPollsAreNot) {
    Made made(1);
    Reading reading({&made});
    Operation& operation = made.operation(0, kStart);
    Flow& flow = made.flow(5);
    int64_t now = kStart + 1000 * kMs;
    const auto next = [&] { return reading.glance(now += 100 * kMs); };
    EXPECT_EQ(next(), kMoved);
    flow.no_credit.bump(50);
    flow.calls.bump(50);
    EXPECT_EQ(next(), kStill);
    flow.counters[1].bump();
    EXPECT_EQ(next(), kMoved);
    flow.head_state.set(kSendNet);
    EXPECT_EQ(next(), kMoved);
    operation.kernels_stopped.set(1);
    EXPECT_EQ(next(), kMoved);
    flow.state.set(kFlowFinished);
    EXPECT_EQ(next(), kMoved);
    EXPECT_EQ(next(), kStill);
}

TEST(Glance, ProcessesAreHeardOfByAnyCallbackAndTheirProxiesByTheirs) {
    Made made(1), gone(2);
    Reading reading({&gone, &made});
    made.flow(0).calls.set(10);
    ASSERT_EQ(reading.glance(kStart), kCalm);
    const int64_t later = kStart + 100 * kMs, last = kStart + 200 * kMs, end = kStart + 300 * kMs;
    made.header().callbacks.set(5);
    reading.glance(later);
    EXPECT_EQ(reading.heard[1].calls, 15U);
    EXPECT_EQ(reading.heard[1].any_since, later);
    EXPECT_EQ(reading.heard[1].proxy_since, kStart);
    EXPECT_EQ(reading.heard[0].any_since, kStart);
    made.flow(0).state.set(kFlowFinished);  // its callbacks are the process's now
    made.header().callbacks.set(15);
    reading.glance(last);
    EXPECT_EQ(reading.heard[1].any_since, later);
    EXPECT_EQ(reading.heard[1].proxy_since, last);
    made.row<Communicator>(Table::kCommunicators, 1).proxy_calls.set(3);
    reading.glance(end, true);
    ASSERT_EQ(reading.look(), kCalm);
    EXPECT_EQ(reading.heard[1].calls, 18U);
    EXPECT_EQ(reading.heard[1].proxy_since, end);
    const Source only = made.source;
    reading.host.sources(&only, 1);  // who stays is remembered
    reading.glance(end + 100 * kMs);
    EXPECT_EQ(reading.heard[0].any_since, end);
}

TEST(Glance, SaysWhatCannotBeReadAndWhy) {
    Made good(1), changed(2), cut(3), timeless(4);
    Reading reading({&good, &changed, &cut, &timeless});
    changed.header().nonce = 99;
    timeless.header().tick_hz = 0;
    cut.cut(sizeof(Header));
    EXPECT_EQ(reading.host.headers(reading.found), kFailed);
    EXPECT_EQ(reading.failed, (std::vector<int32_t>{kFine, kChangedHands, kFine, kNoClock}));
    changed.header().nonce = changed.source.nonce;
    timeless.header().tick_hz = 1'000'000'000;
    EXPECT_EQ(reading.glance(kStart), kFailed);
    EXPECT_EQ(reading.failed, (std::vector<int32_t>{kFine, kFine, kCut, kFine}));
    cut.cut(100);
    EXPECT_EQ(reading.glance(kStart), kFailed);
}

TEST(Glance, AsksForRoom) {
    Made made(1);
    Reading reading({&made});
    reading.found.flow_room = kSlots - 1;
    EXPECT_EQ(reading.glance(kStart), kNoRoom);
    EXPECT_EQ(reading.found.flow_count, kSlots);
    made.header().tables[static_cast<int>(Table::kFlows)].used.set(~0U);
    reading.found.flow_room = kSlots;
    EXPECT_EQ(reading.glance(kStart), kCalm);
}

TEST(Clocks, RateComesFromTwoAnchorsASecondApartAndTheLastGoodOneCounts) {
    Made made(1);
    Reading reading({&made});
    Anchor& now = made.header().anchor;
    now.ticks.set(kStart + 6'000'000'000);
    now.monotonic_ns.set(kStart + 2'000'000'000);
    ASSERT_EQ(reading.glance(kStart), kCalm);
    EXPECT_EQ(reading.clocks[0].rate, 3.0);
    EXPECT_EQ(ticks_at(reading.clocks[0], kStart + 1'000'000'000), kStart + 3'000'000'000);
    EXPECT_EQ(ticks_at(reading.clocks[0], 0), 0);
    now.version.set(1);
    now.ticks.set(1);
    ASSERT_EQ(reading.glance(kStart), kCalm);
    EXPECT_EQ(reading.clocks[0].rate, 3.0);
}

TEST(Look, SecondCopiesAreOfTheSameThings) {
    Made first(1), second(2, 64);  // the second by a newer plugin, whose rows are longer
    Reading reading({&first, &second});
    for (Made* made : {&first, &second}) {
        for (const uint64_t slot : {2, 5, 9}) made->operation(slot, kStart);
        for (const uint64_t slot : {0, 15}) made->flow(slot);
    }
    ASSERT_EQ(reading.glance(kStart, true), kMoved);
    ASSERT_EQ(reading.found.operations_open, 6U);
    first.operation(5, kStart).handle.set(1);                                             // another's
    second.operation(9, kStart).control.set(uint64_t{5} << 40 | uint64_t{kEnded} << 32);  // over
    second.operation(2, kStart).moved_tick.set(7);                                        // it moves
    second.flow(0).parent.set(1);
    ASSERT_EQ(reading.look(), kCalm);
    EXPECT_EQ(reading.handles(), (std::vector<uint64_t>{102, 109, 102, 105}));
    EXPECT_EQ(reinterpret_cast<const Operation*>(reading.again.operations)[2].moved_tick.get(), 7U);
    EXPECT_EQ(reading.again.flow_count, 3U);
    EXPECT_EQ(reading.again.flow_slots[2], 15);
    EXPECT_EQ(reading.again.torn, 2U);
    second.cut(sizeof(Header));
    EXPECT_EQ(reading.look(), kFailed);
    EXPECT_EQ(reading.failed[1], kCut);
}

std::vector<uint64_t> drained(Made& made, uint64_t& lost) {
    const uint64_t end = made.header().ring_next.get();
    const uint64_t room = waiting(made.source, end);
    std::vector<uint8_t> operations(room * sizeof(Operation)), flows(room * sizeof(Flow));
    Drained into{operations.data(), flows.data(), 0, 0, 0, 0};
    EXPECT_TRUE(drain(made.source, end, into));
    lost = into.lost;
    std::vector<uint64_t> marks;
    for (uint64_t at = 0; at < into.operation_count; ++at)
        marks.push_back(reinterpret_cast<const Operation*>(operations.data())[at].handle.get());
    return marks;
}

TEST(Ring, IsDrainedInOrderOnceAndOverItsEnd) {
    Made made(1);
    uint64_t lost = 0, mark = 0;
    for (int round = 0; round < 5; ++round) {
        std::vector<uint64_t> expected;
        for (int each = 0; each < 7; ++each) {
            made.finish(kRecordOperation, ++mark);
            expected.push_back(mark);
        }
        EXPECT_EQ(drained(made, lost), expected);
        EXPECT_EQ(lost, 0U);
        EXPECT_EQ(made.cursor.behind, 0U);
    }
    EXPECT_TRUE(drained(made, lost).empty());
}

TEST(Ring, SaysWhenItFillsAndWhatWasLost) {
    Made made(1);
    Reading reading({&made});
    for (uint64_t mark = 1; mark <= 5; ++mark) made.finish(kRecordOperation, mark);
    EXPECT_EQ(reading.host.headers(reading.found), kFilling);
    for (uint64_t mark = 6; mark <= 20; ++mark) made.finish(kRecordOperation, mark);
    uint64_t lost = 0;
    EXPECT_EQ(drained(made, lost).front(), 5U);
    EXPECT_EQ(lost, 4U);
    EXPECT_EQ(reading.host.headers(reading.found), kCalm);
}

TEST(Collector, SurvivesAnyBytes) {
    std::mt19937_64 dice(20261202);
    const uint64_t odd[] = {0, 1, 0x7F, 0xFF, 0x7FFF'FFFF, 0xFFFF'FFFF, ~0ULL >> 1, ~0ULL};
    for (int file = 0; file < 40; ++file) {
        Made bad(1), good(2);
        Reading reading({&bad, &good});
        for (uint64_t slot = 0; slot < kSlots; ++slot) {
            bad.operation(slot, kStart, static_cast<Visible>(1 + slot % 3));
            bad.flow(slot).start_tick.set(kStart);
            bad.finish(slot % 2 == 0 ? kRecordOperation : kRecordFlow, slot);
        }
        for (int round = 0; round < 200; ++round) {
            for (uint64_t words = dice() % 8; words > 0; --words) {
                const bool in_header = dice() % 2 == 0;
                const uint64_t place = dice() % (in_header ? kHotHeaderBytes : bad.size() - 8) & ~uint64_t{7};
                const uint64_t value = dice() % 2 == 0 ? odd[dice() % std::size(odd)] : dice();
                std::memcpy(bad.bytes() + place, &value, sizeof value);
            }
            if (round % 2 == 0) {  // else it is refused for good, and nothing more is seen
                bad.header().magic = kMagic;
                bad.header().layout_version = kLayoutVersion;
                bad.header().nonce = bad.source.nonce;
                bad.header().pid = bad.source.pid;
            }
            const int64_t now = kStart + round * 100 * kMs;
            const Verdict verdict = reading.glance(now, round % 3 == 0);
            EXPECT_EQ(reading.failed[1], kFine);
            if (verdict < kFilling) reading.look();
            uint64_t lost = 0;
            drained(bad, lost);
        }
    }
}

}  // namespace
}  // namespace mycroft::collector
