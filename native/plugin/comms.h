// Communicators: one slot per init, and the activation mask by tier.
#pragma once

#include <cstdint>

#include "abi.h"
#include "process.h"

namespace mycroft {

struct CommFacts {
    uint64_t id;
    const char* name;
    int nnodes;
    int nranks;
    int rank;
    uint8_t api;
    uint32_t nccl_version;
};

// The context for NCCL, null where the table is full; writes the activation mask.
void* open_communicator(const CommFacts& facts, int* mask);

void close_communicator(uint64_t context);

// The slot that the context stands for, kNone if it is not ours or no longer valid. A finalised communicator
// stays valid until its slot is handed out again: a shared proxy thread may go on using it.
uint32_t communicator_of(uint64_t context);

// Event bits of a tier in an API version.
int mask_of(Tier tier, uint8_t api, bool kernel_allowed);

// Whether kernel channels are asked for in this communicator now.
bool kernels_traced(uint32_t comm);

// Follows a change of the requested tier; called at starts of everything but steps.
void follow_tier(uint32_t comm);

}  // namespace mycroft
