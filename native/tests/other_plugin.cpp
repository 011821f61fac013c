// A profiler plugin whose handles are real pointers and which dies if it is given anybody else's.
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "abi.h"

namespace {

using namespace mycroft::abi;

constexpr uint64_t kCanary = 0x5a5aa5a5deadf00d;

struct Object {
    uint64_t canary;
    uint64_t type;
};

Object pool[1 << 18];  // never given back, so that a stale handle is seen
std::atomic<uint32_t> made{0};

Object* make(uint64_t type) {
    Object* const object = &pool[made++ % (1 << 18)];
    *object = {kCanary, type};
    return object;
}

int calls[5];
int inits = 0;
int* their_mask = nullptr;

void count(int& calls) {
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
}

Object* check(void* pointer) {
    Object* const object = static_cast<Object*>(pointer);
    if (object == nullptr || object->canary != kCanary) abort();
    return object;
}

int init(void** context, uint64_t, int* mask, const char*, int, int, int, Logger) {
    count(inits);
    __atomic_store_n(&their_mask, mask, __ATOMIC_RELAXED);
    __atomic_store_n(mask, kColl | kProxyOp | kProxyStep | kNetPlugin, __ATOMIC_RELAXED);
    *context = make(0);
    return 0;
}
int start(void* context, void** handle, Descr6* descr) {
    check(context);
    const int* const mask = __atomic_load_n(&their_mask, __ATOMIC_RELAXED);
    if ((__atomic_load_n(mask, __ATOMIC_RELAXED) & static_cast<int>(descr->type)) == 0) abort();
    if (descr->parent != nullptr) check(descr->parent);
    count(calls[0]);
    *handle = make(descr->type);
    return 0;
}
int stop(void* handle) {
    check(handle);
    count(calls[1]);
    return 0;
}
int state(void* handle, int, StateArgs*) {
    check(handle);
    count(calls[2]);
    return 0;
}
int finalize(void* context) {
    check(context);
    count(calls[3]);
    return 0;
}

}  // namespace

extern "C" Profiler6 ncclProfiler_v6;
Profiler6 ncclProfiler_v6 = {"other", init, start, stop, state, finalize};

extern "C" int* other_calls() {
    return calls;
}
extern "C" int other_inits() {
    return inits;
}
extern "C" void other_set_mask(int mask) {
    *their_mask = mask;
}
