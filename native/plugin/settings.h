// All settings, from the environment, read once at the first init.
#pragma once

#include <cstdint>

#include "layout.h"

namespace mycroft {

struct Settings {
    // MYCROFT_DISABLE=1: load, but do nothing.
    bool disabled = false;
    // MYCROFT_DIR: folder of the shared-memory files; made if absent. There is no second choice: the host's
    // collector looks in one place.
    const char* dir = "/dev/shm/mycroft";
    // MYCROFT_SHM_BYTES: size of this process's file, with an optional K, M or G. 256K to 1G.
    uint64_t shm_bytes = 4 << 20;
    const char* no_size = nullptr;  // what stands there, if it is no size
    // MYCROFT_TIER: ops, flows, kernel or idle. Tools can change it in the running process.
    Tier tier = kTierFlows;
    // MYCROFT_KERNEL_ANY=1: trace kernel channels with any NCCL, also where versions.h says no.
    bool kernel_any = false;
    // MYCROFT_JOB: the job's name, for the collector.
    const char* job = "";
    // MYCROFT_CHAIN: file or path of the profiler plugin to load behind this one.
    const char* chain = nullptr;
    // MYCROFT_RECORD: folder to which every callback is written as JSON lines. Costs time and disk.
    const char* record = nullptr;
    // MYCROFT_SIGBUS=0: do not install the handler that survives a truncated file (guard.cpp).
    bool guard = true;
};

Settings read_settings();

// The codes of Tier by name, false where there is no such name.
bool tier_of(const char* name, Tier& tier);

}  // namespace mycroft
