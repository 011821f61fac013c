#include "harness.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdarg>
#include <cstdlib>
#include <filesystem>

namespace mycroft::test {

File::File(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info{};
    if (file >= 0 && fstat(file, &info) == 0) {
        bytes_.resize(static_cast<size_t>(info.st_size));
        if (pread(file, bytes_.data(), bytes_.size(), 0) != info.st_size) bytes_.clear();
    }
    if (file >= 0) ::close(file);
    if (bytes_.size() < kHeaderBytes) bytes_.resize(kHeaderBytes);
}

OperationState state_of(const Operation& operation) {
    return static_cast<OperationState>(operation.control.get() >> 32 & kStateMask);
}

PluginTest::PluginTest() {
    char name[] = "/dev/shm/mycroft-test-XXXXXX";
    folder_ = mkdtemp(name);
    for (const char* setting :
         {"MYCROFT_SHM_BYTES", "MYCROFT_TIER", "MYCROFT_JOB", "MYCROFT_CHAIN", "MYCROFT_RECORD",
          "MYCROFT_DISABLE", "MYCROFT_KERNEL_ANY", "MYCROFT_SIGBUS"}) {
        unsetenv(setting);
    }
    set("MYCROFT_DIR", folder_);
    said().clear();
}

PluginTest::~PluginTest() {
    std::filesystem::remove_all(folder_);
}

void PluginTest::load(const char* path) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    v3 = static_cast<const abi::Profiler3*>(dlsym(library, "ncclProfiler_v3"));
    v4 = static_cast<const abi::Profiler4*>(dlsym(library, "ncclProfiler_v4"));
    v5 = static_cast<const abi::Profiler5*>(dlsym(library, "ncclProfiler_v5"));
    v6 = static_cast<const abi::Profiler6*>(dlsym(library, "ncclProfiler_v6"));
    v7 = static_cast<const abi::Profiler7*>(dlsym(library, "ncclProfiler_v7"));
}

std::vector<std::string> PluginTest::files() const {
    std::vector<std::string> found;
    if (!std::filesystem::exists(folder_)) return found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
        if (entry.path().extension() == ".mycroft") found.push_back(entry.path());
    }
    return found;
}

File PluginTest::file() const {
    const std::vector<std::string> found = files();
    EXPECT_EQ(found.size(), 1U);
    return File(found.empty() ? "" : found[0]);
}

void* PluginTest::open_comm(uint64_t id, int nranks, int rank, int nnodes) {
    void* context = nullptr;
    EXPECT_EQ(v6->init(&context, id, &mask, "test", nnodes, nranks, rank, note), 0);
    return context;
}

void* PluginTest::start(void* context, const abi::Descr6& descr) {
    abi::Descr6 copy = descr;
    void* handle = as_pointer(0xdeadbeefcafe);  // NCCL passes what happens to be there
    EXPECT_EQ(v6->start(context, &handle, &copy), 0);
    EXPECT_NE(handle, as_pointer(0xdeadbeefcafe));
    return handle;
}

void PluginTest::state(void* handle, int value, size_t bytes) {
    abi::StateArgs args{};
    args.step.trans_size = bytes;
    EXPECT_EQ(v6->state(handle, value, &args), 0);
}

namespace {

abi::Descr6 event(uint64_t type, void* parent) {
    abi::Descr6 descr;
    std::memset(static_cast<void*>(&descr), 0, sizeof descr);
    descr.type = type;
    descr.parent = parent;
    return descr;
}

}  // namespace

void* PluginTest::group(void* context) {
    return start(context, event(abi::kGroup, nullptr));
}

void* PluginTest::group_api(void* context, int depth) {
    abi::Descr6 descr = event(abi::kGroupApi, nullptr);
    descr.group_api.depth = depth;
    return start(context, descr);
}

void* PluginTest::coll_api(void* context, void* group, void* stream, const char* func) {
    abi::Descr6 descr = event(abi::kCollApi, group);
    descr.coll_api.func = func;
    descr.coll_api.count = 1024;
    descr.coll_api.datatype = "ncclFloat32";
    descr.coll_api.stream = stream;
    return start(context, descr);
}

void* PluginTest::coll(void* context, void* parent, uint64_t seq, void* launch, const char* func,
                       uint8_t channels) {
    abi::Descr6 descr = event(abi::kColl, parent);
    descr.coll.seq = seq;
    descr.coll.func = func;
    descr.coll.count = 1024;
    descr.coll.datatype = "ncclFloat32";
    descr.coll.algo = "RING";
    descr.coll.proto = "SIMPLE";
    descr.coll.channels = channels;
    descr.coll.parent_group = launch;
    return start(context, descr);
}

void* PluginTest::p2p(void* context, void* parent, bool send, int peer, void* launch) {
    abi::Descr6 descr = event(abi::kP2p, parent);
    descr.p2p.func = send ? "Send" : "Recv";
    descr.p2p.count = 256;
    descr.p2p.datatype = "ncclFloat32";
    descr.p2p.peer = peer;
    descr.p2p.channels = 1;
    descr.p2p.parent_group = launch;
    return start(context, descr);
}

void* PluginTest::proxy_op(void* context, void* parent, bool send, int steps, uint8_t channel, pid_t pid) {
    abi::Descr6 descr = event(abi::kProxyOp, parent);
    descr.proxy_op.pid = pid;
    descr.proxy_op.channel = channel;
    descr.proxy_op.peer = send ? 1 : 3;
    descr.proxy_op.steps = steps;
    descr.proxy_op.chunk = 131072;
    descr.proxy_op.is_send = send ? 1 : 0;
    return start(context, descr);
}

void* PluginTest::step(void* context, void* flow, int number) {
    abi::Descr6 descr = event(abi::kProxyStep, flow);
    descr.proxy_step.step = number;
    return start(context, descr);
}

void* PluginTest::kernel(void* context, void* operation, uint8_t channel, uint64_t timer) {
    abi::Descr6 descr = event(abi::kKernelCh, operation);
    descr.kernel.channel = channel;
    descr.kernel.timer = timer;
    return start(context, descr);
}

void PluginTest::kernel_stop(void* handle, uint64_t timer) {
    abi::StateArgs args{};
    args.kernel.timer = timer;
    EXPECT_EQ(v6->state(handle, abi::kKernelChStop, &args), 0);
    stop(handle);
}

void PluginTest::send_step(void* context, void* flow, int number, size_t bytes) {
    void* const handle = step(context, flow, number);
    state(handle, abi::kStepSendGpuWait);
    state(handle, abi::kStepSendPeerWait);
    state(handle, abi::kStepSendWait, bytes);
    stop(handle);
}

void PluginTest::receive_step(void* context, void* flow, int number, size_t bytes) {
    void* const handle = step(context, flow, number);
    state(handle, abi::kStepRecvWait);
    state(handle, abi::kStepRecvFlushWait, bytes);
    state(handle, abi::kStepRecvGpuWait, bytes);
    stop(handle);
}

void* PluginTest::launch(void* context, uint64_t seq, void* stream, uint8_t channels) {
    void* const api = group_api(context);
    v6->state(api, abi::kGroupStartApiStop, nullptr);
    void* const call = coll_api(context, api, stream);
    stop(call);
    v6->state(api, abi::kGroupEndApiStart, nullptr);
    abi::Descr6 kernel_launch = event(abi::kKernelLaunch, api);
    kernel_launch.kernel_launch.stream = stream;
    stop(start(context, kernel_launch));
    void* const launch_group = group(context);
    void* const operation = coll(context, call, seq, launch_group, "AllReduce", channels);
    stop(operation);
    stop(launch_group);
    stop(api);
    return operation;
}

PluginTest::Collective PluginTest::collective(void* context, uint64_t seq, int steps, void* stream) {
    void* const operation = launch(context, seq, stream);
    return {operation, proxy_op(context, operation, false, steps), proxy_op(context, operation, true, steps)};
}

void PluginTest::run(void* context, const Collective& collective, int steps) {
    for (int number = 0; number < steps; ++number) {
        send_step(context, collective.send, number);
        receive_step(context, collective.receive, number);
    }
    stop(collective.receive);
    stop(collective.send);
}

std::vector<std::string>& said() {
    static std::vector<std::string> lines;
    return lines;
}

void note(int, unsigned long, const char*, int, const char* format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    said().push_back(line);
}

}  // namespace mycroft::test
