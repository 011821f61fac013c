// Handles and contexts: integers that only this process can have made (layout.h, HandleKind).
//
// Nothing that NCCL hands back is ever dereferenced. With PXN it may be another process's handle: that has
// another nonce and other generations, and does not validate.
#pragma once

#include <cstdint>

#include "layout.h"

namespace mycroft {

constexpr uint32_t kGeneration24 = 0xffffff;
constexpr uint32_t kGeneration16 = 0xffff;

// Upper 24 bits of a handle of this kind.
constexpr uint64_t handle_head(HandleKind kind, uint32_t nonce_tag) {
    return uint64_t{kind} << 20 | nonce_tag;
}

constexpr uint64_t make_handle(HandleKind kind, uint32_t nonce_tag, uint32_t slot, uint32_t generation) {
    return handle_head(kind, nonce_tag) << 40 | uint64_t{slot & 0xffff} << 24 | (generation & kGeneration24);
}

constexpr uint64_t make_handle(HandleKind kind, uint32_t nonce_tag, uint32_t slot, uint32_t generation,
                               uint32_t number) {
    return make_handle(kind, nonce_tag, slot, (generation & kGeneration16) << 8 | (number & 0xff));
}

constexpr HandleKind handle_kind(uint64_t handle) {
    return static_cast<HandleKind>(handle >> 60);
}
constexpr uint32_t generation24(uint64_t handle) {
    return static_cast<uint32_t>(handle) & kGeneration24;
}
constexpr uint32_t generation16(uint64_t handle) {
    return static_cast<uint32_t>(handle >> 8) & kGeneration16;
}
constexpr uint32_t handle_number(uint64_t handle) {
    return static_cast<uint32_t>(handle) & 0xff;
}

inline uint64_t as_integer(const void* pointer) {
    return reinterpret_cast<uint64_t>(pointer);
}
inline void* as_pointer(uint64_t handle) {
    return reinterpret_cast<void*>(handle);
}

}  // namespace mycroft
