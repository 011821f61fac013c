#include "training.h"

#include <unistd.h>

#include <algorithm>
#include <tuple>

namespace mycroft::testbed {
namespace {

using Kind = Instruction::Kind;

constexpr size_t kPeriod = 32;  // of the pattern; its sums over any number of ranks are exact in a float

size_t seed_of(int world_rank, long step, int tag) {
    return static_cast<size_t>(world_rank) * 5 + static_cast<size_t>(step) * 3 + static_cast<size_t>(tag) * 7;
}

float pattern(size_t seed, size_t i) {
    return static_cast<float>((seed + i) % kPeriod);
}

void write_pattern(float* into, size_t count, size_t seed) {
    for (size_t i = 0; i < count; ++i) into[i] = pattern(seed, i);
}

bool is_pattern(const float* data, size_t count, size_t seed) {
    for (size_t i = 0; i < count; ++i) {
        if (data[i] != pattern(seed, i)) return false;
    }
    return true;
}

// The sum of the patterns of all ranks, from the element `offset` of their input on.
bool is_sum(const float* data, size_t count, size_t offset, const Communicator& of, long step, int tag) {
    float sums[kPeriod] = {};
    for (const int member : of.members) {
        for (size_t i = 0; i < kPeriod; ++i) sums[i] += pattern(seed_of(member, step, tag), i);
    }
    for (size_t i = 0; i < count; ++i) {
        if (data[i] != sums[(offset + i) % kPeriod]) return false;
    }
    return true;
}

// From 0 to 1, the same in each run.
double share_of(int rank, long step, size_t number) {
    auto mixed = static_cast<uint64_t>(rank) * 1'000'003 + static_cast<uint64_t>(step) * 8191 + number;
    mixed *= 0x9E3779B97F4A7C15;
    return static_cast<double>(mixed >> 40) / static_cast<double>(1 << 24);
}

size_t block_seed(int from, int to) {
    return static_cast<size_t>(from) * 11 + static_cast<size_t>(to) * 13;
}

}  // namespace

Training::Training(int rank, const std::vector<Instruction>& programme,
                   std::vector<std::unique_ptr<Member>>& members, Gpu& gpu, Faults& faults)
    : rank_(rank),
      programme_(programme),
      members_(members),
      gpu_(gpu),
      faults_(faults),
      buffers_(programme.size()) {
    for (size_t number = 0; number < programme.size(); ++number) {
        const Instruction& one = programme[number];
        if (!one.communicates()) continue;
        const size_t size = static_cast<size_t>(members[static_cast<size_t>(one.communicator)]->size());
        const bool wide_in = one.kind == Kind::all_to_all || one.func == Func::reduce_scatter;
        const bool wide_out = one.kind == Kind::all_to_all || one.func == Func::all_gather;
        const bool coll = one.kind == Kind::coll || one.kind == Kind::all_to_all;
        if (one.kind != Kind::recv)
            buffers_[number].input.resize(coll && wide_in ? one.count * size : one.count);
        if (one.kind != Kind::send)
            buffers_[number].output.resize(coll && wide_out ? one.count * size : one.count);
    }
    assign_tags();
}

void Training::assign_tags() {
    std::map<std::tuple<int, Kind, int>, int> seen;
    for (size_t number = 0; number < programme_.size(); ++number) {
        const Instruction& one = programme_[number];
        if (!one.communicates()) continue;
        const bool pair = one.kind == Kind::send || one.kind == Kind::recv;
        buffers_[number].tag = seen[{one.communicator, pair ? one.kind : Kind::coll, pair ? one.peer : -1}]++;
    }
}

void Training::run(const std::atomic<long>& last) {
    for (step_ = 0; step_ <= last.load(); ++step_) {
        faults_.at_step(step_);
        step();
        report("step " + std::to_string(step_));
    }
}

void Training::step() {
    if (const auto late = faults_.lasting("late-every", "")) {
        if (step_ % std::max(1L, static_cast<long>(late->value("n", 5))) == 0)
            sleep_ms(late->value("ms", 300));
    }
    for (size_t number = 0; number < programme_.size(); ++number) {
        const Instruction& one = programme_[number];
        if (!one.due(step_)) continue;
        if (one.kind == Kind::host) {
            sleep_ms(one.milliseconds);
        } else if (one.kind == Kind::uneven) {
            gpu_.compute(one.milliseconds * share_of(rank_, step_, number));
        } else if (one.kind == Kind::compute) {
            gpu_.compute(one.milliseconds);
        } else if (crossed(number)) {
            launch(number + 1);
            launch(number++);
        } else {
            launch(number);
        }
    }
    gpu_.synchronize();
    verify();
}

// Whether this operation and the next one, of another communicator with members in common, change places.
bool Training::crossed(size_t number) {
    if (number + 1 == programme_.size() || !programme_[number + 1].communicates()) return false;
    if (!programme_[number + 1].due(step_)) return false;
    const auto& here = members_[static_cast<size_t>(programme_[number].communicator)]->communicator();
    const auto& next = members_[static_cast<size_t>(programme_[number + 1].communicator)]->communicator();
    if (&here == &next) return false;
    const auto common = std::count_if(here.members.begin(), here.members.end(),
                                      [&](int member) { return next.rank_of(member) >= 0; });
    if (common < 2 || !faults_.take("crossed", here.name)) return false;
    faults_.announce("crossed");
    return true;
}

void Training::suffer(const std::string& communicator) {
    for (const char* const name : {"late-launch", "outside-nccl"}) {
        if (faults_.take(name, communicator)) {
            faults_.announce(name);
            park();
        }
    }
    if (const auto crash = faults_.take("crash", communicator)) {
        faults_.announce("crash");
        sleep_ms(1000 * crash->value("after", 10));
        _exit(1);
    }
}

void Training::launch(size_t number) {
    const Instruction& one = programme_[number];
    Member& member = *members_[static_cast<size_t>(one.communicator)];
    Buffers& buffers = buffers_[number];
    suffer(member.communicator().name);
    size_t count = one.count;
    if (one.kind == Kind::coll && faults_.take("mismatch", member.communicator().name)) {
        faults_.announce("mismatch");
        count /= 2;
        verifies_ = false;
    }
    if (faults_.take("skip", member.communicator().name)) {
        faults_.announce("skip");
        verifies_ = false;
        return;
    }
    fill(number);
    if (one.kind == Kind::coll) {
        member.collective(one.func, one.peer, count, buffers.input.data(), buffers.output.data());
    } else if (one.kind == Kind::send || one.kind == Kind::recv) {
        const bool send = one.kind == Kind::send;
        member.group({{send, one.peer, count, send ? buffers.input.data() : buffers.output.data()}});
    } else {
        std::vector<PairCall> calls;
        for (int turn = 0; turn < member.size(); ++turn) {
            const int to = (member.rank() + turn) % member.size();
            const int from = (member.rank() - turn + member.size()) % member.size();
            calls.push_back({true, to, count, buffers.input.data() + static_cast<size_t>(to) * count});
            calls.push_back({false, from, count, buffers.output.data() + static_cast<size_t>(from) * count});
        }
        member.group(calls);
    }
}

void Training::fill(size_t number) {
    const Instruction& one = programme_[number];
    Buffers& buffers = buffers_[number];
    const Member& member = *members_[static_cast<size_t>(one.communicator)];
    const int world = member.communicator().members[static_cast<size_t>(member.rank())];
    const size_t seed = seed_of(world, step_, buffers.tag);
    std::fill(buffers.output.begin(), buffers.output.end(), -1.0F);
    if (one.kind == Kind::all_to_all) {
        for (int to = 0; to < member.size(); ++to) {
            write_pattern(buffers.input.data() + static_cast<size_t>(to) * one.count, one.count,
                          block_seed(member.rank(), to) + static_cast<size_t>(step_));
        }
    } else {
        write_pattern(buffers.input.data(), buffers.input.size(), seed);
    }
}

bool Training::right(size_t number) const {
    const Instruction& one = programme_[number];
    const Buffers& buffers = buffers_[number];
    const Member& member = *members_[static_cast<size_t>(one.communicator)];
    const Communicator& communicator = member.communicator();
    const float* const data = buffers.output.data();
    const auto seed = [&](int rank) {
        return seed_of(communicator.members[static_cast<size_t>(rank)], step_, buffers.tag);
    };
    const auto block = [&](int rank) { return data + static_cast<size_t>(rank) * one.count; };
    if (one.kind == Kind::send) return true;
    if (one.kind == Kind::recv) return is_pattern(data, one.count, seed(one.peer));
    if (one.kind == Kind::all_to_all) {
        for (int from = 0; from < member.size(); ++from) {
            const size_t wanted = block_seed(from, member.rank()) + static_cast<size_t>(step_);
            if (!is_pattern(block(from), one.count, wanted)) return false;
        }
        return true;
    }
    switch (one.func) {
        case Func::all_reduce:
            return is_sum(data, one.count, 0, communicator, step_, buffers.tag);
        case Func::reduce_scatter:
            return is_sum(data, one.count, static_cast<size_t>(member.rank()) * one.count, communicator,
                          step_, buffers.tag);
        case Func::broadcast:
            return is_pattern(data, one.count, seed(one.peer));
        case Func::all_gather:
            for (int rank = 0; rank < member.size(); ++rank) {
                if (!is_pattern(block(rank), one.count, seed(rank))) return false;
            }
            return true;
    }
    return false;
}

void Training::verify() {
    for (size_t number = 0; number < programme_.size() && verifies_; ++number) {
        if (!programme_[number].communicates() || !programme_[number].due(step_)) continue;
        if (right(number)) continue;
        const auto& name =
            members_[static_cast<size_t>(programme_[number].communicator)]->communicator().name;
        report("wrong step " + std::to_string(step_) + " instruction " + std::to_string(number) + " of " +
               name);
        verifies_ = false;
    }
}

}  // namespace mycroft::testbed
