#include "transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>

namespace mycroft::testbed {
namespace {

constexpr size_t kHead = sizeof(uint64_t);

[[noreturn]] void fail(const std::string& what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

void shrink(int fd) {
    const int bytes = kSocketBuffer;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

sockaddr_in address_of(const std::string& address, int port) {
    sockaddr_in made{};
    made.sin_family = AF_INET;
    made.sin_port = htons(static_cast<uint16_t>(port));
    if (inet_pton(AF_INET, address.c_str(), &made.sin_addr) != 1)
        throw std::runtime_error(address + " is no IPv4 address");
    return made;
}

int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// Bytes moved; 0 nothing now, -1 the connection is gone.
ssize_t outcome(ssize_t count) {
    if (count > 0) return count;
    const bool later = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
    return later ? 0 : -1;
}

}  // namespace

int listen_at(const std::string& address, int port) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket");
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    shrink(fd);
    const sockaddr_in where = address_of(address, port);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 || listen(fd, 4096) != 0)
        fail("listen at " + address + " " + std::to_string(port));
    return fd;
}

int connect_to(const std::string& address, int port, int timeout_ms) {
    const sockaddr_in where = address_of(address, port);
    for (;; timeout_ms -= 50) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) fail("socket");
        shrink(fd);
        if (connect(fd, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) return fd;
        close(fd);
        if (timeout_ms <= 0) fail("connect to " + address + " " + std::to_string(port));
        poll(nullptr, 0, 50);
    }
}

void make_ready(int fd) {
    const int on = 1;
    shrink(fd);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

bool write_all(int fd, const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t count = send(fd, at, bytes, MSG_NOSIGNAL);
        if (count <= 0) return false;
        at += count;
        bytes -= static_cast<size_t>(count);
    }
    return true;
}

bool read_all(int fd, void* data, size_t bytes) {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t count = recv(fd, at, bytes, 0);
        if (count <= 0) return false;
        at += count;
        bytes -= static_cast<size_t>(count);
    }
    return true;
}

bool SendConnection::isend(const char* data, size_t bytes) {
    if (network_ == Network::credits) {
        read_credits();
        refused_ = credits_[sent_ % 64] != sent_ + 1;
        if (refused_) return false;
    }
    queue_.push_back({bytes, data, 0});
    ++sent_;
    write_queue();
    return true;
}

uint64_t SendConnection::done() {
    write_queue();
    return done_;
}

void SendConnection::read_credits() {
    for (;;) {
        const ssize_t count =
            recv(fd_, partial_ + partial_bytes_, sizeof partial_ - partial_bytes_, MSG_DONTWAIT);
        const ssize_t moved = outcome(count);
        if (moved < 0) broken_ = true;
        if (moved <= 0) return;
        partial_bytes_ += static_cast<size_t>(moved);
        if (partial_bytes_ < sizeof partial_) continue;
        uint64_t number = 0;
        std::memcpy(&number, partial_, sizeof number);
        credits_[number % 64] = number + 1;
        partial_bytes_ = 0;
    }
}

size_t SendConnection::allowance(size_t wanted) {
    if (rate_ <= 0) return wanted;
    const int64_t now = now_ns();
    budget_ = std::min(budget_ + rate_ * static_cast<double>(now - filled_at_) / 1e9, rate_ / 50 + 1024);
    filled_at_ = now;
    return std::min(wanted, static_cast<size_t>(budget_));
}

void SendConnection::write_queue() {
    held_back_ = false;
    while (!queue_.empty()) {
        Outgoing& out = queue_.front();
        const bool head = out.sent < kHead;
        const char* const from =
            head ? reinterpret_cast<const char*>(&out.size) + out.sent : out.data + (out.sent - kHead);
        const size_t left = head ? kHead - out.sent : kHead + out.size - out.sent;
        if (left > 0) {
            const size_t allowed = head ? left : allowance(left);
            held_back_ = allowed == 0;
            if (held_back_) return;
            const ssize_t moved = outcome(send(fd_, from, allowed, MSG_NOSIGNAL | MSG_DONTWAIT));
            if (moved < 0) broken_ = true;
            if (moved <= 0) return;
            out.sent += static_cast<size_t>(moved);
            if (!head) budget_ -= static_cast<double>(moved);
            if (head || out.sent < kHead + out.size) continue;
        }
        queue_.pop_front();
        ++done_;
    }
}

void ReceiveConnection::irecv(char* into, size_t room) {
    queue_.push_back({into, room, 0, 0});
    if (network_ == Network::credits) {
        const uint64_t number = posted_;
        if (lose_) {
            lose_ = false;
        } else {
            const char* const bytes = reinterpret_cast<const char*>(&number);
            credits_.insert(credits_.end(), bytes, bytes + sizeof number);
            write_credits();
        }
    }
    ++posted_;
}

void ReceiveConnection::write_credits() {
    while (!credits_.empty()) {
        const ssize_t moved =
            outcome(send(fd_, credits_.data(), credits_.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
        if (moved < 0) broken_ = true;
        if (moved <= 0) return;
        credits_.erase(credits_.begin(), credits_.begin() + moved);
    }
}

uint64_t ReceiveConnection::received() {
    write_credits();
    while (!queue_.empty()) {
        Incoming& in = queue_.front();
        const bool head = in.got < kHead;
        char* const into = head ? reinterpret_cast<char*>(&in.size) + in.got : in.into + (in.got - kHead);
        const size_t left = head ? kHead - in.got : kHead + in.size - in.got;
        if (left > 0) {
            const ssize_t moved = outcome(recv(fd_, into, left, MSG_DONTWAIT));
            if (moved < 0) broken_ = true;
            if (moved <= 0) break;
            in.got += static_cast<size_t>(moved);
            if (in.got >= kHead && in.size > in.room) {
                broken_ = true;
                break;
            }
            if (head || in.got < kHead + in.size) continue;
        }
        sizes_[received_ % 64] = in.size;
        ++received_;
        queue_.pop_front();
    }
    return received_;
}

}  // namespace mycroft::testbed
