// A work under way: its actions on real ends and buffers, one at a time, never waiting.
#pragma once

#include <vector>

#include "fifo.h"
#include "schedules.h"

namespace mycroft::testbed {

class Execution {
  public:
    Execution(Work work, std::vector<ReceiveEnd*> from, std::vector<SendEnd*> to, const float* input,
              float* output);

    const Work& work() const { return work_; }
    bool done() const { return next_ == work_.actions.size(); }
    bool receives_next() const { return work_.actions[next_].receive; }
    // Whether everything is there that the next action needs.
    bool ready() const;
    // Does the next action; it has to be ready.
    void perform();

  private:
    Work work_;
    std::vector<ReceiveEnd*> from_;
    std::vector<SendEnd*> to_;
    const float* input_;
    float* output_;
    size_t next_ = 0;
};

}  // namespace mycroft::testbed
