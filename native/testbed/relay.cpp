// The network between hosts on loopback. Ranks of other hosts are connected through this process, which reads
// the hello of each connection and passes both directions on as far as the switchboard lets it.
//
//     relay FD HOST:PORT…      the listening socket, then host and port of each rank
//
// Commands on standard input: `link-down A B` · `link-up A B` · `host-down A` · `host-up A` · `rate A BYTES`
// (what it sends) · `rate-in A BYTES` · `link-rate A B BYTES` · `ward PID…`; each is answered by
// `done MONOTONIC-NS`. When standard input ends the starter is gone: wards, some of which may be stopped, are
// killed.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "faults.h"
#include "profiler.h"
#include "rank.h"
#include "switchboard.h"
#include "transport.h"

namespace mycroft::testbed {
namespace {

constexpr size_t kBuffer = 16 * 1024;

struct Target {
    int host;
    int port;
};

// One direction of a connection.
struct Direction {
    int from_fd;
    int to_fd;
    int from_host;
    int to_host;
    char buffer[kBuffer];
    size_t begin = 0;
    size_t end = 0;
};

struct Connection {
    Direction there;
    Direction back;
    bool over = false;
};

class Relay {
  public:
    Relay(int listener, std::vector<Target> targets, size_t hosts)
        : listener_(listener), targets_(std::move(targets)), board_(hosts) {
        fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
        fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    }

    int run() {
        for (;;) {
            held_back_ = false;
            waiting_ = {{STDIN_FILENO, POLLIN, 0}, {listener_, POLLIN, 0}};
            ways_.clear();
            for (const auto& one : connections_) {
                watch(*one, one->there);
                watch(*one, one->back);
            }
            poll(waiting_.data(), waiting_.size(), held_back_ ? 2 : -1);
            if (waiting_[0].revents != 0 && !read_commands()) return end_wards();
            if (waiting_[1].revents != 0) accept_all();
            bool closed = false;
            for (size_t at = 0; at < ways_.size(); ++at) {
                const auto [connection, way] = ways_[at];
                if (waiting_[at + 2].revents == 0 || connection->over || move(*way)) continue;
                close_both(*connection);
                closed = true;
            }
            if (!closed) continue;
            connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                              [](const auto& one) { return one->over; }),
                               connections_.end());
        }
    }

  private:
    void watch(Connection& connection, Direction& way) {
        if (!board_.passes(way.from_host, way.to_host)) return;
        pollfd wanted{way.from_fd, POLLIN, 0};
        if (way.begin != way.end) {
            if (board_.allowance(way.from_host, way.to_host, 1, monotonic_ns()) == 0) {
                held_back_ = true;
                return;
            }
            wanted = {way.to_fd, POLLOUT, 0};
        }
        waiting_.push_back(wanted);
        ways_.emplace_back(&connection, &way);
    }

    // False: the connection is over.
    bool move(Direction& way) {
        if (!board_.passes(way.from_host, way.to_host)) return true;
        if (way.begin == way.end) {
            const ssize_t count = recv(way.from_fd, way.buffer, sizeof way.buffer, MSG_DONTWAIT);
            if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return false;
            way.begin = 0;
            way.end = count > 0 ? static_cast<size_t>(count) : 0;
        }
        if (way.begin == way.end) return true;
        const size_t allowed =
            board_.allowance(way.from_host, way.to_host, way.end - way.begin, monotonic_ns());
        if (allowed == 0) return true;
        const ssize_t count = send(way.to_fd, way.buffer + way.begin, allowed, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count < 0) return errno == EAGAIN || errno == EINTR;
        way.begin += static_cast<size_t>(count);
        board_.sent(way.from_host, way.to_host, static_cast<size_t>(count));
        return true;
    }

    void close_both(Connection& one) {
        close(one.there.from_fd);
        close(one.there.to_fd);
        one.over = true;
    }

    void accept_all() {
        for (int fd = 0; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
            Hello hello;
            if (!read_all(fd, &hello, sizeof hello) || hello.to >= targets_.size() ||
                hello.from >= targets_.size()) {
                close(fd);
                continue;
            }
            const Target& from = targets_[hello.from];
            const Target& to = targets_[hello.to];
            const int onward = connect_to("127.0.0.1", to.port, 5000);
            write_all(onward, &hello, sizeof hello);
            make_ready(fd);
            make_ready(onward);
            auto made = std::make_unique<Connection>();
            made->there.from_fd = made->back.to_fd = fd;
            made->there.to_fd = made->back.from_fd = onward;
            made->there.from_host = made->back.to_host = from.host;
            made->there.to_host = made->back.from_host = to.host;
            connections_.push_back(std::move(made));
        }
    }

    bool read_commands() {
        char bytes[4096];
        const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
        if (count == 0) return false;
        if (count > 0) commands_.append(bytes, static_cast<size_t>(count));
        for (size_t end = 0; (end = commands_.find('\n')) != std::string::npos;) {
            obey(commands_.substr(0, end));
            commands_.erase(0, end + 1);
        }
        return true;
    }

    void obey(const std::string& line) {
        std::istringstream words(line);
        std::string what;
        int a = 0;
        words >> what;
        if (what == "ward") {
            while (words >> a) wards_.push_back(a);
        } else {
            words >> a;
            int b = 0;
            double rate = 0;
            if (what == "link-down" && words >> b) board_.cut_link(a, b);
            if (what == "link-up" && words >> b) board_.restore_link(a, b);
            if (what == "host-down" || what == "host-up") board_.cut_host(a, what == "host-down");
            if (what == "rate" && words >> rate) board_.limit(a, rate);
            if (what == "rate-in" && words >> rate) board_.limit_received(a, rate);
            if (what == "link-rate" && words >> b >> rate) board_.limit_link(a, b, rate);
        }
        report("done " + std::to_string(monotonic_ns()));
    }

    int end_wards() const {
        for (const int ward : wards_) kill(ward, SIGKILL);
        return 0;
    }

    int listener_;
    std::vector<Target> targets_;
    Switchboard board_;
    std::vector<std::unique_ptr<Connection>> connections_;
    std::vector<int> wards_;
    std::string commands_;
    bool held_back_ = false;
    std::vector<pollfd> waiting_;
    std::vector<std::pair<Connection*, Direction*>> ways_;  // of waiting_, from its third on
};

}  // namespace

int run_relay(int argc, char** argv) {
    std::vector<Target> targets;
    size_t hosts = 0;
    for (int at = 3; at < argc; ++at) {
        Target target{};
        char colon = 0;
        std::istringstream(argv[at]) >> target.host >> colon >> target.port;
        hosts = std::max(hosts, static_cast<size_t>(target.host) + 1);
        targets.push_back(target);
    }
    if (targets.empty()) {
        std::cerr << "relay FD HOST:PORT…\n";
        return 2;
    }
    try {
        return Relay(std::atoi(argv[2]), std::move(targets), hosts).run();
    } catch (const std::exception& error) {
        report(std::string("error ") + error.what());
        return 1;
    }
}

}  // namespace mycroft::testbed
