// What the processes of a host share: a doorbell for each rank's GPU and the FIFOs of the legs between them.
#pragma once

#include <vector>

#include "doorbell.h"
#include "fifo.h"
#include "layout.h"

namespace mycroft::testbed {

class HostMemory {
  public:
    // Maps the file, which every process of the host makes equally long; throws std::runtime_error.
    HostMemory(int fd, const Plan& plan, const std::vector<Leg>& legs, int host);
    ~HostMemory();
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    Doorbell& bell(int world_rank) const;
    Fifo& fifo(const Leg& leg) const;

  private:
    const Plan& plan_;
    size_t bytes_;
    size_t fifos_at_;
    char* memory_;
};

}  // namespace mycroft::testbed
