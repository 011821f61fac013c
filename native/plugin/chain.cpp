#include "chain.h"

#include <dlfcn.h>
#include <pthread.h>

#include <cstdio>

namespace mycroft {

Chain g_chain;

namespace {

constexpr uint32_t kLasting = 32768;   // pairs of calls, operations, flows: handed out in a circle
constexpr uint32_t kBrief = 32768;     // pairs of steps, controls, kernel channels: a stack
constexpr uint32_t kContexts = 16384;  // the first stand for Mycroft's own slots

struct Entry {
    uint64_t ours;
    void* theirs;
    uint32_t generation;
    uint32_t next;
    bool stopped;
};

struct Context {
    uint64_t context;
    ContextPair pair;
};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
Context contexts[kContexts];
uint32_t context_hand = kMaxCommunicators;
uint32_t context_generation = 0;
Entry entries[kLasting + kBrief];
uint32_t hand = 0;
uint32_t free_brief = 0;  // 1 + slot
bool ready = false;
void* library = nullptr;
bool tried = false;

struct Locked {
    Locked() { pthread_mutex_lock(&lock); }
    ~Locked() { pthread_mutex_unlock(&lock); }
};

// A child of fork has the pairs, and no thread that might hold the lock.
void before_fork() {
    pthread_mutex_lock(&lock);
}
void after_fork() {
    pthread_mutex_unlock(&lock);
}
void in_child() {
    lock = PTHREAD_MUTEX_INITIALIZER;
}

void make_ready() {
    if (ready) return;
    for (uint32_t i = kLasting; i < kLasting + kBrief; ++i) {
        entries[i].next = i + 1 < kLasting + kBrief ? i + 2 : 0;
    }
    for (Entry& entry : entries) entry.stopped = true;
    free_brief = kLasting + 1;
    ready = true;
}

Entry* entry_of(const void* handle) {
    const uint64_t value = as_integer(handle);
    if (!ours(value, kChainHandle)) return nullptr;
    Entry& entry = entries[handle_slot(value)];
    return (entry.generation & kGeneration24) == generation24(value) ? &entry : nullptr;
}

Context* context_of(const void* context) {
    const uint64_t value = as_integer(context);
    if (!ours(value, kContextHandle) || handle_slot(value) >= kContexts) return nullptr;
    Context& found = contexts[handle_slot(value)];
    return found.context == value ? &found : nullptr;
}

void* load(const char* name) {
    void* found = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (found != nullptr) return found;
    char path[512];
    std::snprintf(path, sizeof path, "libnccl-profiler-%s.so", name);
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

const void* chain_load(int api, abi::Logger log) {
    Locked guard;
    const char* const name = g.settings.chain;
    if (name == nullptr) return nullptr;
    if (!tried) {
        tried = true;
        library = load(name);
        if (library == nullptr) {
            say(log, abi::kLogWarn, "Mycroft: cannot load MYCROFT_CHAIN=%s", name);
        } else {
            pthread_atfork(before_fork, after_fork, in_child);
        }
    }
    if (library == nullptr) return nullptr;
    char symbol[32];
    std::snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", api);
    const void* const table = dlsym(library, symbol);
    Dl_info theirs{};
    Dl_info own{};
    const bool itself = table != nullptr && dladdr(table, &theirs) != 0 &&
                        dladdr(reinterpret_cast<const void*>(&g_chain), &own) != 0 &&
                        theirs.dli_fbase == own.dli_fbase;
    if (table == nullptr || itself) {
        say(log, abi::kLogWarn, "Mycroft: %s in MYCROFT_CHAIN=%s",
            itself ? "this very plugin" : "no such version", name);
        return nullptr;
    }
    return table;
}

void* chain_open(ContextPair pair) {
    Locked guard;
    if (pair.ours != 0) {
        contexts[handle_slot(pair.ours)] = {pair.ours, pair};
        return as_pointer(pair.ours);
    }
    if (pair.theirs == nullptr) return nullptr;
    for (uint32_t probe = kMaxCommunicators; probe < kContexts; ++probe) {
        const uint32_t slot = context_hand;
        context_hand = context_hand + 1 < kContexts ? context_hand + 1 : kMaxCommunicators;
        if (contexts[slot].pair.theirs != nullptr) continue;
        const uint64_t context = make_handle(kContextHandle, g.nonce_tag, slot, ++context_generation);
        contexts[slot] = {context, pair};
        return as_pointer(context);
    }
    return nullptr;
}

ContextPair chain_context(const void* context) {
    Locked guard;
    const Context* const found = context_of(context);
    return found != nullptr ? found->pair : ContextPair{as_integer(context), nullptr, nullptr};
}

ContextPair chain_close(const void* context) {
    Locked guard;
    Context* const found = context_of(context);
    if (found == nullptr) return {as_integer(context), nullptr, nullptr};
    const ContextPair pair = found->pair;
    found->pair.theirs = nullptr;
    found->pair.mask = nullptr;
    return pair;
}

uint64_t chain_pair(HandlePair pair, bool brief) {
    Locked guard;
    make_ready();
    uint32_t slot = kNone;
    if (brief && free_brief != 0) {
        slot = free_brief - 1;
        free_brief = entries[slot].next;
    } else if (!brief) {
        for (int probe = 0; probe < 256 && slot == kNone; ++probe, hand = (hand + 1) % kLasting) {
            if (entries[hand].stopped) slot = hand;
        }
        if (slot == kNone) slot = hand++;
        hand %= kLasting;
    }
    if (slot == kNone) return 0;
    Entry& entry = entries[slot];
    entry.ours = pair.ours;
    entry.theirs = pair.theirs;
    entry.stopped = false;
    ++entry.generation;
    return make_handle(kChainHandle, g.nonce_tag, slot, entry.generation);
}

HandlePair chain_split(const void* handle) {
    Locked guard;
    const Entry* const entry = entry_of(handle);
    return entry != nullptr ? HandlePair{entry->ours, entry->theirs}
                            : HandlePair{as_integer(handle), nullptr};
}

void chain_stopped(const void* handle) {
    Locked guard;
    Entry* const entry = entry_of(handle);
    if (entry == nullptr) return;
    entry->stopped = true;
    const uint32_t slot = static_cast<uint32_t>(entry - entries);
    if (slot < kLasting) return;
    ++entry->generation;
    entry->next = free_brief;
    free_brief = slot + 1;
}

}  // namespace mycroft
