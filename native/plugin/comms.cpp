#include "comms.h"

#include "clock.h"
#include "identity.h"
#include "operations.h"
#include "versions.h"

namespace mycroft {
namespace {

// A free slot, else the one closed longest ago; kNone if all are open. The slot is then odd: ours to write.
uint32_t take_slot() {
    for (int attempt = 0; attempt < 16; ++attempt) {
        uint32_t best = kNone;
        uint64_t oldest = UINT64_MAX;
        for (uint32_t i = 0; i < g.comm_count; ++i) {
            const uint32_t state = g.comms[i].state.acquire();
            const uint64_t closed = g.comms[i].closed_tick.get();
            if (state == kCommFree && (best == kNone || oldest != 0)) {
                best = i;
                oldest = 0;
            } else if ((state == kCommFinalised || state == kCommAborted) && closed < oldest) {
                best = i;
                oldest = closed;
            }
            if (oldest == 0 && best != kNone) break;
        }
        if (best == kNone) return kNone;
        uint32_t state = g.comms[best].state.acquire();
        if (state != kCommOpen && g.comms[best].state.swap(state, kCommOpen)) return best;
    }
    return kNone;
}

void clear_position(Communicator& comm) {
    comm.last_order.set(0);
    comm.moved_base.set(0);
    comm.moved_tick.set(0);
    comm.launches.set(0);
    comm.ended_count.set(0);
    comm.last_launch_tick.set(0);
    for (int func = 0; func < kFuncs; ++func) {
        comm.launched[func].set(0);
        comm.ended[func].set(0);
        comm.called[func].set(0);
        comm.captured[func].set(0);
    }
    comm.proxy_calls.set(0);
    comm.proxy_tick.set(0);
    comm.proxy_state.set(0);
    comm.proxy_appended.set(0);
}

void write_mask(uint32_t comm) {
    Activation& activation = g.activations[comm];
    int* const mask = activation.mask.get();
    if (mask == nullptr) return;
    const Tier tier = static_cast<Tier>(g.tier.get());
    const int bits = mask_of(tier, activation.api.get(), activation.kernel.get() != 0);
    __atomic_store_n(mask, bits | g.extra_mask.get(), __ATOMIC_RELAXED);
}

}  // namespace

int mask_of(Tier tier, uint8_t api, bool kernel_allowed) {
    using namespace abi;
    if (tier == kTierIdle) return api >= 5 ? kGroupApi : kGroup;
    uint64_t mask = kGroup | kColl | kP2p;
    if (api >= 5) mask |= kGroupApi | kCollApi | kP2pApi | kKernelLaunch;
    if (api >= 6) mask |= kCeColl;
    if (tier == kTierFlows || tier == kTierKernel) mask |= kProxyOp | kProxyStep | kProxyCtrl;
    if (tier == kTierKernel && kernel_allowed) mask |= kKernelCh;
    return static_cast<int>(mask);
}

bool kernels_traced(uint32_t comm) {
    return g.tier.get() == kTierKernel && g.activations[comm].kernel.get() != 0;
}

void follow_tier(uint32_t comm) {
    const uint32_t wanted = g.header->requested_tier.get();
    uint32_t now = g.tier.get();
    if (__builtin_expect(wanted != now, false) && wanted <= kTierIdle && g.tier.swap(now, wanted)) {
        g.tier_epoch.add();
        g.header->applied_tier.set(wanted);
    }
    const uint32_t epoch = g.tier_epoch.get();
    if (__builtin_expect(g.activations[comm].epoch.get() != epoch, false)) {
        g.activations[comm].epoch.set(epoch);
        write_mask(comm);
    }
}

void* open_communicator(const CommFacts& facts, int* mask) {
    const bool kernel = g.settings.kernel_any || kernel_rule(facts.nccl_version).allowed;
    if (facts.nccl_version != 0) g.header->nccl_version.set(facts.nccl_version);
    g.header->kernel_allowed.set(kernel ? 1 : 0);
    g.header->callbacks.add();
    const uint32_t slot = take_slot();
    if (slot == kNone) {
        // Others may be traced: the mask is the whole process's, so it has to be the usual one.
        if (mask != nullptr) {
            const int bits = mask_of(static_cast<Tier>(g.tier.get()), facts.api, kernel);
            __atomic_store_n(mask, bits | g.extra_mask.get(), __ATOMIC_RELAXED);
        }
        return refuse(kDropCommunicator);
    }
    Communicator& comm = g.comms[slot];
    const uint32_t generation = (comm.generation.get() | 1) + 1;
    comm.generation.set(generation - 1);
    release_fence();
    const uint64_t context = make_handle(kContextHandle, g.nonce_tag, slot, generation);
    comm.comm_id.set(facts.id);
    comm.context = context;
    comm.nranks = facts.nranks > 0 ? static_cast<uint32_t>(facts.nranks) : 0;
    comm.nnodes = facts.nnodes > 0 ? static_cast<uint32_t>(facts.nnodes) : 0;
    comm.rank.set(facts.rank);
    comm.api = facts.api;
    comm.opened_tick = ticks();
    comm.closed_tick.set(0);
    set_text(comm.name, sizeof comm.name, facts.name);
    read_device(comm);
    comm.nccl_version = facts.nccl_version;
    comm.kernel_tier = kernel ? 1 : 0;
    clear_position(comm);
    Activation& activation = g.activations[slot];
    activation.mask.set(mask);
    activation.api.set(facts.api);
    activation.kernel.set(kernel ? 1 : 0);
    activation.epoch.set(g.tier_epoch.get());
    activation.open.set(generation);
    write_mask(slot);
    comm.generation.release(generation);
    table(Table::kCommunicators).used.raise(slot + 1);
    return as_pointer(context);
}

uint32_t communicator_of(uint64_t context) {
    if (!ours(context, kContextHandle)) return kNone;
    const uint32_t slot = handle_slot(context);
    if (slot >= g.comm_count) return kNone;
    return (g.comms[slot].generation.acquire() & kGeneration24) == generation24(context) ? slot : kNone;
}

void close_communicator(uint64_t context) {
    g.header->callbacks.add();
    const uint32_t slot = communicator_of(context);
    if (slot == kNone) {
        count_drop(kRefusedContext);
        return;
    }
    Communicator& comm = g.comms[slot];
    const uint32_t generation = comm.generation.acquire();
    uint32_t open = generation;
    if ((generation & kGeneration24) != generation24(context) ||
        !g.activations[slot].open.swap(open, kNone)) {  // finalised twice
        count_drop(kRefusedContext);
        return;
    }
    g.activations[slot].mask.set(nullptr);
    const bool aborted = close_operations(slot, generation);
    comm.closed_tick.set(ticks());
    comm.state.release(aborted ? kCommAborted : kCommFinalised);
}

}  // namespace mycroft
