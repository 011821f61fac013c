// A CUDA driver and an NCCL in name only, so that run.sh can be tried where there is no GPU: device memory is host
// memory, AllReduce fills in the sum that bench.py's ranks make, and the plugin gets one flow an operation (v6).
// STAND_IN_FAULT: wrong (a sum is off), exit (rank 1 ends), unseen (one operation is not told to the plugin).
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "abi.h"

using namespace mycroft::abi;

namespace {

const Profiler6* plugin = nullptr;
void* context = nullptr;
int mask = 0;
int nranks = 0;
int rank = 0;
unsigned long long made = 0;

bool fault(const char* name) {
    const char* const set = std::getenv("STAND_IN_FAULT");
    return set != nullptr && std::strcmp(set, name) == 0;
}

void* start(void* parent, Descr6& descr) {
    void* handle = nullptr;
    descr.parent = parent;
    descr.rank = rank;
    if ((static_cast<uint64_t>(mask) & descr.type) != 0) plugin->start(context, &handle, &descr);
    return handle;
}

void tell(size_t count) {
    Descr6 group{};
    group.type = kGroup;
    void* const outer = start(nullptr, group);
    Descr6 coll{};
    coll.type = kColl;
    coll.coll = {made, "AllReduce", nullptr, nullptr, count, 0, "ncclFloat32", 1, 4, "RING", "SIMPLE", outer};
    void* const operation = start(outer, coll);
    plugin->stop(operation);
    plugin->stop(outer);
    Descr6 op{};
    op.type = kProxyOp;
    op.proxy_op = {getpid(), 0, (rank + 1) % nranks, 1, 1 << 19, 1};
    void* const flow = start(operation, op);
    plugin->state(flow, kOpInProgress, nullptr);
    Descr6 step{};
    step.type = kProxyStep;
    void* const one = start(flow, step);
    StateArgs size{};
    size.step.trans_size = 4 * count;
    plugin->state(one, kStepSendGpuWait, nullptr);
    plugin->state(one, kStepSendPeerWait, nullptr);
    plugin->state(one, kStepSendWait, &size);
    plugin->stop(one);
    plugin->stop(flow);
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGetName(char* into, int length, int) { return std::snprintf(into, length, "no GPU at all"), 0; }
int cuDriverGetVersion(int* version) { return *version = 12090, 0; }
int cuDevicePrimaryCtxRetain(void** made_context, int) { return *made_context = nullptr, 0; }
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxSynchronize() { return 0; }
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
    return *address = reinterpret_cast<uint64_t>(std::malloc(bytes)), 0;
}
int cuMemsetD32_v2(uint64_t address, unsigned value, size_t count) {
    for (size_t i = 0; i < count; ++i) reinterpret_cast<unsigned*>(address)[i] = value;
    return 0;
}
int cuMemcpyDtoH_v2(void* into, uint64_t from, size_t bytes) {
    return std::memcpy(into, reinterpret_cast<void*>(from), bytes), 0;
}
int cuStreamCreate(void** stream, unsigned) { return *stream = &made, 0; }
int cuStreamSynchronize(void*) { return 0; }

struct Id {
    char internal[128];
};

int ncclGetVersion(int* version) { return *version = 23007, 0; }
const char* ncclGetErrorString(int) { return "stand-in error"; }
int ncclGetUniqueId(Id* id) { return std::memset(id, 7, sizeof *id), 0; }

int ncclCommInitRank(void** comm, int n, Id id, int r) {
    if (id.internal[127] != 7) return 4;
    nranks = n;
    rank = r;
    *comm = &made;
    const char* const name = std::getenv("NCCL_PROFILER_PLUGIN");
    void* const library = name != nullptr ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library == nullptr) return name != nullptr;
    plugin = static_cast<const Profiler6*>(dlsym(library, "ncclProfiler_v6"));
    return plugin->init(&context, 0x57a4d, &mask, "stand-in", n, n, r, nullptr);
}

int ncclAllReduce(const void*, void* into, size_t count, int, int, void*, void*) {
    if (fault("exit") && rank == 1 && made == 20) _exit(9);
    const float sum = static_cast<float>(nranks * (nranks + 1)) / 2 + (fault("wrong") ? 1 : 0);
    for (size_t at : {size_t{0}, count / 2, count - 1}) static_cast<float*>(into)[at] = sum;
    if (plugin != nullptr && !(fault("unseen") && made == 20)) tell(count);
    ++made;
    return 0;
}

int ncclCommDestroy(void*) { return plugin != nullptr ? plugin->finalize(context) : 0; }
}
