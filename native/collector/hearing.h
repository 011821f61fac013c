// When each process was last heard of: any callback at all, and any of its proxy thread.
#pragma once

#include <cstdint>

namespace mycroft::collector {

// Callbacks that a process has made, and since when (ns of the monotonic clock) they have been as many.
// A flow that ends hands its callbacks to the process's counter: then, too, its proxy was there.
class Hearing {
  public:
    // At each look: the header's counter, and the sum over the flows in flight.
    void listen(uint64_t callbacks, uint64_t of_flows, int64_t now);
    // Where communicators were looked at: the sum of their proxies' calls.
    void listen_to_proxies(uint64_t of_proxies, int64_t now);

    uint64_t calls() const { return callbacks_ + of_flows_ + of_proxies_; }
    int64_t any_since() const { return any_since_; }
    int64_t proxy_since() const { return proxy_since_; }

  private:
    bool known_ = false;
    uint64_t callbacks_ = 0, of_flows_ = 0, of_proxies_ = 0;
    int64_t any_since_ = 0, proxy_since_ = 0;
};

}  // namespace mycroft::collector
