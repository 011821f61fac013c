// NCCL versions with which kernel channels may be traced. Checked at each init; `layout-dump` prints it.
#pragma once

#include <cstdint>

namespace mycroft {

struct KernelRule {
    uint32_t from;  // NCCL_VERSION_CODE, inclusive
    uint32_t to;    // exclusive
    bool allowed;
    const char* reason;
};

constexpr uint32_t nccl_code(uint32_t major, uint32_t minor, uint32_t patch) {
    return major * 10000 + minor * 100 + patch;
}

constexpr KernelRule kKernelRules[] = {
    {0, nccl_code(2, 26, 0), false, "has no kernel channel events"},
    {nccl_code(2, 26, 0), nccl_code(2, 28, 0), false,
     "'Proxy append out of bounds' was reported with 2.27.7"},
    {nccl_code(2, 28, 0), nccl_code(2, 30, 0), true, "costs some 0.4 % (reported with 2.29.7)"},
    {nccl_code(2, 30, 0), nccl_code(2, 30, 4), false, "a crash was reported with 2.30.3"},
    {nccl_code(2, 30, 4), nccl_code(2, 31, 0), true, "recorded with 2.30.7"},
    {nccl_code(2, 31, 0), UINT32_MAX, false, "costs some 10 % at 1 MB (reported with 2.31.2)"},
};

// Version 0 (not known: not called by NCCL, or by one without ncclGetVersion) is refused.
constexpr const KernelRule& kernel_rule(uint32_t version) {
    for (const KernelRule& rule : kKernelRules) {
        if (version >= rule.from && version < rule.to) return rule;
    }
    return kKernelRules[0];
}

}  // namespace mycroft
