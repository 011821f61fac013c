#include "settings.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace mycroft {
namespace {

constexpr uint64_t kMinBytes = 256 << 10;
constexpr uint64_t kMaxBytes = 1ULL << 30;

const char* text(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : otherwise;
}

bool flag(const char* name, bool otherwise) {
    const char* value = text(name, nullptr);
    if (value == nullptr) return otherwise;
    return std::strcmp(value, "0") != 0 && std::strcmp(value, "false") != 0 && std::strcmp(value, "no") != 0;
}

// A number of bytes with K, M or G behind it, or without; 0 where it is none.
uint64_t bytes(const char* value) {
    char* end = nullptr;
    const uint64_t number = std::strtoull(value, &end, 10);
    int shift = 0;
    if (*end == 'k' || *end == 'K') shift = 10;
    if (*end == 'm' || *end == 'M') shift = 20;
    if (*end == 'g' || *end == 'G') shift = 30;
    if (end == value || end[shift != 0 ? 1 : 0] != '\0' || number > kMaxBytes) return 0;
    return number << shift;
}

}  // namespace

bool tier_of(const char* name, Tier& tier) {
    static constexpr const char* kNames[] = {"ops", "flows", "kernel", "idle"};
    for (uint32_t code = 0; code < 4; ++code) {
        if (std::strcmp(name, kNames[code]) == 0) {
            tier = static_cast<Tier>(code);
            return true;
        }
    }
    return false;
}

Settings read_settings() {
    Settings settings;
    settings.disabled = flag("MYCROFT_DISABLE", settings.disabled);
    settings.dir = text("MYCROFT_DIR", settings.dir);
    if (const char* const size = text("MYCROFT_SHM_BYTES", nullptr)) {
        const uint64_t wanted = bytes(size);
        if (wanted == 0) settings.no_size = size;
        if (wanted != 0) settings.shm_bytes = std::clamp(wanted, kMinBytes, kMaxBytes);
    }
    tier_of(text("MYCROFT_TIER", "flows"), settings.tier);
    settings.kernel_any = flag("MYCROFT_KERNEL_ANY", settings.kernel_any);
    settings.job = text("MYCROFT_JOB", settings.job);
    settings.chain = text("MYCROFT_CHAIN", settings.chain);
    if (!settings.disabled) settings.record = text("MYCROFT_RECORD", settings.record);
    settings.guard = flag("MYCROFT_SIGBUS", settings.guard);
    return settings;
}

}  // namespace mycroft
