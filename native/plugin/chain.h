// Another profiler plugin behind this one (MYCROFT_CHAIN): NCCL has one slot.
//
// It is called with its own contexts, handles and parents, for the events of its own mask, as if it were
// alone. NCCL holds a pair (kChainHandle) of both handles. It must export the version that NCCL asked us for.
// It sees no proxy operations of other processes (PXN): their contexts mean nothing here. Should Mycroft
// itself be off, everything goes to it untouched.
#pragma once

#include <cstdint>

#include "abi.h"
#include "process.h"

namespace mycroft {

struct Chain {
    Cell<const void*> table;   // its ncclProfiler_vN
    Cell<uint32_t> untouched;  // 1: Mycroft is off, pass everything through
    int mask = 0;              // its own; it may rewrite it at any time
    Cell<int> mask_seen;
    Cell<void*> contexts[kMaxCommunicators];
};

extern Chain g_chain;

// Loads the plugin named by the settings, once; null if there is none or it lacks that version.
const void* chain_load(int api, abi::Logger log);

// Its context of this communicator.
void chain_remember(uint64_t context, void* theirs);
void* chain_context(void* context);

struct HandlePair {
    uint64_t ours;
    void* theirs;
};

// The pair's handle for NCCL. Steps and the like come and go by the thousand and are `brief`: their pair ends
// at their stop; others may still be asked for as parents.
uint64_t chain_pair(HandlePair pair, bool brief);

// The pair of a handle; {handle, null} if it is not a pair of ours.
HandlePair chain_split(const void* handle);

void chain_stopped(const void* handle);

}  // namespace mycroft
