#include "plan.h"

#include <algorithm>
#include <istream>
#include <sstream>
#include <stdexcept>

namespace mycroft::testbed {
namespace {

constexpr const char* kFuncs[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast"};

template <class Value>
Value next(std::istringstream& words) {
    Value value{};
    if (!(words >> value)) throw std::runtime_error("a word is missing or no number");
    return value;
}

Func func_of(const std::string& name) {
    for (int code = 0; code < 4; ++code) {
        if (name == kFuncs[code]) return static_cast<Func>(code);
    }
    throw std::runtime_error("unknown function " + name);
}

Communicator read_communicator(std::istringstream& words) {
    Communicator made;
    made.id = std::stoull(next<std::string>(words), nullptr, 16);
    made.name = next<std::string>(words);
    const auto algorithm = next<std::string>(words);
    if (algorithm != "ring" && algorithm != "tree")
        throw std::runtime_error("unknown algorithm " + algorithm);
    made.algorithm = algorithm == "tree" ? Algorithm::tree : Algorithm::ring;
    for (int member = 0; words >> member;) made.members.push_back(member);
    return made;
}

bool read_instruction(const std::string& kind, std::istringstream& words, Instruction& made) {
    if (kind == "every") {
        made.every = next<long>(words);
        if (made.every < 1) throw std::runtime_error("every: at least 1");
        return read_instruction(next<std::string>(words), words, made);
    }
    if (kind == "compute" || kind == "uneven" || kind == "host") {
        made.kind = kind == "compute"  ? Instruction::Kind::compute
                    : kind == "uneven" ? Instruction::Kind::uneven
                                       : Instruction::Kind::host;
        made.milliseconds = next<double>(words);
        return true;
    }
    if (kind == "coll") {
        made.kind = Instruction::Kind::coll;
        made.func = func_of(next<std::string>(words));
        made.communicator = next<int>(words);
        made.count = next<size_t>(words);
        made.peer = next<int>(words);
        return true;
    }
    if (kind == "send" || kind == "recv") {
        made.kind = kind == "send" ? Instruction::Kind::send : Instruction::Kind::recv;
        made.communicator = next<int>(words);
        made.peer = next<int>(words);
        made.count = next<size_t>(words);
        return true;
    }
    if (kind == "alltoall") {
        made.kind = Instruction::Kind::all_to_all;
        made.communicator = next<int>(words);
        made.count = next<size_t>(words);
        return true;
    }
    return false;
}

class Reader {
  public:
    void line(const std::string& text) {
        std::istringstream words(text);
        std::string kind;
        if (!(words >> kind)) return;
        if (kind == "channels") {
            plan.channels = next<int>(words);
        } else if (kind == "slot") {
            plan.slot_bytes = next<size_t>(words);
        } else if (kind == "network") {
            plan.network = next<std::string>(words) == "credits" ? Network::credits : Network::sockets;
        } else if (kind == "rank") {
            Place place;
            place.host = next<int>(words);
            place.address = next<std::string>(words);
            place.port = next<int>(words);
            plan.ranks.push_back(place);
            plan.programmes.emplace_back();
        } else if (kind == "communicator") {
            plan.communicators.push_back(read_communicator(words));
        } else if (kind == "pair") {
            auto& communicator = plan.communicators.at(next<size_t>(words));
            const int from = next<int>(words);
            communicator.pairs.emplace_back(from, next<int>(words));
        } else if (kind == "programme") {
            programme_ = &plan.programmes.at(next<size_t>(words));
        } else if (Instruction made; programme_ != nullptr && read_instruction(kind, words, made)) {
            if (made.communicator >= static_cast<int>(plan.communicators.size()))
                throw std::runtime_error("no such communicator");
            programme_->push_back(made);
        } else {
            throw std::runtime_error("unknown word " + kind);
        }
    }

    Plan plan;

  private:
    std::vector<Instruction>* programme_ = nullptr;
};

}  // namespace

const char* name_of(Func func) {
    return kFuncs[static_cast<int>(func)];
}

int Communicator::rank_of(int world_rank) const {
    const auto found = std::find(members.begin(), members.end(), world_rank);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
}

Plan read_plan(std::istream& text) {
    Reader reader;
    std::string line;
    for (int number = 1; std::getline(text, line); ++number) {
        try {
            reader.line(line);
        } catch (const std::exception& error) {
            throw std::runtime_error("plan line " + std::to_string(number) + " (" + line +
                                     "): " + error.what());
        }
    }
    return reader.plan;
}

}  // namespace mycroft::testbed
