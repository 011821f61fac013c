// Nanoseconds per callback, by type and tier, alone and with two threads, beside the floor of this machine.
//
//   plugin-bench PLUGIN.so [--json]
//
// Each figure is the best of several runs: noise only adds. Ratios within one run are worth comparing; the
// absolute times are those of this machine.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "abi.h"
#include "clock.h"
#include "layout.h"

namespace mycroft {
bool g_cheap_clock = false;
}

namespace {

using namespace mycroft;
using abi::Descr6;
using abi::Profiler6;
using abi::StateArgs;

constexpr int kRuns = 7;

struct Figure {
    std::string name;
    std::string tier;
    int threads;
    double ns;
    double goal;  // 0: none
};

const Profiler6* plugin = nullptr;
int mask = 0;
std::vector<Figure> figures;

void* open_comm(uint64_t id) {
    void* context = nullptr;
    plugin->init(&context, id, &mask, "bench", 2, 2, 0, nullptr);
    return context;
}

void* start(void* context, void* parent, uint64_t type, const std::function<void(Descr6&)>& fill = nullptr) {
    Descr6 descr{};
    descr.type = type;
    descr.parent = parent;
    if (fill) fill(descr);
    void* handle = nullptr;
    plugin->start(context, &handle, &descr);
    return handle;
}

Descr6 coll(uint64_t seq) {
    Descr6 descr{};
    descr.type = abi::kColl;
    descr.coll.seq = seq;
    descr.coll.func = "AllReduce";
    descr.coll.datatype = "ncclFloat32";
    descr.coll.algo = "RING";
    descr.coll.proto = "SIMPLE";
    descr.coll.count = 1 << 20;
    descr.coll.channels = 1;
    return descr;
}

Descr6 proxy_op(void* parent, int steps, bool send) {
    Descr6 descr{};
    descr.type = abi::kProxyOp;
    descr.parent = parent;
    descr.proxy_op.pid = getpid();
    descr.proxy_op.peer = 1;
    descr.proxy_op.steps = steps;
    descr.proxy_op.chunk = 1 << 19;
    descr.proxy_op.is_send = send ? 1 : 0;
    return descr;
}

// One thread's own communicator and operation.
struct Lane {
    void* context;
    void* operation;
    uint64_t seq = 0;

    Lane() : context(open_comm(reinterpret_cast<uint64_t>(this))), operation(nullptr) { next(); }
    ~Lane() { plugin->finalize(context); }

    void next() {
        Descr6 descr = coll(seq++);
        plugin->start(context, &operation, &descr);
    }

    void* flow(int steps, bool send) {
        Descr6 descr = proxy_op(operation, steps, send);
        void* handle = nullptr;
        plugin->start(context, &handle, &descr);
        return handle;
    }
};

using Work = std::function<double(Lane&)>;  // ns per unit, measured inside

double best(const Work& work, int threads) {
    double least = 1e18;
    for (int run = 0; run < kRuns; ++run) {
        std::vector<double> ns(static_cast<size_t>(threads));
        std::vector<std::thread> workers;
        for (int i = 0; i < threads; ++i) {
            workers.emplace_back([&, i] {
                Lane lane;
                ns[static_cast<size_t>(i)] = work(lane);
            });
        }
        for (std::thread& worker : workers) worker.join();
        double sum = 0;
        for (double one : ns) sum += one;
        least = std::min(least, sum / threads);
    }
    return least;
}

double timed(int units, const std::function<void()>& body) {
    const int64_t from =
        clock_ns(CLOCK_THREAD_CPUTIME_ID);  // what the thread used, whoever else wants the core
    body();
    return static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID) - from) / units;
}

void measure(const char* name, const char* tier, double goal, const Work& work) {
    for (int threads : {1, 2}) figures.push_back({name, tier, threads, best(work, threads), goal});
}

constexpr int kSteps = 200'000;

// The five callbacks of a send step, `open` of them in flight at a time.
double send_steps(Lane& lane, int open) {
    void* const flow = lane.flow(kSteps + 16, true);
    StateArgs args{};
    args.step.trans_size = 1 << 19;
    Descr6 descr{};
    descr.type = abi::kProxyStep;
    descr.parent = flow;
    std::vector<void*> steps(static_cast<size_t>(open));
    return timed(kSteps, [&] {
        for (int step = 0; step < kSteps + open; ++step) {
            void*& handle = steps[static_cast<size_t>(step % open)];
            if (step >= open) plugin->stop(handle);
            if (step >= kSteps) continue;
            descr.proxy_step.step = step;
            plugin->start(lane.context, &handle, &descr);
            plugin->state(handle, abi::kStepSendGpuWait, &args);
            plugin->state(handle, abi::kStepSendPeerWait, &args);
            plugin->state(handle, abi::kStepSendWait, &args);
        }
    });
}

double receive_steps(Lane& lane, int open) {
    void* const flow = lane.flow(kSteps + 16, false);
    StateArgs args{};
    args.step.trans_size = 1 << 19;
    Descr6 descr{};
    descr.type = abi::kProxyStep;
    descr.parent = flow;
    std::vector<void*> steps(static_cast<size_t>(open));
    return timed(kSteps, [&] {
        for (int step = 0; step < kSteps + open; ++step) {
            void*& handle = steps[static_cast<size_t>(step % open)];
            if (step >= open) {
                plugin->state(handle, abi::kStepRecvFlushWait, &args);
                plugin->state(handle, abi::kStepRecvGpuWait, &args);
                plugin->stop(handle);
            }
            if (step >= kSteps) continue;
            descr.proxy_step.step = step;
            plugin->start(lane.context, &handle, &descr);
            plugin->state(handle, abi::kStepRecvWait, &args);
        }
    });
}

double repeated_peer_wait(Lane& lane) {
    void* const flow = lane.flow(8, true);
    void* const step = start(lane.context, flow, abi::kProxyStep);
    return timed(1'000'000, [&] {
        for (int i = 0; i < 1'000'000; ++i) plugin->state(step, abi::kStepSendPeerWait, nullptr);
    });
}

double control(Lane& lane) {
    Descr6 descr{};
    descr.type = abi::kProxyCtrl;
    StateArgs args{};
    constexpr int kUnits = 300'000;
    return timed(kUnits * 3, [&] {
        for (int i = 0; i < kUnits; ++i) {
            void* handle = nullptr;
            plugin->start(lane.context, &handle, &descr);
            plugin->state(handle, abi::kCtrlAppend + i % 2, &args);
            plugin->stop(handle);
        }
    });
}

// Two ProxyOps of one step each, which also finish the operation: everything but the steps of a collective.
double operations(Lane& lane, bool flows, bool kernels) {
    constexpr int kUnits = 20'000;
    StateArgs args{};
    return timed(kUnits, [&] {
        for (int i = 0; i < kUnits; ++i) {
            void* const group_api = start(lane.context, nullptr, abi::kGroupApi);
            plugin->state(group_api, abi::kGroupStartApiStop, nullptr);
            Descr6 api{};
            api.type = abi::kCollApi;
            api.parent = group_api;
            api.coll_api.func = "AllReduce";
            api.coll_api.datatype = "ncclFloat32";
            void* call = nullptr;
            plugin->start(lane.context, &call, &api);
            plugin->stop(call);
            plugin->state(group_api, abi::kGroupEndApiStart, nullptr);
            void* const launch = start(lane.context, group_api, abi::kKernelLaunch);
            plugin->stop(launch);
            void* const group = start(lane.context, nullptr, abi::kGroup);
            Descr6 descr = coll(lane.seq++);
            descr.parent = call;
            descr.coll.parent_group = group;
            void* operation = nullptr;
            plugin->start(lane.context, &operation, &descr);
            plugin->stop(operation);
            plugin->stop(group);
            plugin->stop(group_api);
            if (kernels) {
                Descr6 kernel{};
                kernel.type = abi::kKernelCh;
                kernel.parent = operation;
                kernel.kernel.timer = 1000;
                void* channel = nullptr;
                plugin->start(lane.context, &channel, &kernel);
                args.kernel.timer = 2000;
                plugin->state(channel, abi::kKernelChStop, &args);
                plugin->stop(channel);
            }
            if (!flows) continue;
            for (bool send : {false, true}) {
                lane.operation = operation;
                void* const flow = lane.flow(1, send);
                void* const step = start(lane.context, flow, abi::kProxyStep);
                plugin->stop(step);
                plugin->stop(flow);
            }
        }
    });
}

void set_tier(const char* folder, Tier tier) {
    const std::string command = std::string("ls ") + folder;
    FILE* const list = popen(command.c_str(), "r");
    char name[256] = "";
    if (list == nullptr || fgets(name, sizeof name, list) == nullptr) exit(1);
    pclose(list);
    name[strcspn(name, "\n")] = '\0';
    const int file = open((std::string(folder) + "/" + name).c_str(), O_RDWR | O_CLOEXEC);
    const uint32_t value = tier;
    if (pwrite(file, &value, sizeof value, offsetof(Header, requested_tier)) != sizeof value) exit(1);
    close(file);
}

void floors() {
    const int kUnits = 2'000'000;
    uint64_t sum = 0;
    figures.push_back({"floor: tick counter", "", 1,
                       best(
                           [&](Lane&) {
                               return timed(kUnits, [&] {
                                   for (int i = 0; i < kUnits; ++i) sum += ticks();
                               });
                           },
                           1),
                       0});
    figures.push_back({"floor: clock_gettime", "", 1,
                       best(
                           [&](Lane&) {
                               return timed(kUnits, [&] {
                                   for (int i = 0; i < kUnits; ++i)
                                       sum += static_cast<uint64_t>(clock_ns(CLOCK_MONOTONIC));
                               });
                           },
                           1),
                       0});
    static std::atomic<uint64_t> shared{0};
    for (int threads : {1, 2}) {
        figures.push_back({"floor: atomic add, shared", "", threads,
                           best(
                               [&](Lane&) {
                                   return timed(kUnits, [&] {
                                       for (int i = 0; i < kUnits; ++i) shared.fetch_add(1);
                                   });
                               },
                               threads),
                           0});
    }
    figures.push_back({"floor: 64-byte store", "", 1,
                       best(
                           [&](Lane&) {
                               std::vector<uint64_t> memory(8 * 4096);
                               return timed(kUnits, [&] {
                                   for (int i = 0; i < kUnits; ++i) {
                                       volatile uint64_t* line = &memory[static_cast<size_t>(i % 4096) * 8];
                                       for (int word = 0; word < 8; ++word)
                                           line[word] = static_cast<uint64_t>(i);
                                   }
                               });
                           },
                           1),
                       0});
    if (sum == 1) std::puts("");
}

void print(bool json) {
    if (json) std::printf("[");
    const char* comma = "\n";
    for (const Figure& figure : figures) {
        if (json) {
            std::printf(
                "%s {\"name\": \"%s\", \"tier\": \"%s\", \"threads\": %d, \"ns\": %.1f, \"goal\": %.0f}",
                comma, figure.name.c_str(), figure.tier.c_str(), figure.threads, figure.ns, figure.goal);
            comma = ",\n";
        } else {
            std::printf("%-42s %-7s %d thread%s %8.1f ns", figure.name.c_str(), figure.tier.c_str(),
                        figure.threads, figure.threads == 1 ? " " : "s", figure.ns);
            if (figure.goal > 0) std::printf("   goal %.0f", figure.goal);
            std::printf("\n");
        }
    }
    if (json) std::printf("\n]\n");
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: plugin-bench PLUGIN.so [--json]\n");
        return 2;
    }
    char folder[] = "/dev/shm/mycroft-bench-XXXXXX";
    if (mkdtemp(folder) == nullptr) return 1;
    setenv("MYCROFT_DIR", folder, 1);
    setenv("MYCROFT_KERNEL_ANY", "1", 1);
    void* const library = dlopen(argv[1], RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    plugin = static_cast<const Profiler6*>(dlsym(library, "ncclProfiler_v6"));
    g_cheap_clock = clock_source() != kClockMonotonic;
    {
        Lane warm;
    }
    floors();
    measure("send step, 5 callbacks, 1 open", "flows", 150, [](Lane& lane) { return send_steps(lane, 1); });
    measure("send step, 5 callbacks, 4 open", "flows", 150, [](Lane& lane) { return send_steps(lane, 4); });
    measure("send step, 5 callbacks, 8 open", "flows", 150, [](Lane& lane) { return send_steps(lane, 8); });
    measure("receive step, 5 callbacks, 1 open", "flows", 150,
            [](Lane& lane) { return receive_steps(lane, 1); });
    measure("receive step, 5 callbacks, 8 open", "flows", 150,
            [](Lane& lane) { return receive_steps(lane, 8); });
    measure("SendPeerWait, repeated", "flows", 10, repeated_peer_wait);
    measure("ProxyCtrl, one callback of three", "flows", 20, control);
    measure("collective, 2 flows of 1 step, 23 callbacks", "flows", 0,
            [](Lane& lane) { return operations(lane, true, false); });
    set_tier(folder, kTierKernel);
    measure("the same and a kernel channel, 26 callbacks", "kernel", 0,
            [](Lane& lane) { return operations(lane, true, true); });
    measure("send step, 5 callbacks, 4 open", "kernel", 150, [](Lane& lane) { return send_steps(lane, 4); });
    set_tier(folder, kTierOps);
    measure("collective, 13 callbacks", "ops", 0, [](Lane& lane) { return operations(lane, false, false); });
    print(argc > 2 && strcmp(argv[2], "--json") == 0);
    const std::string clean = std::string("rm -rf ") + folder;
    return system(clean.c_str()) == 0 ? 0 : 1;
}
