// Numbers of sends and receives: NCCL counts none, so the n-th of each (communicator, peer, direction) is n.
#pragma once

#include <cstdint>

namespace mycroft {

// The number of one more, from 1; 0 where the table is full.
uint64_t number_pair(uint32_t comm, uint32_t comm_generation, int32_t peer, bool receive);

}  // namespace mycroft
