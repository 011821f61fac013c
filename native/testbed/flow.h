// One operation on one network leg, as the proxy carries it: the steps from buffer to wire and from wire to
// buffer, and the states that NCCL tells its profiler on the way.
#pragma once

#include <memory>

#include "fifo.h"
#include "launch.h"
#include "profiler.h"
#include "transport.h"

namespace mycroft::testbed {

// What a leg keeps between operations. One of the connections is there.
struct NetworkLeg {
    Fifo* fifo = nullptr;
    size_t slot_bytes = 0;
    std::function<void()> ring_gpu;
    std::unique_ptr<SendConnection> sending;
    std::unique_ptr<ReceiveConnection> receiving;
    int channel = 0;
    int peer = 0;
    uint64_t base = 0;  // steps of earlier operations
};

// What an operation of the proxy is started with.
struct ProxyRequest {
    std::shared_ptr<Launch> launch;
    NetworkLeg* leg = nullptr;  // NULL: it only reports `block`, the kernel's part on a channel
    Block* block = nullptr;
    int steps = 0;
    int depth = 8;
    bool send = false;
};

class Flow {
  public:
    Flow(Profiler& profiler, void* context, int rank, ProxyRequest request);

    // The event of its being queued.
    void announce();
    // One pass; true where something moved. `posts`: whether receives are posted.
    bool progress(bool posts);
    bool finished() const { return done_ == static_cast<uint64_t>(request_.steps); }
    bool awaits_credit() const { return refused_; }
    const NetworkLeg& leg() const { return *request_.leg; }
    bool receives_next() const { return received_ < posted_; }

  private:
    bool progress_send();
    bool progress_receive(bool posts);
    void begin_step(uint64_t step);
    void end_step();

    Profiler& profiler_;
    void* context_;
    int rank_;
    ProxyRequest request_;
    void* handle_ = nullptr;
    void* steps_[kSlots]{};
    bool begun_ = false;
    bool refused_ = false;
    uint64_t posted_ = 0;
    uint64_t transmitted_ = 0;
    uint64_t received_ = 0;
    uint64_t flushed_ = 0;
    uint64_t done_ = 0;
};

}  // namespace mycroft::testbed
