// Another plugin behind this one, and the recorder.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "book.h"
#include "harness.h"

namespace mycroft::test {
namespace {

class SurroundTest : public PluginTest {
  protected:
    int* calls = nullptr;
    int (*inits)() = nullptr;
    void (*set_mask)(int) = nullptr;

    void chain() {
        set("MYCROFT_CHAIN", OTHER_PLUGIN_PATH);
        void* const other = dlopen(OTHER_PLUGIN_PATH, RTLD_NOW);
        ASSERT_NE(other, nullptr) << dlerror();
        calls = reinterpret_cast<int* (*)()>(dlsym(other, "other_calls"))();
        inits = reinterpret_cast<int (*)()>(dlsym(other, "other_inits"));
        set_mask = reinterpret_cast<void (*)(int)>(dlsym(other, "other_set_mask"));
        load();
    }

    std::vector<std::string> lines(const std::string& where) {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator(where)) {
            std::ifstream in(entry.path());
            for (std::string line; std::getline(in, line);) found.push_back(line);
        }
        return found;
    }
};

TEST_F(SurroundTest, BothSeeWhatTheyAskedFor) {
    chain();
    void* const comm = open_comm();
    EXPECT_EQ(inits(), 1);
    EXPECT_NE(mask & abi::kNetPlugin, 0);
    EXPECT_NE(mask & abi::kGroupApi, 0);
    EXPECT_EQ(file().header().chained.get(), 1U);
    const Collective first = collective(comm, 0, 3);
    run(comm, first, 3);
    EXPECT_EQ(calls[0], 1 + 2 + 6);
    EXPECT_EQ(calls[1], 1 + 2 + 6);
    EXPECT_EQ(calls[2], 18);
    ASSERT_EQ(file().operations().size(), 1U);
    EXPECT_EQ(file().operations()[0].handle.get(), as_integer(first.operation));  // what PXN peers will name
    EXPECT_EQ(file().flows().size(), 2U);
    close(comm);
    EXPECT_EQ(calls[3], 1);
}

TEST_F(SurroundTest, TheOthersMaskMayChange) {
    chain();
    void* const comm = open_comm();
    set_mask(abi::kColl);
    run(comm, collective(comm, 0, 1), 1);
    EXPECT_EQ(calls[0], 1);
    EXPECT_EQ(mask & abi::kNetPlugin, 0);
}

TEST_F(SurroundTest, StaleForeignAndDoubleHandlesReachNeither) {
    chain();
    void* const comm = open_comm();
    const Collective first = collective(comm, 0, 2);
    void* const one = step(comm, first.send, 0);
    stop(one);
    stop(one);
    state(one, abi::kStepSendWait);
    stop(as_pointer(0x9000000000000001));
    void* const foreign = as_pointer(0x4aaaaaaaaaaaaaaa);
    void* const relayed = proxy_op(as_pointer(0x1aaaaaaaaaaaaaaa), foreign, true, 2, 0, 1);
    EXPECT_NE(relayed, nullptr);
    send_step(as_pointer(0x1aaaaaaaaaaaaaaa), relayed, 0);
    for (int i = 0; i < 100'000; ++i) stop(step(comm, first.receive, 0));
    SUCCEED();
}

TEST_F(SurroundTest, TheOtherWorksWhereMycroftIsOff) {
    set("MYCROFT_DISABLE", "1");
    chain();
    void* const comm = open_comm();
    EXPECT_EQ(mask, abi::kColl | abi::kProxyOp | abi::kProxyStep | abi::kNetPlugin);
    void* const operation = coll(comm, nullptr, 0);
    stop(operation);
    close(comm);
    EXPECT_EQ(calls[0], 1);
    EXPECT_EQ(calls[3], 1);
}

TEST_F(SurroundTest, TheOtherGoesOnWhenTheFileIsLost) {
    chain();
    void* const comm = open_comm();
    void* const open = coll(comm, nullptr, 0);
    ASSERT_EQ(truncate(files().at(0).c_str(), 0), 0);
    for (uint64_t seq = 1; seq <= 10; ++seq) stop(coll(comm, nullptr, seq));
    void* const second = open_comm(2);
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(mask & abi::kColl, abi::kColl);
    stop(coll(second, nullptr, 0));
    stop(coll(comm, nullptr, 11));
    stop(open);
    close(comm);
    close(comm);
    EXPECT_EQ(coll(comm, nullptr, 12), nullptr);
    close(second);
    EXPECT_EQ(inits(), 2);
    EXPECT_EQ(calls[0], 1 + 10 + 2);
    EXPECT_EQ(calls[1], 1 + 10 + 2);
    EXPECT_EQ(calls[3], 2);
}

TEST_F(SurroundTest, TheOtherSeesCommunicatorsThatMycroftHasNoRoomFor) {
    chain();
    std::vector<void*> comms;
    for (uint64_t id = 1; id <= 300; ++id) comms.push_back(open_comm(id));
    for (void* comm : comms) {
        ASSERT_NE(comm, nullptr);
        stop(coll(comm, nullptr, 0));
    }
    for (void* comm : comms) close(comm);
    EXPECT_EQ(calls[0], 300);
    EXPECT_EQ(calls[1], 300);
    EXPECT_EQ(calls[3], 300);
}

TEST_F(SurroundTest, AForkedChildReachesTheOther) {
    chain();
    void* const comm = open_comm();
    void* const operation = coll(comm, nullptr, 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        stop(operation);
        stop(coll(comm, nullptr, 1));
        void* const second = open_comm(9);
        stop(coll(second, nullptr, 0));
        close(second);
        close(comm);
        _exit(calls[0] == 3 && calls[1] == 3 && calls[3] == 2 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

TEST_F(SurroundTest, TheOthersMaskMayChangeWhereMycroftIsOff) {
    set("MYCROFT_DISABLE", "1");
    chain();
    void* const comm = open_comm();
    set_mask(abi::kColl);
    stop(coll(comm, nullptr, 0));
    EXPECT_EQ(mask, abi::kColl);
}

TEST_F(SurroundTest, NothingIsRecordedWhereMycroftIsOff) {
    const std::string where = folder() + "/recording";
    set("MYCROFT_RECORD", where);
    set("MYCROFT_DISABLE", "1");
    load();
    close(open_comm());
    EXPECT_FALSE(std::filesystem::exists(where));
}

TEST_F(SurroundTest, AForkedChildWritesNothingIntoTheRecording) {
    const std::string where = folder() + "/recording";
    set("MYCROFT_RECORD", where);
    load();
    void* const comm = open_comm();
    stop(coll(comm, nullptr, 0));
    const size_t before = lines(where).size();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        stop(coll(comm, nullptr, 1));
        open_comm(9);
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(lines(where).size(), before);
    stop(coll(comm, nullptr, 2));
    EXPECT_EQ(lines(where).size(), before + 2);
}

TEST(Book, WhatIsOpenIsNotForgotten) {
    static Book book(64);
    book.put({1, 7, abi::kProxyStep, 0, 0, -1});
    for (uint64_t handle = 2; handle < 2000; ++handle) {
        book.put({handle, handle, abi::kProxyCtrl, 0, 0, -1});
        ++book.find(handle)->stops;
        ASSERT_NE(book.find(1), nullptr) << handle;
    }
    EXPECT_EQ(book.find(1)->number, 7U);
    EXPECT_EQ(book.find(2), nullptr);
    EXPECT_NE(book.find(1999), nullptr);
}

TEST_F(SurroundTest, APluginThatIsNotThereIsSaid) {
    set("MYCROFT_CHAIN", "/nowhere/libother.so");
    load();
    void* const comm = open_comm();
    EXPECT_NE(comm, nullptr);
    bool warned = false;
    for (const std::string& line : said()) warned = warned || line.find("MYCROFT_CHAIN") != std::string::npos;
    EXPECT_TRUE(warned);
    run(comm, collective(comm, 0, 2), 2);
}

TEST_F(SurroundTest, ItDoesNotChainItself) {
    set("MYCROFT_CHAIN", PLUGIN_PATH);
    load();
    void* const comm = open_comm();
    run(comm, collective(comm, 0, 2), 2);
    EXPECT_EQ(file().operations().size(), 1U);
}

TEST_F(SurroundTest, TheRecorderWritesEveryCallback) {
    const std::string where = folder() + "/recording";
    set("MYCROFT_RECORD", where);
    load();
    void* const comm = open_comm(0xabcdef);
    run(comm, collective(comm, 0, 2), 2);
    void* const flow = proxy_op(comm, nullptr, true, 4);
    void* const one = step(comm, flow, 0);
    for (int i = 0; i < 25'000; ++i) state(one, abi::kStepSendPeerWait);
    stop(nullptr);
    close(comm);
    const std::vector<std::string> written = lines(where);
    ASSERT_GT(written.size(), 20U);
    EXPECT_NE(written[0].find("\"cb\":\"process\""), std::string::npos);
    EXPECT_NE(written[1].find("\"commId\":\"0xabcdef\""), std::string::npos);
    EXPECT_NE(written.back().find("\"cb\":\"finalize\""), std::string::npos);
    int repeats = 0;
    int colls = 0;
    for (const std::string& line : written) {
        EXPECT_EQ(line.front(), '{');
        EXPECT_EQ(line.back(), '}');
        repeats += line.find("\"state\":20") != std::string::npos && line.find("\"rep\"") != std::string::npos
                       ? 1
                       : 0;
        colls += line.find("\"ty\":\"Coll\"") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(repeats, 3 + 2);  // then every 10,000th
    EXPECT_EQ(colls, 2);
    EXPECT_EQ(file().operations().size(), 1U);  // the tracing goes on beside it
}

}  // namespace
}  // namespace mycroft::test
