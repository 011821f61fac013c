// Random and hostile callback sequences from several threads.
//
//   plugin-fuzzer PLUGIN.so [--calls N] [--threads N] [--seed N] [--bytes SHM_BYTES]
//
// Threads share contexts and handles, so that each meets what another has stopped, finished or never started.
// Most of what they do is plausible, or nothing deep would ever be reached; the rest is not. What must hold
// is that nothing crashes, no sanitizer complains, and the tables add up at the end.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "abi.h"
#include "layout.h"

namespace {

using namespace mycroft;
using namespace mycroft::abi;

constexpr int kShared = 512;  // handles that all threads pick from

std::atomic<void*> contexts[32];
std::atomic<void*> handles[kShared];
std::atomic<uint64_t> calls{0};
uint64_t wanted = 1'000'000;
std::string folder;

const Profiler3* v3 = nullptr;
const Profiler4* v4 = nullptr;
const Profiler5* v5 = nullptr;
const Profiler6* v6 = nullptr;
const Profiler7* v7 = nullptr;

struct Random {
    uint64_t state;
    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state * 0x2545f4914f6cdd1dULL;
    }
    uint64_t below(uint64_t bound) { return (next() >> 16) % bound; }
    bool one_in(uint64_t bound) { return below(bound) == 0; }
};

const char* const kNames[] = {"AllReduce",  "Send",        "Recv", "Broadcast", "",       nullptr,
                              "Unheard-of", "ncclFloat32", "RING", "TREE",      "SIMPLE", "LL"};

struct Thread {
    Random random;
    int mask = 0;
    void* mine[64] = {};  // handles of its own, mostly of one life

    const char* name() { return kNames[random.below(sizeof kNames / sizeof *kNames)]; }

    void* context() {
        if (random.one_in(200)) return reinterpret_cast<void*>(random.next());
        if (random.one_in(200)) return nullptr;
        return contexts[random.below(32)];
    }

    void* any() {
        switch (random.below(40)) {
            case 0:
                return nullptr;
            case 1:
                return reinterpret_cast<void*>(random.next());
            case 2: {  // one bit wrong
                const uint64_t good = reinterpret_cast<uint64_t>(handles[random.below(kShared)].load());
                return reinterpret_cast<void*>(good ^ uint64_t{1} << random.below(64));
            }
            case 3:
            case 4:
            case 5:
                return handles[random.below(kShared)];
            default:
                return mine[random.below(64)];
        }
    }

    void keep(void* handle) {
        mine[random.below(64)] = handle;
        if (random.one_in(4)) handles[random.below(kShared)] = handle;
    }

    template <class Descr>
    void fill(Descr& descr, uint64_t type) {
        // Garbage in every field but names: NCCL may leave those out, it does not make them up.
        constexpr uint64_t kNamed = kColl | kP2p | kCollApi | kP2pApi | kCeColl;
        const bool garbage = (type & kNamed) == 0 && random.one_in(20);
        std::memset(static_cast<void*>(&descr), garbage ? 0xff : 0, sizeof descr);
        descr.type = static_cast<decltype(descr.type)>(type);
        descr.parent = any();
        descr.rank = static_cast<int>(random.below(8)) - 1;
        if (type == kColl) {
            descr.coll.seq = random.below(1000);
            descr.coll.func = name();
            descr.coll.count = random.next();
            descr.coll.datatype = name();
            descr.coll.algo = name();
            descr.coll.proto = name();
            descr.coll.channels = static_cast<uint8_t>(random.below(4));
        } else if (type == kP2p) {
            descr.p2p.func = name();
            descr.p2p.datatype = name();
            descr.p2p.peer = static_cast<int>(random.below(100'000)) - 10;
        } else if (type == kProxyOp) {
            descr.proxy_op.pid = random.one_in(10) ? static_cast<pid_t>(random.next()) : getpid();
            descr.proxy_op.channel = static_cast<uint8_t>(random.next());
            descr.proxy_op.steps = static_cast<int>(random.below(12)) - 1;
            descr.proxy_op.is_send = static_cast<int>(random.below(2));
        } else if (type == kProxyStep) {
            descr.proxy_step.step =
                random.one_in(50) ? static_cast<int>(random.next()) : static_cast<int>(random.below(12));
        } else if (type == kKernelCh) {
            descr.kernel.channel = static_cast<uint8_t>(random.one_in(10) ? random.next() : random.below(4));
        }
        if constexpr (sizeof(Descr) != sizeof(Descr3) && sizeof(descr.type) == 8) {
            if (type == kColl) descr.coll.parent_group = any();
            if (type == kP2p) descr.p2p.parent_group = any();
            if (type == kCollApi) {
                descr.coll_api.func = name();
                descr.coll_api.datatype = name();
                descr.coll_api.stream = reinterpret_cast<void*>(random.below(200) * 256);
            }
            if (type == kP2pApi) {
                descr.p2p_api.func = name();
                descr.p2p_api.datatype = name();
            }
            if (type == kCeColl) {
                descr.ce_coll.func = name();
                descr.ce_coll.datatype = name();
            }
        }
    }

    template <class Profiler, class Descr>
    void start_with(const Profiler* plugin, uint64_t type) {
        Descr descr;
        fill(descr, type);
        void* handle = reinterpret_cast<void*>(random.next());
        plugin->start(context(), random.one_in(100) ? nullptr : &handle,
                      random.one_in(500) ? nullptr : &descr);
        if (handle != nullptr && (reinterpret_cast<uint64_t>(handle) >> 60) < 10) keep(handle);
    }

    void start() {
        static constexpr uint64_t kLikely[] = {kColl,      kP2p,       kProxyOp,   kProxyOp,   kProxyStep,
                                               kProxyStep, kProxyStep, kProxyStep, kProxyCtrl, kKernelCh,
                                               kGroup,     kGroupApi,  kCollApi,   kP2pApi};
        const uint64_t type = random.one_in(20) ? uint64_t{1} << random.below(20) : kLikely[random.below(14)];
        switch (random.below(12)) {
            case 0:
                return start_with<Profiler3, Descr3>(v3, type & 0xff);
            case 1:
                return start_with<Profiler4, Descr4>(v4, type & 0xff);
            case 2:
                return start_with<Profiler5, Descr5>(v5, type);
            case 3:
                return start_with<Profiler7, Descr7>(v7, type);
            default:
                return start_with<Profiler6, Descr6>(v6, type);
        }
    }

    void state() {
        static constexpr int kLikely[] = {8, 20, 9, 10, 11, 12, 20, 20, 22, 15, 18, 19, 23, 24};
        StateArgs args{};
        args.kernel.timer = random.one_in(2) ? random.below(1 << 20) : random.next();
        const int value = random.one_in(30) ? static_cast<int>(random.next()) : kLikely[random.below(14)];
        v6->state(any(), value, random.one_in(20) ? nullptr : &args);
    }

    // A flow's whole life as NCCL would have it, so that operations do end.
    void orderly() {
        Descr6 descr;
        void* const where = contexts[random.below(32)];
        fill(descr, kColl);
        void* operation = nullptr;
        v6->start(where, &operation, &descr);
        fill(descr, kProxyOp);
        descr.parent = operation;
        descr.proxy_op.pid = getpid();
        descr.proxy_op.steps = static_cast<int>(1 + random.below(6));
        const int steps = descr.proxy_op.steps;
        const bool send = descr.proxy_op.is_send != 0;
        void* flow = nullptr;
        v6->start(where, &flow, &descr);
        StateArgs args{};
        args.step.trans_size = 4096;
        for (int number = 0; number < steps; ++number) {
            fill(descr, kProxyStep);
            descr.parent = flow;
            descr.proxy_step.step = number;
            void* one = nullptr;
            v6->start(where, &one, &descr);
            keep(one);
            for (int value : {send ? 8 : 10, send ? 20 : 11, send ? 9 : 12}) v6->state(one, value, &args);
            v6->stop(one);
        }
        v6->stop(operation);
        v6->stop(flow);
        keep(operation);
        keep(flow);
        calls.fetch_add(static_cast<uint64_t>(5 + 5 * steps), std::memory_order_relaxed);
    }

    void communicators() {
        const uint64_t slot = random.below(32);
        void* made = nullptr;
        const int nranks = static_cast<int>(random.below(16));
        switch (random.below(5)) {
            case 0:
                v3->init(&made, &mask);
                break;
            case 1:
                v4->init(&made, &mask, name(), random.next(), 1, nranks, 0, nullptr);
                break;
            case 2:
                v5->init(&made, random.next(), &mask, name(), 1, nranks, 0, nullptr);
                break;
            case 3:
                v7->init(&made, random.next(), &mask, name(), 1, nranks, 0, nullptr);
                break;
            default:
                v6->init(&made, random.next(), &mask, name(), 1, nranks, 0, nullptr);
                break;
        }
        void* const old = contexts[slot].exchange(made);
        if (!random.one_in(400)) v6->finalize(old);  // the rest leak: tables fill up
    }

    // The one field that another process writes.
    void request_tier() {
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            FILE* const out = std::fopen(entry.path().c_str(), "r+");
            if (out == nullptr) continue;
            const uint32_t tier = static_cast<uint32_t>(random.one_in(4) ? random.next() : random.below(4));
            std::fseek(out, offsetof(Header, requested_tier), SEEK_SET);
            std::fwrite(&tier, sizeof tier, 1, out);
            std::fclose(out);
        }
    }

    void run() {
        while (calls.fetch_add(1, std::memory_order_relaxed) < wanted) {
            const uint64_t dice = random.below(10'000);
            if (dice < 12) {
                communicators();
            } else if (dice < 13) {
                request_tier();
            } else if (dice < 800) {
                orderly();
            } else if (dice < 4000) {
                start();
            } else if (dice < 8000) {
                state();
            } else if (dice < 9990) {
                v6->stop(any());
            } else {
                v6->finalize(random.one_in(10) ? context() : any());
            }
        }
    }
};

// Says what is wrong with a slot, with its words: threads meet differently each time, so the seed alone may
// not bring it back.
template <class Slot>
int finding(const char* what, const char* table, uint32_t slot, const Slot& row) {
    std::printf("finding: %s: %s %u:", what, table, slot);
    const auto* const words = reinterpret_cast<const Cell<uint64_t>*>(&row);
    for (size_t word = 0; word < sizeof row / sizeof *words; ++word) {
        std::printf("%s%016" PRIx64, word % 8 == 0 ? "\n    " : " ", words[word].get());
    }
    std::printf("\n");
    return 1;
}

int check_operation(const Operation& operation, uint32_t slot) {
    const uint64_t control = operation.control.get();
    const uint8_t state = static_cast<uint8_t>(control >> 32) & kStateMask;
    if (state == kWriting || state > kEnded) return finding("state", "operation", slot, operation);
    if ((control >> 8 & (kEnding | kTouched)) != 0)
        return finding("left ending", "operation", slot, operation);
    if (state == kEnded && operation.end_reason.get() == kNotEnded) {
        return finding("ended without a reason", "operation", slot, operation);
    }
    return 0;
}

int check_flow(const Flow& flow, uint32_t slot, uint32_t operations) {
    const bool free = (flow.generation.get() & 1) != 0;
    if (free != (flow.state.get() == kFlowFree)) return finding("generation and state", "flow", slot, flow);
    if (!free && flow.op.get() != kNone && flow.op.get() >= operations) {
        return finding("operation out of bounds", "flow", slot, flow);
    }
    return 0;
}

// The file as its reader finds it: nothing out of bounds, nothing still being written.
int check() {
    int wrong = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        FILE* const in = std::fopen(entry.path().c_str(), "r");
        std::vector<char> bytes(std::filesystem::file_size(entry.path()));
        if (in == nullptr || std::fread(bytes.data(), 1, bytes.size(), in) != bytes.size()) return 1;
        std::fclose(in);
        const Header& header = *reinterpret_cast<const Header*>(bytes.data());
        auto at = [&](Table table, uint32_t slot) {
            const TableInfo& info = header.tables[static_cast<int>(table)];
            return bytes.data() + info.offset + uint64_t{info.stride} * slot;
        };
        const TableInfo& operations = header.tables[static_cast<int>(Table::kOperations)];
        for (uint32_t slot = 0; slot < operations.capacity; ++slot) {
            wrong += check_operation(*reinterpret_cast<const Operation*>(at(Table::kOperations, slot)), slot);
        }
        const TableInfo& flows = header.tables[static_cast<int>(Table::kFlows)];
        for (uint32_t slot = 0; slot < flows.capacity; ++slot) {
            const auto& flow = *reinterpret_cast<const Flow*>(at(Table::kFlows, slot));
            wrong += check_flow(flow, slot, operations.capacity);
        }
        std::printf("%s: %" PRIu64 " callbacks, %" PRIu64 " records, drops", entry.path().filename().c_str(),
                    header.callbacks.get(), header.ring_next.get());
        for (const Cell<uint64_t>& drop : header.drops) std::printf(" %" PRIu64, drop.get());
        std::printf("\n");
    }
    return wrong;
}

template <class Profiler>
void find(void* library, const char* name, const Profiler*& into) {
    into = static_cast<const Profiler*>(dlsym(library, name));
    if (into == nullptr) std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(
            stderr,
            "usage: plugin-fuzzer PLUGIN.so [--calls N] [--threads N] [--seed N] [--bytes SHM_BYTES]\n");
        return 2;
    }
    uint64_t threads = 4;
    uint64_t seed = 1;
    const char* bytes = "512K";  // small, so that every table fills up
    for (int i = 2; i + 1 < argc; i += 2) {
        if (std::strcmp(argv[i], "--calls") == 0) wanted = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::strcmp(argv[i], "--threads") == 0) threads = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::strcmp(argv[i], "--bytes") == 0) bytes = argv[i + 1];
    }
    char name[] = "/dev/shm/mycroft-fuzz-XXXXXX";
    if (mkdtemp(name) == nullptr) return 2;
    folder = name;
    setenv("MYCROFT_DIR", name, 1);
    setenv("MYCROFT_SHM_BYTES", bytes, 1);
    if (const char* record = std::getenv("FUZZ_RECORD")) setenv("MYCROFT_RECORD", record, 1);
    setenv("MYCROFT_TIER", "kernel", 1);
    setenv("MYCROFT_KERNEL_ANY", "1", 1);
    void* const library = dlopen(argv[1], RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    find(library, "ncclProfiler_v3", v3);
    find(library, "ncclProfiler_v4", v4);
    find(library, "ncclProfiler_v5", v5);
    find(library, "ncclProfiler_v6", v6);
    find(library, "ncclProfiler_v7", v7);
    std::vector<Thread> workers(threads);
    for (uint64_t i = 0; i < threads; ++i)
        workers[i].random.state = (seed * 1000 + i + 1) * 0x9e3779b97f4a7c15ULL;
    for (int i = 0; i < 40; ++i) workers[0].communicators();
    std::vector<std::thread> running;
    for (Thread& worker : workers) running.emplace_back([&worker] { worker.run(); });
    for (std::thread& one : running) one.join();
    const int wrong = check();
    std::filesystem::remove_all(folder);
    std::printf("%" PRIu64 " calls, %d findings, seed %" PRIu64 "\n", calls.load(), wrong, seed);
    return wrong == 0 ? 0 : 1;
}
