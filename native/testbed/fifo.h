// The eight slots of a leg and the counters that pass them between GPU and GPU, or GPU and proxy. Counters
// only grow, over all operations of the leg.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace mycroft::testbed {

constexpr uint64_t kSlots = 8;

struct Fifo {
    alignas(64) std::atomic<uint64_t> granted{0};   // steps that the proxy has handed to the sending GPU
    alignas(64) std::atomic<uint64_t> written{0};   // steps that lie ready
    alignas(64) std::atomic<uint64_t> consumed{0};  // steps that the receiving GPU has taken
    alignas(64) uint32_t sizes[kSlots]{};

    static size_t bytes(size_t slot_bytes) { return sizeof(Fifo) + kSlots * slot_bytes; }
    char* slot(uint64_t step, size_t slot_bytes) {
        return reinterpret_cast<char*>(this + 1) + step % kSlots * slot_bytes;
    }
};

// What a kernel writes to. `ring` tells the other side.
struct SendEnd {
    Fifo* fifo = nullptr;
    bool local = true;
    size_t slot_bytes = 0;
    std::function<void()> ring;
    uint64_t step = 0;  // of the next one; the GPU's own

    bool may_write(int depth) const {
        return local ? step < fifo->consumed.load(std::memory_order_acquire) + static_cast<uint64_t>(depth)
                     : step < fifo->granted.load(std::memory_order_acquire);
    }
    char* slot() const { return fifo->slot(step, slot_bytes); }
    void write(size_t bytes) {
        fifo->sizes[step % kSlots] = static_cast<uint32_t>(bytes);
        fifo->written.store(++step, std::memory_order_release);
        ring();
    }
};

struct ReceiveEnd {
    Fifo* fifo = nullptr;
    size_t slot_bytes = 0;
    std::function<void()> ring;
    uint64_t step = 0;

    bool may_read() const { return step < fifo->written.load(std::memory_order_acquire); }
    const char* slot() const { return fifo->slot(step, slot_bytes); }
    size_t bytes() const { return fifo->sizes[step % kSlots]; }
    void consume() {
        fifo->consumed.store(++step, std::memory_order_release);
        ring();
    }
};

}  // namespace mycroft::testbed
