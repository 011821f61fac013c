// A library with ncclGetVersion that calls the plugin's init, as NCCL does.
#include "abi.h"

namespace {
int version = 0;
}

extern "C" int ncclGetVersion(int* into) {
    *into = version;
    return 0;
}

extern "C" int open_with_version(const mycroft::abi::Profiler6* plugin, int with, int* mask) {
    version = with;
    void* context = nullptr;
    const int failed = plugin->init(&context, 1, mask, "fake", 1, 2, 0, nullptr);
    return failed;
}
