// Another profiler plugin behind this one (MYCROFT_CHAIN): NCCL has one slot.
//
// It is called with its own contexts, handles and parents, for the events of its own mask, as if it were
// alone. NCCL holds a pair (kChainHandle) of both handles. It must export the version that NCCL asked us for.
// It sees no proxy operations of other processes (PXN): their contexts mean nothing here. Which context and
// handle of its stands for which of NCCL's is kept in this process's own memory, so it goes on as well where
// Mycroft is off, has no room for a communicator, or has lost its file.
#pragma once

#include <cstdint>

#include "abi.h"
#include "process.h"

namespace mycroft {

struct Chain {
    int mask = 0;  // its own; it may rewrite it at any time
    Cell<int> mask_seen;
};

extern Chain g_chain;

// Loads the plugin named by the settings, once; null if there is none or it lacks that version.
const void* chain_load(int api, abi::Logger log);

struct ContextPair {
    uint64_t ours;  // 0: Mycroft does not trace this communicator
    void* theirs;   // null: the other plugin does not
    int* mask;      // NCCL's
};

// The context for NCCL: ours where there is one, else one that only stands for theirs.
void* chain_open(ContextPair pair);

// The pair of a context; {context, null} of another process's.
ContextPair chain_context(const void* context);

// The same, and from now on theirs is null: it is finalised once.
ContextPair chain_close(const void* context);

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
