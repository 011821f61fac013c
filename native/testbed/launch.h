// One operation between its launch and its end: what the launching thread, the GPU and the proxy share of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

namespace mycroft::testbed {

// A thread block of a kernel: the part of one operation on one channel.
struct Block {
    explicit Block(int of) : channel(of) {}
    int channel;
    std::atomic<uint64_t> started{0};  // ns of the wall clock, 0: not yet
    std::atomic<uint64_t> ended{0};
};

struct Launch {
    void* handle = nullptr;  // of its Coll or P2p event
    std::deque<Block> blocks;
};

}  // namespace mycroft::testbed
