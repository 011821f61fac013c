// The process around the plugin: settings, its file, fork, unloading, namespaces, and what may befall the
// file.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"

namespace mycroft::test {
namespace {

class ProcessTest : public PluginTest {};

uint64_t start_ticks() {
    std::ifstream stat("/proc/self/stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    std::istringstream rest(text.substr(text.rfind(')') + 2));
    std::string field;
    for (int i = 0; i < 20; ++i) rest >> field;
    return std::stoull(field);
}

TEST_F(ProcessTest, TheHeaderSaysWhoItIs) {
    set("MYCROFT_JOB", "llama");
    set("RANK", "5");
    set("SLURM_JOB_ID", "42");
    set("AWS_SECRET_ACCESS_KEY", "hidden");
    load();
    open_comm(0xabc, 8, 3, 2);
    const File now = file();
    EXPECT_EQ(now.header().magic, kMagic);
    EXPECT_EQ(now.header().layout_version, kLayoutVersion);
    EXPECT_EQ(now.header().pid, static_cast<uint32_t>(getpid()));
    EXPECT_EQ(now.header().start_ticks, start_ticks());
    EXPECT_EQ(now.header().state.get(), kOn);
    EXPECT_EQ(now.header().file_bytes, 4U << 20);
    EXPECT_STREQ(now.header().job, "llama");
    struct stat space{};
    ASSERT_EQ(stat("/proc/self/ns/pid", &space), 0);
    EXPECT_EQ(now.header().pid_namespace, space.st_ino);
    const char* entry = now.header().environment;
    std::string all;
    for (; *entry != '\0'; entry += std::strlen(entry) + 1) all += std::string(entry) + "\n";
    EXPECT_NE(all.find("RANK=5\n"), std::string::npos);
    EXPECT_NE(all.find("SLURM_JOB_ID=42\n"), std::string::npos);
    EXPECT_EQ(all.find("hidden"), std::string::npos);
    const Communicator comm = now.slot<Communicator>(Table::kCommunicators, 0);
    EXPECT_EQ(comm.comm_id.get(), 0xabcU);
    EXPECT_EQ(comm.nranks, 8U);
    EXPECT_EQ(comm.nnodes, 2U);
    EXPECT_EQ(comm.rank.get(), 3);
    EXPECT_STREQ(comm.name, "test");
    EXPECT_EQ(comm.api, 6U);
}

TEST_F(ProcessTest, TheFileIsNotSparseAndOthersMayReadIt) {
    umask(0077);
    load();
    open_comm();
    struct stat info{};
    ASSERT_EQ(stat(files().at(0).c_str(), &info), 0);
    EXPECT_EQ(info.st_size, 4 << 20);
    EXPECT_GE(info.st_blocks * 512, 4 << 20);
    EXPECT_EQ(info.st_mode & 0777, 0644U);
}

TEST_F(ProcessTest, ItMakesItsFolder) {
    const std::string inside = folder() + "/new";
    set("MYCROFT_DIR", inside);
    umask(0077);
    load();
    open_comm();
    struct stat info{};
    ASSERT_EQ(stat(inside.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 01777U);
}

void expect_off(PluginTest&, int mask, const std::vector<std::string>& files) {
    EXPECT_EQ(mask, 0);
    EXPECT_TRUE(files.empty());
}

TEST_F(ProcessTest, OffByItsSetting) {
    set("MYCROFT_DISABLE", "1");
    load();
    EXPECT_EQ(open_comm(), nullptr);
    expect_off(*this, mask, files());
    EXPECT_EQ(coll(nullptr, nullptr, 0), nullptr);
}

TEST_F(ProcessTest, OffWhereThereIsNoRoom) {
    struct statvfs space{};
    ASSERT_EQ(statvfs(folder().c_str(), &space), 0);
    const uint64_t free = uint64_t{space.f_bavail} * space.f_frsize;
    if (free / 3 > 1U << 30) {
        // Room for the largest file allowed: try on a small file system, as root.
        const std::string small = folder() + "/small";
        ASSERT_EQ(mkdir(small.c_str(), 0777), 0);
        if (system(("mount -t tmpfs -o size=64M tmpfs " + small).c_str()) != 0)
            GTEST_SKIP() << "cannot mount";
        set("MYCROFT_DIR", small);
        set("MYCROFT_SHM_BYTES", "17M");  // 64 MiB, but not 4 × 17
        load();
        open_comm();
        expect_off(*this, mask, files());
        EXPECT_TRUE(std::filesystem::is_empty(small));
        ASSERT_EQ(said().size(), 1U);
        EXPECT_NE(said()[0].find("too little room"), std::string::npos) << said()[0];
        EXPECT_EQ(system(("umount " + small).c_str()), 0);
        return;
    }
    set("MYCROFT_SHM_BYTES", std::to_string(free / 3));
    load();
    open_comm();
    expect_off(*this, mask, files());
    ASSERT_EQ(said().size(), 1U);
}

TEST_F(ProcessTest, OffWhereTheFolderIsALink) {
    const std::string target = folder() + "/target";
    const std::string link = folder() + "/link";
    ASSERT_EQ(mkdir(target.c_str(), 0777), 0);
    ASSERT_EQ(symlink(target.c_str(), link.c_str()), 0);
    set("MYCROFT_DIR", link);
    load();
    EXPECT_EQ(open_comm(), nullptr);
    EXPECT_EQ(mask, 0);
    EXPECT_TRUE(std::filesystem::is_empty(target));
    EXPECT_EQ(said().size(), 1U);
    open_comm();
    EXPECT_EQ(said().size(), 1U);  // once
}

TEST_F(ProcessTest, OffWhereTheFolderIsAFile) {
    const std::string path = folder() + "/file";
    std::ofstream(path) << "mine";
    set("MYCROFT_DIR", path);
    load();
    EXPECT_EQ(open_comm(), nullptr);
    EXPECT_EQ(said().size(), 1U);
    EXPECT_EQ(std::filesystem::file_size(path), 4U);
}

TEST_F(ProcessTest, TheFileSurvivesAKill) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        load();
        void* const comm = open_comm();
        collective(comm, 6, 4);
        raise(SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
    const File left = file();
    EXPECT_EQ(left.header().pid, static_cast<uint32_t>(child));
    EXPECT_EQ(left.slot<Communicator>(Table::kCommunicators, 0).launched[1].get(), 7U);
    EXPECT_EQ(state_of(left.slot<Operation>(Table::kOperations, 0)), kOpen);
    EXPECT_EQ(left.slot<Flow>(Table::kFlows, 1).total.get(), 4U);
}

TEST_F(ProcessTest, AForkedChildIsNotTraced) {
    load();
    void* const comm = open_comm();
    void* const operation = launch(comm, 0);
    const uint64_t callbacks = file().header().callbacks.get();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        void* const flow = proxy_op(comm, operation, true, 2);
        send_step(comm, flow, 0);
        stop(operation);
        const bool silent = flow == nullptr && coll(comm, nullptr, 5) == nullptr && open_comm(9) == nullptr;
        close(comm);
        _exit(silent ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(file().header().callbacks.get(), callbacks);
    EXPECT_EQ(files().size(), 1U);
    EXPECT_NE(proxy_op(comm, operation, true, 2), nullptr);  // the parent goes on
}

TEST_F(ProcessTest, AChildForkedBeforeTheFirstInitIsTraced) {
    load();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(open_comm() != nullptr ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(ProcessTest, UnloadingAndInitAgain) {
    for (uint64_t round = 1; round <= 3; ++round) {
        load();
        void* const comm = open_comm(round);
        ASSERT_NE(comm, nullptr);
        run(comm, collective(comm, 0, 2), 2);
        close(comm);
        EXPECT_EQ(dlclose(library), 0);
    }
    EXPECT_EQ(file().operations().size(), 3U);  // the same file throughout
}

TEST_F(ProcessTest, TwoNcclCopiesInOneProcess) {
    load();
    void* const first = open_comm(1);
    int other_mask = 0;
    void* second = nullptr;
    EXPECT_EQ(v7->init(&second, 2, &other_mask, "other", 1, 2, 0, note), 0);
    EXPECT_NE(second, nullptr);
    abi::Descr7 descr{};
    descr.type = abi::kColl;
    descr.coll.func = "AllGather";
    void* handle = nullptr;
    v7->start(second, &handle, &descr);
    EXPECT_NE(handle, nullptr);
    EXPECT_NE(coll(first, nullptr, 0), nullptr);
    EXPECT_EQ(read_comm(second).api, 7U);
    EXPECT_EQ(read_comm(second).launched[2].get(), 1U);
    EXPECT_EQ(read_comm(first).launched[2].get(), 0U);
}

TEST_F(ProcessTest, TheFileTruncatedUnderThePlugin) {
    load();
    void* const comm = open_comm();
    const Collective first = collective(comm, 0, 4);
    void* const step0 = step(comm, first.send, 0);
    const std::string path = files().at(0);
    ASSERT_EQ(truncate(path.c_str(), 0), 0);
    state(step0, abi::kStepSendGpuWait);
    stop(step0);
    EXPECT_EQ(coll(comm, nullptr, 1), nullptr);
    EXPECT_EQ(open_comm(2), nullptr);
    close(comm);
}

TEST_F(ProcessTest, SomebodyElsesBusErrorIsTheirs) {
    EXPECT_DEATH(
        {
            load();
            open_comm();
            raise(SIGBUS);
        },
        "");
}

volatile sig_atomic_t their_signal = 0;

TEST_F(ProcessTest, AnEarlierBusErrorHandlerIsKept) {
    signal(SIGBUS, [](int) { their_signal = 1; });
    load();
    open_comm();
    raise(SIGBUS);
    EXPECT_EQ(their_signal, 1);
}

TEST_F(ProcessTest, ABusErrorThatIsIgnoredAndOnlySentIsIgnored) {
    signal(SIGBUS, SIG_IGN);
    load();
    open_comm();
    kill(getpid(), SIGBUS);
    SUCCEED();
}

// A child's own mapping may come to lie where ours was.
TEST_F(ProcessTest, AForkedChildsBusErrorIsItsOwn) {
    load();
    open_comm();
    void* base = nullptr;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        if (line.find(files().at(0)) == std::string::npos) continue;
        base = as_pointer(std::stoull(line.substr(0, line.find('-')), nullptr, 16));
    }
    ASSERT_NE(base, nullptr);
    const std::string path = folder() + "/theirs";
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
        if (ftruncate(file, 4096) != 0) _exit(0);
        void* const map = mmap(base, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
        if (map != base || ftruncate(file, 0) != 0) _exit(0);
        *static_cast<volatile char*>(map) = 1;
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_NE(status, 0);  // by the signal, or by a sanitizer that saw it
}

TEST_F(ProcessTest, TheFileRemovedUnderThePlugin) {
    load();
    void* const comm = open_comm();
    ASSERT_EQ(unlink(files().at(0).c_str()), 0);
    run(comm, collective(comm, 0, 2), 2);
    close(comm);
}

TEST_F(ProcessTest, TwoJobsOnOneHost) {
    for (const char* job : {"first", "second"}) {
        const pid_t child = fork();
        if (child != 0) {
            waitpid(child, nullptr, 0);
            continue;
        }
        set("MYCROFT_JOB", job);
        load();
        open_comm(5);
        _exit(0);
    }
    const std::vector<std::string> found = files();
    ASSERT_EQ(found.size(), 2U);
    const File a(found[0]);
    const File b(found[1]);
    EXPECT_STRNE(a.header().job, b.header().job);
    EXPECT_NE(a.header().nonce, b.header().nonce);
}

TEST_F(ProcessTest, AnotherProcessInstanceWithThisPid) {
    // Left by a process that had our pid: its file is another's by start time and nonce, and stays as it was.
    const std::string name = folder() + "/" + std::to_string(getpid()) + "-1-0123456789abcdef.mycroft";
    std::ofstream(name) << "theirs";
    load();
    open_comm();
    EXPECT_EQ(files().size(), 2U);
    EXPECT_EQ(std::filesystem::file_size(name), 6U);
}

TEST_F(ProcessTest, PidNamespaces) {
    const pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWPID) != 0) _exit(77);
        const pid_t inner = fork();
        if (inner == 0) {
            load();
            void* const comm = open_comm();
            _exit(getpid() == 1 && proxy_op(comm, launch(comm, 0), true, 1) != nullptr ? 0 : 1);
        }
        int status = 1;
        waitpid(inner, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "needs the right to make a PID namespace";
    ASSERT_EQ(status, 0);
    struct stat space{};
    ASSERT_EQ(stat("/proc/self/ns/pid", &space), 0);
    const File theirs = file();
    EXPECT_EQ(theirs.header().pid, 1U);
    EXPECT_EQ(theirs.slot<Flow>(Table::kFlows, 0).flags.get(), 0U);
}

TEST_F(ProcessTest, TheTierIsSwitchedLive) {
    load();
    void* const comm = open_comm();
    const int usual = mask;
    EXPECT_NE(usual & abi::kProxyStep, 0);
    EXPECT_EQ(usual & abi::kKernelCh, 0);
    auto request = [&](uint32_t tier) {
        FILE* const out = fopen(files().at(0).c_str(), "r+");
        fseek(out, offsetof(Header, requested_tier), SEEK_SET);
        fwrite(&tier, sizeof tier, 1, out);
        fclose(out);
    };
    request(kTierOps);
    void* const operation = launch(comm, 0);
    EXPECT_EQ(mask & (abi::kProxyStep | abi::kProxyOp | abi::kProxyCtrl), 0);
    EXPECT_EQ(file().header().applied_tier.get(), static_cast<uint32_t>(kTierOps));
    // What was under way at the change arrives all the same.
    void* const flow = proxy_op(comm, operation, true, 2);
    send_step(comm, flow, 0);
    request(kTierIdle);
    launch(comm, 1);
    EXPECT_EQ(mask, abi::kGroupApi);
    request(77);  // not a tier
    launch(comm, 2);
    EXPECT_EQ(mask, abi::kGroupApi);
    request(kTierFlows);
    launch(comm, 3);
    EXPECT_EQ(mask, usual);
    for (int i = 0; i < 100; ++i) {
        request(i % 2 == 0 ? kTierOps : kTierFlows);
        run(comm, collective(comm, static_cast<uint64_t>(i) + 4, 2), 2);
    }
    EXPECT_EQ(read_comm(comm).launched[1].get(), 104U);
}

TEST_F(ProcessTest, TheGpuComesFromTheDriverInTheProcess) {
    ASSERT_NE(dlopen(FAKE_CUDA_PATH, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror();
    load();
    const Communicator comm = read_comm(open_comm());
    EXPECT_EQ(comm.device, 3);
    EXPECT_STREQ(comm.bus_id, "0000:3b:00.0");
    EXPECT_EQ(comm.uuid[0], 0xa0);
    EXPECT_EQ(comm.uuid[15], 0xaf);
}

TEST_F(ProcessTest, WithoutADriverThereIsNoDevice) {
    load();
    EXPECT_EQ(read_comm(open_comm()).device, -1);
}

TEST_F(ProcessTest, KernelTierByTheVersionOfTheCaller) {
    set("MYCROFT_TIER", "kernel");
    void* const nccl = dlopen(FAKE_NCCL_PATH, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nccl, nullptr) << dlerror();
    load();
    const auto open = reinterpret_cast<int (*)(const void*, int, int*)>(dlsym(nccl, "open_with_version"));
    for (const auto& [version, allowed] : std::vector<std::pair<int, bool>>{
             {22707, false}, {22907, true}, {23003, false}, {23007, true}, {23102, false}}) {
        int given = 0;
        ASSERT_EQ(open(v6, version, &given), 0);
        EXPECT_EQ((given & abi::kKernelCh) != 0, allowed) << version;
        EXPECT_EQ(file().header().nccl_version.get(), static_cast<uint32_t>(version));
    }
}

}  // namespace
}  // namespace mycroft::test
