// The "GPU": a thread that runs what is queued on one stream, in order. A kernel's thread blocks run side by
// side; where none can go on, it sleeps until a leg rings.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <vector>

#include "doorbell.h"
#include "execution.h"
#include "faults.h"
#include "launch.h"

namespace mycroft::testbed {

struct Kernel {
    struct Part {
        Execution execution;
        Block* block;
    };
    std::string communicator;
    std::vector<Part> parts;
    std::vector<std::shared_ptr<Launch>> launches;
    std::function<void()> tell_proxy;
};

class Gpu {
  public:
    Gpu(Doorbell& bell, Faults& faults);
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    void compute(double milliseconds);
    void launch(std::shared_ptr<Kernel> kernel);
    // Returns when all that was queued has ended.
    void synchronize();
    Doorbell& bell() { return bell_; }

  private:
    struct Item {
        double milliseconds;
        std::shared_ptr<Kernel> kernel;
    };
    void push(Item item);
    void run();
    void run_kernel(Kernel& kernel);
    void finish_blocks(Kernel& kernel);

    Doorbell& bell_;
    Faults& faults_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::queue<Item> stream_;
    bool busy_ = false;
    bool quit_ = false;
    std::thread thread_;
};

void sleep_ms(double milliseconds);

}  // namespace mycroft::testbed
