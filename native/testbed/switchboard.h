// What passes between two hosts on loopback: which links are cut, how fast a host may send and receive, and
// how fast a link passes each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace mycroft::testbed {

class Switchboard {
  public:
    explicit Switchboard(size_t hosts) : hosts_(hosts) {}

    void cut_link(int a, int b) { cut_.insert({a, b}), cut_.insert({b, a}); }
    void restore_link(int a, int b) { cut_.erase({a, b}), cut_.erase({b, a}); }
    void cut_host(int host, bool cut) { hosts_[static_cast<size_t>(host)].cut = cut; }
    // Bytes a second that the host sends, that it receives, that a link passes each way; 0: no limit.
    void limit(int host, double rate) { hosts_[static_cast<size_t>(host)].sends.rate = rate; }
    void limit_received(int host, double rate) { hosts_[static_cast<size_t>(host)].receives.rate = rate; }
    void limit_link(int a, int b, double rate) { links_[{a, b}].rate = links_[{b, a}].rate = rate; }

    bool passes(int from, int to) const {
        return !hosts_[static_cast<size_t>(from)].cut && !hosts_[static_cast<size_t>(to)].cut &&
               cut_.count({from, to}) == 0;
    }
    // How many of the bytes may pass from one host to the other now.
    size_t allowance(int from, int to, size_t wanted, int64_t now_ns);
    void sent(int from, int to, size_t bytes);

  private:
    struct Bucket {
        double rate = 0;
        double budget = 0;
        int64_t filled_at = 0;
    };
    struct Host {
        bool cut = false;
        Bucket sends;
        Bucket receives;
    };
    // Those that what passes between the two has to pass.
    std::vector<Bucket*> buckets(int from, int to);

    std::vector<Host> hosts_;
    std::set<std::pair<int, int>> cut_;
    std::map<std::pair<int, int>, Bucket> links_;
};

}  // namespace mycroft::testbed
