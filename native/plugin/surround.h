// The way of a callback when something stands around the core (hooks.h): recorder outside, then the pair of
// this plugin and the chained one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "abi.h"
#include "chain.h"
#include "events.h"
#include "hooks.h"
#include "recorder.h"

namespace mycroft {

template <int Api, class Descr>
struct Surround {
    using Init =
        std::conditional_t<Api == 3, abi::Init3, std::conditional_t<Api == 4, abi::Init4, abi::Init5>>;
    using Table = abi::Profiler<Descr, Init>;

    // Its ncclProfiler_vN. Two copies of NCCL in one process may speak different versions.
    static inline Cell<const Table*> table{};
    static const Table* theirs() { return table.acquire(); }

    static int init(void** context, int* mask, const CommFacts& facts, abi::Logger log, const void* caller) {
        const int mask_in = mask != nullptr ? __atomic_load_n(mask, __ATOMIC_RELAXED) : 0;
        core_open(context, mask, facts, log, caller);
        void* const opened = context != nullptr ? *context : nullptr;
        if (const auto* const found = static_cast<const Table*>(chain_load(Api, log))) {
            table.release(found);
            void* other = nullptr;
            const int failed = call_init(found, &other, &g_chain.mask, facts, log);
            if (failed != 0) {
                say(log, abi::kLogWarn, "Mycroft: the chained plugin's init failed (%d)", failed);
                other = nullptr;
            }
            if (on()) g.header->chained.set(1);
            follow_their_mask(mask);
            if (on() && opened != nullptr) follow_tier(handle_slot(as_integer(opened)));
            if (mask != nullptr) __atomic_fetch_or(mask, g_chain.mask, __ATOMIC_RELAXED);
            if (context != nullptr) *context = chain_open({as_integer(opened), other, mask});
            g_hooks.mark(kHookChain);
        }
        if (g.settings.record != nullptr && recorder_open(g.settings.record, log)) {
            g_hooks.mark(kHookRecord);
            const int mask_out = mask != nullptr ? __atomic_load_n(mask, __ATOMIC_RELAXED) : 0;
            recorder_init(context != nullptr ? *context : nullptr, facts, mask_in, mask_out);
        }
        return 0;
    }

    static int start(void* context, void** handle, Descr* descr) {
        if (handle == nullptr || descr == nullptr) {
            if (handle != nullptr) *handle = nullptr;
            return 0;
        }
        const bool was_set = *handle != nullptr;
        *handle = nullptr;
        if ((g_hooks.get() & kHookChain) != 0) {
            *handle = start_both(context, *descr);
        } else if (on()) {
            *handle = start_event<Api>(context, *descr);
        }
        if ((g_hooks.get() & kHookRecord) != 0)
            recorder_start(*handle, context, event_text<Api>(*descr), was_set);
        return 0;
    }

    static int stop(void* handle) {
        if ((g_hooks.get() & kHookRecord) != 0) recorder_stop(handle);
        if ((g_hooks.get() & kHookChain) == 0) {
            core_stop(handle);
        } else {
            const HandlePair pair = chain_split(handle);
            core_stop(as_pointer(pair.ours));
            if (reaches(pair.theirs)) theirs()->stop(pair.theirs);
            chain_stopped(handle);
        }
        return 0;
    }

    static int state(void* handle, int state, abi::StateArgs* args) {
        if ((g_hooks.get() & kHookRecord) != 0) recorder_state(handle, state, args);
        if ((g_hooks.get() & kHookChain) == 0) {
            core_state(handle, state, args);
        } else {
            const HandlePair pair = chain_split(handle);
            core_state(as_pointer(pair.ours), state, args);
            if (reaches(pair.theirs)) theirs()->state(pair.theirs, state, args);
        }
        return 0;
    }

    static int finalize(void* context) {
        if ((g_hooks.get() & kHookRecord) != 0) recorder_finalize(context);
        if ((g_hooks.get() & kHookChain) == 0) {
            core_close(context);
        } else {
            const ContextPair pair = chain_close(context);
            core_close(as_pointer(pair.ours));
            if (reaches(pair.theirs)) theirs()->finalize(pair.theirs);
        }
        return 0;
    }

  private:
    static bool reaches(const void* object) { return object != nullptr && theirs() != nullptr; }

    static int call_init(const Table* their, void** context, int* mask, const CommFacts& facts,
                         abi::Logger log) {
        if constexpr (Api == 3) {
            return their->init(context, mask);
        } else if constexpr (Api == 4) {
            return their->init(context, mask, facts.name, facts.id, facts.nnodes, facts.nranks, facts.rank,
                               log);
        } else {
            return their->init(context, facts.id, mask, facts.name, facts.nnodes, facts.nranks, facts.rank,
                               log);
        }
    }

    // NCCL's mask asks for what either wants. Where Mycroft is off nobody else writes it.
    static void follow_their_mask(int* mask) {
        const int wanted = __atomic_load_n(&g_chain.mask, __ATOMIC_RELAXED);
        if (g_chain.mask_seen.get() == wanted) return;
        g_chain.mask_seen.set(wanted);
        g.extra_mask.set(wanted);
        g.tier_epoch.add();
        if (!on() && mask != nullptr) __atomic_store_n(mask, wanted, __ATOMIC_RELAXED);
    }

    static bool wanted_by_us(uint64_t type) {
        return on() &&
               (static_cast<uint64_t>(mask_of(static_cast<Tier>(g.tier.get()), Api, true)) & type) != 0;
    }

    static void* start_both(void* context, const Descr& descr) {
        const ContextPair pair = chain_context(context);
        follow_their_mask(pair.mask);
        Descr own = descr;
        Descr other = descr;
        const HandlePair parent = chain_split(descr.parent);
        own.parent = as_pointer(parent.ours);
        other.parent = parent.theirs;
        if constexpr (Api >= 5) {
            if (descr.type == abi::kColl) split_group(own.coll.parent_group, other.coll.parent_group);
            if (descr.type == abi::kP2p) split_group(own.p2p.parent_group, other.p2p.parent_group);
        }
        HandlePair made{0, nullptr};
        const uint64_t type = descr.type;
        if (wanted_by_us(type)) made.ours = as_integer(start_event<Api>(as_pointer(pair.ours), own));
        const bool theirs_too = (static_cast<uint64_t>(g_chain.mask_seen.get()) & type) != 0;
        const bool orphan = (type == abi::kProxyStep) && parent.theirs == nullptr;
        if (theirs_too && reaches(pair.theirs) && !orphan) theirs()->start(pair.theirs, &made.theirs, &other);
        if (made.ours == 0 && made.theirs == nullptr) return nullptr;
        constexpr uint64_t kBriefTypes =
            abi::kProxyStep | abi::kProxyCtrl | abi::kNetPlugin | abi::kKernelPhase;
        const uint64_t outward = chain_pair(made, (type & kBriefTypes) != 0);
        set_outward_handle(made.ours, outward);
        return as_pointer(outward);
    }

    static void split_group(void*& own, void*& other) {
        const HandlePair group = chain_split(own);
        own = as_pointer(group.ours);
        other = group.theirs;
    }
};

}  // namespace mycroft
