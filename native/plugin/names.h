// NCCL's names to the codes of schemas/enums.py (a test compares them).
#pragma once

#include <strings.h>

#include <cstdint>

namespace mycroft {

struct Name {
    const char* name;
    uint8_t code;
};

constexpr uint8_t kOther = 127;

constexpr Name kFuncNames[] = {
    {"AllReduce", 1}, {"AllGather", 2}, {"ReduceScatter", 3}, {"Broadcast", 4},
    {"Reduce", 5},    {"AlltoAll", 6},  {"Gather", 7},        {"Scatter", 8},
    {"Send", 9},      {"Recv", 10},     {"SendRecv", 11},     {"AllGatherV", 12},
};
constexpr uint8_t kSend = 9;
constexpr uint8_t kRecv = 10;

constexpr Name kDatatypeNames[] = {
    {"ncclInt8", 1},    {"ncclUint8", 2},     {"ncclInt32", 3},       {"ncclUint32", 4},
    {"ncclInt64", 5},   {"ncclUint64", 6},    {"ncclFloat16", 7},     {"ncclFloat32", 8},
    {"ncclFloat64", 9}, {"ncclBfloat16", 10}, {"ncclFloat8e4m3", 11}, {"ncclFloat8e5m2", 12},
};
constexpr uint8_t kDatatypeSizes[] = {0, 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // by code

constexpr Name kAlgoNames[] = {
    {"TREE", 1},      {"RING", 2}, {"COLLNET_DIRECT", 3}, {"COLLNET_CHAIN", 4}, {"NVLS", 5},
    {"NVLS_TREE", 6}, {"PAT", 7},
};

constexpr Name kProtoNames[] = {{"LL", 1}, {"LL128", 2}, {"SIMPLE", 3}};

// 0 where there is no name, kOther where it is not in the table.
template <int N>
uint8_t code_of(const Name (&names)[N], const char* name) {
    if (name == nullptr || *name == '\0') return 0;
    for (const Name& known : names) {
        if (strcasecmp(known.name, name) == 0) return known.code;
    }
    return kOther;
}

inline uint64_t datatype_size(uint8_t code) {
    return code < sizeof(kDatatypeSizes) ? kDatatypeSizes[code] : 0;
}

}  // namespace mycroft
