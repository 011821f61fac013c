#include "profiler.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <stdexcept>

// The version that the order of the callbacks was learned from; plugins ask for it.
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
    *version = 23007;
    return 0;
}

namespace mycroft::testbed {
namespace {

void log_line(int level, unsigned long, const char*, int, const char* format, ...) {
    if (level > abi::kLogWarn) return;
    va_list arguments;
    va_start(arguments, format);
    char line[512];
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    std::fprintf(stderr, "plugin: %s\n", line);
}

int64_t clock_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

}  // namespace

uint64_t wall_ns() {
    return static_cast<uint64_t>(clock_ns(CLOCK_REALTIME));
}

int64_t monotonic_ns() {
    return clock_ns(CLOCK_MONOTONIC);
}

abi::Descr6 event(abi::Event type, void* parent, int rank) {
    abi::Descr6 made{};
    made.type = type;
    made.parent = parent;
    made.rank = rank;
    return made;
}

Profiler::Profiler() {
    const char* const path = std::getenv("NCCL_PROFILER_PLUGIN");
    if (path == nullptr || *path == '\0') return;
    library_ = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) throw std::runtime_error(std::string("plugin: ") + dlerror());
    table_ = static_cast<const abi::Profiler6*>(dlsym(library_, "ncclProfiler_v6"));
    if (table_ == nullptr) throw std::runtime_error(std::string(path) + " has no ncclProfiler_v6");
}

Profiler::~Profiler() {
    if (library_ != nullptr) dlclose(library_);
}

void* Profiler::open(uint64_t id, const std::string& name, int nodes, int ranks, int rank) {
    void* context = nullptr;
    if (table_ != nullptr) table_->init(&context, id, &mask_, name.c_str(), nodes, ranks, rank, log_line);
    return context;
}

void Profiler::close(void* context) {
    if (table_ != nullptr) table_->finalize(context);
}

void* Profiler::start(void* context, abi::Descr6 descr) {
    if (!wants(static_cast<abi::Event>(descr.type))) return nullptr;
    void* handle = nullptr;
    table_->start(context, &handle, &descr);
    return handle;
}

void Profiler::stop(void* handle) {
    if (handle != nullptr) table_->stop(handle);
}

void Profiler::state(void* handle, abi::EventState state) {
    if (handle != nullptr) table_->state(handle, state, nullptr);
}

void Profiler::state(void* handle, abi::EventState state, abi::StateArgs args) {
    if (handle != nullptr) table_->state(handle, state, &args);
}

}  // namespace mycroft::testbed
