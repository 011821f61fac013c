#include "process.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "clock.h"
#include "identity.h"
#include "shm.h"

namespace mycroft {

Process g;
bool g_cheap_clock = false;

namespace {

constexpr uint32_t kPluginVersion = 0x000100;
constexpr int64_t kCalibration = 1'000'000;  // ns; the rate is bettered by anchor later

pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
bool tried = false;    // under `starting`
Cell<uint32_t> child;  // 1: forked from a process that was traced

void turn_off(OffReason reason) {
    g.on.set(0);
    if (g.header != nullptr) {
        g.header->off_reason.set(reason);
        g.header->state.set(kOff);
    }
}

void file_lost() {
    turn_off(kOffTruncated);
}

// A child of fork shares the mapping but is another process: it must not write there, nor ever start.
void forked() {
    child.set(1);
    g.on.set(0);
    unguard();
    if (g.header != nullptr) munmap(g.header, g.file_bytes);
    g.header = nullptr;
}

uint64_t calibrate(ClockSource source) {
    if (source == kClockMonotonic) return 1'000'000'000;
#if defined(__aarch64__)
    uint64_t hertz;
    asm volatile("mrs %0, cntfrq_el0" : "=r"(hertz));
    if (hertz != 0) return hertz;
#endif
    const Instant from = instant();
    while (clock_ns(CLOCK_MONOTONIC) - from.monotonic_ns < kCalibration) {
    }
    const Instant now = instant();
    const auto passed = static_cast<uint64_t>(now.monotonic_ns - from.monotonic_ns);
    return (now.ticks - from.ticks) * 1'000'000'000 / passed;
}

void set_anchor(Anchor& anchor) {
    const Instant now = instant();
    anchor.ticks.set(now.ticks);
    anchor.monotonic_ns.set(now.monotonic_ns);
    anchor.wall_ns.set(now.wall_ns);
}

// Another number for each slot, and for each process: see layout.h, "Reading a slot".
uint32_t first_generation(uint64_t nonce, uint32_t table, uint32_t slot) {
    uint64_t mixed = nonce ^ (uint64_t{table} << 32 | slot) * 0x9e3779b97f4a7c15ULL;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebULL;
    return static_cast<uint32_t>(mixed >> 32) & kGeneration24;
}

void place_tables(char* base, const Tables& tables) {
    auto at = [&](Table which) { return base + tables.offset[static_cast<int>(which)]; };
    auto many = [&](Table which) { return tables.capacity[static_cast<int>(which)]; };
    for (int i = 0; i < static_cast<int>(Table::kCount); ++i) {
        TableInfo& info = g.header->tables[i];
        info.offset = tables.offset[i];
        info.stride = tables.stride[i];
        info.capacity = tables.capacity[i];
    }
    g.comms = reinterpret_cast<Communicator*>(at(Table::kCommunicators));
    g.streams = reinterpret_cast<Stream*>(at(Table::kStreams));
    g.calls = reinterpret_cast<Call*>(at(Table::kCalls));
    g.operations = reinterpret_cast<Operation*>(at(Table::kOperations));
    g.flows = reinterpret_cast<Flow*>(at(Table::kFlows));
    g.pairs = reinterpret_cast<Pair*>(at(Table::kPairs));
    g.ring = reinterpret_cast<Record*>(at(Table::kRing));
    g.comm_count = many(Table::kCommunicators);
    g.stream_count = many(Table::kStreams);
    g.call_count = many(Table::kCalls);
    g.operation_count = many(Table::kOperations);
    g.flow_count = many(Table::kFlows);
    g.pair_count = many(Table::kPairs);
    g.ring_count = many(Table::kRing);
    table(Table::kPairs).used.set(g.pair_count);  // a hash table: read it all
    table(Table::kRing).used.set(g.ring_count);
}

void number_slots(uint64_t nonce) {
    for (uint32_t i = 0; i < g.comm_count; ++i) g.comms[i].generation.set(first_generation(nonce, 0, i) | 1);
    for (uint32_t i = 0; i < g.call_count; ++i)
        g.calls[i].generation.set(first_generation(nonce, 1, i) & ~1U);
    for (uint32_t i = 0; i < g.operation_count; ++i) {
        g.operations[i].control.set(uint64_t{first_generation(nonce, 2, i)} << 40);
    }
    for (uint32_t i = 0; i < g.flow_count; ++i) {
        g.flows[i].generation.set(first_generation(nonce, 3, i) | 1);
        g.flows[i].next_free.set(i + 1 < g.flow_count ? i + 2 : 0);
    }
    g.free_flows.set(1);
}

void fill_header(uint64_t nonce, uint64_t start_ticks, ClockSource source, uint64_t hertz) {
    Header& header = *g.header;
    header.layout_version = kLayoutVersion;
    header.header_bytes = kHeaderBytes;
    header.file_bytes = g.file_bytes;
    header.nonce = nonce;
    header.nonce_tag = g.nonce_tag;
    header.pid = g.pid;
    header.start_ticks = start_ticks;
    header.pid_namespace = pid_namespace();
    read_boot_id(header.boot_id);
    header.uid = getuid();
    header.plugin_version = kPluginVersion;
    header.clock_source = source;
    header.tick_hz = hertz;
    header.requested_tier.set(g.settings.tier);
    copy_environment(header.environment, sizeof header.environment);
    std::snprintf(header.job, sizeof header.job, "%s", g.settings.job);
}

void publish() {
    g.header->state.set(kOn);
    __atomic_store_n(&g.header->magic, kMagic, __ATOMIC_RELEASE);
    g.on.release(1);
}

bool start(abi::Logger log) {
    g.settings = read_settings();
    const uint64_t nonce = random64();
    g.nonce_tag = static_cast<uint32_t>(nonce >> 44);  // a chained plugin's handles have it, too
    if (g.settings.disabled) {
        say(log, abi::kLogInfo, "Mycroft: off (MYCROFT_DISABLE)");
        return false;
    }
    if (g.settings.no_size != nullptr) {
        say(log, abi::kLogWarn, "Mycroft: MYCROFT_SHM_BYTES=%s is no size; taking %llu", g.settings.no_size,
            static_cast<unsigned long long>(g.settings.shm_bytes));
    }
    const uint64_t start_ticks = process_start_ticks();
    g.pid = static_cast<uint32_t>(getpid());
    g.step_head = head_of(kStepHandle);
    g.flow_head = head_of(kFlowHandle);
    g.file_bytes = g.settings.shm_bytes;
    char name[96];
    std::snprintf(name, sizeof name, "%u-%llu-%016llx.mycroft", g.pid,
                  static_cast<unsigned long long>(start_ticks), static_cast<unsigned long long>(nonce));
    const Mapping mapping = create_file(g.settings.dir, name, g.file_bytes);
    if (mapping.base == nullptr) {
        say(log, abi::kLogWarn, "Mycroft: off, the job goes on untraced: %s in %s%s%s", mapping.failed,
            g.settings.dir, mapping.error != 0 ? ": " : "",
            mapping.error != 0 ? std::strerror(mapping.error) : "");
        return false;
    }
    const ClockSource source = clock_source();
    g_cheap_clock = source != kClockMonotonic;
    g.header = static_cast<Header*>(mapping.base);
    if (g.settings.guard) guard(mapping.base, g.file_bytes, file_lost);
    set_anchor(g.header->start_anchor);
    const uint64_t hertz = calibrate(source);
    g.ns_per_tick = 1e9 / static_cast<double>(hertz);
    set_anchor(g.header->anchor);
    place_tables(static_cast<char*>(mapping.base), divide(g.file_bytes));
    number_slots(nonce);
    fill_header(nonce, start_ticks, source, hertz);
    g.operation_hand.window.set(g.operation_count < 64 ? g.operation_count : 64);
    g.call_hand.window.set(g.call_count < 256 ? g.call_count : 256);
    g.tier.set(g.settings.tier);
    g.header->applied_tier.set(g.settings.tier);
    g.tier_epoch.set(1);
    publish();
    say(log, abi::kLogInfo, "Mycroft: tracing to %s/%s", g.settings.dir, name);
    return true;
}

}  // namespace

void say(abi::Logger log, abi::LogLevel level, const char* format, ...) {
    if (log == nullptr) return;
    char line[512];
    va_list args;
    va_start(args, format);
    std::vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log(level, ~0UL, "mycroft", 0, "%s", line);
}

bool process_start(abi::Logger log) {
    if (child.get() != 0) return false;
    pthread_mutex_lock(&starting);
    if (!tried) {
        tried = true;
        pthread_atfork(nullptr, nullptr, forked);
        start(log);
    }
    pthread_mutex_unlock(&starting);
    return on();
}

}  // namespace mycroft
