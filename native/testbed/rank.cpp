#include "rank.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "host_memory.h"
#include "layout.h"
#include "training.h"

namespace mycroft::testbed {
namespace {

constexpr int kConnectMs = 30'000;

int world_rank(const Plan& plan, const Leg& leg, int rank) {
    return plan.communicators[static_cast<size_t>(leg.communicator)].members[static_cast<size_t>(rank)];
}

int open_listener(const std::string& where) {
    if (where.rfind("fd=", 0) == 0) return std::stoi(where.substr(3));
    const size_t colon = where.rfind(':');
    return listen_at(where.substr(0, colon), std::stoi(where.substr(colon + 1)));
}

// Connects what goes out, then takes what comes in; the kernel keeps what others connect meanwhile.
void connect_all(const Plan& plan, const std::vector<Leg>& legs, int rank, int listener,
                 std::vector<std::unique_ptr<Member>>& members) {
    size_t expected = 0;
    for (size_t index = 0; index < legs.size(); ++index) {
        const Leg& leg = legs[index];
        if (leg.local) continue;
        expected += world_rank(plan, leg, leg.to) == rank ? 1 : 0;
        if (world_rank(plan, leg, leg.from) != rank) continue;
        const int to = world_rank(plan, leg, leg.to);
        const Place& place = plan.ranks[static_cast<size_t>(to)];
        const int fd = connect_to(place.address, place.port, kConnectMs);
        Hello hello;
        hello.from = static_cast<uint32_t>(rank);
        hello.to = static_cast<uint32_t>(to);
        hello.leg = static_cast<uint32_t>(index);
        if (!write_all(fd, &hello, sizeof hello)) throw std::runtime_error("the connection to a rank broke");
        members[static_cast<size_t>(leg.communicator)]->connect(index, fd);
    }
    for (; expected > 0; --expected) {
        const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        Hello hello;
        if (fd < 0 || !read_all(fd, &hello, sizeof hello) || hello.leg >= legs.size())
            throw std::runtime_error("a connection from a rank broke");
        members[static_cast<size_t>(legs[hello.leg].communicator)]->connect(hello.leg, fd);
    }
}

// Takes commands until the starter is gone, and then ends the process.
void obey(Faults& faults, std::atomic<long>& last) {
    for (std::string line; std::getline(std::cin, line);) {
        try {
            if (line.rfind("fault ", 0) == 0) {
                faults.add(Faults::parse(line.substr(6)));
            } else if (line.rfind("end ", 0) == 0) {
                last.store(std::stol(line.substr(4)));
            } else {
                report("error unknown command " + line);
            }
        } catch (const std::exception& error) {
            report("error " + line + ": " + error.what());
        }
    }
    _exit(0);
}

void train(const Plan& plan, int rank, int memory_fd, const std::string& listen) {
    const auto legs = legs_of(plan);
    HostMemory memory(memory_fd, plan, legs, plan.ranks.at(static_cast<size_t>(rank)).host);
    const int listener = open_listener(listen);
    Profiler profiler;
    Faults faults;
    std::atomic<long> last{LONG_MAX};
    Gpu gpu(memory.bell(rank), faults);
    std::vector<std::unique_ptr<Member>> members(plan.communicators.size());
    for (size_t number = 0; number < members.size(); ++number) {
        if (plan.communicators[number].rank_of(rank) < 0) continue;
        members[number] = std::make_unique<Member>(plan, legs, static_cast<int>(number), rank, memory,
                                                   profiler, faults, gpu);
    }
    connect_all(plan, legs, rank, listener, members);
    for (auto& member : members) {
        if (member != nullptr) member->begin();
    }
    report("ready");
    std::thread([&] { obey(faults, last); }).detach();
    Training(rank, plan.programmes[static_cast<size_t>(rank)], members, gpu, faults).run(last);
    for (auto& member : members) {
        if (member != nullptr) member->end();
    }
}

}  // namespace

int run_rank(int argc, char** argv) {
    if (argc != 6) {
        std::cerr << "rank PLAN RANK MEMORY-FD LISTEN\n";
        return 2;
    }
    try {
        std::ifstream text(argv[2]);
        if (!text) throw std::runtime_error(std::string("cannot read ") + argv[2]);
        train(read_plan(text), std::atoi(argv[3]), std::atoi(argv[4]), argv[5]);
    } catch (const std::exception& error) {
        report(std::string("error ") + error.what());
        return 1;
    }
    report("ended");
    _exit(0);  // the thread that takes commands still waits for some
}

}  // namespace mycroft::testbed
