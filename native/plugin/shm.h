// Making the shared-memory file: never sparse, never through a link, never the last free space.
#pragma once

#include <cstdint>

#include "layout.h"

namespace mycroft {

struct Tables {
    uint64_t offset[static_cast<int>(Table::kCount)];
    uint32_t stride[static_cast<int>(Table::kCount)];
    uint32_t capacity[static_cast<int>(Table::kCount)];
};

// How a file of so many bytes is divided; the ring takes what is left.
Tables divide(uint64_t bytes);

struct Mapping {
    void* base = nullptr;
    const char* failed = nullptr;  // what went wrong, in words
    int error = 0;                 // errno of it, 0 where it has none
};

// Creates `dir`/`name` with all its bytes allocated and maps it; makes `dir` if it is absent.
Mapping create_file(const char* dir, const char* name, uint64_t bytes);

// Survives the truncation of the mapping: replaces it by private memory and calls `lost` once.
void guard(void* base, uint64_t bytes, void (*lost)());

// Nothing is guarded any more: the mapping is gone, and its place may be somebody else's.
void unguard();

}  // namespace mycroft
