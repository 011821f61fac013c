// One traced process of a training job at a set pace, for measuring who reads its file.
//
//   plugin-load PLUGIN.so RANK FLOWS MILLISECONDS INSIDE
//
// A rank of a data-parallel communicator, whose collectives last so many milliseconds, follow each other at
// once and have so many flows each, half of them sends, and of a tensor-parallel one inside the host, whose
// collectives show nothing but their launch: INSIDE of those for each of the others. SIGUSR1 freezes it in
// the middle of a collective: the sends wait for credit, the receives for data, and nothing calls the plugin
// any more but the proxy's polls for credit. It ends with its parent.
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "abi.h"

namespace {

using namespace mycroft;
using abi::Descr6;
using abi::Profiler6;
using abi::StateArgs;

constexpr int kPieceMs = 5;  // progress comes in pieces: what a proxy thread does between two sleeps
constexpr int kSteps = 16;   // of each flow
constexpr int kRanks = 64;

const Profiler6* plugin = nullptr;
volatile sig_atomic_t frozen = 0;

void freeze(int) {
    frozen = 1;
}

void pause_for(int milliseconds) {
    const timespec rest{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    nanosleep(&rest, nullptr);
}

void* open_comm(uint64_t id, const char* name, int nodes, int ranks, int rank) {
    static int mask = 0;
    void* context = nullptr;
    plugin->init(&context, id, &mask, name, nodes, ranks, rank, nullptr);
    return context;
}

void* launch(void* context, uint64_t seq, const char* func, uint8_t channels) {
    Descr6 descr{};
    descr.type = abi::kColl;
    descr.coll.seq = seq;
    descr.coll.func = func;
    descr.coll.datatype = "ncclBfloat16";
    descr.coll.algo = "RING";
    descr.coll.proto = "SIMPLE";
    descr.coll.count = 1 << 24;
    descr.coll.channels = channels;
    void* handle = nullptr;
    plugin->start(context, &handle, &descr);
    plugin->stop(handle);
    return handle;
}

struct Flow {
    void* handle;
    void* step;
    int done;
    bool send;
};

Flow open_flow(void* context, void* operation, int number, int rank) {
    const bool send = number % 2 == 0;
    Descr6 descr{};
    descr.type = abi::kProxyOp;
    descr.parent = operation;
    descr.rank = rank;
    descr.proxy_op.pid = getpid();
    descr.proxy_op.channel = static_cast<uint8_t>(number / 2);
    descr.proxy_op.peer = (rank + (send ? 1 : kRanks - 1)) % kRanks;
    descr.proxy_op.steps = kSteps;
    descr.proxy_op.chunk = 1 << 19;
    descr.proxy_op.is_send = send ? 1 : 0;
    void* handle = nullptr;
    plugin->start(context, &handle, &descr);
    return {handle, nullptr, 0, send};
}

// Finishes the step that the flow stands in and begins the next: the network has it from now on.
void advance(void* context, Flow& flow) {
    StateArgs args{};
    args.step.trans_size = 1 << 19;
    if (flow.step != nullptr) {
        if (!flow.send) {
            plugin->state(flow.step, abi::kStepRecvFlushWait, &args);
            plugin->state(flow.step, abi::kStepRecvGpuWait, &args);
        } else {
            plugin->state(flow.step, abi::kStepSendWait, &args);
        }
        plugin->stop(flow.step);
        flow.step = nullptr;
        ++flow.done;
    }
    if (flow.done == kSteps) return;
    Descr6 descr{};
    descr.type = abi::kProxyStep;
    descr.parent = flow.handle;
    descr.proxy_step.step = flow.done;
    plugin->start(context, &flow.step, &descr);
    if (flow.send) {
        plugin->state(flow.step, abi::kStepSendGpuWait, &args);
        plugin->state(flow.step, abi::kStepSendPeerWait, &args);
    } else {
        plugin->state(flow.step, abi::kStepRecvWait, &args);
    }
}

// Where it stands, for ever: a proxy thread asks for credit again and again.
[[noreturn]] void stand(const std::vector<Flow>& flows) {
    for (;;) {
        for (const Flow& flow : flows) {
            if (flow.send && flow.step != nullptr) plugin->state(flow.step, abi::kStepSendPeerWait, nullptr);
        }
        pause_for(kPieceMs);
    }
}

void collective(void* context, uint64_t seq, int rank, int flow_count, int milliseconds) {
    void* const operation = launch(context, seq, "AllReduce", static_cast<uint8_t>((flow_count + 1) / 2));
    std::vector<Flow> flows;
    for (int number = 0; number < flow_count; ++number)
        flows.push_back(open_flow(context, operation, number, rank));
    const int pieces = milliseconds / kPieceMs > 0 ? milliseconds / kPieceMs : 1;
    for (int piece = 0; piece < pieces; ++piece) {
        for (Flow& flow : flows) {
            const int due = kSteps * (piece + 1) / pieces;
            if (flow.step == nullptr) advance(context, flow);
            while (flow.done < due) advance(context, flow);
        }
        if (frozen != 0 && piece == pieces / 2) stand(flows);
        pause_for(kPieceMs);
    }
    for (const Flow& flow : flows) plugin->stop(flow.handle);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: plugin-load PLUGIN.so RANK FLOWS MILLISECONDS INSIDE\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGUSR1, freeze);
    const int rank = atoi(argv[2]);
    void* const library = dlopen(argv[1], RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    plugin = static_cast<const Profiler6*>(dlsym(library, "ncclProfiler_v6"));
    void* const data = open_comm(0xDA7A, "data", kRanks, kRanks, rank);
    void* const tensor = open_comm(0x7E45, "tensor", 1, 8, rank % 8);
    const uint64_t inside = strtoull(argv[5], nullptr, 10);
    for (uint64_t seq = 0;; ++seq) {
        for (uint64_t each = 0; each < inside; ++each)
            launch(tensor, seq * inside + each, "ReduceScatter", 8);
        collective(data, seq, rank, atoi(argv[3]), atoi(argv[4]));
    }
}
