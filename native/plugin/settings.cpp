#include "settings.h"

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

uint64_t bytes(const char* name, uint64_t otherwise) {
    const char* value = text(name, nullptr);
    if (value == nullptr) return otherwise;
    char* end = nullptr;
    uint64_t number = std::strtoull(value, &end, 10);
    int shift = 0;
    if (*end == 'k' || *end == 'K') shift = 10;
    if (*end == 'm' || *end == 'M') shift = 20;
    if (*end == 'g' || *end == 'G') shift = 30;
    if (number == 0 || number > kMaxBytes) return otherwise;
    number <<= shift;
    return number < kMinBytes ? kMinBytes : number > kMaxBytes ? kMaxBytes : number;
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
    settings.shm_bytes = bytes("MYCROFT_SHM_BYTES", settings.shm_bytes);
    tier_of(text("MYCROFT_TIER", "flows"), settings.tier);
    settings.kernel_any = flag("MYCROFT_KERNEL_ANY", settings.kernel_any);
    settings.job = text("MYCROFT_JOB", settings.job);
    settings.chain = text("MYCROFT_CHAIN", settings.chain);
    settings.record = text("MYCROFT_RECORD", settings.record);
    settings.guard = flag("MYCROFT_SIGBUS", settings.guard);
    return settings;
}

}  // namespace mycroft
