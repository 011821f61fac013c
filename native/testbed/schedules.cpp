#include "schedules.h"

#include <algorithm>

namespace mycroft::testbed {
namespace {

constexpr size_t kNone = Action::kNone;

size_t quotient_up(size_t count, size_t parts) {
    return (count + parts - 1) / parts;
}

struct Range {
    size_t begin;
    size_t end;
};

Range part_of(size_t count, int part, int parts) {
    const size_t each = quotient_up(count, static_cast<size_t>(parts));
    const size_t begin = std::min(count, each * static_cast<size_t>(part));
    return {begin, std::min(count, begin + each)};
}

// A ring's work: chunks of two slices.
class RingWork {
  public:
    RingWork(const std::vector<int>& order, int rank, int channel, size_t slice)
        : order_(order), slice_(slice) {
        size_ = order.size();
        at_ = static_cast<size_t>(std::find(order.begin(), order.end(), rank) - order.begin());
        work.channel = channel;
        work.depth = kRingDepth;
        work.from = {{LegKind::ring, order[(at_ + size_ - 1) % size_]}};
        work.to = {{LegKind::ring, order[(at_ + 1) % size_]}};
    }

    void all_reduce(Range range) {
        for (size_t base = range.begin; base < range.end;) {
            const size_t chunk = std::min(2 * slice_, quotient_up(range.end - base, size_));
            const auto reduce = [&](size_t back, bool receive, bool keep) {
                const size_t begin = std::min(range.end, base + block(back) * chunk);
                const size_t count = std::min(chunk, range.end - begin);
                add({receive, true, begin, keep ? begin : kNone, count}, chunk);
            };
            const auto gather = [&](size_t back, bool send) {
                const size_t begin = std::min(range.end, base + block(back) * chunk);
                add({true, send, kNone, begin, std::min(chunk, range.end - begin)}, chunk);
            };
            reduce(0, false, false);
            for (size_t back = 1; back + 1 < size_; ++back) reduce(back, true, false);
            reduce(size_ - 1, true, true);
            for (size_t back = size_; back + 2 < 2 * size_; ++back) gather(back, true);
            gather(2 * size_ - 2, false);
            base += chunk * size_;
        }
    }

    void reduce_scatter(Range range, size_t count) {
        each_chunk(range, [&](size_t offset, size_t chunk, size_t size) {
            for (size_t back = 1; back <= size_; ++back) {
                const bool last = back == size_;
                add({back > 1, !last, owner(back) * count + offset, last ? offset : kNone, size}, chunk);
            }
        });
    }

    void all_gather(Range range, size_t count) {
        each_chunk(range, [&](size_t offset, size_t chunk, size_t size) {
            for (size_t back = 0; back < size_; ++back) {
                const size_t target = owner(back) * count + offset;
                add({back > 0, back + 1 < size_, back == 0 ? offset : kNone, target, size}, chunk);
            }
        });
    }

    void broadcast(Range range, int root) {
        const auto root_at =
            static_cast<size_t>(std::find(order_.begin(), order_.end(), root) - order_.begin());
        const size_t distance = (at_ + size_ - root_at) % size_;
        work.depth = kOtherDepth;
        for (size_t offset = range.begin; offset < range.end; offset += slice_) {
            const size_t count = std::min(slice_, range.end - offset);
            work.actions.push_back(
                {distance > 0, distance + 1 < size_, distance == 0 ? offset : kNone, offset, count});
        }
    }

    Work work;

  private:
    // The block that is `back` places behind this rank's own, and the rank whose place that is.
    size_t block(size_t back) const { return (at_ + 2 * size_ - back) % size_; }
    size_t owner(size_t back) const { return static_cast<size_t>(order_[block(back)]); }

    template <class Function>
    void each_chunk(Range range, const Function& function) {
        for (size_t offset = range.begin; offset < range.end;) {
            const size_t chunk = std::min(2 * slice_, range.end - offset);
            function(offset, chunk, chunk);
            offset += chunk;
        }
    }

    // Both slices of a chunk; the second carries what the first has left, often nothing.
    void add(Action action, size_t chunk) {
        const size_t slice = std::max(quotient_up(chunk, 2), slice_ / 2);
        const size_t total = action.count;
        action.count = std::min(slice, total);
        work.actions.push_back(action);
        if (action.source != kNone) action.source += action.count;
        if (action.target != kNone) action.target += action.count;
        action.count = total - action.count;
        work.actions.push_back(action);
    }

    const std::vector<int>& order_;
    size_t slice_;
    size_t size_;
    size_t at_;
};

// Up to the root and down again; at the root both are one.
void add_tree(std::vector<Work>& works, const TreePlace& place, int channel, Range range, size_t slice) {
    Work up;
    Work down;
    up.channel = down.channel = channel;
    const bool root = place.parent < 0;
    for (const int child : place.children) {
        up.from.push_back({LegKind::tree_up, child});
        (root ? up : down).to.push_back({LegKind::tree_down, child});
    }
    if (!root) {
        up.to = {{LegKind::tree_up, place.parent}};
        down.from = {{LegKind::tree_down, place.parent}};
    }
    for (size_t offset = range.begin; offset < range.end; offset += slice) {
        const size_t count = std::min(slice, range.end - offset);
        up.actions.push_back({!up.from.empty(), true, offset, root ? offset : kNone, count});
        down.actions.push_back({true, !down.to.empty(), kNone, offset, count});
    }
    works.push_back(std::move(up));
    if (!root) works.push_back(std::move(down));
}

Work pair_work(int channel, size_t count, size_t slice, Action action) {
    Work work;
    work.channel = channel;
    size_t offset = 0;
    do {  // nothing to carry is a step too
        action.count = std::min(slice, count - offset);
        (action.send ? action.source : action.target) = offset;
        work.actions.push_back(action);
        offset += slice;
    } while (offset < count);
    return work;
}

int steps(const std::vector<Action>& actions, bool Action::* wanted) {
    return static_cast<int>(
        std::count_if(actions.begin(), actions.end(), [&](const Action& one) { return one.*wanted; }));
}

}  // namespace

int Work::steps_received() const {
    return steps(actions, &Action::receive);
}

int Work::steps_sent() const {
    return steps(actions, &Action::send);
}

int channels_used(size_t count, int channels) {
    return count <= kSmall ? 1 : channels;
}

std::vector<Work> collective(const Plan& plan, const Communicator& communicator, int rank, Func func,
                             int root, size_t count) {
    const size_t slice = plan.slot_bytes / sizeof(float);
    const auto order = ring_order(plan, communicator);
    const int channels = channels_used(count, plan.channels);
    std::vector<Work> works;
    for (int channel = 0; channel < channels; ++channel) {
        const Range range = part_of(count, channel, channels);
        if (range.begin == range.end) continue;
        if (func == Func::all_reduce && communicator.algorithm == Algorithm::tree) {
            const auto tree = tree_of(plan, communicator, channel);
            add_tree(works, tree[static_cast<size_t>(rank)], channel, range, slice);
            continue;
        }
        RingWork ring(order, rank, channel, slice);
        if (func == Func::all_reduce) ring.all_reduce(range);
        if (func == Func::reduce_scatter) ring.reduce_scatter(range, count);
        if (func == Func::all_gather) ring.all_gather(range, count);
        if (func == Func::broadcast) ring.broadcast(range, root);
        works.push_back(std::move(ring.work));
    }
    return works;
}

Work sending(int channel, int peer, size_t count, size_t slice) {
    Work work = pair_work(channel, count, slice, {false, true, kNone, kNone, 0});
    work.to = {{LegKind::pair, peer}};
    return work;
}

Work receiving(int channel, int peer, size_t count, size_t slice) {
    Work work = pair_work(channel, count, slice, {true, false, kNone, kNone, 0});
    work.from = {{LegKind::pair, peer}};
    return work;
}

}  // namespace mycroft::testbed
