// Connections over TCP with the calls of NCCL's network transport: nothing waits, a send may be refused.
//
// A step travels as its size and its bytes. On a network with credits the receiver tells the sender of every
// receive it has posted, by number, on the same connection, and a send is refused until its own has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "plan.h"

namespace mycroft::testbed {

constexpr int kSocketBuffer = 16 * 1024;  // small: a dead link shows within a few steps

// What the one that connects says first.
struct Hello {
    uint32_t magic = 0x6d796372;
    uint32_t from = 0;  // world ranks
    uint32_t to = 0;
    uint32_t leg = 0;
};

// Sockets with small buffers; throw std::runtime_error. `fd` of a listener may be one that was handed down.
int listen_at(const std::string& address, int port);
int connect_to(const std::string& address, int port, int timeout_ms);
void make_ready(int fd);  // small buffers, no delay, non-blocking
bool write_all(int fd, const void* data, size_t bytes);
bool read_all(int fd, void* data, size_t bytes);

class SendConnection {
  public:
    SendConnection(int fd, Network network) : fd_(fd), network_(network) {}

    // False: refused, the receiver has not posted. `data` stays the caller's until done() has counted it.
    bool isend(const char* data, size_t bytes);
    // Sends completed locally: handed to the kernel.
    uint64_t done();
    bool broken() const { return broken_; }
    int fd() const { return fd_; }
    bool wants_write() const { return !queue_.empty(); }
    bool lacks_credit() const { return refused_; }
    // At most so many bytes a second, 0 for no limit.
    void limit(double bytes_per_second) { rate_ = bytes_per_second; }
    bool held_back() const { return held_back_; }

  private:
    struct Outgoing {
        uint64_t size;
        const char* data;
        size_t sent;  // of the size, then of the data
    };
    void read_credits();
    void write_queue();
    size_t allowance(size_t wanted);

    int fd_;
    Network network_;
    std::deque<Outgoing> queue_;
    uint64_t sent_ = 0;
    uint64_t done_ = 0;
    uint64_t credits_[64]{};  // by number of the receive: that number + 1
    char partial_[8]{};
    size_t partial_bytes_ = 0;
    bool refused_ = false;
    bool broken_ = false;
    double rate_ = 0;
    double budget_ = 0;
    int64_t filled_at_ = 0;
    bool held_back_ = false;
};

class ReceiveConnection {
  public:
    ReceiveConnection(int fd, Network network) : fd_(fd), network_(network) {}

    void irecv(char* into, size_t room);
    // Receives completed.
    uint64_t received();
    size_t bytes(uint64_t receive) const { return sizes_[receive % 64]; }
    bool broken() const { return broken_; }
    int fd() const { return fd_; }
    bool wants_read() const { return !queue_.empty(); }
    bool wants_write() const { return !credits_.empty(); }
    // The next receive's credit never reaches the sender.
    void lose_credit() { lose_ = true; }

  private:
    struct Incoming {
        char* into;
        size_t room;
        uint64_t size;
        size_t got;
    };
    void write_credits();

    int fd_;
    Network network_;
    std::deque<Incoming> queue_;
    std::vector<char> credits_;  // not yet written
    uint64_t posted_ = 0;
    uint64_t received_ = 0;
    size_t sizes_[64]{};
    bool lose_ = false;
    bool broken_ = false;
};

}  // namespace mycroft::testbed
