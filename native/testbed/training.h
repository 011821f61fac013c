// The main thread's loop: a training step after the other, each instruction on buffers of its own, the
// results checked at the end of the step, and the faults of the host's side.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "member.h"

namespace mycroft::testbed {

class Training {
  public:
    // `members` by number of the communicator, NULL where this rank is none.
    Training(int rank, const std::vector<Instruction>& programme,
             std::vector<std::unique_ptr<Member>>& members, Gpu& gpu, Faults& faults);

    // Runs until the step after `last`, which may be set while it runs.
    void run(const std::atomic<long>& last);

  private:
    struct Buffers {
        std::vector<float> input;
        std::vector<float> output;
        int tag = 0;  // the how manieth of its communicator, or of its pair, in the step
    };

    void step();
    void launch(size_t number);
    void suffer(const std::string& communicator);
    bool crossed(size_t number);
    void fill(size_t number);
    bool right(size_t number) const;
    void verify();
    void assign_tags();

    int rank_;
    const std::vector<Instruction>& programme_;
    std::vector<std::unique_ptr<Member>>& members_;
    Gpu& gpu_;
    Faults& faults_;
    std::vector<Buffers> buffers_;
    bool verifies_ = true;
    long step_ = 0;
};

}  // namespace mycroft::testbed
