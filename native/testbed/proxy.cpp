#include "proxy.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "gpu.h"

namespace mycroft::testbed {
namespace {

constexpr int kCreditPollMs = 1;  // NCCL asks again at every pass, a million times a second
constexpr int kNapMs = 1000;

}  // namespace

Proxy::Proxy(Profiler& profiler, Faults& faults, void* context, int rank, std::string communicator)
    : profiler_(profiler),
      faults_(faults),
      context_(context),
      rank_(rank),
      communicator_(std::move(communicator)),
      wake_fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      thread_([this] { run(); }) {}

Proxy::~Proxy() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        quit_ = true;
    }
    wake();
    thread_.join();
    close(wake_fd_);
}

void Proxy::append(std::vector<ProxyRequest> requests) {
    if (requests.empty()) return;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto& request : requests) appended_.push_back(std::move(request));
    }
    wake();
}

void Proxy::wake() {
    eventfd_write(wake_fd_, 1);
}

void* Proxy::control(abi::EventState state) {
    void* const handle = profiler_.start(context_, event(abi::kProxyCtrl, nullptr));
    profiler_.state(handle, state, {});
    return handle;
}

void Proxy::brief(abi::EventState state) {
    profiler_.stop(control(state));
}

void Proxy::run() {
    brief(abi::kCtrlIdle);
    for (;;) {
        if (operations_.empty()) sleep_until_appended();
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (quit_ && appended_.empty() && operations_.empty()) return;
        }
        take_appended();
        suffer();
        const bool moved = pass();
        if (moved == idle_) brief(moved ? abi::kCtrlActive : abi::kCtrlIdle);
        idle_ = !moved;
        if (!moved && !operations_.empty()) wait();
    }
}

void Proxy::sleep_until_appended() {
    void* handle = nullptr;
    for (;;) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!appended_.empty() || quit_) break;
        }
        if (handle == nullptr) handle = control(abi::kCtrlSleep);
        pollfd waiting{wake_fd_, POLLIN, 0};
        poll(&waiting, 1, kNapMs);
        eventfd_t count = 0;
        eventfd_read(wake_fd_, &count);
    }
    profiler_.state(handle, abi::kCtrlWakeup, {});
    profiler_.stop(handle);
    idle_ = true;
}

void Proxy::take_appended() {
    std::vector<ProxyRequest> taken;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        taken.swap(appended_);
    }
    if (taken.empty()) return;
    void* const handle = control(abi::kCtrlAppend);
    for (auto& request : taken) {
        Operation made;
        if (request.leg != nullptr) {
            made.flow = std::make_unique<Flow>(profiler_, context_, rank_, std::move(request));
            made.flow->announce();
        } else {
            made.watch = std::make_unique<Watch>();
            made.watch->request = std::move(request);
        }
        operations_.push_back(std::move(made));
    }
    abi::StateArgs args{};
    args.ctrl.appended = static_cast<int>(taken.size());
    profiler_.state(handle, abi::kCtrlAppendEnd, args);
    profiler_.stop(handle);
}

bool Proxy::pass() {
    bool moved = false;
    carried_.clear();
    for (auto at = operations_.begin(); at != operations_.end();) {
        bool over = false;
        if (at->flow != nullptr) {
            if (carried_.insert(&at->flow->leg()).second) {
                moved = at->flow->progress(posts_) || moved;
                over = at->flow->finished();
            }
        } else {
            moved = progress(*at->watch) || moved;
            over = at->watch->ended;
        }
        at = over ? operations_.erase(at) : std::next(at);
    }
    return moved;
}

bool Proxy::progress(Watch& watch) {
    Block& block = *watch.request.block;
    bool moved = false;
    if (const uint64_t at = block.started.load(std::memory_order_acquire); at != 0 && !watch.started) {
        abi::Descr6 descr = event(abi::kKernelCh, watch.request.launch->handle);
        descr.kernel.channel = static_cast<uint8_t>(block.channel);
        descr.kernel.timer = at;
        watch.handle = profiler_.start(context_, descr);
        watch.started = moved = true;
    }
    if (const uint64_t at = block.ended.load(std::memory_order_acquire); at != 0 && watch.started) {
        abi::StateArgs args{};
        args.kernel.timer = at;
        profiler_.state(watch.handle, abi::kKernelChStop, args);
        profiler_.stop(watch.handle);
        watch.ended = moved = true;
    }
    return moved;
}

void Proxy::wait() {
    std::vector<pollfd> waiting{{wake_fd_, POLLIN, 0}};
    int limit = kNapMs;
    carried_.clear();
    for (const auto& operation : operations_) {
        if (operation.flow == nullptr || !carried_.insert(&operation.flow->leg()).second) continue;
        const NetworkLeg& leg = operation.flow->leg();
        if (leg.sending != nullptr) {
            const SendConnection& wire = *leg.sending;
            if (operation.flow->awaits_credit() || wire.held_back()) limit = kCreditPollMs;
            if (wire.wants_write() && !wire.held_back()) waiting.push_back({wire.fd(), POLLOUT, 0});
            if (wire.broken()) park();  // NCCL's proxy ends here, and whatever is open stays open
        } else {
            const ReceiveConnection& wire = *leg.receiving;
            const short events = static_cast<short>((operation.flow->receives_next() ? POLLIN : 0) |
                                                    (wire.wants_write() ? POLLOUT : 0));
            if (events != 0) waiting.push_back({wire.fd(), events, 0});
            if (wire.broken()) park();
        }
    }
    poll(waiting.data(), waiting.size(), limit);
    eventfd_t count = 0;
    eventfd_read(wake_fd_, &count);
}

void Proxy::suffer() {
    if (faults_.take("proxy-stuck", communicator_)) {
        faults_.announce("proxy-stuck");
        park();
    }
    if (posts_ && faults_.lasting("not-posting", communicator_)) posts_ = false;
    for (const auto& operation : operations_) {
        if (operation.flow == nullptr) continue;
        NetworkLeg& leg = const_cast<NetworkLeg&>(operation.flow->leg());
        if (leg.receiving != nullptr && faults_.take("lost-credit", communicator_)) {
            leg.receiving->lose_credit();
            faults_.announce("lost-credit");
        }
        if (leg.sending == nullptr) continue;
        if (const auto slow = faults_.lasting("slow-channel", communicator_);
            slow && leg.channel == static_cast<int>(slow->value("channel", 0)))
            leg.sending->limit(slow->value("rate", 200'000));
    }
    if (const auto delay = faults_.lasting("proxy-delay", communicator_)) {
        if (std::rand() < delay->value("p", 0.1) * RAND_MAX) sleep_ms(delay->value("ms", 20));
    }
}

}  // namespace mycroft::testbed
