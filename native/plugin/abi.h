// NCCL's profiler interface, versions 3 to 7, as far as this plugin needs it.
//
// Written from the public interface. Descriptors of all versions begin alike: type at 0 (one byte up to v4,
// eight from v5), parent at 8, rank at 16, then the event's own fields at 24. ProxyOp, ProxyStep and
// ProxyCtrl are the same in all of them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#define MYCROFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace mycroft::abi {

enum Event : uint64_t {
    kGroup = 1 << 0,
    kColl = 1 << 1,
    kP2p = 1 << 2,
    kProxyOp = 1 << 3,
    kProxyStep = 1 << 4,
    kProxyCtrl = 1 << 5,
    kKernelCh = 1 << 6,
    kNetPlugin = 1 << 7,
    kGroupApi = 1 << 8,
    kCollApi = 1 << 9,
    kP2pApi = 1 << 10,
    kKernelLaunch = 1 << 11,
    kCeColl = 1 << 12,
    kCeSync = 1 << 13,
    kCeBatch = 1 << 14,
    kKernelPhase = 1 << 15,
};

enum EventState : int {
    kStepSendGpuWait = 8,
    kStepSendWait = 9,
    kStepRecvWait = 10,
    kStepRecvFlushWait = 11,
    kStepRecvGpuWait = 12,
    kCtrlIdle = 13,
    kCtrlActive = 14,
    kCtrlSleep = 15,
    kCtrlWakeup = 16,
    kCtrlAppend = 17,
    kCtrlAppendEnd = 18,
    kOpInProgress = 19,
    kStepSendPeerWait = 20,
    kNetPluginUpdate = 21,
    kKernelChStop = 22,
    kGroupStartApiStop = 23,
    kGroupEndApiStart = 24,
    kKernelPhaseStop = 31,
};

enum LogLevel : int { kLogWarn = 2, kLogInfo = 3 };
using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

union StateArgs {
    struct {
        size_t trans_size;
        int steps;  // v3 only
    } step;
    struct {
        int appended;
    } ctrl;
    struct {
        void* data;
    } net;
    struct {
        uint64_t timer;
    } kernel;
};

struct ProxyOp {
    pid_t pid;
    uint8_t channel;
    int peer;
    int steps;
    int chunk;
    int is_send;
};
struct ProxyStep {
    int step;
};
struct KernelCh3 {
    uint8_t channel;
};
struct KernelCh4 {
    uint8_t channel;
    uint64_t timer;
};
struct NetPlugin {
    int64_t id;
    void* data;
};
struct KernelPhase {
    uint8_t channel;
    uint8_t phase;
    const char* name;
    uint64_t timer;
};
struct CeSync {
    uint8_t complete;
    int nranks;
};
struct CeBatch {
    int ops;
    size_t bytes;
    uint8_t intra_sync;
};

struct Coll3 {
    const char* name;
    uint64_t comm_hash;
    uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    size_t count;
    int root;
    const char* datatype;
    uint8_t channels;
    uint8_t warps;
    const char* algo;
    const char* proto;
};
struct Coll4 {
    uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    size_t count;
    int root;
    const char* datatype;
    uint8_t channels;
    uint8_t warps;
    const char* algo;
    const char* proto;
};
struct Coll5 {
    uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    size_t count;
    int root;
    const char* datatype;
    uint8_t channels;
    uint8_t warps;
    const char* algo;
    const char* proto;
    void* parent_group;
};
struct Coll7 {
    uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    size_t count;
    int root;
    const char* datatype;
    uint8_t channels;
    uint8_t warps;
    const char* algo;
    const char* proto;
    void* parent_group;
    const char* kernel_variant;
    uint8_t symmetric;
    uint64_t user_tag;
};

struct P2p3 {
    const char* name;
    uint64_t comm_hash;
    const char* func;
    void* buffer;
    const char* datatype;
    size_t count;
    int peer;
};
struct P2p4 {
    const char* func;
    void* buffer;
    const char* datatype;
    size_t count;
    int peer;
    uint8_t channels;
};
struct P2p5 {
    const char* func;
    void* buffer;
    const char* datatype;
    size_t count;
    int peer;
    uint8_t channels;
    void* parent_group;
};
struct P2p7 {
    const char* func;
    void* buffer;
    const char* datatype;
    size_t count;
    int peer;
    uint8_t channels;
    void* parent_group;
    uint64_t user_tag;
};

struct GroupApi {
    uint8_t captured;
    int depth;
};
struct CollApi5 {
    const char* func;
    size_t count;
    const char* datatype;
    int root;
    void* stream;
    uint8_t captured;
};
struct CollApi7 {
    const char* func;
    size_t count;
    const char* datatype;
    int root;
    void* stream;
    uint8_t captured;
    uint64_t user_tag;
};
struct P2pApi5 {
    const char* func;
    size_t count;
    const char* datatype;
    void* stream;
    uint8_t captured;
};
struct P2pApi7 {
    const char* func;
    size_t count;
    const char* datatype;
    void* stream;
    uint8_t captured;
    uint64_t user_tag;
};
struct KernelLaunch {
    void* stream;
};
struct CeColl6 {
    uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    size_t count;
    int root;
    const char* datatype;
    const char* sync_strategy;
    uint8_t intra_batch_sync;
    uint32_t batch_size;
    uint32_t batches;
    uint32_t ce_seq;
    void* stream;
};
struct CeColl7 {
    uint64_t seq;
    const char* func;
    const void* send;
    void* recv;
    size_t count;
    int root;
    const char* datatype;
    const char* sync_strategy;
    uint8_t intra_batch_sync;
    uint32_t batch_size;
    uint32_t batches;
    uint32_t ce_seq;
    void* stream;
    uint64_t user_tag;
};

struct Descr3 {
    uint8_t type;
    void* parent;
    int rank;
    union {
        Coll3 coll;
        P2p3 p2p;
        ProxyOp proxy_op;
        ProxyStep proxy_step;
        KernelCh3 kernel;
        NetPlugin net;
    };
};
struct Descr4 {
    uint8_t type;
    void* parent;
    int rank;
    union {
        Coll4 coll;
        P2p4 p2p;
        ProxyOp proxy_op;
        ProxyStep proxy_step;
        KernelCh4 kernel;
        NetPlugin net;
    };
};
struct Descr5 {
    uint64_t type;
    void* parent;
    int rank;
    union {
        Coll5 coll;
        P2p5 p2p;
        ProxyOp proxy_op;
        ProxyStep proxy_step;
        KernelCh4 kernel;
        NetPlugin net;
        GroupApi group_api;
        CollApi5 coll_api;
        P2pApi5 p2p_api;
        KernelLaunch kernel_launch;
        CeColl6 ce_coll;  // from v6
        CeSync ce_sync;
        CeBatch ce_batch;
    };
};
using Descr6 = Descr5;
struct Descr7 {
    uint64_t type;
    void* parent;
    int rank;
    union {
        Coll7 coll;
        P2p7 p2p;
        ProxyOp proxy_op;
        ProxyStep proxy_step;
        KernelCh4 kernel;
        NetPlugin net;
        GroupApi group_api;
        CollApi7 coll_api;
        P2pApi7 p2p_api;
        KernelLaunch kernel_launch;
        CeColl7 ce_coll;
        CeSync ce_sync;
        CeBatch ce_batch;
        KernelPhase phase;
    };
};

template <class Descr, class Init>
struct Profiler {
    const char* name;
    Init init;
    int (*start)(void* context, void** handle, Descr* descr);
    int (*stop)(void* handle);
    int (*state)(void* handle, int state, StateArgs* args);
    int (*finalize)(void* context);
};

using Init3 = int (*)(void** context, int* mask);
using Init4 = int (*)(void** context, int* mask, const char* name, uint64_t hash, int nnodes, int nranks,
                      int rank, Logger log);
using Init5 = int (*)(void** context, uint64_t id, int* mask, const char* name, int nnodes, int nranks,
                      int rank, Logger log);

using Profiler3 = Profiler<Descr3, Init3>;
using Profiler4 = Profiler<Descr4, Init4>;
using Profiler5 = Profiler<Descr5, Init5>;
using Profiler6 = Profiler<Descr6, Init5>;
using Profiler7 = Profiler<Descr7, Init5>;

static_assert(offsetof(Descr3, parent) == 8 && offsetof(Descr7, parent) == 8, "abi");
static_assert(offsetof(Descr3, proxy_op) == 24 && offsetof(Descr7, proxy_op) == 24, "abi");
static_assert(sizeof(ProxyOp) == 24, "abi");

}  // namespace mycroft::abi
