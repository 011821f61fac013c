// The callbacks into the profiler plugin as NCCL makes them: loaded from NCCL_PROFILER_PLUGIN, called for the
// events that its activation mask asks for at that moment. Without a plugin nothing is called.
#pragma once

#include <cstdint>
#include <string>

#include "../plugin/abi.h"

namespace mycroft::testbed {

class Profiler {
  public:
    // Throws std::runtime_error where NCCL_PROFILER_PLUGIN names something that cannot be loaded.
    Profiler();
    ~Profiler();
    Profiler(const Profiler&) = delete;
    Profiler& operator=(const Profiler&) = delete;

    void* open(uint64_t id, const std::string& name, int nodes, int ranks, int rank);
    void close(void* context);
    bool wants(abi::Event event) const {
        return table_ != nullptr &&
               (__atomic_load_n(&mask_, __ATOMIC_RELAXED) & static_cast<int>(event)) != 0;
    }
    // NULL where the mask does not ask for it.
    void* start(void* context, abi::Descr6 descr);
    void stop(void* handle);
    void state(void* handle, abi::EventState state);
    void state(void* handle, abi::EventState state, abi::StateArgs args);

  private:
    void* library_ = nullptr;
    const abi::Profiler6* table_ = nullptr;
    int mask_ = 0;
};

// A descriptor with its head filled in.
abi::Descr6 event(abi::Event type, void* parent, int rank = 0);

uint64_t wall_ns();
int64_t monotonic_ns();

}  // namespace mycroft::testbed
