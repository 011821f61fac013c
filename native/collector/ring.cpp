#include "ring.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace mycroft::collector {
namespace {

constexpr uint64_t kMostLost = uint64_t{1} << 40;  // a jump is nonsense, but it is told

uint64_t capacity(const Source& source) {
    return source.place(Table::kRing).capacity;
}

// Records first … first + count − 1, which may lie over the ring's end.
bool read_records(const Source& source, uint64_t first, uint64_t count, uint8_t* into, Scratch& scratch) {
    const uint64_t at = first % capacity(source), head = std::min(count, capacity(source) - at);
    return read_rows(source, Table::kRing, at, head, sizeof(Record), into, scratch) &&
           read_rows(source, Table::kRing, 0, count - head, sizeof(Record), into + head * sizeof(Record),
                     scratch);
}

enum Condition : uint8_t { kReady, kOverwritten, kNotReady };

// How many of the records are settled: taken, or given up. One that is not ready ends it, unless later ones
// are and it was waited for already.
uint64_t settled(const std::vector<Condition>& conditions, Cursor& cursor) {
    uint64_t ready = conditions.size();
    while (ready > 0 && conditions[ready - 1] != kReady) --ready;
    for (uint64_t at = 0; at < conditions.size(); ++at) {
        if (conditions[at] != kNotReady) continue;
        if (at >= ready || cursor.next + at >= cursor.waited_until) {
            cursor.waited_until = std::max(cursor.waited_until, cursor.next + ready);
            return at;
        }
    }
    return conditions.size();
}

}  // namespace

bool filling(const Source& source, uint64_t written) {
    Cursor& cursor = *source.cursor;
    cursor.behind = written > cursor.next ? written - cursor.next : 0;
    return cursor.behind > capacity(source) / 4;
}

uint64_t waiting(const Source& source, uint64_t end) {
    const uint64_t next = source.cursor->next;
    return std::min({end < next ? 0 : end - next, capacity(source), kMaxRecords});
}

bool drain(const Source& source, uint64_t end, Drained& into) {
    Cursor& cursor = *source.cursor;
    into.operation_count = into.flow_count = into.lost = into.corrupt = 0;
    if (end < cursor.next) {  // it never goes back: the file is not what it was
        into.lost = 1;
        cursor.next = end;
    }
    if (end - cursor.next > capacity(source)) {
        into.lost += std::min(end - cursor.next - capacity(source), kMostLost);
        cursor.next = end - capacity(source);
    }
    cursor.behind = end - cursor.next;
    const uint64_t count = std::min(cursor.behind, kMaxRecords);
    if (count == 0) return true;
    static thread_local Scratch one, two, wide;
    uint8_t* const before = one.room(count * sizeof(Record));
    uint8_t* const records = two.room(count * sizeof(Record));
    if (!read_records(source, cursor.next, count, before, wide)) return false;
    if (!read_records(source, cursor.next, count, records, wide)) return false;
    std::vector<Condition> conditions(count);
    const auto* const rows = reinterpret_cast<const Record*>(records);
    for (uint64_t at = 0; at < count; ++at) {
        const uint64_t expected = 2 * (cursor.next + at) + 2, sequence = rows[at].sequence.get();
        const bool same =
            std::memcmp(before + at * sizeof(Record), records + at * sizeof(Record), sizeof(Record)) == 0;
        conditions[at] = sequence > expected            ? kOverwritten
                         : same && sequence == expected ? kReady
                                                        : kNotReady;
    }
    const uint64_t taken = settled(conditions, cursor);
    for (uint64_t at = 0; at < taken; ++at) {
        const uint32_t kind = rows[at].kind.get();
        if (conditions[at] != kReady) {
            ++into.lost;
        } else if (kind == kRecordOperation) {
            std::memcpy(into.operations + sizeof(Operation) * into.operation_count++, &rows[at].body,
                        sizeof(Operation));
        } else if (kind == kRecordFlow) {
            std::memcpy(into.flows + sizeof(Flow) * into.flow_count++, &rows[at].body, sizeof(Flow));
        } else {
            ++into.corrupt;
        }
    }
    cursor.next += taken;
    cursor.behind = end - cursor.next;
    return true;
}

}  // namespace mycroft::collector
