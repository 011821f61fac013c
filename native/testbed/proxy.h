// The proxy progress thread of a communicator: takes what is appended, carries the first operation of every
// leg, and sleeps when there is nothing to carry.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "faults.h"
#include "flow.h"

namespace mycroft::testbed {

class Proxy {
  public:
    Proxy(Profiler& profiler, Faults& faults, void* context, int rank, std::string communicator);
    ~Proxy();  // once everything appended has ended
    Proxy(const Proxy&) = delete;
    Proxy& operator=(const Proxy&) = delete;

    void append(std::vector<ProxyRequest> requests);
    // Something that it may wait for has changed.
    void wake();

  private:
    // A kernel's part on a channel, told when it has started and when it has ended.
    struct Watch {
        ProxyRequest request;
        void* handle = nullptr;
        bool started = false;
        bool ended = false;
    };
    struct Operation {
        std::unique_ptr<Flow> flow;  // or
        std::unique_ptr<Watch> watch;
    };

    void run();
    void sleep_until_appended();
    void take_appended();
    bool pass();
    bool progress(Watch& watch);
    void wait();
    void suffer();
    void* control(abi::EventState state);
    void brief(abi::EventState state);

    Profiler& profiler_;
    Faults& faults_;
    void* context_;
    int rank_;
    std::string communicator_;
    int wake_fd_;
    std::mutex mutex_;
    std::vector<ProxyRequest> appended_;
    bool quit_ = false;
    std::list<Operation> operations_;
    std::set<const NetworkLeg*> carried_;  // legs whose first operation this pass has seen
    bool posts_ = true;
    bool idle_ = true;
    std::thread thread_;
};

}  // namespace mycroft::testbed
