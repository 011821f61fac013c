// Faults that this rank has been told to have, until their step has come and they happen.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace mycroft::testbed {

struct Fault {
    std::string name;
    long step = 0;             // happens from this training step on
    std::string communicator;  // on a communicator whose name begins so
    std::map<std::string, double> values;

    double value(const std::string& key, double otherwise) const {
        const auto found = values.find(key);
        return found != values.end() ? found->second : otherwise;
    }
};

// Writes one line to standard output, whole.
void report(const std::string& line);

// Stays until the process is killed.
[[noreturn]] void park();

class Faults {
  public:
    // `NAME [step=N] [comm=PREFIX] [KEY=NUMBER]…`; throws std::runtime_error.
    static Fault parse(const std::string& text);

    void add(const Fault& fault);
    void at_step(long step) { step_.store(step); }
    long step() const { return step_.load(); }

    // A fault that happens once, now: it is taken away. The caller announces it when it has its effect.
    std::optional<Fault> take(const std::string& name, const std::string& communicator);
    // One that lasts; announced when first met.
    std::optional<Fault> lasting(const std::string& name, const std::string& communicator);
    // Tells the starter: `fault NAME MONOTONIC-NS STEP`.
    void announce(const std::string& name) const;

  private:
    std::optional<Fault> find(const std::string& name, const std::string& communicator, bool once);

    struct Armed {
        Fault fault;
        bool announced = false;
    };
    std::atomic<long> step_{0};
    std::atomic<size_t> count_{0};
    std::mutex mutex_;
    std::vector<Armed> armed_;
};

}  // namespace mycroft::testbed
