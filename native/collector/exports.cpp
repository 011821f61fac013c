// What collectors/agent/native.py calls.
#include <new>

#include "host.h"
#include "ring.h"

#define MYCROFT_COLLECTOR extern "C" __attribute__((visibility("default")))

namespace {

using namespace mycroft::collector;

// No exception leaves the library: running out of memory is all that can be thrown.
template <class Do>
int32_t guarded(const Do& act) noexcept {
    try {
        return act();
    } catch (const std::bad_alloc&) {
        return kNoMemory;
    }
}

}  // namespace

// Sizes of what both sides share, for a test: Source, Cursor, Clock, Heard, Found, Again, Drained.
MYCROFT_COLLECTOR const uint32_t* mycroft_sizes() {
    static const uint32_t sizes[] = {sizeof(Source), sizeof(Cursor), sizeof(Clock),  sizeof(Heard),
                                     sizeof(Found),  sizeof(Again),  sizeof(Drained)};
    return sizes;
}

MYCROFT_COLLECTOR Host* mycroft_host_open() {
    return new (std::nothrow) Host;
}

MYCROFT_COLLECTOR void mycroft_host_close(Host* host) {
    delete host;
}

MYCROFT_COLLECTOR int32_t mycroft_host_sources(Host* host, const Source* sources, uint64_t count) {
    return guarded([&] {
        host->sources(sources, count);
        return kCalm;
    });
}

MYCROFT_COLLECTOR int32_t mycroft_host_headers(Host* host, Found* found) {
    return guarded([&] { return host->headers(*found); });
}

MYCROFT_COLLECTOR int32_t mycroft_host_glance(Host* host, Found* found, int64_t now, int64_t age_ns,
                                              int32_t looks) {
    return guarded([&] { return host->glance(*found, now, age_ns, looks != 0); });
}

MYCROFT_COLLECTOR int32_t mycroft_host_tables(Host* host, Found* found, uint8_t* communicators,
                                              uint8_t* streams) {
    return guarded([&] { return host->tables(*found, communicators, streams); });
}

MYCROFT_COLLECTOR int32_t mycroft_host_again(Host* host, Found* found, const uint8_t* followed,
                                             Again* again) {
    return guarded([&] { return host->again(*found, followed, *again); });
}

MYCROFT_COLLECTOR uint64_t mycroft_ring_waiting(const Source* source, uint64_t end) {
    return waiting(*source, end);
}

MYCROFT_COLLECTOR int32_t mycroft_ring_drain(const Source* source, uint64_t end, Drained* drained) {
    return guarded([&] { return drain(*source, end, *drained) ? kCalm : kFailed; });
}
