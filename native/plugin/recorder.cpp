#include "recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "book.h"
#include "clock.h"
#include "events.h"
#include "hooks.h"
#include "identity.h"

namespace mycroft {
namespace {

constexpr uint32_t kShownRepeats = 3;
constexpr uint32_t kThinned = 10'000;

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
FILE* file = nullptr;
bool failed = false;
Book book;
uint64_t numbers = 0;
pthread_t threads[256];
uint32_t thread_count = 0;

struct Locked {
    Locked() { pthread_mutex_lock(&lock); }
    ~Locked() { pthread_mutex_unlock(&lock); }
};

// A child of fork records nothing: its lines would stand among its parent's. The lock is held over the fork,
// so no line is half in the buffer.
void before_fork() {
    pthread_mutex_lock(&lock);
}
void after_fork() {
    pthread_mutex_unlock(&lock);
}
void in_child() {
    lock = PTHREAD_MUTEX_INITIALIZER;
    g_hooks.set(g_hooks.get() & ~static_cast<uint32_t>(kHookRecord));
    close(fileno(file));
    failed = true;
}

uint32_t thread_number() {
    const pthread_t self = pthread_self();
    for (uint32_t i = 0; i < thread_count; ++i) {
        if (pthread_equal(threads[i], self)) return i;
    }
    if (thread_count == 256) return 255;
    threads[thread_count] = self;
    return thread_count++;
}

const char* type_name(uint64_t type) {
    static constexpr const char* kNames[] = {
        "Group",    "Coll",    "P2p",    "ProxyOp",      "ProxyStep", "ProxyCtrl", "KernelCh", "NetPlugin",
        "GroupApi", "CollApi", "P2pApi", "KernelLaunch", "CeColl",    "CeSync",    "CeBatch",  "KernelPhase"};
    for (int bit = 0; bit < 16; ++bit) {
        if (type == uint64_t{1} << bit) return kNames[bit];
    }
    return "Unknown";
}

void begin(const char* callback) {
    std::fprintf(file, "{\"t\":%" PRId64 ",\"cb\":\"%s\",\"th\":%u", clock_ns(CLOCK_MONOTONIC), callback,
                 thread_number());
}

void finish() {
    std::fputs("}\n", file);
}

// Text inside a JSON string: what could break it becomes a question mark.
void put_text(const char* text, size_t most) {
    for (size_t at = 0; at < most && text[at] != '\0'; ++at) {
        const unsigned char c = static_cast<unsigned char>(text[at]);
        std::fputc(c < 0x20 || c == '"' || c == '\\' || c > 0x7e ? '?' : c, file);
    }
}

void put_context(void* context) {
    const Known* const known = book.find(as_integer(context));
    if (context == nullptr) {
        std::fputs(",\"ctx\":-1", file);
    } else if (known != nullptr) {
        std::fprintf(file, ",\"ctx\":%" PRIu64, known->number);
    } else {
        std::fprintf(file, ",\"ctxRaw\":\"0x%" PRIx64 "\"", as_integer(context));
    }
}

void put_parent(const void* parent) {
    const Known* const known = book.find(as_integer(parent));
    if (parent == nullptr || known != nullptr) {
        std::fprintf(file, ",\"parent\":%" PRIu64, known != nullptr ? known->number : 0);
    } else {
        std::fprintf(file, ",\"parentRaw\":\"0x%" PRIx64 "\"", as_integer(parent));
    }
}

Known& remember(uint64_t handle, uint64_t type) {
    static Known made;
    made = Known{handle, ++numbers, type, 0, 0, -1};
    if (handle != 0) book.put(made);
    return made;
}

void write_process() {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    char environment[8192];
    copy_environment(environment, sizeof environment);
    std::fprintf(file,
                 "{\"t\":%" PRId64 ",\"cb\":\"process\",\"pid\":%d,\"nonce\":%u,\"start\":%" PRIu64
                 ",\"wall\":%" PRId64 ",\"host\":\"",
                 clock_ns(CLOCK_MONOTONIC), getpid(), g.nonce_tag, process_start_ticks(),
                 clock_ns(CLOCK_REALTIME));
    put_text(host, sizeof host);
    std::fputs("\",\"environment\":{", file);
    const char* comma = "";
    for (const char* entry = environment; *entry != '\0'; entry += std::strlen(entry) + 1) {
        const char* const equals = std::strchr(entry, '=');
        if (equals == nullptr) continue;
        std::fprintf(file, "%s\"", comma);
        put_text(entry, static_cast<size_t>(equals - entry));
        std::fputs("\":\"", file);
        put_text(equals + 1, 1024);
        std::fputs("\"", file);
        comma = ",";
    }
    std::fputs("}}\n", file);
}

}  // namespace

bool recorder_open(const char* folder, abi::Logger log) {
    Locked guard;
    if (file != nullptr || failed) return !failed;
    char path[512];
    mkdir(folder, 0777);
    std::snprintf(path, sizeof path, "%s/%d-%016" PRIx64 ".jsonl", folder, getpid(), random64());
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    file = descriptor >= 0 ? fdopen(descriptor, "w") : nullptr;
    if (file == nullptr) {
        failed = true;
        say(log, abi::kLogWarn, "Mycroft: cannot record to %s", path);
        return false;
    }
    setvbuf(file, nullptr, _IOLBF, 1 << 16);  // a killed process leaves whole lines
    pthread_atfork(before_fork, after_fork, in_child);
    write_process();
    return true;
}

uint64_t recorder_number(const void* handle) {
    Locked guard;
    const Known* const known = book.find(as_integer(handle));
    return known != nullptr ? known->number : 0;
}

void recorder_init(void* context, const CommFacts& facts, int mask_in, int mask_out) {
    Locked guard;
    begin("init");
    std::fprintf(
        file, ",\"ctx\":%" PRIu64 ",\"raw\":\"0x%" PRIx64 "\",\"commId\":\"0x%" PRIx64 "\",\"commName\":\"",
        remember(as_integer(context), 0).number, as_integer(context), facts.id);
    put_text(text_of(facts.name), 64);
    std::fprintf(
        file,
        "\",\"nNodes\":%d,\"nranks\":%d,\"rank\":%d,\"maskIn\":%d,\"maskOut\":%d,\"api\":%u,\"nccl\":%u",
        facts.nnodes, facts.nranks, facts.rank, mask_in, mask_out, facts.api,
        g.header != nullptr ? g.header->nccl_version.get() : 0);
    finish();
}

void recorder_start(void* handle, void* context, const EventText& event, bool was_set) {
    Locked guard;
    begin("startEvent");
    std::fprintf(file, ",\"ty\":\"%s\"", type_name(event.type));
    put_context(context);
    put_parent(event.parent);
    const Known& known = remember(as_integer(handle), event.type);
    std::fprintf(file, ",\"h\":%" PRIu64, known.number);
    if (event.type == abi::kColl || event.type == abi::kP2p) {
        std::fprintf(file, ",\"raw\":\"0x%" PRIx64 "\"", as_integer(handle));
    }
    std::fprintf(file, ",\"rank\":%d,\"hIn\":%d%s", event.rank, was_set ? 1 : 0, event.fields);
    finish();
}

void recorder_stop(void* handle) {
    Locked guard;
    Known* const known = book.find(as_integer(handle));
    begin("stopEvent");
    if (known == nullptr) {
        std::fprintf(file, ",\"h\":0,\"hRaw\":\"0x%" PRIx64 "\"", as_integer(handle));
    } else {
        std::fprintf(file, ",\"ty\":\"%s\",\"h\":%" PRIu64 ",\"nstop\":%u", type_name(known->type),
                     known->number, ++known->stops);
    }
    finish();
}

void recorder_state(void* handle, int state, const abi::StateArgs* args) {
    Locked guard;
    Known* const known = book.find(as_integer(handle));
    uint32_t repeats = 0;
    if (known != nullptr) {
        known->repeats = known->last_state == state ? known->repeats + 1 : 0;
        known->last_state = state;
        repeats = known->repeats;
        if (repeats > kShownRepeats && repeats % kThinned != 0) return;
    }
    begin("recordEventState");
    if (known == nullptr) {
        std::fprintf(file, ",\"h\":0,\"hRaw\":\"0x%" PRIx64 "\"", as_integer(handle));
    } else {
        std::fprintf(file, ",\"ty\":\"%s\",\"h\":%" PRIu64, type_name(known->type), known->number);
    }
    std::fprintf(file, ",\"args\":%d,\"state\":%d", args != nullptr ? 1 : 0, state);
    if (args != nullptr && known != nullptr) {
        if (known->type == abi::kProxyStep) std::fprintf(file, ",\"trans\":%zu", args->step.trans_size);
        if (known->type == abi::kProxyCtrl) std::fprintf(file, ",\"appended\":%d", args->ctrl.appended);
        if (known->type == abi::kKernelCh) std::fprintf(file, ",\"pTimer\":%" PRIu64, args->kernel.timer);
    }
    if (repeats != 0) std::fprintf(file, ",\"rep\":%u", repeats);
    finish();
}

void recorder_finalize(void* context) {
    Locked guard;
    begin("finalize");
    put_context(context);
    finish();
}

}  // namespace mycroft
