#include "host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace mycroft::testbed {
namespace {

constexpr size_t kBellBytes = 64;

}  // namespace

HostMemory::HostMemory(int fd, const Plan& plan, const std::vector<Leg>& legs, int host)
    : plan_(plan), fifos_at_(kBellBytes * plan.ranks.size()) {
    bytes_ = fifos_at_ + Fifo::bytes(plan.slot_bytes) * static_cast<size_t>(local_legs(plan, legs, host));
    if (ftruncate(fd, static_cast<off_t>(bytes_)) != 0)
        throw std::runtime_error(std::string("host memory: ") + std::strerror(errno));
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) throw std::runtime_error(std::string("host memory: ") + std::strerror(errno));
    memory_ = static_cast<char*>(at);
}

HostMemory::~HostMemory() {
    munmap(memory_, bytes_);
}

// Zeros are a silent doorbell and an empty FIFO: what ftruncate made needs no constructor.
Doorbell& HostMemory::bell(int world_rank) const {
    return *reinterpret_cast<Doorbell*>(memory_ + kBellBytes * static_cast<size_t>(world_rank));
}

Fifo& HostMemory::fifo(const Leg& leg) const {
    return *reinterpret_cast<Fifo*>(memory_ + fifos_at_ +
                                    Fifo::bytes(plan_.slot_bytes) * static_cast<size_t>(leg.place));
}

}  // namespace mycroft::testbed
