#include "execution.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mycroft::testbed {

Execution::Execution(Work work, std::vector<ReceiveEnd*> from, std::vector<SendEnd*> to, const float* input,
                     float* output)
    : work_(std::move(work)), from_(std::move(from)), to_(std::move(to)), input_(input), output_(output) {}

bool Execution::ready() const {
    const Action& action = work_.actions[next_];
    if (action.receive &&
        !std::all_of(from_.begin(), from_.end(), [](const ReceiveEnd* end) { return end->may_read(); }))
        return false;
    return !action.send || std::all_of(to_.begin(), to_.end(),
                                       [this](const SendEnd* end) { return end->may_write(work_.depth); });
}

void Execution::perform() {
    const Action& action = work_.actions[next_++];
    const bool sends = action.send && !to_.empty();
    float* const target = action.target != Action::kNone ? output_ + action.target : nullptr;
    float* const into = sends ? reinterpret_cast<float*>(to_.front()->slot()) : target;
    size_t written = 0;  // elements of `into` that hold something
    if (action.source != Action::kNone && action.count > 0) {
        std::memcpy(into, input_ + action.source, action.count * sizeof(float));
        written = action.count;
    }
    if (action.receive) {
        for (ReceiveEnd* end : from_) {
            // A peer that called the operation differently sends another size.
            const size_t count = std::min(action.count, end->bytes() / sizeof(float));
            const float* const data = reinterpret_cast<const float*>(end->slot());
            const size_t common = std::min(written, count);
            for (size_t i = 0; i < common; ++i) into[i] += data[i];
            if (count > written) {
                std::memcpy(into + written, data + written, (count - written) * sizeof(float));
                written = count;
            }
        }
    }
    if (sends) {
        if (target != nullptr && written > 0) std::memcpy(target, into, written * sizeof(float));
        for (size_t at = 1; at < to_.size(); ++at) {
            if (written > 0) std::memcpy(to_[at]->slot(), into, written * sizeof(float));
        }
        for (SendEnd* end : to_) end->write(action.count * sizeof(float));
    }
    if (action.receive) {
        for (ReceiveEnd* end : from_) end->consume();
    }
}

}  // namespace mycroft::testbed
