// A file of the plugin as its reader sees it: any bytes may stand in it, and it may be cut at any moment.
//
// Read by pread alone: a mapping would kill the reader if the file were cut. Where tables lie was checked
// when the file was opened; how much of them is used is cut to what there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "layout.h"

namespace mycroft::collector {

constexpr int kTables = static_cast<int>(Table::kCount);
constexpr size_t kHotHeaderBytes = offsetof(Header, environment);  // the part of the header that changes

struct Place {
    uint64_t offset;
    uint32_t stride;
    uint32_t capacity;
};

// How far the ring of a file has been read.
struct Cursor {
    uint64_t next;          // number of the next record
    uint64_t waited_until;  // records before this one were waited for once
    uint64_t behind;        // records that were there at the last look and have not been taken
};

// One open file. `id` names it for as long as it is open.
struct Source {
    uint64_t id;
    uint64_t nonce;
    Cursor* cursor;
    int32_t fd;
    uint32_t pid;
    Place places[kTables];

    const Place& place(Table table) const { return places[static_cast<int>(table)]; }
};

// Memory that is only ever written before it is read; keeps its largest size.
class Scratch {
  public:
    uint8_t* room(size_t bytes);

  private:
    std::unique_ptr<uint8_t[]> bytes_;
    size_t size_ = 0;
};

// Whether so many bytes came.
bool read_at(int fd, void* into, size_t bytes, uint64_t offset);

// Slots first … first + count − 1 of a table, `row` bytes of each, one after another; false where cut.
bool read_rows(const Source& source, Table table, uint64_t first, uint64_t count, size_t row, uint8_t* into,
               Scratch& scratch);

}  // namespace mycroft::collector
