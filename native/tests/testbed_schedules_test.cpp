// Schedules by their results: every rank's works run on FIFOs in memory, and what comes out is what the
// collective's definition says.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>

#include "execution.h"
#include "layout.h"
#include "schedules.h"

namespace mycroft::testbed {
namespace {

Plan plan_of(const std::vector<int>& hosts, const std::string& algorithm, int channels = 2) {
    std::ostringstream text;
    text << "channels " << channels << "\nslot 1024\n";
    for (const int host : hosts) text << "rank " << host << " 127.0.0.1 1\n";
    text << "communicator 1 all " << algorithm;
    for (size_t rank = 0; rank < hosts.size(); ++rank) text << ' ' << rank;
    std::istringstream in(text.str());
    return read_plan(in);
}

// A communicator whose legs all are FIFOs of this process.
class Bench {
  public:
    explicit Bench(const Plan& plan) : plan_(plan), legs_(legs_of(plan)) {
        for (size_t index = 0; index < legs_.size(); ++index) {
            memory_.push_back(std::make_unique<char[]>(Fifo::bytes(plan.slot_bytes) + 64));
            const auto at = reinterpret_cast<uintptr_t>(memory_.back().get());
            Fifo* const fifo = new (memory_.back().get() + (64 - at % 64)) Fifo;
            send_.push_back(SendEnd{fifo, true, plan.slot_bytes, [] {}, 0});
            receive_.push_back(ReceiveEnd{fifo, plan.slot_bytes, [] {}, 0});
        }
    }

    // Runs until nobody can go on; true where everybody is done.
    bool run(Func func, int root, size_t count, const std::vector<std::vector<float>>& inputs,
             std::vector<std::vector<float>>& outputs) {
        const Communicator& all = plan_.communicators[0];
        std::vector<Execution> executions;
        for (int rank = 0; rank < all.size(); ++rank) {
            const auto at = static_cast<size_t>(rank);
            for (Work& work : collective(plan_, all, rank, func, root, count)) {
                std::vector<ReceiveEnd*> from;
                std::vector<SendEnd*> to;
                for (const End& end : work.from)
                    from.push_back(&receive_[leg(end.kind, end.peer, rank, work)]);
                for (const End& end : work.to) to.push_back(&send_[leg(end.kind, rank, end.peer, work)]);
                executions.emplace_back(std::move(work), from, to, inputs[at].data(), outputs[at].data());
            }
        }
        bool moved = true;
        bool done = false;
        while (moved && !done) {
            moved = false;
            done = true;
            for (Execution& one : executions) {
                if (!one.done() && one.ready()) {
                    one.perform();
                    moved = true;
                }
                done = done && one.done();
            }
        }
        return done;
    }

  private:
    size_t leg(LegKind kind, int from, int to, const Work& work) const {
        for (size_t index = 0; index < legs_.size(); ++index) {
            const Leg& one = legs_[index];
            if (one.kind == kind && one.from == from && one.to == to && one.channel == work.channel)
                return index;
        }
        ADD_FAILURE() << "no leg from " << from << " to " << to;
        return 0;
    }

    const Plan& plan_;
    std::vector<Leg> legs_;
    std::vector<std::unique_ptr<char[]>> memory_;
    std::vector<SendEnd> send_;
    std::vector<ReceiveEnd> receive_;
};

float value(size_t rank, size_t i) {
    return static_cast<float>((rank * 31 + i * 7) % 97);
}

struct Case {
    std::vector<int> hosts;
    std::string algorithm;
    size_t count;
};

class Collectives : public testing::TestWithParam<Case> {
  protected:
    // Input of `wide` blocks of `count` for each rank, output likewise.
    void run(Func func, size_t in_blocks, size_t out_blocks, int root = 0) {
        const Plan plan = plan_of(GetParam().hosts, GetParam().algorithm);
        ranks_ = plan.ranks.size();
        count_ = GetParam().count;
        for (size_t rank = 0; rank < ranks_; ++rank) {
            inputs_.emplace_back(count_ * in_blocks);
            outputs_.emplace_back(count_ * out_blocks, -1.0F);
            for (size_t i = 0; i < count_ * in_blocks; ++i) inputs_[rank][i] = value(rank, i);
        }
        Bench bench(plan);
        ASSERT_TRUE(bench.run(func, root, count_, inputs_, outputs_));
        // A second time on the same legs: their counters go on.
        ASSERT_TRUE(bench.run(func, root, count_, inputs_, outputs_));
    }

    float sum(size_t i) const {
        float total = 0;
        for (size_t rank = 0; rank < ranks_; ++rank) total += value(rank, i);
        return total;
    }

    size_t ranks_ = 0;
    size_t count_ = 0;
    std::vector<std::vector<float>> inputs_;
    std::vector<std::vector<float>> outputs_;
};

TEST_P(Collectives, AllReduceSums) {
    run(Func::all_reduce, 1, 1);
    for (size_t rank = 0; rank < ranks_; ++rank)
        for (size_t i = 0; i < count_; ++i) ASSERT_EQ(outputs_[rank][i], sum(i)) << rank << " " << i;
}

TEST_P(Collectives, ReduceScatterGivesEachItsBlock) {
    run(Func::reduce_scatter, GetParam().hosts.size(), 1);
    for (size_t rank = 0; rank < ranks_; ++rank)
        for (size_t i = 0; i < count_; ++i)
            ASSERT_EQ(outputs_[rank][i], sum(rank * count_ + i)) << rank << " " << i;
}

TEST_P(Collectives, AllGatherJoinsByRank) {
    run(Func::all_gather, 1, GetParam().hosts.size());
    for (size_t rank = 0; rank < ranks_; ++rank)
        for (size_t from = 0; from < ranks_; ++from)
            for (size_t i = 0; i < count_; ++i)
                ASSERT_EQ(outputs_[rank][from * count_ + i], value(from, i))
                    << rank << " " << from << " " << i;
}

TEST_P(Collectives, BroadcastFromTheLastRank) {
    const auto root = static_cast<int>(GetParam().hosts.size()) - 1;
    run(Func::broadcast, 1, 1, root);
    for (size_t rank = 0; rank < ranks_; ++rank)
        for (size_t i = 0; i < count_; ++i)
            ASSERT_EQ(outputs_[rank][i], value(static_cast<size_t>(root), i)) << rank << " " << i;
}

// One element; less than a slot; many loops with a rest that divides by nothing. A slot holds 256 elements.
INSTANTIATE_TEST_SUITE_P(Layouts, Collectives,
                         testing::Values(Case{{0, 1}, "ring", 1}, Case{{0, 1}, "ring", 20011},
                                         Case{{0, 0, 1, 1}, "ring", 100}, Case{{0, 0, 1, 1}, "ring", 10007},
                                         Case{{0, 1, 0, 1, 2}, "ring", 9001},
                                         Case{{0, 0, 0, 1, 1, 1, 2}, "ring", 12345},
                                         Case{{0, 1}, "tree", 9001}, Case{{0, 0, 1, 1, 2, 2}, "tree", 9001},
                                         Case{{0, 1, 2, 3, 4}, "tree", 1},
                                         Case{{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, "tree", 5000}));

TEST(RingOrder, GoesHostByHost) {
    EXPECT_EQ(ring_order(plan_of({0, 1, 0, 1}, "ring"), plan_of({0, 1, 0, 1}, "ring").communicators[0]),
              (std::vector<int>{0, 2, 1, 3}));
}

TEST(RingSteps, AreTwoForEachChunk) {
    // As NCCL: 2 (n - 1) chunks of two slices each way, the second empty for little data.
    const Plan plan = plan_of({0, 1, 2, 3}, "ring");
    const auto works = collective(plan, plan.communicators[0], 1, Func::all_reduce, 0, 512);
    ASSERT_EQ(works.size(), 1U);
    EXPECT_EQ(works[0].steps_received(), 12);
    EXPECT_EQ(works[0].steps_sent(), 12);
    EXPECT_EQ(works[0].depth, 4);
    EXPECT_EQ(works[0].actions[0].count, 128U);
    EXPECT_EQ(works[0].actions[1].count, 0U);
}

TEST(BroadcastSteps, TheEndsOfTheRingUseOneLeg) {
    const Plan plan = plan_of({0, 1, 2}, "ring");
    const auto steps = [&](int rank) {
        const auto work = collective(plan, plan.communicators[0], rank, Func::broadcast, 1, 300).at(0);
        return std::make_pair(work.steps_received(), work.steps_sent());
    };
    EXPECT_EQ(steps(1), (std::pair{0, 2}));
    EXPECT_EQ(steps(2), (std::pair{2, 2}));
    EXPECT_EQ(steps(0), (std::pair{2, 0}));
}

TEST(Tree, OneRankOfAHostHasTheParent) {
    const Plan plan = plan_of({0, 0, 1, 1, 2, 2, 3, 3}, "tree");
    for (int channel = 0; channel < 2; ++channel) {
        const auto tree = tree_of(plan, plan.communicators[0], channel);
        int roots = 0;
        for (int rank = 0; rank < 8; ++rank) {
            const TreePlace& place = tree[static_cast<size_t>(rank)];
            roots += place.parent < 0 ? 1 : 0;
            if (rank % 2 == 1) {
                EXPECT_EQ(place.parent, rank - 1) << "the second of a host hangs on the first";
            } else if (place.parent >= 0) {
                EXPECT_NE(place.parent / 2, rank / 2);
            }
            EXPECT_LE(place.children.size(), 2U);
        }
        EXPECT_EQ(roots, 1);
    }
    EXPECT_NE(tree_of(plan, plan.communicators[0], 0)[0].parent,
              tree_of(plan, plan.communicators[0], 1)[0].parent);
}

TEST(Legs, AreLocalInsideAHostOnly) {
    const Plan plan = plan_of({0, 0, 1, 1}, "ring", 1);
    const auto legs = legs_of(plan);
    ASSERT_EQ(legs.size(), 4U);
    EXPECT_EQ(std::vector<bool>({legs[0].local, legs[1].local, legs[2].local, legs[3].local}),
              std::vector<bool>({true, false, true, false}));
    EXPECT_EQ(local_legs(plan, legs, 0), 1);
    EXPECT_EQ(local_legs(plan, legs, 1), 1);
}

TEST(PlanText, WhatIsSeldomRunsInEveryNthStepAndNotInTheFirst) {
    std::istringstream text(
        "rank 0 127.0.0.1 1\ncommunicator 1 all ring 0\nprogramme 0\ncompute 5\nhost 6\nuneven 7\n"
        "every 3 host 8\nevery 2 coll AllReduce 0 16 0\n");
    const auto programme = read_plan(text).programmes[0];
    ASSERT_EQ(programme.size(), 5U);
    using Kind = Instruction::Kind;
    const Kind kinds[] = {Kind::compute, Kind::host, Kind::uneven, Kind::host, Kind::coll};
    const std::vector<long> due[] = {
        {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, {2, 5}, {1, 3, 5}};
    for (size_t number = 0; number < programme.size(); ++number) {
        EXPECT_EQ(programme[number].kind, kinds[number]);
        EXPECT_EQ(programme[number].communicates(), number == 4);
        std::vector<long> runs;
        for (long step = 0; step < 6; ++step) {
            if (programme[number].due(step)) runs.push_back(step);
        }
        EXPECT_EQ(runs, due[number]);
    }
    EXPECT_EQ(programme[3].milliseconds, 8);
    EXPECT_EQ(programme[4].count, 16U);
}

TEST(PlanText, SaysWhichLineIsWrong) {
    std::istringstream text("channels 2\nrank 0 127.0.0.1 1\nprogramme 0\ncoll Reduce 0 5 0\n");
    try {
        read_plan(text);
        FAIL();
    } catch (const std::runtime_error& error) {
        EXPECT_NE(std::string(error.what()).find("plan line 4"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("unknown function Reduce"), std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace mycroft::testbed
