// A rank's part in one communicator: its legs, its proxy, its plugin context, and how an operation is
// launched with the callbacks that NCCL makes on the calling thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "gpu.h"
#include "host_memory.h"
#include "proxy.h"

namespace mycroft::testbed {

// One Send or Recv of a group; of one to oneself `peer` is the own rank.
struct PairCall {
    bool send;
    int peer;
    size_t count;
    float* buffer;
};

class Member {
  public:
    Member(const Plan& plan, const std::vector<Leg>& legs, int number, int world_rank, HostMemory& memory,
           Profiler& profiler, Faults& faults, Gpu& gpu);

    // The connection of a network leg that begins or ends here; `leg` is its index.
    void connect(size_t leg, int fd);
    // After all connections: the proxy begins.
    void begin();
    // Waits for what was launched, and closes the context.
    void end();

    const Communicator& communicator() const { return communicator_; }
    int rank() const { return rank_; }
    int size() const { return communicator_.size(); }

    void collective(Func func, int root, size_t count, const float* input, float* output);
    void group(const std::vector<PairCall>& calls);

  private:
    using Key = std::tuple<LegKind, int, int, bool>;  // kind, peer, channel, sending

    struct LegEnd {
        size_t index = 0;
        bool local = true;
        std::optional<SendEnd> send;
        std::optional<ReceiveEnd> receive;
        std::unique_ptr<char[]> memory;  // of a network leg's FIFO
        std::unique_ptr<NetworkLeg> network;
    };

    void add_leg(const Leg& leg, size_t index, bool sending);
    LegEnd& leg_end(const End& end, int channel, bool sending);
    void add_work(Work work, Block* block, const std::shared_ptr<Launch>& launch, const float* input,
                  float* output, Kernel& kernel, std::vector<ProxyRequest>& requests);
    void watch(Block& block, const std::shared_ptr<Launch>& launch, std::vector<ProxyRequest>& requests);
    std::shared_ptr<Kernel> new_kernel();
    void* open_group(int depth);
    void launch(void* group, const std::shared_ptr<Kernel>& kernel);
    abi::Descr6 coll_event(Func func, int root, size_t count, void* api, void* group) const;

    const Plan& plan_;
    const Communicator& communicator_;
    int rank_;
    int nodes_;
    HostMemory& memory_;
    Profiler& profiler_;
    Faults& faults_;
    Gpu& gpu_;
    void* context_;
    std::map<Key, LegEnd> legs_;
    uint64_t sequence_[4]{};  // of the next call of each function
    std::unique_ptr<Proxy> proxy_;
};

}  // namespace mycroft::testbed
