// Descriptors of each version to the facts that the core asks for: the whole difference between versions.
#pragma once

#include <cstdint>

#include "abi.h"
#include "core.h"
#include "flows.h"
#include "steps.h"

namespace mycroft {

template <class Coll>
OperationFacts coll_facts(const Coll& coll) {
    OperationFacts facts{};
    facts.number = coll.seq;
    facts.func = coll.func;
    facts.datatype = coll.datatype;
    facts.algo = coll.algo;
    facts.proto = coll.proto;
    facts.count = coll.count;
    facts.peer = coll.root;
    facts.channels = coll.channels;
    return facts;
}

inline OperationFacts operation_facts(const abi::Coll3& coll) {
    OperationFacts facts = coll_facts(coll);
    facts.comm_hash = coll.comm_hash;
    facts.comm_name = coll.name;
    return facts;
}
inline OperationFacts operation_facts(const abi::Coll4& coll) {
    return coll_facts(coll);
}
inline OperationFacts operation_facts(const abi::Coll5& coll) {
    OperationFacts facts = coll_facts(coll);
    facts.launch_group = as_integer(coll.parent_group);
    return facts;
}
inline OperationFacts operation_facts(const abi::Coll7& coll) {
    OperationFacts facts = coll_facts(coll);
    facts.launch_group = as_integer(coll.parent_group);
    facts.symmetric = coll.symmetric != 0;
    facts.user_tag = coll.user_tag;
    return facts;
}

template <class P2p>
OperationFacts p2p_facts(const P2p& p2p) {
    OperationFacts facts{};
    facts.func = p2p.func;
    facts.datatype = p2p.datatype;
    facts.count = p2p.count;
    facts.peer = p2p.peer;
    facts.p2p = true;
    return facts;
}

inline OperationFacts operation_facts(const abi::P2p3& p2p) {
    OperationFacts facts = p2p_facts(p2p);
    facts.comm_hash = p2p.comm_hash;
    facts.comm_name = p2p.name;
    return facts;
}
inline OperationFacts operation_facts(const abi::P2p4& p2p) {
    OperationFacts facts = p2p_facts(p2p);
    facts.channels = p2p.channels;
    return facts;
}
inline OperationFacts operation_facts(const abi::P2p5& p2p) {
    OperationFacts facts = p2p_facts(p2p);
    facts.channels = p2p.channels;
    facts.launch_group = as_integer(p2p.parent_group);
    return facts;
}
inline OperationFacts operation_facts(const abi::P2p7& p2p) {
    OperationFacts facts = p2p_facts(p2p);
    facts.channels = p2p.channels;
    facts.launch_group = as_integer(p2p.parent_group);
    facts.user_tag = p2p.user_tag;
    return facts;
}

template <class CeColl>
OperationFacts copy_engine_facts(const CeColl& coll) {
    OperationFacts facts{};
    facts.number = coll.seq;
    facts.func = coll.func;
    facts.datatype = coll.datatype;
    facts.count = coll.count;
    facts.peer = coll.root;
    facts.stream = as_integer(coll.stream);
    facts.symmetric = true;
    return facts;
}

template <class Api>
CallFacts call_facts(CallKind kind, const Api& api) {
    CallFacts facts{kind};
    facts.func = api.func;
    facts.datatype = api.datatype;
    facts.stream = as_integer(api.stream);
    facts.count = api.count;
    facts.captured = api.captured != 0;
    return facts;
}

inline uint64_t kernel_timer(const abi::KernelCh3&) {
    return 0;
}
inline uint64_t kernel_timer(const abi::KernelCh4& kernel) {
    return kernel.timer;
}

// Events of the launching side and of kernel channels.
template <int Api, class Descr>
void* start_other(void* context, const Descr& descr) {
    const uint64_t parent = as_integer(descr.parent);
    if (descr.type == abi::kKernelCh)
        return start_kernel(parent, descr.kernel.channel, kernel_timer(descr.kernel));
    const uint32_t comm = communicator_of(as_integer(context));
    if (comm == kNone) return refuse(kRefusedContext);
    follow_tier(comm);
    switch (descr.type) {
        case abi::kGroup:
            return start_call(comm, parent, CallFacts{kCallGroup});
        case abi::kColl: {
            OperationFacts facts = operation_facts(descr.coll);
            facts.rank = descr.rank;
            return start_operation(comm, parent, facts);
        }
        case abi::kP2p: {
            OperationFacts facts = operation_facts(descr.p2p);
            facts.rank = descr.rank;
            return start_operation(comm, parent, facts);
        }
        default:
            break;
    }
    if constexpr (Api >= 5) {
        switch (descr.type) {
            case abi::kGroupApi: {
                CallFacts facts{kCallGroupApi};
                facts.captured = descr.group_api.captured != 0;
                facts.depth = descr.group_api.depth;
                return start_call(comm, parent, facts);
            }
            case abi::kCollApi:
                return start_call(comm, parent, call_facts(kCallCollApi, descr.coll_api));
            case abi::kP2pApi:
                return start_call(comm, parent, call_facts(kCallP2pApi, descr.p2p_api));
            case abi::kKernelLaunch:
                return start_launch(parent);
            default:
                break;
        }
    }
    if constexpr (Api >= 6) {
        if (descr.type == abi::kCeColl)
            return start_operation(comm, parent, copy_engine_facts(descr.ce_coll));
    }
    return nullptr;
}

template <int Api, class Descr>
inline void* start_event(void* context, const Descr& descr) {
    const uint64_t type = descr.type;
    if (type == abi::kProxyStep) return start_step(as_integer(descr.parent), descr.proxy_step.step);
    if (type == abi::kProxyCtrl) return start_control(as_integer(context));
    if (type == abi::kProxyOp) {
        return start_flow(as_integer(context), as_integer(descr.parent), descr.rank, descr.proxy_op);
    }
    return start_other<Api>(context, descr);
}

}  // namespace mycroft
