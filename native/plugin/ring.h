// The ring of finished operations and flows (layout.h, "Ring").
#pragma once

#include <cstdint>

#include "layout.h"

namespace mycroft {

void record(RecordKind kind, uint32_t slot, const void* body, uint64_t first_word);

}  // namespace mycroft
