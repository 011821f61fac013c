#include "gpu.h"

#include <algorithm>
#include <chrono>

#include "profiler.h"

namespace mycroft::testbed {
namespace {

constexpr int kNapMs = 500;  // only against a ring that is lost with its process

size_t actions_of(const Kernel& kernel) {
    size_t count = 0;
    for (const auto& part : kernel.parts) count += part.execution.work().actions.size();
    return count;
}

}  // namespace

void sleep_ms(double milliseconds) {
    if (milliseconds > 0)
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

Gpu::Gpu(Doorbell& bell, Faults& faults) : bell_(bell), faults_(faults), thread_([this] { run(); }) {}

Gpu::~Gpu() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        quit_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Gpu::compute(double milliseconds) {
    push({milliseconds, nullptr});
}

void Gpu::launch(std::shared_ptr<Kernel> kernel) {
    push({0, std::move(kernel)});
}

void Gpu::push(Item item) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stream_.push(std::move(item));
    }
    changed_.notify_all();
}

void Gpu::synchronize() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return stream_.empty() && !busy_; });
}

void Gpu::run() {
    for (;;) {
        Item item{};
        {
            std::unique_lock<std::mutex> lock(mutex_);
            busy_ = false;
            changed_.notify_all();
            changed_.wait(lock, [this] { return quit_ || !stream_.empty(); });
            if (stream_.empty()) return;
            item = std::move(stream_.front());
            stream_.pop();
            busy_ = true;
        }
        if (item.kernel != nullptr) {
            run_kernel(*item.kernel);
        } else {
            double slower = 1;
            if (const auto slow = faults_.lasting("slow-gpu", "")) slower = slow->value("factor", 4);
            if (const auto busy = faults_.lasting("background", ""))
                slower *= 1 / (1 - busy->value("share", 0.6));
            sleep_ms(item.milliseconds * slower);
        }
    }
}

void Gpu::run_kernel(Kernel& kernel) {
    if (faults_.take("stream-blocked", kernel.communicator)) {
        faults_.announce("stream-blocked");
        park();
    }
    for (const auto& launch : kernel.launches) {
        for (Block& block : launch->blocks) block.started.store(wall_ns(), std::memory_order_release);
    }
    kernel.tell_proxy();
    const bool hangs = faults_.take("gpu-hang", kernel.communicator).has_value();
    const size_t half = actions_of(kernel) / 2;
    double pause = 0;
    double pause_to_receive = 0;
    if (const auto slow = faults_.lasting("slow-copy", kernel.communicator)) pause = slow->value("ms", 5);
    if (const auto slow = faults_.lasting("slow-receiver", kernel.communicator))
        pause_to_receive = slow->value("ms", 5);
    size_t performed = 0;
    for (bool open = true; open;) {
        const uint32_t seen = bell_.rings.load();
        bool moved = false;
        open = false;
        for (auto& part : kernel.parts) {
            while (!part.execution.done() && part.execution.ready()) {
                if (hangs && performed >= half) {
                    faults_.announce("gpu-hang");
                    park();
                }
                sleep_ms(pause + (part.execution.receives_next() ? pause_to_receive : 0));
                part.execution.perform();
                ++performed;
                moved = true;
            }
            open = open || !part.execution.done();
        }
        if (moved) finish_blocks(kernel);
        if (open && !moved) bell_.wait(seen, kNapMs);
    }
    finish_blocks(kernel);
}

void Gpu::finish_blocks(Kernel& kernel) {
    bool told = false;
    for (const auto& launch : kernel.launches) {
        for (Block& block : launch->blocks) {
            const bool over = std::all_of(kernel.parts.begin(), kernel.parts.end(), [&](const auto& part) {
                return part.block != &block || part.execution.done();
            });
            if (!over || block.ended.load(std::memory_order_relaxed) != 0) continue;
            block.ended.store(wall_ns(), std::memory_order_release);
            told = true;
        }
    }
    if (told) kernel.tell_proxy();
}

}  // namespace mycroft::testbed
