#include "faults.h"

#include <unistd.h>

#include <sstream>
#include <stdexcept>

#include "profiler.h"

namespace mycroft::testbed {

void report(const std::string& line) {
    const std::string whole = line + "\n";
    if (write(STDOUT_FILENO, whole.data(), whole.size()) < 0)
        _exit(1);  // nobody listens: the starter is gone
}

void park() {
    for (;;) pause();
}

Fault Faults::parse(const std::string& text) {
    std::istringstream words(text);
    Fault made;
    words >> made.name;
    for (std::string word; words >> word;) {
        const size_t equals = word.find('=');
        if (equals == std::string::npos) throw std::runtime_error("no KEY=VALUE: " + word);
        const std::string key = word.substr(0, equals);
        const std::string value = word.substr(equals + 1);
        if (key == "step") {
            made.step = std::stol(value);
        } else if (key == "comm") {
            made.communicator = value;
        } else {
            made.values[key] = std::stod(value);
        }
    }
    return made;
}

void Faults::add(const Fault& fault) {
    const std::lock_guard<std::mutex> lock(mutex_);
    armed_.push_back({fault});
    count_.store(armed_.size());
}

std::optional<Fault> Faults::take(const std::string& name, const std::string& communicator) {
    return find(name, communicator, true);
}

std::optional<Fault> Faults::lasting(const std::string& name, const std::string& communicator) {
    return find(name, communicator, false);
}

std::optional<Fault> Faults::find(const std::string& name, const std::string& communicator, bool once) {
    if (count_.load() == 0) return std::nullopt;
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t at = 0; at < armed_.size(); ++at) {
        Armed& armed = armed_[at];
        if (armed.fault.name != name || armed.fault.step > step()) continue;
        if (communicator.rfind(armed.fault.communicator, 0) != 0) continue;
        const Fault found = armed.fault;
        if (once) {
            armed_.erase(armed_.begin() + static_cast<std::ptrdiff_t>(at));
            count_.store(armed_.size());
        } else if (!armed.announced) {
            armed.announced = true;
            announce(name);
        }
        return found;
    }
    return std::nullopt;
}

void Faults::announce(const std::string& name) const {
    report("fault " + name + " " + std::to_string(monotonic_ns()) + " " + std::to_string(step()));
}

}  // namespace mycroft::testbed
