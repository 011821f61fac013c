// Connections, flows and the GPU between real threads and sockets: the order of what a profiler is told, what
// a lost credit leaves, and that data arrives whole.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <thread>

#include "gpu.h"
#include "proxy.h"
#include "switchboard.h"
#include "transport.h"

namespace mycroft::testbed {
namespace {

struct Wire {
    explicit Wire(Network network) {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) throw std::runtime_error("socketpair");
        for (const int fd : fds) {
            const int bytes = kSocketBuffer;
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        }
        sender = std::make_unique<SendConnection>(fds[0], network);
        receiver = std::make_unique<ReceiveConnection>(fds[1], network);
    }
    ~Wire() {
        close(sender->fd());
        close(receiver->fd());
    }
    std::unique_ptr<SendConnection> sender;
    std::unique_ptr<ReceiveConnection> receiver;
};

TEST(Sockets, TakeASendThatNobodyHasPosted) {
    Wire wire(Network::sockets);
    const std::string data = "some bytes";
    EXPECT_TRUE(wire.sender->isend(data.data(), data.size()));
    EXPECT_EQ(wire.sender->done(), 1U) << "it lies in the kernel's buffer";
    EXPECT_EQ(wire.receiver->received(), 0U);
    char into[64];
    wire.receiver->irecv(into, sizeof into);
    EXPECT_EQ(wire.receiver->received(), 1U);
    EXPECT_EQ(std::string(into, wire.receiver->bytes(0)), data);
}

TEST(Credits, RefuseASendUntilTheReceiveIsPosted) {
    Wire wire(Network::credits);
    const char data[] = "x";
    char into[8];
    EXPECT_FALSE(wire.sender->isend(data, 1));
    EXPECT_TRUE(wire.sender->lacks_credit());
    wire.receiver->irecv(into, sizeof into);
    EXPECT_TRUE(wire.sender->isend(data, 1));
    EXPECT_FALSE(wire.sender->isend(data, 1)) << "one credit, one send";
    EXPECT_EQ(wire.receiver->received(), 1U);
}

TEST(Credits, ALostOneIsMissedForEver) {
    Wire wire(Network::credits);
    const char data[] = "x";
    char into[8];
    wire.receiver->lose_credit();
    wire.receiver->irecv(into, sizeof into);
    wire.receiver->irecv(into, sizeof into);
    EXPECT_FALSE(wire.sender->isend(data, 1)) << "the second credit does not stand for the first";
}

TEST(Connections, EmptyAndLargeStepsArriveInOrder) {
    Wire wire(Network::sockets);
    std::vector<char> large(200'000);
    std::iota(large.begin(), large.end(), static_cast<char>(0));
    std::vector<char> into(large.size());
    char nothing[1];
    EXPECT_TRUE(wire.sender->isend(nothing, 0));
    EXPECT_TRUE(wire.sender->isend(large.data(), large.size()));
    EXPECT_EQ(wire.sender->done(), 1U) << "more than the kernel's buffer holds";
    EXPECT_TRUE(wire.sender->wants_write());
    wire.receiver->irecv(nothing, sizeof nothing);
    wire.receiver->irecv(into.data(), into.size());
    for (int turn = 0; turn < 10'000 && wire.receiver->received() < 2; ++turn) wire.sender->done();
    EXPECT_EQ(wire.receiver->received(), 2U);
    EXPECT_EQ(wire.receiver->bytes(0), 0U);
    EXPECT_EQ(into, large);
    EXPECT_EQ(wire.sender->done(), 2U);
}

TEST(Connections, KnowWhenTheOtherEndIsGone) {
    Wire wire(Network::sockets);
    char into[8];
    shutdown(wire.sender->fd(), SHUT_RDWR);
    wire.receiver->irecv(into, sizeof into);
    wire.receiver->received();
    EXPECT_TRUE(wire.receiver->broken());
}

TEST(Switchboard, CutsLimitsAndRestores) {
    Switchboard board(3);
    EXPECT_TRUE(board.passes(0, 1));
    board.cut_link(0, 1);
    EXPECT_FALSE(board.passes(0, 1));
    EXPECT_FALSE(board.passes(1, 0));
    EXPECT_TRUE(board.passes(0, 2));
    board.restore_link(1, 0);
    EXPECT_TRUE(board.passes(0, 1));
    board.cut_host(2, true);
    EXPECT_FALSE(board.passes(0, 2));
    EXPECT_FALSE(board.passes(2, 1));
    EXPECT_EQ(board.allowance(0, 1, 5000, 1), 5000U) << "no limit";
    board.limit(0, 1000);
    const int64_t second = 1'000'000'000;
    EXPECT_EQ(board.allowance(0, 1, 100, 100 * second), 100U);
    board.sent(0, 1, 1044);  // all that it may save up: a fiftieth of a second and 1 KiB
    EXPECT_EQ(board.allowance(0, 1, 100, 100 * second), 0U);
    EXPECT_EQ(board.allowance(0, 1, 5000, 101 * second), 1000U);
}

TEST(Switchboard, LimitsEachWayAndLink) {
    Switchboard board(3);
    const int64_t second = 1'000'000'000;
    board.limit_received(1, 1000);
    EXPECT_EQ(board.allowance(0, 1, 5000, 100 * second), 1044U) << "what 1 receives";
    board.sent(0, 1, 1044);
    EXPECT_EQ(board.allowance(2, 1, 5000, 100 * second), 0U) << "from whomever";
    EXPECT_EQ(board.allowance(1, 0, 5000, 100 * second), 5000U) << "and not what it sends";
    board.limit_link(0, 2, 2000);
    EXPECT_EQ(board.allowance(0, 2, 5000, 100 * second), 1064U);
    board.sent(0, 2, 1064);
    EXPECT_EQ(board.allowance(0, 2, 5000, 100 * second), 0U);
    EXPECT_EQ(board.allowance(2, 0, 5000, 100 * second), 1064U) << "each way has its own";
    EXPECT_EQ(board.allowance(0, 1, 5000, 101 * second), 1000U) << "the link to 1 is as it was";
}

TEST(Faults, HappenOnceAtTheirStepOnTheirCommunicator) {
    Faults faults;
    faults.add(Faults::parse("late-launch step=3 comm=dp"));
    faults.add(Faults::parse("slow-gpu factor=2.5"));
    EXPECT_FALSE(faults.take("late-launch", "dp-1"));
    faults.at_step(3);
    EXPECT_FALSE(faults.take("late-launch", "tp-1"));
    EXPECT_TRUE(faults.take("late-launch", "dp-1"));
    EXPECT_FALSE(faults.take("late-launch", "dp-1"));
    EXPECT_EQ(faults.lasting("slow-gpu", "")->value("factor", 1), 2.5);
    EXPECT_TRUE(faults.lasting("slow-gpu", ""));
    EXPECT_THROW(Faults::parse("kill now"), std::runtime_error);
}

// Two GPUs, two proxies, one connection between them.
class Pair : public testing::TestWithParam<Network> {};

TEST_P(Pair, MovesDataThroughProxiesAndSockets) {
    constexpr size_t kSlot = 4096;
    constexpr size_t kCount = 50'000;
    Wire wire(GetParam());
    Profiler profiler;  // none is named: nothing is called
    Faults faults;
    std::vector<float> input(kCount);
    std::iota(input.begin(), input.end(), 1.0F);
    std::vector<float> output(kCount);
    struct Side {
        alignas(64) char memory[sizeof(Fifo) + kSlots * kSlot];
        Fifo* fifo = new (memory) Fifo;
        Doorbell bell;
        NetworkLeg leg;
    };
    const auto sides = std::make_unique<Side[]>(2);
    for (size_t at = 0; at < 2; ++at) {
        Side& side = sides[at];
        side.leg.fifo = side.fifo;
        side.leg.slot_bytes = kSlot;
        side.leg.ring_gpu = [&side] { side.bell.ring(); };
    }
    sides[0].leg.sending = std::move(wire.sender);
    sides[1].leg.receiving = std::move(wire.receiver);
    {
        Proxy sending_proxy(profiler, faults, nullptr, 0, "pp-0");
        Proxy receiving_proxy(profiler, faults, nullptr, 1, "pp-0");
        SendEnd send{sides[0].fifo, false, kSlot, [&] { sending_proxy.wake(); }, 0};
        ReceiveEnd receive{sides[1].fifo, kSlot, [&] { receiving_proxy.wake(); }, 0};
        Gpu first(sides[0].bell, faults);
        Gpu second(sides[1].bell, faults);
        for (int turn = 0; turn < 3; ++turn) {
            std::fill(output.begin(), output.end(), 0.0F);
            const size_t slice = kSlot / sizeof(float);
            Work out = sending(0, 1, kCount, slice);
            Work in = receiving(0, 0, kCount, slice);
            EXPECT_EQ(out.steps_sent(), 49);
            const auto launch = std::make_shared<Launch>();
            const auto kernel = [&](Proxy& proxy, Execution execution) {
                auto made = std::make_shared<Kernel>();
                made->communicator = "pp-0";
                made->tell_proxy = [&proxy] { proxy.wake(); };
                made->launches.push_back(std::make_shared<Launch>());
                Block& block = made->launches.back()->blocks.emplace_back(0);
                made->parts.push_back({std::move(execution), &block});
                return made;
            };
            const int steps = out.steps_sent();
            first.launch(kernel(sending_proxy, Execution(out, {}, {&send}, input.data(), nullptr)));
            second.launch(kernel(receiving_proxy, Execution(in, {&receive}, {}, nullptr, output.data())));
            sending_proxy.append({{launch, &sides[0].leg, nullptr, steps, 8, true}});
            receiving_proxy.append({{launch, &sides[1].leg, nullptr, steps, 8, false}});
            first.synchronize();
            second.synchronize();
            ASSERT_EQ(output, input);
        }
    }
    EXPECT_EQ(sides[0].leg.base, 147U);
    EXPECT_EQ(sides[1].leg.base, 147U);
    wire.sender = std::move(sides[0].leg.sending);
    wire.receiver = std::move(sides[1].leg.receiving);
}

INSTANTIATE_TEST_SUITE_P(Networks, Pair, testing::Values(Network::sockets, Network::credits));

TEST(Doorbell, WakesASleeper) {
    Doorbell bell;
    std::atomic<bool> woken{false};
    std::thread sleeper([&] {
        for (uint32_t seen = 0; bell.rings.load() == 0;) bell.wait(seen, 60'000);
        woken.store(true);
    });
    bell.ring();
    sleeper.join();
    EXPECT_TRUE(woken.load());
}

}  // namespace
}  // namespace mycroft::testbed
