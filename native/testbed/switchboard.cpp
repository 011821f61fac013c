#include "switchboard.h"

#include <algorithm>

namespace mycroft::testbed {

std::vector<Switchboard::Bucket*> Switchboard::buckets(int from, int to) {
    std::vector<Bucket*> found = {&hosts_[static_cast<size_t>(from)].sends,
                                  &hosts_[static_cast<size_t>(to)].receives};
    if (const auto link = links_.find({from, to}); link != links_.end()) found.push_back(&link->second);
    found.erase(std::remove_if(found.begin(), found.end(), [](const Bucket* one) { return one->rate <= 0; }),
                found.end());
    return found;
}

size_t Switchboard::allowance(int from, int to, size_t wanted, int64_t now_ns) {
    for (Bucket* const bucket : buckets(from, to)) {
        const double filled = bucket->rate * static_cast<double>(now_ns - bucket->filled_at) / 1e9;
        bucket->budget = std::min(bucket->budget + filled, bucket->rate / 50 + 1024);
        bucket->filled_at = now_ns;
        wanted = std::min(wanted, static_cast<size_t>(std::max(bucket->budget, 0.0)));
    }
    return wanted;
}

void Switchboard::sent(int from, int to, size_t bytes) {
    for (Bucket* const bucket : buckets(from, to)) bucket->budget -= static_cast<double>(bytes);
}

}  // namespace mycroft::testbed
