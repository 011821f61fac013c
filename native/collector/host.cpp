#include "host.h"

#include <algorithm>
#include <cstring>

#include "ring.h"

namespace mycroft::collector {
namespace {

// Of a Flow: generation, states, head, total and counters, and its operation.
constexpr size_t kFlowWords[] = {0, 1, 2, 3, 16};
static_assert(offsetof(Flow, counters) + sizeof(Flow::counters) == 32 && offsetof(Flow, parent) == 128,
              "kFlowWords");

// From parent to flags: whose a flow is, beside its generation.
constexpr size_t kFlowIdentity = offsetof(Flow, parent);
constexpr size_t kFlowIdentityBytes = offsetof(Flow, chunk) - kFlowIdentity;

OperationState state_of(const Operation& operation) {
    return static_cast<OperationState>(operation.control.get() >> 32 & kStateMask);
}

bool is_open(const Flow& flow) {
    return flow.state.get() == kFlowOpen && flow.generation.get() % 2 == 0;
}

// Whether two copies are of one operation.
bool same(const Operation& one, const Operation& other) {
    return one.control.get() >> 40 == other.control.get() >> 40 && one.handle.get() == other.handle.get() &&
           one.order.get() == other.order.get();
}

bool same(const Flow& one, const Flow& other) {
    return one.generation.get() == other.generation.get() &&
           std::memcmp(reinterpret_cast<const uint8_t*>(&one) + kFlowIdentity,
                       reinterpret_cast<const uint8_t*>(&other) + kFlowIdentity, kFlowIdentityBytes) == 0;
}

const Operation* operations(const Found& found) {
    return reinterpret_cast<const Operation*>(found.operations);
}
const Flow* flows(const Found& found) {
    return reinterpret_cast<const Flow*>(found.flows);
}

int64_t total(const Found& found, size_t files, Table table) {
    int64_t sum = 0;
    for (size_t file = 0; file < files; ++file) sum += found.counts[file * kTables + static_cast<int>(table)];
    return sum;
}

}  // namespace

void Host::sources(const Source* sources, size_t count) {
    std::vector<Known> fresh;
    for (size_t at = 0; at < count; ++at) {
        Known known{};
        for (const Known& each : files_)
            if (each.source.id == sources[at].id) known = each;
        known.source = sources[at];
        fresh.push_back(known);
    }
    files_ = std::move(fresh);
    before_.assign(2, {});
}

Verdict Host::headers(Found& found) {
    bool failed = false, full = false;
    for (size_t file = 0; file < files_.size(); ++file) {
        Known& known = files_[file];
        uint8_t* const raw = found.headers + file * kHotHeaderBytes;
        int32_t& failure = found.failed[file];
        failure = kFine;
        if (!read_at(known.source.fd, raw, kHotHeaderBytes, 0)) {
            failure = kCut;
            failed = true;
            continue;
        }
        Header& header = header_;
        std::memcpy(static_cast<void*>(&header), raw, kHotHeaderBytes);
        if (header.magic != kMagic || header.layout_version != kLayoutVersion ||
            header.nonce != known.source.nonce || header.pid != known.source.pid) {
            failure = kChangedHands;
        } else if (!clock_of(header, known.clock) && !known.timed) {
            failure = kNoClock;
        }
        failed = failed || failure != kFine;
        known.timed = known.timed || failure == kFine;
        found.clocks[file] = known.clock;
        for (int table = 0; table < kTables; ++table)
            found.counts[file * kTables + table] =
                std::min(header.tables[table].used.get(), known.source.places[table].capacity);
        full = filling(known.source, header.ring_next.get()) || full;
    }
    found.operation_count = static_cast<uint64_t>(total(found, files_.size(), Table::kOperations));
    found.flow_count = static_cast<uint64_t>(total(found, files_.size(), Table::kFlows));
    return failed ? kFailed : full ? kFilling : kCalm;
}

Verdict Host::glance(Found& found, int64_t now, int64_t age_ns, bool looks) {
    if (found.operation_count > found.operation_room || found.flow_count > found.flow_room) return kNoRoom;
    const bool all = read_tables(found, Table::kOperations, sizeof(Operation), found.operations);
    if (!read_tables(found, Table::kFlows, sizeof(Flow), found.flows) || !all) return kFailed;
    now_ = now;
    found.operations_open = found.flows_open = 0;
    calls_.assign(files_.size(), 0);
    int64_t first_operation = 0, first_flow = 0;
    for (size_t file = 0; file < files_.size(); ++file) {
        const int64_t* const counts = found.counts + file * kTables;
        const int64_t last_operation = first_operation + counts[static_cast<int>(Table::kOperations)];
        for (int64_t at = first_operation; at < last_operation; ++at) {
            if (state_of(operations(found)[at]) != kOpen) continue;
            found.open_operations[found.operations_open] = at;
            found.operation_where[found.operations_open] = static_cast<int64_t>(file);
            found.shown[found.operations_open++] = operations(found)[at].visibility.get() != kLaunch;
        }
        const int64_t last_flow = first_flow + counts[static_cast<int>(Table::kFlows)];
        for (int64_t at = first_flow; at < last_flow; ++at) {
            if (!is_open(flows(found)[at])) continue;
            found.open_flows[found.flows_open] = at;
            found.flow_where[found.flows_open++] = static_cast<int64_t>(file);
            calls_[file] += flows(found)[at].calls.get();
        }
        first_operation = last_operation;
        first_flow = last_flow;
        uint64_t callbacks = 0;
        std::memcpy(&callbacks, found.headers + file * kHotHeaderBytes + offsetof(Header, callbacks),
                    sizeof callbacks);
        Hearing& hearing = files_[file].hearing;
        hearing.listen(callbacks, calls_[file], now);
        found.heard[file] = {hearing.calls(), hearing.any_since(), hearing.proxy_since()};
    }
    if (!looks && calm(found, now, age_ns)) return kCalm;
    return moved(found) ? kMoved : kStill;
}

// Operations that show something, and flows that another process owns, can be judged when they are old
// enough. Those that show only their launch can where no GPU of their process has moved for so long.
bool Host::calm(const Found& found, int64_t now, int64_t age_ns) const {
    std::vector<int64_t> limits;
    for (const Known& known : files_) limits.push_back(ticks_at(known.clock, now - age_ns));
    for (uint64_t at = 0; at < found.operations_open; ++at) {
        const auto file = static_cast<size_t>(found.operation_where[at]);
        uint64_t since = operations(found)[found.open_operations[at]].launch_tick.get();
        if (found.shown[at] == 0)
            std::memcpy(&since, found.headers + file * kHotHeaderBytes + offsetof(Header, moved_tick),
                        sizeof since);
        if (as_tick(since) <= limits[file]) return false;
    }
    for (uint64_t at = 0; at < found.flows_open; ++at) {
        const Flow& flow = flows(found)[found.open_flows[at]];
        if ((flow.flags.get() & kFlowForeign) == 0) continue;
        if (as_tick(flow.start_tick.get()) <= limits[static_cast<size_t>(found.flow_where[at])]) return false;
    }
    return true;
}

// Polls without credit are no movement.
bool Host::moved(const Found& found) {
    for (Seen& seen : seen_) {
        seen.places.clear();
        seen.words.clear();
    }
    for (uint64_t at = 0; at < found.operations_open; ++at) {
        if (found.shown[at] == 0) continue;
        const int64_t place = found.open_operations[at];
        const auto* const words = reinterpret_cast<const uint64_t*>(operations(found) + place);
        seen_[0].places.push_back(place);
        seen_[0].words.insert(seen_[0].words.end(), words, words + sizeof(Operation) / 8);
    }
    for (uint64_t at = 0; at < found.flows_open; ++at) {
        const int64_t place = found.open_flows[at];
        const auto* const words = reinterpret_cast<const uint64_t*>(flows(found) + place);
        seen_[1].places.push_back(place);
        for (const size_t word : kFlowWords) seen_[1].words.push_back(words[word]);
    }
    const bool still = seen_ == before_;
    std::swap(seen_, before_);
    return !still;
}

Verdict Host::tables(Found& found, uint8_t* communicators, uint8_t* streams) {
    const bool all = read_tables(found, Table::kCommunicators, sizeof(Communicator), communicators);
    if (!read_tables(found, Table::kStreams, sizeof(Stream), streams) || !all) return kFailed;
    const auto* row = reinterpret_cast<const Communicator*>(communicators);
    for (size_t file = 0; file < files_.size(); ++file) {
        uint64_t of_proxies = 0;
        for (int64_t left = found.counts[file * kTables]; left > 0; --left)
            of_proxies += (row++)->proxy_calls.get();
        Hearing& hearing = files_[file].hearing;
        hearing.listen_to_proxies(of_proxies, now_);
        found.heard[file] = {hearing.calls(), hearing.any_since(), hearing.proxy_since()};
    }
    return kCalm;
}

Verdict Host::again(Found& found, const uint8_t* followed, Again& again) {
    again.operation_count = again.flow_count = again.torn = 0;
    const auto operation = [&](const Operation& before, const Operation& now, size_t file, int64_t) {
        if (!same(before, now)) {
            ++again.torn;
        } else if (state_of(now) == kOpen) {
            again.operation_where[again.operation_count] = static_cast<int64_t>(file);
            std::memcpy(again.operations + sizeof now * again.operation_count++, &now, sizeof now);
        }
    };
    const auto flow = [&](const Flow& before, const Flow& now, size_t file, int64_t slot) {
        if (!same(before, now)) {
            ++again.torn;
        } else if (now.state.get() == kFlowOpen) {
            again.flow_where[again.flow_count] = static_cast<int64_t>(file);
            again.flow_slots[again.flow_count] = slot;
            std::memcpy(again.flows + sizeof now * again.flow_count++, &now, sizeof now);
        }
    };
    const Open of_operations{found.open_operations, found.operation_where, found.operations_open, followed};
    const Open of_flows{found.open_flows, found.flow_where, found.flows_open, nullptr};
    return second<Operation>(found, Table::kOperations, operations(found), of_operations, operation) &&
                   second<Flow>(found, Table::kFlows, flows(found), of_flows, flow)
               ? kCalm
               : kFailed;
}

// Reads from each file the span of slots that holds what is open, and hands both copies of each to `take`.
template <class Row, class Take>
bool Host::second(Found& found, Table table, const Row* rows, const Open& open, const Take& take) {
    uint64_t at = 0;
    int64_t begin = 0;
    for (size_t file = 0; file < files_.size(); ++file) {
        const uint64_t first_open = at;
        int64_t first = -1, last = -1;
        for (; at < open.count && open.where[at] == static_cast<int64_t>(file); ++at) {
            if (!open.followed(at)) continue;
            if (first < 0) first = open.places[at];
            last = open.places[at];
        }
        if (first >= 0) {
            const auto count = static_cast<uint64_t>(last - first + 1);
            const auto slot = static_cast<uint64_t>(first - begin);
            uint8_t* const span = span_.room(count * sizeof(Row));
            if (!read_rows(files_[file].source, table, slot, count, sizeof(Row), span, wide_)) {
                found.failed[file] = kCut;
                return false;
            }
            for (uint64_t each = first_open; each < at; ++each) {
                const int64_t place = open.places[each];
                if (open.followed(each))
                    take(rows[place], reinterpret_cast<const Row*>(span)[place - first], file, place - begin);
            }
        }
        begin += found.counts[file * kTables + static_cast<int>(table)];
    }
    return true;
}

bool Host::read_tables(Found& found, Table table, size_t row, uint8_t* into) {
    bool all = true;
    for (size_t file = 0; file < files_.size(); ++file) {
        const auto count = static_cast<uint64_t>(found.counts[file * kTables + static_cast<int>(table)]);
        if (!read_rows(files_[file].source, table, 0, count, row, into, wide_)) {
            found.failed[file] = kCut;
            all = false;
        }
        into += count * row;
    }
    return all;
}

}  // namespace mycroft::collector
