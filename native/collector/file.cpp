#include "file.h"

#include <unistd.h>

#include <cstring>

namespace mycroft::collector {

uint8_t* Scratch::room(size_t bytes) {
    if (bytes > size_) {
        bytes_.reset(new uint8_t[bytes]);
        size_ = bytes;
    }
    return bytes_.get();
}

bool read_at(int fd, void* into, size_t bytes, uint64_t offset) {
    return pread(fd, into, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

bool read_rows(const Source& source, Table table, uint64_t first, uint64_t count, size_t row, uint8_t* into,
               Scratch& scratch) {
    if (count == 0) return true;
    const Place& place = source.place(table);
    const uint64_t offset = place.offset + first * place.stride;
    if (place.stride == row) return read_at(source.fd, into, count * row, offset);
    // A newer plugin's rows may be longer than we know.
    uint8_t* const wide = scratch.room(count * place.stride);
    if (!read_at(source.fd, wide, count * place.stride, offset)) return false;
    for (uint64_t at = 0; at < count; ++at) std::memcpy(into + at * row, wide + at * place.stride, row);
    return true;
}

}  // namespace mycroft::collector
