// All files of a host read at once, and whether what they show is worth more than a glance.
//
// Rows of all processes land one after another, so that what follows costs the same for one or many. A slot
// counts as read if two copies agree on whose it is: its counters may move between them, since each only
// grows.
//
// What the collector remembers of an operation (since when it stands still) does not change while the
// operation does not, so a glance at which nothing moved need not be followed by more, until the next
// operation falls due by its age.
#pragma once

#include <cstdint>
#include <vector>

#include "clock.h"
#include "file.h"
#include "hearing.h"

namespace mycroft::collector {

// What a glance says. From kFilling on nothing else of it is valid.
enum Verdict : int32_t {
    kCalm = 0,     // nothing in flight can be judged yet
    kStill = 1,    // nothing that shows more than its launch has come, gone or moved since the last one
    kMoved = 2,    // … something has
    kFilling = 3,  // a ring should be drained soon
    kFailed = 4,   // files that cannot be read any more: Found::failed
    kNoRoom = 5,   // more rows than there is room for: Found::operation_count, flow_count
    kNoMemory = 6,
};

enum Failure : int32_t { kFine = 0, kCut = 1, kChangedHands = 2, kNoClock = 3 };

struct Heard {
    uint64_t calls;
    int64_t any_since;
    int64_t proxy_since;
};

// Where the caller wants things, and how much there was. Arrays of one element a process, but `counts`, which
// has kTables, and those of operations and flows, which have `…_room`.
struct Found {
    uint8_t* headers;  // kHotHeaderBytes each
    int32_t* failed;   // Failure
    Clock* clocks;
    Heard* heard;
    int64_t* counts;  // slots that were ever used
    uint8_t* operations;
    int64_t* open_operations;  // places among `operations` of those in flight …
    int64_t* operation_where;  // … and the number of their process
    uint8_t* shown;            // … and whether they show more than their launch
    uint8_t* flows;
    int64_t* open_flows;
    int64_t* flow_where;
    uint64_t operation_room;
    uint64_t flow_room;
    uint64_t operation_count;
    uint64_t operations_open;
    uint64_t flow_count;
    uint64_t flows_open;
};

// Second copies of what is in flight. Arrays have room for all that is open in Found.
struct Again {
    uint8_t* operations;
    int64_t* operation_where;
    uint8_t* flows;
    int64_t* flow_where;
    int64_t* flow_slots;
    uint64_t operation_count;
    uint64_t flow_count;
    uint64_t torn;
};

class Host {
  public:
    // The files from now on. What was known of those that stay is kept.
    void sources(const Source* sources, size_t count);

    // Reads the headers' changing parts into `found`.
    Verdict headers(Found& found);

    // Reads operations and flows once; headers have been read. `now` is ns of the monotonic clock, nothing
    // younger than `age_ns` is judged. `looks`: more than a glance follows in any case.
    Verdict glance(Found& found, int64_t now, int64_t age_ns, bool looks);

    // Communicators and streams of all processes, counts as in `found`; kFine or kFailed.
    Verdict tables(Found& found, uint8_t* communicators, uint8_t* streams);

    // Second copies of the flows in flight and of those operations that `followed` has, after a glance.
    Verdict again(Found& found, const uint8_t* followed, Again& again);

  private:
    struct Known {
        Source source;
        Hearing hearing;
        Clock clock{};
        bool timed = false;
    };
    // What is in flight of a table: places and processes; `mask` null: all of it is followed.
    struct Open {
        const int64_t* places;
        const int64_t* where;
        uint64_t count;
        const uint8_t* mask;
        bool followed(uint64_t at) const { return mask == nullptr || mask[at] != 0; }
    };
    struct Seen {
        std::vector<int64_t> places;
        std::vector<uint64_t> words;
        bool operator==(const Seen& other) const { return places == other.places && words == other.words; }
    };

    bool read_tables(Found& found, Table table, size_t row, uint8_t* into);
    bool calm(const Found& found, int64_t now, int64_t age_ns) const;
    bool moved(const Found& found);
    template <class Row, class Take>
    bool second(Found& found, Table table, const Row* rows, const Open& open, const Take& take);

    std::vector<Known> files_;
    std::vector<Seen> before_{2}, seen_{2};  // of operations, of flows
    std::vector<uint64_t> calls_;
    int64_t now_ = 0;
    Header header_{};  // only its first part is ever read from a file
    Scratch wide_, span_;
};

}  // namespace mycroft::collector
