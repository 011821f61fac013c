#include "flow.h"

#include <unistd.h>

#include <utility>

namespace mycroft::testbed {
namespace {

abi::StateArgs carrying(size_t bytes) {
    abi::StateArgs args{};
    args.step.trans_size = bytes;
    return args;
}

}  // namespace

Flow::Flow(Profiler& profiler, void* context, int rank, ProxyRequest request)
    : profiler_(profiler), context_(context), rank_(rank), request_(std::move(request)) {}

void Flow::announce() {
    abi::Descr6 descr = event(abi::kProxyOp, request_.launch->handle, rank_);
    descr.proxy_op.pid = getpid();
    descr.proxy_op.channel = static_cast<uint8_t>(request_.leg->channel);
    descr.proxy_op.peer = request_.leg->peer;
    descr.proxy_op.steps = request_.steps;
    descr.proxy_op.chunk = static_cast<int>(request_.leg->slot_bytes);
    descr.proxy_op.is_send = request_.send ? 1 : 0;
    handle_ = profiler_.start(context_, descr);
}

bool Flow::progress(bool posts) {
    bool moved = false;
    if (!begun_) {
        profiler_.state(handle_, abi::kOpInProgress, carrying(0));
        begun_ = moved = true;
    }
    moved = (request_.send ? progress_send() : progress_receive(posts)) || moved;
    if (finished()) {
        profiler_.stop(handle_);
        request_.leg->base += done_;
    }
    return moved;
}

void Flow::begin_step(uint64_t step) {
    abi::Descr6 descr = event(abi::kProxyStep, handle_, rank_);
    descr.proxy_step.step = static_cast<int>(step);
    steps_[step % kSlots] = profiler_.start(context_, descr);
}

void Flow::end_step() {
    profiler_.stop(std::exchange(steps_[done_ % kSlots], nullptr));
    ++done_;
}

bool Flow::progress_send() {
    NetworkLeg& leg = *request_.leg;
    Fifo& fifo = *leg.fifo;
    SendConnection& wire = *leg.sending;
    bool moved = false;
    if (posted_ < static_cast<uint64_t>(request_.steps) &&
        posted_ < done_ + static_cast<uint64_t>(request_.depth)) {
        begin_step(posted_);
        profiler_.state(steps_[posted_ % kSlots], abi::kStepSendGpuWait, carrying(0));
        fifo.granted.store(leg.base + ++posted_, std::memory_order_release);
        leg.ring_gpu();
        moved = true;
    }
    refused_ = false;
    if (transmitted_ < posted_ && fifo.written.load(std::memory_order_acquire) > leg.base + transmitted_) {
        const uint64_t step = leg.base + transmitted_;
        const size_t bytes = fifo.sizes[step % kSlots];
        void* const handle = steps_[transmitted_ % kSlots];
        profiler_.state(handle, abi::kStepSendPeerWait, carrying(0));
        if (wire.isend(fifo.slot(step, leg.slot_bytes), bytes)) {
            profiler_.state(handle, abi::kStepSendWait, carrying(bytes));
            ++transmitted_;
            moved = true;
        } else {
            refused_ = true;
        }
    }
    if (done_ < transmitted_ && wire.done() > leg.base + done_) {
        end_step();
        moved = true;
    }
    return moved;
}

bool Flow::progress_receive(bool posts) {
    NetworkLeg& leg = *request_.leg;
    Fifo& fifo = *leg.fifo;
    ReceiveConnection& wire = *leg.receiving;
    bool moved = false;
    if (posts && posted_ < static_cast<uint64_t>(request_.steps) &&
        posted_ < done_ + static_cast<uint64_t>(request_.depth)) {
        begin_step(posted_);
        wire.irecv(fifo.slot(leg.base + posted_, leg.slot_bytes), leg.slot_bytes);
        profiler_.state(steps_[posted_ % kSlots], abi::kStepRecvWait, carrying(0));
        ++posted_;
        moved = true;
    }
    if (received_ < posted_ && wire.received() > leg.base + received_) {
        const uint64_t step = leg.base + received_;
        fifo.sizes[step % kSlots] = static_cast<uint32_t>(wire.bytes(step));
        profiler_.state(steps_[received_ % kSlots], abi::kStepRecvFlushWait, carrying(wire.bytes(step)));
        ++received_;
        moved = true;
    }
    if (flushed_ < received_) {
        profiler_.state(steps_[flushed_ % kSlots], abi::kStepRecvGpuWait, carrying(0));
        fifo.written.store(leg.base + ++flushed_, std::memory_order_release);
        leg.ring_gpu();
        moved = true;
    }
    if (done_ < flushed_ && fifo.consumed.load(std::memory_order_acquire) > leg.base + done_) {
        end_step();
        moved = true;
    }
    return moved;
}

}  // namespace mycroft::testbed
