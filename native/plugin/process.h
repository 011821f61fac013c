// What this process keeps for itself: where its file is mapped, and what must not be trusted to a file.
#pragma once

#include <cstdint>

#include "abi.h"
#include "handles.h"
#include "layout.h"
#include "settings.h"
#include "slots.h"

namespace mycroft {

constexpr uint32_t kMaxCommunicators = 1024;

// Of one communicator: what NCCL gave us that is a real pointer.
struct Activation {
    Cell<int*> mask;       // NCCL's activation mask
    Cell<uint32_t> open;   // generation of the communicator that may be finalised, once; kNone
    Cell<uint32_t> epoch;  // of the tier that was last written to it
    Cell<uint8_t> api;
    Cell<uint8_t> kernel;  // 1: kernel channels may be traced
};

struct Process {
    // Read at every callback, written once.
    Cell<uint32_t> on;
    uint32_t nonce_tag;
    uint32_t flow_count;
    uint32_t operation_count;
    Flow* flows;
    Operation* operations;
    uint64_t step_head;  // handle_head(kStepHandle, nonce_tag), and so on
    uint64_t flow_head;
    Header* header;
    Communicator* comms;
    Stream* streams;
    Call* calls;
    Pair* pairs;
    Record* ring;
    uint32_t comm_count;
    uint32_t stream_count;
    uint32_t call_count;
    uint32_t pair_count;
    uint32_t ring_count;
    uint32_t pid;
    double ns_per_tick;
    uint64_t file_bytes;
    Settings settings;

    // Written now and then.
    alignas(64) Cell<uint64_t> free_flows;  // tag << 32 | first free slot + 1
    alignas(64) Hand operation_hand;
    Cell<uint32_t> sweep_hand;
    Hand call_hand;
    Cell<uint32_t> reclaim_hand;
    Cell<uint32_t> tier;
    Cell<uint32_t> tier_epoch;
    Cell<int> extra_mask;  // what a chained plugin wants
    alignas(64) Activation activations[kMaxCommunicators];
};

extern Process g;

inline bool on() {
    return __builtin_expect(g.on.get() != 0, true);
}

inline void count_drop(Drop kind) {
    g.header->drops[kind].add();
}

inline void* refuse(Drop kind) {
    count_drop(kind);
    return nullptr;
}

inline TableInfo& table(Table which) {
    return g.header->tables[static_cast<int>(which)];
}

inline uint64_t head_of(HandleKind kind) {
    return handle_head(kind, g.nonce_tag);
}

// Whether the handle was made by this process, for this kind.
inline bool ours(uint64_t handle, HandleKind kind) {
    return handle >> 40 == head_of(kind);
}

// Makes the shared-memory file at the first call. False: tracing is off, and the reason has been said.
bool process_start(abi::Logger log);

// Says one line through NCCL's logger, if there is one.
void say(abi::Logger log, abi::LogLevel level, const char* format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace mycroft
