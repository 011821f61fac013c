#include "layout.h"

#include <algorithm>
#include <functional>
#include <map>

namespace mycroft::testbed {
namespace {

std::vector<std::vector<int>> ranks_by_host(const Plan& plan, const Communicator& communicator) {
    std::vector<std::vector<int>> groups;
    std::map<int, size_t> known;
    for (int rank = 0; rank < communicator.size(); ++rank) {
        const auto [place, fresh] = known.emplace(plan.host_of(communicator, rank), groups.size());
        if (fresh) groups.emplace_back();
        groups[place->second].push_back(rank);
    }
    return groups;
}

void add_tree(const Plan& plan, const Communicator& communicator, int number, int channel,
              const std::function<void(Leg)>& add) {
    const auto tree = tree_of(plan, communicator, channel);
    for (int rank = 0; rank < communicator.size(); ++rank) {
        const int parent = tree[static_cast<size_t>(rank)].parent;
        if (parent < 0) continue;
        add({number, channel, LegKind::tree_up, rank, parent, false, 0});
        add({number, channel, LegKind::tree_down, parent, rank, false, 0});
    }
}

}  // namespace

std::vector<int> ring_order(const Plan& plan, const Communicator& communicator) {
    std::vector<int> order;
    for (const auto& group : ranks_by_host(plan, communicator))
        order.insert(order.end(), group.begin(), group.end());
    return order;
}

std::vector<TreePlace> tree_of(const Plan& plan, const Communicator& communicator, int channel) {
    const auto hosts = ranks_by_host(plan, communicator);
    std::vector<TreePlace> tree(static_cast<size_t>(communicator.size()));
    const auto join = [&tree](int parent, int child) {
        tree[static_cast<size_t>(child)].parent = parent;
        tree[static_cast<size_t>(parent)].children.push_back(child);
    };
    const auto group = [&](size_t place) -> const std::vector<int>& {
        return hosts[(place + static_cast<size_t>(channel)) % hosts.size()];
    };
    for (const auto& ranks : hosts) {
        for (size_t at = 1; at < ranks.size(); ++at) join(ranks[at - 1], ranks[at]);
    }
    // The host in the middle of a range is above both halves.
    const std::function<size_t(size_t, size_t)> build = [&](size_t begin, size_t end) {
        const size_t middle = begin + (end - begin) / 2;
        const auto& here = group(middle);
        if (middle > begin) join(here.front(), group(build(begin, middle)).front());
        if (middle + 1 < end) {
            join(here[std::min<size_t>(1, here.size() - 1)], group(build(middle + 1, end)).front());
        }
        return middle;
    };
    build(0, hosts.size());
    return tree;
}

int host_count(const Plan& plan, const Communicator& communicator) {
    return static_cast<int>(ranks_by_host(plan, communicator).size());
}

int pair_channel(const Communicator& communicator, int from, int to, int channels) {
    return (to - from + communicator.size()) % communicator.size() % channels;
}

std::vector<Leg> legs_of(const Plan& plan) {
    std::vector<Leg> legs;
    std::map<int, int> places;
    const auto add = [&](Leg leg) {
        const auto& communicator = plan.communicators[static_cast<size_t>(leg.communicator)];
        const int host = plan.host_of(communicator, leg.from);
        leg.local = host == plan.host_of(communicator, leg.to);
        leg.place = leg.local ? places[host]++ : -1;
        legs.push_back(leg);
    };
    for (int number = 0; number < static_cast<int>(plan.communicators.size()); ++number) {
        const auto& communicator = plan.communicators[static_cast<size_t>(number)];
        if (communicator.size() < 2) continue;
        const auto order = ring_order(plan, communicator);
        for (int channel = 0; channel < plan.channels; ++channel) {
            for (size_t at = 0; at < order.size(); ++at)
                add({number, channel, LegKind::ring, order[at], order[(at + 1) % order.size()], false, 0});
            if (communicator.algorithm == Algorithm::tree) add_tree(plan, communicator, number, channel, add);
        }
        for (const auto& [from, to] : communicator.pairs)
            add({number, pair_channel(communicator, from, to, plan.channels), LegKind::pair, from, to, false,
                 0});
    }
    return legs;
}

int local_legs(const Plan& plan, const std::vector<Leg>& legs, int host) {
    return static_cast<int>(std::count_if(legs.begin(), legs.end(), [&](const Leg& leg) {
        return leg.local &&
               plan.host_of(plan.communicators[static_cast<size_t>(leg.communicator)], leg.from) == host;
    }));
}

}  // namespace mycroft::testbed
