#include "hearing.h"

namespace mycroft::collector {

void Hearing::listen(uint64_t callbacks, uint64_t of_flows, int64_t now) {
    const uint64_t before = calls();
    const bool flows_moved = of_flows != of_flows_;
    callbacks_ = callbacks;
    of_flows_ = of_flows;
    if (!known_ || calls() != before) any_since_ = now;
    if (!known_ || flows_moved) proxy_since_ = now;
    known_ = true;
}

void Hearing::listen_to_proxies(uint64_t of_proxies, int64_t now) {
    if (of_proxies == of_proxies_) return;
    of_proxies_ = of_proxies;
    any_since_ = proxy_since_ = now;
}

}  // namespace mycroft::collector
