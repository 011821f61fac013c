// The same collective through each version of the interface.
#include "harness.h"
#include "names.h"

namespace mycroft::test {
namespace {

class Versions : public PluginTest {
  protected:
    template <class Profiler, class Descr>
    void steps(const Profiler* plugin, void* context, void* operation) {
        Descr op{};
        op.type = static_cast<decltype(op.type)>(abi::kProxyOp);
        op.parent = operation;
        op.proxy_op.pid = getpid();
        op.proxy_op.steps = 1;
        op.proxy_op.is_send = 1;
        void* flow = nullptr;
        plugin->start(context, &flow, &op);
        ASSERT_NE(flow, nullptr);
        Descr one{};
        one.type = static_cast<decltype(one.type)>(abi::kProxyStep);
        one.parent = flow;
        void* handle = nullptr;
        plugin->start(context, &handle, &one);
        abi::StateArgs args{};
        args.step.trans_size = 512;
        plugin->state(handle, abi::kStepSendGpuWait, &args);
        plugin->state(handle, abi::kStepSendWait, &args);
        plugin->stop(handle);
        plugin->stop(flow);
    }

    template <class Descr>
    static Descr coll_of(uint64_t seq) {
        Descr descr{};
        descr.type = static_cast<decltype(descr.type)>(abi::kColl);
        descr.rank = 2;
        descr.coll.seq = seq;
        descr.coll.func = "ReduceScatter";
        descr.coll.count = 100;
        descr.coll.datatype = "ncclBfloat16";
        descr.coll.channels = 5;
        descr.coll.algo = "TREE";
        descr.coll.proto = "LL128";
        return descr;
    }

    void expect_collective(void* operation) {
        const Operation ended = read_operation(operation);
        EXPECT_EQ(state_of(ended), kEnded);
        EXPECT_EQ(ended.end_reason.get(), kByFlows);
        EXPECT_EQ(ended.func.get(), 3);
        EXPECT_EQ(ended.seq.get(), 9U);
        EXPECT_EQ(ended.bytes.get(), 200U);
        EXPECT_EQ(ended.datatype.get(), 10);
        EXPECT_EQ(ended.algo.get(), 1);
        EXPECT_EQ(ended.proto.get(), 2);
        EXPECT_EQ(ended.channels.get(), 5);
        EXPECT_NE(ended.launch_tick.get(), 0U);
        EXPECT_EQ(file().flows().at(0).bytes.get(), 512U);
        EXPECT_EQ(file().flows().at(0).counters[kReady].get(), 1U);
    }
};

TEST_F(Versions, V3LearnsItsCommunicatorFromOperations) {
    load();
    void* context = nullptr;
    ASSERT_EQ(v3->init(&context, &mask), 0);
    EXPECT_EQ(mask, abi::kGroup | abi::kColl | abi::kP2p | abi::kProxyOp | abi::kProxyStep | abi::kProxyCtrl);
    EXPECT_EQ(read_comm(context).rank.get(), -1);
    abi::Descr3 descr = coll_of<abi::Descr3>(8);
    descr.coll.comm_hash = 0xfeed;
    descr.coll.name = "world";
    void* operation = nullptr;
    v3->start(context, &operation, &descr);
    v3->stop(operation);
    steps<abi::Profiler3, abi::Descr3>(v3, context, operation);
    expect_collective(operation);
    EXPECT_EQ(read_comm(context).comm_id.get(), 0xfeedU);
    EXPECT_STREQ(read_comm(context).name, "world");
    EXPECT_EQ(read_comm(context).rank.get(), 2);
    EXPECT_EQ(read_comm(context).nranks, 0U);
    v3->finalize(context);
}

TEST_F(Versions, V3OnANewerNcclKnowsNoCommunicator) {
    load();
    void* context = nullptr;
    v3->init(&context, &mask);
    abi::Descr3 descr = coll_of<abi::Descr3>(8);  // commHash 0, name NULL
    void* operation = nullptr;
    v3->start(context, &operation, &descr);
    EXPECT_NE(operation, nullptr);
    EXPECT_EQ(read_comm(context).comm_id.get(), 0U);
}

TEST_F(Versions, V4) {
    load();
    void* context = nullptr;
    ASSERT_EQ(v4->init(&context, &mask, "world", 0xfeed, 2, 4, 2, note), 0);
    EXPECT_EQ(mask & (abi::kGroupApi | abi::kCollApi | abi::kP2pApi | abi::kKernelLaunch | abi::kCeColl), 0);
    abi::Descr4 descr = coll_of<abi::Descr4>(8);
    void* operation = nullptr;
    v4->start(context, &operation, &descr);
    v4->stop(operation);
    steps<abi::Profiler4, abi::Descr4>(v4, context, operation);
    expect_collective(operation);
    EXPECT_EQ(read_comm(context).comm_id.get(), 0xfeedU);
    abi::Descr4 api{};
    api.type = static_cast<uint8_t>(abi::kKernelCh);
    EXPECT_EQ(api.type, 64);
}

TEST_F(Versions, V5) {
    load();
    void* context = nullptr;
    ASSERT_EQ(v5->init(&context, 0xfeed, &mask, "world", 2, 4, 2, note), 0);
    EXPECT_NE(mask & abi::kCollApi, 0);
    EXPECT_EQ(mask & abi::kCeColl, 0);
    abi::Descr5 descr = coll_of<abi::Descr5>(8);
    void* operation = nullptr;
    v5->start(context, &operation, &descr);
    v5->stop(operation);
    steps<abi::Profiler5, abi::Descr5>(v5, context, operation);
    expect_collective(operation);
}

TEST_F(Versions, V6) {
    load();
    void* const context = open_comm(0xfeed);
    EXPECT_NE(mask & abi::kCeColl, 0);
    abi::Descr6 descr = coll_of<abi::Descr6>(8);
    void* operation = nullptr;
    v6->start(context, &operation, &descr);
    v6->stop(operation);
    steps<abi::Profiler6, abi::Descr6>(v6, context, operation);
    expect_collective(operation);
}

TEST_F(Versions, V7) {
    load();
    void* context = nullptr;
    ASSERT_EQ(v7->init(&context, 0xfeed, &mask, "world", 2, 4, 2, note), 0);
    abi::Descr7 descr = coll_of<abi::Descr7>(8);
    descr.coll.symmetric = true;
    descr.coll.user_tag = 77;
    void* operation = nullptr;
    v7->start(context, &operation, &descr);
    v7->stop(operation);
    steps<abi::Profiler7, abi::Descr7>(v7, context, operation);
    expect_collective(operation);
    EXPECT_EQ(read_operation(operation).user_tag.get(), 77U);
    EXPECT_NE(read_operation(operation).flags.get() & 32, 0U);
}

TEST_F(Versions, NamesThatNobodyKnows) {
    EXPECT_EQ(code_of(kFuncNames, nullptr), 0);
    EXPECT_EQ(code_of(kFuncNames, ""), 0);
    EXPECT_EQ(code_of(kFuncNames, "AllReduceFromTheFuture"), kOther);
    EXPECT_EQ(code_of(kAlgoNames, "ring"), 2);
    EXPECT_EQ(datatype_size(kOther), 0U);
    load();
    void* const comm = open_comm();
    const Operation odd = read_operation(coll(comm, nullptr, 0, nullptr, "Novel"));
    EXPECT_EQ(odd.func.get(), kOther);
    EXPECT_EQ(read_comm(comm).launched[15].get(), 1U);
}

}  // namespace
}  // namespace mycroft::test
