#include "member.h"

#include <new>
#include <stdexcept>
#include <utility>

namespace mycroft::testbed {
namespace {

constexpr const char* kFloat = "ncclFloat32";

void* stream() {
    static char only;
    return &only;
}

}  // namespace

Member::Member(const Plan& plan, const std::vector<Leg>& legs, int number, int world_rank, HostMemory& memory,
               Profiler& profiler, Faults& faults, Gpu& gpu)
    : plan_(plan),
      communicator_(plan.communicators[static_cast<size_t>(number)]),
      rank_(communicator_.rank_of(world_rank)),
      nodes_(host_count(plan, communicator_)),
      memory_(memory),
      profiler_(profiler),
      faults_(faults),
      gpu_(gpu),
      context_(profiler.open(communicator_.id, communicator_.name, nodes_, communicator_.size(), rank_)) {
    for (size_t index = 0; index < legs.size(); ++index) {
        const Leg& leg = legs[index];
        if (leg.communicator != number) continue;
        if (leg.from == rank_) add_leg(leg, index, true);
        if (leg.to == rank_) add_leg(leg, index, false);
    }
}

void Member::add_leg(const Leg& leg, size_t index, bool sending) {
    const int peer = sending ? leg.to : leg.from;
    LegEnd& made = legs_[{leg.kind, peer, leg.channel, sending}];
    made.index = index;
    made.local = leg.local;
    Fifo* fifo = nullptr;
    if (leg.local) {
        fifo = &memory_.fifo(leg);
    } else {
        made.memory = std::make_unique<char[]>(Fifo::bytes(plan_.slot_bytes) + alignof(Fifo));
        const auto at = reinterpret_cast<uintptr_t>(made.memory.get());
        fifo = new (made.memory.get() + (alignof(Fifo) - at % alignof(Fifo))) Fifo;
        made.network = std::make_unique<NetworkLeg>();
        made.network->fifo = fifo;
        made.network->slot_bytes = plan_.slot_bytes;
        made.network->ring_gpu = [bell = &gpu_.bell()] { bell->ring(); };
        made.network->channel = leg.channel;
        made.network->peer = peer;
    }
    std::function<void()> ring = [this] { proxy_->wake(); };
    if (leg.local) {
        Doorbell* const bell = &memory_.bell(communicator_.members[static_cast<size_t>(peer)]);
        ring = [bell] { bell->ring(); };
    }
    if (sending) {
        made.send = SendEnd{fifo, leg.local, plan_.slot_bytes, std::move(ring), 0};
    } else {
        made.receive = ReceiveEnd{fifo, plan_.slot_bytes, std::move(ring), 0};
    }
}

void Member::connect(size_t leg, int fd) {
    for (auto& [key, end] : legs_) {
        if (end.index != leg || end.network == nullptr) continue;
        make_ready(fd);
        if (end.send) {
            end.network->sending = std::make_unique<SendConnection>(fd, plan_.network);
        } else {
            end.network->receiving = std::make_unique<ReceiveConnection>(fd, plan_.network);
        }
        return;
    }
    throw std::runtime_error("leg " + std::to_string(leg) + " is none of " + communicator_.name);
}

void Member::begin() {
    proxy_ = std::make_unique<Proxy>(profiler_, faults_, context_, rank_, communicator_.name);
}

void Member::end() {
    proxy_.reset();
    profiler_.close(context_);
}

Member::LegEnd& Member::leg_end(const End& end, int channel, bool sending) {
    return legs_.at({end.kind, end.peer, channel, sending});
}

std::shared_ptr<Kernel> Member::new_kernel() {
    auto kernel = std::make_shared<Kernel>();
    kernel->communicator = communicator_.name;
    kernel->tell_proxy = [this] { proxy_->wake(); };
    return kernel;
}

void Member::add_work(Work work, Block* block, const std::shared_ptr<Launch>& launch, const float* input,
                      float* output, Kernel& kernel, std::vector<ProxyRequest>& requests) {
    std::vector<ReceiveEnd*> from;
    std::vector<SendEnd*> to;
    const int received = work.steps_received();
    const int sent = work.steps_sent();
    for (const End& end : work.from) {
        LegEnd& leg = leg_end(end, work.channel, false);
        from.push_back(&*leg.receive);
        if (!leg.local && received > 0)
            requests.push_back({launch, leg.network.get(), nullptr, received, work.depth, false});
    }
    for (const End& end : work.to) {
        LegEnd& leg = leg_end(end, work.channel, true);
        to.push_back(&*leg.send);
        if (!leg.local && sent > 0)
            requests.push_back({launch, leg.network.get(), nullptr, sent, work.depth, true});
    }
    kernel.parts.push_back(
        {Execution(std::move(work), std::move(from), std::move(to), input, output), block});
}

void Member::watch(Block& block, const std::shared_ptr<Launch>& launch, std::vector<ProxyRequest>& requests) {
    if (profiler_.wants(abi::kKernelCh)) requests.push_back({launch, nullptr, &block, 0, 0, false});
}

void* Member::open_group(int depth) {
    abi::Descr6 descr = event(abi::kGroupApi, nullptr);
    descr.group_api.depth = depth;
    void* const group = profiler_.start(context_, descr);
    profiler_.state(group, abi::kGroupStartApiStop);
    return group;
}

void Member::launch(void* group, const std::shared_ptr<Kernel>& kernel) {
    abi::Descr6 descr = event(abi::kKernelLaunch, group);
    descr.kernel_launch.stream = stream();
    void* const handle = profiler_.start(context_, descr);
    gpu_.launch(kernel);
    profiler_.stop(handle);
}

abi::Descr6 Member::coll_event(Func func, int root, size_t count, void* api, void* group) const {
    const bool tree = func == Func::all_reduce && communicator_.algorithm == Algorithm::tree;
    const bool bytes = func == Func::all_gather || func == Func::broadcast;
    abi::Descr6 descr = event(abi::kColl, api, rank_);
    descr.coll.func = name_of(func);
    descr.coll.count = bytes ? count * sizeof(float) : count;
    descr.coll.datatype = bytes ? "ncclInt8" : kFloat;
    descr.coll.root = root;
    descr.coll.channels = static_cast<uint8_t>(channels_used(count, plan_.channels));
    descr.coll.warps = tree ? 20 : 9;
    descr.coll.algo = tree ? "TREE" : "RING";
    descr.coll.proto = "SIMPLE";
    descr.coll.parent_group = group;
    return descr;
}

void Member::collective(Func func, int root, size_t count, const float* input, float* output) {
    void* const group_api = open_group(1);
    abi::Descr6 call = event(abi::kCollApi, group_api);
    call.coll_api.func = name_of(func);
    call.coll_api.count = count;
    call.coll_api.datatype = kFloat;
    call.coll_api.root = root;
    call.coll_api.stream = stream();
    void* const api = profiler_.start(context_, call);
    profiler_.stop(api);
    profiler_.state(group_api, abi::kGroupEndApiStart);

    const auto kernel = new_kernel();
    const auto launched = std::make_shared<Launch>();
    kernel->launches.push_back(launched);
    std::vector<ProxyRequest> requests;
    auto works = testbed::collective(plan_, communicator_, rank_, func, root, count);
    for (size_t at = 0; at < works.size(); ++at) {
        const int channel = works[at].channel;
        if (launched->blocks.empty() || launched->blocks.back().channel != channel)
            launched->blocks.emplace_back(channel);
        Block& block = launched->blocks.back();
        const bool last = at + 1 == works.size() || works[at + 1].channel != channel;
        add_work(std::move(works[at]), &block, launched, input, output, *kernel, requests);
        if (last) watch(block, launched, requests);
    }
    launch(group_api, kernel);
    void* const group = profiler_.start(context_, event(abi::kGroup, nullptr));
    abi::Descr6 coll = coll_event(func, root, count, api, group);
    coll.coll.send = input;
    coll.coll.recv = output;
    coll.coll.seq = sequence_[static_cast<size_t>(func)]++;
    launched->handle = profiler_.start(context_, coll);
    proxy_->append(std::move(requests));
    profiler_.stop(launched->handle);
    profiler_.stop(group);
    profiler_.stop(group_api);
}

void Member::group(const std::vector<PairCall>& calls) {
    void* const group_api = open_group(calls.size() > 1 ? 2 : 1);
    std::vector<void*> apis;
    for (const PairCall& call : calls) {
        abi::Descr6 descr = event(abi::kP2pApi, group_api);
        descr.p2p_api.func = call.send ? "Send" : "Recv";
        descr.p2p_api.count = call.count;
        descr.p2p_api.datatype = kFloat;
        descr.p2p_api.stream = stream();
        apis.push_back(profiler_.start(context_, descr));
        profiler_.stop(apis.back());
    }
    profiler_.state(group_api, abi::kGroupEndApiStart);

    const auto kernel = new_kernel();
    std::vector<ProxyRequest> requests;
    const size_t slice = plan_.slot_bytes / sizeof(float);
    const float* to_self = nullptr;
    for (const PairCall& call : calls) {
        const auto launched = std::make_shared<Launch>();
        kernel->launches.push_back(launched);
        if (call.peer == rank_) {
            if (call.send) to_self = call.buffer;
            if (call.send) continue;
            Work copy;
            copy.actions.push_back({false, false, 0, 0, call.count});
            add_work(std::move(copy), nullptr, launched, to_self, call.buffer, *kernel, requests);
            continue;
        }
        const int channel = call.send ? pair_channel(communicator_, rank_, call.peer, plan_.channels)
                                      : pair_channel(communicator_, call.peer, rank_, plan_.channels);
        Block& block = launched->blocks.emplace_back(channel);
        Work work = call.send ? sending(channel, call.peer, call.count, slice)
                              : receiving(channel, call.peer, call.count, slice);
        add_work(std::move(work), &block, launched, call.buffer, call.buffer, *kernel, requests);
        watch(block, launched, requests);
    }
    launch(group_api, kernel);
    void* const group = profiler_.start(context_, event(abi::kGroup, nullptr));
    for (size_t at = 0; at < calls.size(); ++at) {
        abi::Descr6 descr = event(abi::kP2p, apis[at], rank_);
        descr.p2p.func = calls[at].send ? "Send" : "Recv";
        descr.p2p.buffer = calls[at].buffer;
        descr.p2p.datatype = kFloat;
        descr.p2p.count = calls[at].count;
        descr.p2p.peer = calls[at].peer;
        descr.p2p.channels = 1;
        descr.p2p.parent_group = group;
        kernel->launches[at]->handle = profiler_.start(context_, descr);
    }
    proxy_->append(std::move(requests));
    for (const auto& launched : kernel->launches) profiler_.stop(launched->handle);
    profiler_.stop(group);
    profiler_.stop(group_api);
}

}  // namespace mycroft::testbed
