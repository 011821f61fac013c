// Drives the plugin as NCCL would, through its exported table, and reads its file as the collector would.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "abi.h"
#include "handles.h"
#include "layout.h"

namespace mycroft::test {

// A copy of one shared-memory file.
class File {
  public:
    explicit File(const std::string& path);

    const Header& header() const { return *reinterpret_cast<const Header*>(bytes_.data()); }
    template <class Slot>
    Slot slot(Table table, uint32_t index) const {
        const TableInfo& info = header().tables[static_cast<int>(table)];
        Slot copy;
        std::memcpy(static_cast<void*>(&copy), bytes_.data() + info.offset + uint64_t{info.stride} * index,
                    sizeof copy);
        return copy;
    }
    uint32_t used(Table table) const { return header().tables[static_cast<int>(table)].used.get(); }
    uint32_t capacity(Table table) const { return header().tables[static_cast<int>(table)].capacity; }
    uint64_t drops(Drop kind) const { return header().drops[kind].get(); }
    Communicator comm(void* context) const {
        return slot<Communicator>(Table::kCommunicators, handle_slot(as_integer(context)));
    }
    Operation operation(void* handle) const {
        return slot<Operation>(Table::kOperations, handle_slot(as_integer(handle)));
    }
    Flow flow(void* handle) const { return slot<Flow>(Table::kFlows, handle_slot(as_integer(handle))); }
    Call call(void* handle) const { return slot<Call>(Table::kCalls, handle_slot(as_integer(handle))); }

    // Finished records still in the ring, oldest first.
    std::vector<Operation> operations() const { return records<Operation>(kRecordOperation); }
    std::vector<Flow> flows() const { return records<Flow>(kRecordFlow); }

  private:
    template <class Body>
    std::vector<Body> records(RecordKind kind) const {
        std::vector<Body> found;
        const uint64_t next = header().ring_next.get();
        const uint64_t count = capacity(Table::kRing);
        for (uint64_t i = next > count ? next - count : 0; i < next; ++i) {
            const Record record = slot<Record>(Table::kRing, static_cast<uint32_t>(i % count));
            if (record.sequence.get() != 2 * i + 2 || record.kind.get() != kind) continue;
            Body body;
            std::memcpy(static_cast<void*>(&body), record.body, sizeof body);
            found.push_back(body);
        }
        return found;
    }

    std::vector<char> bytes_;
};

OperationState state_of(const Operation& operation);

// A folder for the files, and the plugin's settings, of one test.
class PluginTest : public ::testing::Test {
  protected:
    PluginTest();
    ~PluginTest() override;

    // Loads the plugin; settings must stand before the first init.
    void load(const char* path = PLUGIN_PATH);
    void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

    std::vector<std::string> files() const;
    File file() const;

    // What the file says of them now.
    Communicator read_comm(void* context) const { return file().comm(context); }
    Operation read_operation(void* handle) const { return file().operation(handle); }
    Flow read_flow(void* handle) const { return file().flow(handle); }
    Call read_call(void* handle) const { return file().call(handle); }

    const std::string& folder() const { return folder_; }

    void* library = nullptr;
    const abi::Profiler3* v3 = nullptr;
    const abi::Profiler4* v4 = nullptr;
    const abi::Profiler5* v5 = nullptr;
    const abi::Profiler6* v6 = nullptr;
    const abi::Profiler7* v7 = nullptr;
    int mask = 0;

    // v6, the version of the recordings.
    void* open_comm(uint64_t id = 0x77, int nranks = 4, int rank = 0, int nnodes = 4);
    void* start(void* context, const abi::Descr6& descr);
    void stop(void* handle) { EXPECT_EQ(v6->stop(handle), 0); }
    void state(void* handle, int value, size_t bytes = 0);
    void close(void* context) { EXPECT_EQ(v6->finalize(context), 0); }

    void* group(void* context);
    void* group_api(void* context, int depth = 1);
    void* coll_api(void* context, void* group, void* stream = nullptr, const char* func = "AllReduce");
    void* coll(void* context, void* parent, uint64_t seq, void* launch = nullptr,
               const char* func = "AllReduce", uint8_t channels = 1);
    void* p2p(void* context, void* parent, bool send, int peer, void* launch = nullptr);
    void* proxy_op(void* context, void* parent, bool send, int steps, uint8_t channel = 0,
                   pid_t pid = getpid());
    void* step(void* context, void* flow, int number);
    void* kernel(void* context, void* operation, uint8_t channel, uint64_t timer);
    void kernel_stop(void* handle, uint64_t timer);

    // A step's whole life.
    void send_step(void* context, void* flow, int number, size_t bytes = 4096);
    void receive_step(void* context, void* flow, int number, size_t bytes = 4096);

    // A collective as it comes with one rank a host: launch, then a receive and a send flow on one channel.
    struct Collective {
        void* operation;
        void* receive;
        void* send;
    };
    void* launch(void* context, uint64_t seq, void* stream = nullptr, uint8_t channels = 1);
    Collective collective(void* context, uint64_t seq, int steps, void* stream = nullptr);
    void run(void* context, const Collective& collective, int steps);

  private:
    std::string folder_;
};

// Lines that the plugin said through NCCL's logger.
std::vector<std::string>& said();
void note(int level, unsigned long flags, const char* file, int line, const char* format, ...);

}  // namespace mycroft::test
