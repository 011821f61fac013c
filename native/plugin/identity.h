// Who this process is, for a collector that cannot look into it: environment, start time, namespaces, GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layout.h"

namespace mycroft {

uint64_t random64();

// Field 22 of /proc/self/stat, 0 where it cannot be read.
uint64_t process_start_ticks();

uint64_t pid_namespace();

void read_boot_id(uint8_t (&id)[16]);

// KEY=VALUE of the allow-list, NUL-separated, ended by an empty one. What does not fit is left out.
void copy_environment(char* into, size_t bytes);

// The GPU current on this thread, asked from the driver that is in the process already; -1 if there is none.
void read_device(Communicator& comm);

// ncclGetVersion of the library that `caller` lies in, 0 where it has none.
uint32_t nccl_version(const void* caller);

}  // namespace mycroft
