// Draining the ring of finished operations and flows (layout.h, "Ring").
#pragma once

#include <cstdint>

#include "file.h"

namespace mycroft::collector {

constexpr uint64_t kMaxRecords = 16384;  // drained at most at once, to bound memory; the rest comes next time

// What a drain found. `operations` and `flows` have room for kMaxRecords, or for what is behind if that is
// less; `lost` were overwritten or never became ready, `corrupt` are of no known kind.
struct Drained {
    uint8_t* operations;
    uint8_t* flows;
    uint64_t operation_count;
    uint64_t flow_count;
    uint64_t lost;
    uint64_t corrupt;
};

// Takes note of how many records were written; whether they should be drained soon.
bool filling(const Source& source, uint64_t written);

// How many records a drain up to `end` looks at, at most.
uint64_t waiting(const Source& source, uint64_t end);

// Takes what is there up to record `end`; false where the file was cut.
bool drain(const Source& source, uint64_t end, Drained& into);

}  // namespace mycroft::collector
