#include "clock.h"

#include <algorithm>

namespace mycroft::collector {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr double kSlowest = 1e-4, kFastest = 100;   // ticks per ns that a clock may have
constexpr double kLargest = 4611686018427387904.0;  // 2^62

bool is_time(int64_t monotonic_ns) {
    return monotonic_ns >= 0 && monotonic_ns < int64_t{1} << 62;
}

}  // namespace

bool clock_of(const Header& header, Clock& clock) {
    const Anchor &start = header.start_anchor, &now = header.anchor;
    if (now.version.get() % 2 != 0 || start.version.get() % 2 != 0) return false;
    const Anchor& last = now.ticks.get() != 0 ? now : start;
    const uint64_t ticks = last.ticks.get(), started = start.ticks.get();
    if (ticks >= uint64_t{1} << 62 || started >= uint64_t{1} << 62) return false;
    if (!is_time(last.monotonic_ns.get()) || !is_time(start.monotonic_ns.get())) return false;
    const int64_t elapsed = last.monotonic_ns.get() - start.monotonic_ns.get();
    // Two anchors a second apart tell the rate, else the estimate that the process made at its start.
    const double rate = elapsed >= kSecond ? static_cast<double>(static_cast<int64_t>(ticks - started)) /
                                                 static_cast<double>(elapsed)
                                           : static_cast<double>(header.tick_hz) / 1e9;
    if (!(rate >= kSlowest && rate < kFastest)) return false;
    clock = {static_cast<int64_t>(ticks), last.monotonic_ns.get(), last.wall_ns.get(), rate};
    return true;
}

int64_t ticks_at(const Clock& clock, int64_t monotonic_ns) {
    const auto since = static_cast<double>(monotonic_ns - clock.monotonic_ns);
    const double found = static_cast<double>(clock.ticks) + since * clock.rate;
    return static_cast<int64_t>(std::clamp(found, 0.0, kLargest));
}

}  // namespace mycroft::collector
