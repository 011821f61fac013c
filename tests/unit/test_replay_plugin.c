/* A profiler plugin that only writes down what it is called with, one line a call, to $TOY_LOG/RANK.
 *
 * Its descriptors are declared here once more, by hand and in C, so that a replay that reaches it proves the
 * layouts of collectors/replay/abi.py too. Handles name their process: rank, then a count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef void (*logger_t)(int, unsigned long, const char*, int, const char*, ...);

static FILE* out;
static atomic_uint_fast64_t made;
static uint64_t nonce;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
#include <stdarg.h>
static void say(const char* format, ...) {
    char line[1024];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int n = snprintf(line, sizeof line, "at=%ld tid=%d ", now.tv_sec * 1000000000L + now.tv_nsec, gettid());
    va_list rest;
    va_start(rest, format);
    n += vsnprintf(line + n, sizeof line - n, format, rest);
    va_end(rest);
    line[n++] = '\n';
    fwrite(line, 1, n, out);
}

static void open_log(void) {
    pthread_mutex_lock(&opening);
    if (!out) {
        char path[512];
        const char* rank = getenv("RANK");
        snprintf(path, sizeof path, "%s/%s", getenv("TOY_LOG"), rank);
        out = fopen(path, "a");
        setvbuf(out, NULL, _IOLBF, 1 << 16);
        nonce = (uint64_t)(atoi(rank) + 1) << 32;
    }
    pthread_mutex_unlock(&opening);
}

static int wanted(void) {
    const char* tier = getenv("MYCROFT_TIER");
    int mask = 0xf07;
    if (strcmp(tier, "ops")) mask |= 0x38;
    if (!strcmp(tier, "kernel")) mask |= 0x40;
    return mask;
}

static uint64_t next(void) { return nonce | (atomic_fetch_add(&made, 1) + 1); }
static const char* text(const char* s) { return s ? s : "NULL"; }

static int finish(void* context) {
    say("finalize ctx=%#lx", (long)context);
    return 0;
}

static int stop(void* handle) {
    say("stop h=%#lx", (long)handle);
    return 0;
}

struct args_v3 { size_t trans; int steps; };

static int state_v3(void* handle, int state, struct args_v3* a) {
    say("state h=%#lx state=%d trans=%ld steps=%d", (long)handle, state, a ? (long)a->trans : -1, a ? a->steps : -1);
    return 0;
}

static int state(void* handle, int state, uint64_t* a) {
    say("state h=%#lx state=%d args=%ld", (long)handle, state, a ? (long)*a : -1);
    return 0;
}

static int init_v3(void** context, int* mask) {
    open_log();
    *context = (void*)next();
    *mask = wanted() & 0xff;
    say("init ctx=%#lx", (long)*context);
    return 0;
}

static int init_v4(void** context, int* mask, const char* name, uint64_t comm, int nodes, int ranks, int rank,
                   logger_t logger) {
    open_log();
    *context = (void*)next();
    *mask = wanted() & 0xff;
    say("init ctx=%#lx comm=%#lx name=%s nodes=%d ranks=%d rank=%d dir=%s host=%s job=%s", (long)*context,
        (long)comm, text(name), nodes, ranks, rank, getenv("MYCROFT_DIR"), getenv("MYCROFT_HOST"),
        getenv("MYCROFT_JOB"));
    logger(3, 0, "toy", 1, "%s", "hello from the toy");
    return 0;
}

static int init_v5(void** context, uint64_t comm, int* mask, const char* name, int nodes, int ranks, int rank,
                   logger_t logger) {
    int answer = init_v4(context, mask, name, comm, nodes, ranks, rank, logger);
    *mask = wanted();
    return answer;
}

#define COLL(X) X uint64_t seqNumber; const char* func; void const* sendBuff; void* recvBuff; size_t count; \
    int root; const char* datatype; uint8_t nChannels; uint8_t nWarps; const char* algo; const char* proto;
#define P2P const char* func; void* buff; const char* datatype; size_t count; int peer;
#define NAMED const char* name; uint64_t commHash;
#define PROXY struct { pid_t pid; uint8_t channelId; int peer; int nSteps; int chunkSize; int isSend; } op; \
    struct { int step; } step; struct { int64_t id; void* data; } net;
#define API struct { bool graph; int depth; } group; struct { void* stream; } launch;
#define CALLS(TAG) struct { const char* func; size_t count; const char* datatype; int root; void* stream; \
    bool graph; TAG } collapi; struct { const char* func; size_t count; const char* datatype; void* stream; \
    bool graph; TAG } p2papi;

struct d3 { uint8_t type; void* parent; int rank; union { struct { COLL(NAMED) } coll; struct { NAMED P2P } p2p;
    PROXY struct { uint8_t channelId; } kernel; }; };
struct d4 { uint8_t type; void* parent; int rank; union { struct { COLL() } coll; struct { P2P uint8_t nChannels; } p2p;
    PROXY struct { uint8_t channelId; uint64_t pTimer; } kernel; }; };
struct d5 { uint64_t type; void* parent; int rank; union { struct { COLL() void* group; } coll;
    struct { P2P uint8_t nChannels; void* group; } p2p;
    PROXY struct { uint8_t channelId; uint64_t pTimer; } kernel; API CALLS() }; };
struct d7 { uint64_t type; void* parent; int rank; union {
    struct { COLL() void* group; const char* variant; bool sym; uint64_t tag; } coll;
    struct { P2P uint8_t nChannels; void* group; uint64_t tag; } p2p;
    PROXY struct { uint8_t channelId; uint64_t pTimer; } kernel; API CALLS(uint64_t tag;) }; };

#define HEAD(d) (long)context, (long)*handle, (long)hIn, (long)d->parent, d->rank
#define START(NAME, D, NAME_OF, CHANNELS, TIMER, GROUP, API_EVENTS)                                            \
    static int NAME(void* context, void** handle, struct D* d) {                                               \
        void* hIn = *handle;                                                                                   \
        *handle = (void*)next();                                                                               \
        const char* head = "start ctx=%#lx h=%#lx hIn=%#lx parent=%#lx rank=%d ";                               \
        char f[400];                                                                                           \
        strcpy(f, head);                                                                                       \
        switch (d->type) {                                                                                     \
        case 1: say(strcat(f, "ty=Group"), HEAD(d)); break;                                                    \
        case 2:                                                                                                \
            say(strcat(f, "ty=Coll name=%s seq=%ld func=%s count=%ld root=%d dt=%s nCh=%d nWarps=%d algo=%s "  \
                          "proto=%s group=%#lx"), HEAD(d), NAME_OF(d->coll), d->coll.seqNumber,                \
                text(d->coll.func), d->coll.count, d->coll.root, text(d->coll.datatype), d->coll.nChannels,    \
                d->coll.nWarps, text(d->coll.algo), text(d->coll.proto), (long)GROUP(d->coll));                \
            break;                                                                                             \
        case 4:                                                                                                \
            say(strcat(f, "ty=P2p name=%s func=%s dt=%s count=%ld peer=%d nCh=%d"), HEAD(d),                   \
                NAME_OF(d->p2p), text(d->p2p.func), text(d->p2p.datatype), d->p2p.count, d->p2p.peer,          \
                CHANNELS(d->p2p));                                                                             \
            break;                                                                                             \
        case 8:                                                                                                \
            say(strcat(f, "ty=ProxyOp opPid=%d ch=%d peer=%d nSteps=%d chunkSize=%d isSend=%d"), HEAD(d),      \
                d->op.pid, d->op.channelId, d->op.peer, d->op.nSteps, d->op.chunkSize, d->op.isSend);          \
            break;                                                                                             \
        case 16: say(strcat(f, "ty=ProxyStep step=%d"), HEAD(d), d->step.step); break;                         \
        case 32: say(strcat(f, "ty=ProxyCtrl"), HEAD(d)); break;                                               \
        case 64:                                                                                               \
            say(strcat(f, "ty=KernelCh ch=%d pTimer=%ld"), HEAD(d), d->kernel.channelId, TIMER(d->kernel));    \
            break;                                                                                             \
        API_EVENTS                                                                                             \
        default: say(strcat(f, "ty=? type=%#lx"), HEAD(d), (long)d->type);                                     \
        }                                                                                                      \
        return 0;                                                                                              \
    }
#define SHOW_API                                                                                               \
    case 256: say(strcat(f, "ty=GroupApi graph=%d depth=%d"), HEAD(d), d->group.graph, d->group.depth); break; \
    case 512:                                                                                                  \
        say(strcat(f, "ty=CollApi func=%s count=%ld dt=%s root=%d stream=%#lx graph=%d"), HEAD(d),             \
            text(d->collapi.func), d->collapi.count, text(d->collapi.datatype), d->collapi.root,               \
            (long)d->collapi.stream, d->collapi.graph);                                                        \
        break;                                                                                                 \
    case 1024:                                                                                                 \
        say(strcat(f, "ty=P2pApi func=%s count=%ld dt=%s stream=%#lx graph=%d"), HEAD(d), text(d->p2papi.func),\
            d->p2papi.count, text(d->p2papi.datatype), (long)d->p2papi.stream, d->p2papi.graph);               \
        break;                                                                                                 \
    case 2048: say(strcat(f, "ty=KernelLaunch stream=%#lx"), HEAD(d), (long)d->launch.stream); break;
#define NAMED_AS(x) text((x).name)
#define NO_NAME(x) "-"
#define CH(x) (x).nChannels
#define NO_CH(x) -1
#define TIMER(x) (long)(x).pTimer
#define NO_TIMER(x) -1L
#define GROUPED(x) (x).group
#define NO_GROUP(x) 0L

START(start_v3, d3, NAMED_AS, NO_CH, NO_TIMER, NO_GROUP, )
START(start_v4, d4, NO_NAME, CH, TIMER, NO_GROUP, )
START(start_v5, d5, NO_NAME, CH, TIMER, GROUPED, SHOW_API)
START(start_v7, d7, NO_NAME, CH, TIMER, GROUPED, SHOW_API)

struct table { const char* name; void *init, *start, *stop, *state, *finalize; };
#define EXPORT(N, INIT, SHOW, STATE)                                                                           \
    __attribute__((visibility("default"))) struct table ncclProfiler_v##N = {"toy", INIT, SHOW, stop, STATE, finish};
EXPORT(3, init_v3, start_v3, state_v3)
EXPORT(4, init_v4, start_v4, state)
EXPORT(5, init_v5, start_v5, state)
EXPORT(6, init_v5, start_v5, state)
EXPORT(7, init_v5, start_v7, state)
