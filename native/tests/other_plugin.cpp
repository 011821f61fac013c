// A profiler plugin whose handles are real pointers and which dies if it is given anybody else's.
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
int made = 0;

Object* make(uint64_t type) {
    Object* const object = &pool[made++ % (1 << 18)];
    *object = {kCanary, type};
    return object;
}

int calls[5];
int inits = 0;
int* their_mask = nullptr;

Object* check(void* pointer) {
    Object* const object = static_cast<Object*>(pointer);
    if (object == nullptr || object->canary != kCanary) abort();
    return object;
}

int init(void** context, uint64_t, int* mask, const char*, int, int, int, Logger) {
    ++inits;
    their_mask = mask;
    *mask = kColl | kProxyOp | kProxyStep | kNetPlugin;
    *context = make(0);
    return 0;
}
int start(void* context, void** handle, Descr6* descr) {
    check(context);
    if ((*their_mask & static_cast<int>(descr->type)) == 0) abort();
    if (descr->parent != nullptr) check(descr->parent);
    ++calls[0];
    *handle = make(descr->type);
    return 0;
}
int stop(void* handle) {
    check(handle);
    ++calls[1];
    return 0;
}
int state(void* handle, int, StateArgs*) {
    check(handle);
    ++calls[2];
    return 0;
}
int finalize(void* context) {
    check(context);
    ++calls[3];
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
