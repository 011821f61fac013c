// Writes every callback as a JSON line (MYCROFT_RECORD), for tests and support: DIR/<pid>-<nonce>.jsonl.
//
// First line: {"cb":"process", "pid", "nonce", "start", "host", "wall" and "t" of one moment, environment}.
// Then per callback, as in the recordings that `mycroft replay` takes: t (CLOCK_MONOTONIC, ns), th (number of
// the thread), cb, ctx, h, parent (numbers that stand for them), ty and the descriptor's fields. A handle or
// context of another process (PXN) is written as its raw value in hex: "parentRaw", "ctxRaw"; "raw" beside
// `h` and `ctx` says what other processes' files may refer to; opPid is the real pid. Merging them resolves
// those.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>

#include "abi.h"
#include "core.h"
#include "events.h"

namespace mycroft {

struct EventText {
    uint64_t type;
    const void* parent;
    int rank;
    char fields[640];
};

bool recorder_open(const char* folder, abi::Logger log);
void recorder_init(void* context, const CommFacts& facts, int mask_in, int mask_out);
void recorder_start(void* handle, void* context, const EventText& event, bool was_set);
void recorder_stop(void* handle);
void recorder_state(void* handle, int state, const abi::StateArgs* args);
void recorder_finalize(void* context);

// The number of a handle that may be a parent, 0 if it is not known.
uint64_t recorder_number(const void* handle);

inline const char* text_of(const char* name) {
    return name != nullptr ? name : "";
}

template <class Coll>
int coll_text(char* into, size_t size, const Coll& coll) {
    return std::snprintf(into, size,
                         ",\"seq\":%" PRIu64
                         ",\"func\":\"%.32s\",\"count\":%zu,\"root\":%d,\"dt\":\"%.32s\",\"nCh\":%u"
                         ",\"nWarps\":%u,\"algo\":\"%.32s\",\"proto\":\"%.32s\"",
                         coll.seq, text_of(coll.func), coll.count, coll.root, text_of(coll.datatype),
                         coll.channels, coll.warps, text_of(coll.algo), text_of(coll.proto));
}

template <int Api, class Descr>
EventText event_text(const Descr& descr) {
    EventText text{descr.type, descr.parent, descr.rank, {}};
    char* const into = text.fields;
    const size_t size = sizeof text.fields;
    int used = 0;
    switch (descr.type) {
        case abi::kColl:
            used = coll_text(into, size, descr.coll);
            break;
        case abi::kP2p:
            used = std::snprintf(into, size, ",\"func\":\"%.32s\",\"count\":%zu,\"dt\":\"%.32s\",\"peer\":%d",
                                 text_of(descr.p2p.func), descr.p2p.count, text_of(descr.p2p.datatype),
                                 descr.p2p.peer);
            if constexpr (Api >= 4) {
                used += std::snprintf(into + used, size - used, ",\"nCh\":%u", descr.p2p.channels);
            }
            break;
        case abi::kProxyOp:
            std::snprintf(into, size,
                          ",\"opPid\":%d,\"ch\":%u,\"peer\":%d,\"nSteps\":%d,\"chunkSize\":%d,\"isSend\":%d",
                          descr.proxy_op.pid, descr.proxy_op.channel, descr.proxy_op.peer,
                          descr.proxy_op.steps, descr.proxy_op.chunk, descr.proxy_op.is_send);
            break;
        case abi::kProxyStep:
            std::snprintf(into, size, ",\"step\":%d", descr.proxy_step.step);
            break;
        case abi::kKernelCh:
            std::snprintf(into, size, ",\"ch\":%u,\"pTimer\":%" PRIu64, descr.kernel.channel,
                          kernel_timer(descr.kernel));
            break;
        case abi::kNetPlugin:
            std::snprintf(into, size, ",\"id\":%" PRId64, descr.net.id);
            break;
        default:
            break;
    }
    if constexpr (Api == 3) {
        if (descr.type == abi::kColl || descr.type == abi::kP2p) {
            const bool coll = descr.type == abi::kColl;
            std::snprintf(into + used, size - used, ",\"commName\":\"%.64s\",\"commHash\":\"0x%" PRIx64 "\"",
                          text_of(coll ? descr.coll.name : descr.p2p.name),
                          coll ? descr.coll.comm_hash : descr.p2p.comm_hash);
        }
    }
    if constexpr (Api >= 5) {
        if (descr.type == abi::kColl || descr.type == abi::kP2p) {
            void* const group = descr.type == abi::kColl ? descr.coll.parent_group : descr.p2p.parent_group;
            std::snprintf(into + used, size - used, ",\"parentGroup\":%" PRIu64, recorder_number(group));
        } else if (descr.type == abi::kGroupApi) {
            std::snprintf(into, size, ",\"graph\":%d,\"depth\":%d", descr.group_api.captured != 0 ? 1 : 0,
                          descr.group_api.depth);
        } else if (descr.type == abi::kCollApi) {
            std::snprintf(into, size,
                          ",\"func\":\"%.32s\",\"count\":%zu,\"dt\":\"%.32s\",\"root\":%d,\"graph\":%d"
                          ",\"stream\":\"0x%" PRIx64 "\"",
                          text_of(descr.coll_api.func), descr.coll_api.count,
                          text_of(descr.coll_api.datatype), descr.coll_api.root,
                          descr.coll_api.captured != 0 ? 1 : 0, as_integer(descr.coll_api.stream));
        } else if (descr.type == abi::kP2pApi) {
            std::snprintf(
                into, size,
                ",\"func\":\"%.32s\",\"count\":%zu,\"dt\":\"%.32s\",\"graph\":%d,\"stream\":\"0x%" PRIx64
                "\"",
                text_of(descr.p2p_api.func), descr.p2p_api.count, text_of(descr.p2p_api.datatype),
                descr.p2p_api.captured != 0 ? 1 : 0, as_integer(descr.p2p_api.stream));
        } else if (descr.type == abi::kKernelLaunch) {
            std::snprintf(into, size, ",\"stream\":\"0x%" PRIx64 "\"",
                          as_integer(descr.kernel_launch.stream));
        }
    }
    return text;
}

}  // namespace mycroft
