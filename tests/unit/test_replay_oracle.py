"""The oracle: counters of traces written by hand, and what recorded faults are known to freeze."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import Flow, Line, Operation, Oracle, Picture
from tests.oracle_runs import recorded_run


class Trace:
    """Lines of one process, each 10 ns after the last."""

    def __init__(self, p: int = 0) -> None:
        self.p = p
        self.lines: list[Line] = []
        self.next = 100

    def add(self, callback: str, **fields: Any) -> int:
        self.lines.append({"t": 10 * len(self.lines), "p": self.p, "cb": callback, "th": 0, **fields})
        return len(self.lines)

    def init(self, ctx: int = 1, rank: int = 0, nranks: int = 2) -> None:
        self.add("init", ctx=ctx, commId="0xabc", commName="world", nNodes=nranks, nranks=nranks, rank=rank)

    def start(self, event: str, ctx: int = 1, parent: int = 0, **fields: Any) -> int:
        self.next += 1
        rank = fields.pop("rank", 0)
        self.add("startEvent", ty=event, h=self.next, ctx=ctx, parent=parent, rank=rank, hIn=0, **fields)
        return self.next

    def state(self, handle: int, number: int, event: str = "ProxyStep", **fields: Any) -> None:
        self.add("recordEventState", ty=event, h=handle, state=number, args=1, **fields)

    def stop(self, handle: int) -> None:
        self.add("stopEvent", h=handle, nstop=1)

    def coll(self, seq: int, count: int = 4, nch: int = 1, ctx: int = 1) -> int:
        call = self.start("CollApi", ctx, func="AllReduce", count=count, dt="ncclFloat32", root=0, graph=0)
        self.stop(call)
        op = self.start(
            "Coll", ctx, call, seq=seq, func="AllReduce", count=count, root=0, dt="ncclFloat32",
            nCh=nch, nWarps=1, algo="RING", proto="SIMPLE", parentGroup=0,
        )  # fmt: skip
        self.stop(op)
        return op

    def proxy(self, op: int, send: int, steps: int, channel: int = 0, peer: int = 1, **fields: Any) -> int:
        return self.start(
            "ProxyOp", parent=op, opPid=self.p, ch=channel, peer=peer, nSteps=steps, chunkSize=64,
            isSend=send, **fields,
        )  # fmt: skip

    def step(self, proxy: int, number: int, *states: tuple[int, int], stop: bool = False) -> int:
        handle = self.start("ProxyStep", parent=proxy, step=number)
        for state, size in states:
            self.state(handle, state, trans=size)
        if stop:
            self.stop(handle)
        return handle


def only(picture: Picture) -> Operation:
    (op,) = picture.operations
    return op


def test_sender_counts_each_step_once_at_each_stage() -> None:
    trace = Trace()
    trace.init()
    proxy = trace.proxy(trace.coll(0), send=1, steps=5)
    trace.step(proxy, 0, (8, 0), (20, 0), (9, 64), stop=True)
    trace.step(proxy, 1, (8, 64), (20, 0), (20, 0), (20, 0), (9, 32))
    trace.step(proxy, 2, (8, 64), (20, 32), (20, 32))
    trace.step(proxy, 3, (8, 64))
    flow = only(Oracle(trace.lines).at()).flows[0, 1, True]
    assert flow.counters == (5, 3, 2, 1)
    assert (flow.bytes, flow.no_credit, flow.posted) == (96, 3, 0)


def test_receiver_counts_each_step_once_at_each_stage() -> None:
    trace = Trace()
    trace.init()
    proxy = trace.proxy(trace.coll(0), send=0, steps=9)
    trace.step(proxy, 0, (10, 7), (11, 64), (12, 64), stop=True)
    trace.step(proxy, 1, (10, 64), (11, 32), (12, 32))
    trace.step(proxy, 2, (10, 64), (11, 16))
    trace.step(proxy, 3, (10, 64))
    flow = only(Oracle(trace.lines).at()).flows[0, 1, False]
    assert flow.counters == (9, 4, 3, 2, 1)
    assert flow.bytes == 112


def test_a_receive_step_started_again_counts_once() -> None:
    trace = Trace()
    trace.init()
    proxy = trace.proxy(trace.coll(0), send=0, steps=1)
    trace.step(proxy, 0)  # irecv refused: this handle is never stopped
    again = trace.step(proxy, 0, (10, 0), (11, 8), (12, 8), stop=True)
    trace.stop(again)
    trace.state(again, 11, trans=8)  # late
    op = only(Oracle(trace.lines).at())
    assert op.flows[0, 1, False].counters == (1, 1, 1, 1, 1)
    assert op.done is True


def test_a_moment_shows_what_had_happened_by_then() -> None:
    trace = Trace()
    trace.init()
    proxy = trace.proxy(trace.coll(0), send=1, steps=1)
    before = trace.lines[-1]["t"]
    trace.step(proxy, 0, (8, 0), (20, 0), (9, 64), stop=True)
    oracle = Oracle(trace.lines)
    assert only(oracle.at(before)).flows[0, 1, True].counters == (1, 0, 0, 0)
    assert only(oracle.at(before)).done is False
    assert only(oracle.at(before + 40)).flows[0, 1, True].counters == (1, 1, 1, 0)
    assert only(oracle.at()).done is True


def test_numbers_start_at_one_and_a_call_without_operation_is_a_launch() -> None:
    trace = Trace()
    trace.init()
    trace.coll(0)
    trace.coll(1)
    trace.start("CollApi", func="AllReduce", count=4, dt="ncclFloat32", root=0, graph=0)
    picture = Oracle(trace.lines).at()
    assert [op.seq for op in picture.operations] == [1, 2]
    assert [(call.func, call.seq) for call in picture.calls] == [("AllReduce", 3)]
    assert picture.positions() == {(0, 0xABC, "AllReduce", -1): (3, 0)}
    assert [op.launched < op.started for op in picture.operations] == [True, True]
    assert Oracle(trace.lines, api=4).at().calls == []
    assert [op.launched == op.started for op in Oracle(trace.lines, api=4).at().operations] == [True, True]


def test_point_to_point_counts_for_each_peer_and_direction() -> None:
    trace = Trace()
    trace.init(nranks=3)
    for func, peer in (("Send", 1), ("Recv", 1), ("Send", 2), ("Send", 1)):
        call = trace.start("P2pApi", func=func, count=2, dt="ncclInt8")
        trace.start("P2p", parent=call, func=func, count=2, dt="ncclInt8", peer=peer, nCh=1, parentGroup=0)
    found = [(op.func, op.peer, op.seq) for op in Oracle(trace.lines).at().operations]
    assert found == [("Send", 1, 1), ("Recv", 1, 1), ("Send", 2, 1), ("Send", 1, 2)]


def test_tiers_show_what_the_mask_delivers() -> None:
    trace = Trace()
    trace.init()
    op = trace.coll(0, nch=2)
    trace.step(trace.proxy(op, send=1, steps=1), 0, (8, 0), (20, 0), (9, 64), stop=True)
    kernels = [trace.start("KernelCh", parent=op, ch=channel, pTimer=700 + channel) for channel in (0, 1)]
    trace.state(kernels[0], 22, "KernelCh", pTimer=900)
    trace.stop(kernels[0])
    seen = {tier: only(Oracle(trace.lines, tier).at()) for tier in ("ops", "flows", "kernel")}
    assert [(tier, op.visibility, op.done) for tier, op in seen.items()] == [
        ("ops", "launch", None), ("flows", "flows", True), ("kernel", "flows", False),
    ]  # fmt: skip
    first, second = seen["kernel"].kernels[0], seen["kernel"].kernels[1]
    assert (first.started, first.stopped, first.open) == (700, 900, False)
    assert (second.started, second.stopped, second.open) == (701, -1, True)
    old = only(Oracle(trace.lines, "kernel", api=3).at()).kernels[0]
    assert (old.started, old.stopped, old.open) == (-1, -1, False)


def test_without_peer_wait_a_step_is_ready_when_it_is_sent() -> None:
    trace = Trace()
    trace.init()
    proxy = trace.proxy(trace.coll(0), send=1, steps=3)
    trace.step(proxy, 0, (8, 0), (20, 0), (9, 64))
    trace.step(proxy, 1, (8, 0), (20, 0))
    assert only(Oracle(trace.lines, api=3).at()).flows[0, 1, True].counters == (3, 1, 1, 0)
    assert only(Oracle(trace.lines, api=4).at()).flows[0, 1, True].counters == (3, 2, 1, 0)


def test_an_operation_without_flows_is_over_when_a_later_one_has_moved() -> None:
    trace = Trace()
    trace.init()
    trace.coll(0)
    proxy = trace.proxy(trace.coll(1), send=1, steps=2)
    step = trace.step(proxy, 0, (8, 0))
    first, second = Oracle(trace.lines).at().operations
    assert (first.done, first.ended, second.done) == (None, False, False)
    trace.state(step, 20, trans=0)
    first, second = Oracle(trace.lines).at().operations
    assert (first.done, first.ended, second.ended) == (None, True, False)


def test_a_flow_in_a_relay_belongs_to_its_owner() -> None:
    owner, relay = Trace(1), Trace(0)
    owner.init(rank=1)
    relay.init(rank=0)
    op = owner.coll(0)
    relay.next = op - 1
    own = relay.coll(7)  # the same numbers in another process
    assert own > op
    proxy = relay.proxy(op, send=1, steps=2, rank=1, fp=1)
    relay.step(proxy, 0, (8, 0), (20, 0))
    picture = Oracle(owner.lines + relay.lines).at()
    (flow,) = picture.operation(p=1).flows.values()
    assert (flow.carrier, flow.counters) == (0, (2, 1, 0, 0))
    assert picture.operation(p=0).flows == {}


def test_a_communicator_whose_init_failed_has_no_operations() -> None:
    trace = Trace()
    trace.init()
    trace.step(trace.proxy(trace.coll(0, ctx=-1), send=1, steps=1, rank=0), 0, (8, 0))
    picture = Oracle(trace.lines).at()
    assert (picture.operations, picture.calls) == ([], [])


# What recorded faults freeze, from the table of the interface's facts. Ring 0 → 1 → 2 → 3, rank 2 bad.


def flow_of(op: Operation, send: bool) -> Flow:
    flows = [flow for flow in op.flows.values() if flow.send == send]
    assert len({flow.counters for flow in flows}) == 1, "all channels of these runs froze alike"
    return flows[0]


def test_rank_that_never_calls() -> None:
    picture = Oracle(recorded_run("c_hang4").lines).at()
    assert [max(op.seq for op in picture.of(p)) for p in range(4)] == [9, 9, 8, 9]
    assert all(op.done for op in picture.of(2))
    upstream, downstream = picture.operation(1, seq=9), picture.operation(3, seq=9)
    assert flow_of(upstream, send=True).counters == (12, 6, 6, 6)
    assert flow_of(downstream, send=False).counters == (12, 4, 0, 0, 0)


@pytest.mark.parametrize(
    ("run", "kernels", "receives", "sends", "upstream", "downstream"),
    [
        ("e_gpuhang4", 2, (24, 7, 7, 7, 3), (24, 5, 5, 5), (24, 11, 11, 11), (24, 9, 5, 5, 5)),
        ("e2_computehang4", 0, (12, 4, 4, 4, 0), (12, 0, 0, 0), (12, 6, 6, 6), (12, 4, 0, 0, 0)),
    ],
)
def test_stream_that_does_not_progress(
    run: str,
    kernels: int,
    receives: tuple[int, ...],
    sends: tuple[int, ...],
    upstream: tuple[int, ...],
    downstream: tuple[int, ...],
) -> None:
    picture = Oracle(recorded_run(run).lines, "kernel").at()
    stuck = {p: next(op for op in picture.of(p) if not op.ended) for p in range(4)}
    assert len({op.seq for op in stuck.values()}) == 1
    assert len(stuck[2].kernels) == kernels
    assert all(kernel.open for kernel in stuck[2].kernels.values())
    assert flow_of(stuck[2], send=False).counters == receives  # in RecvGPUWait: flushed, not consumed
    assert flow_of(stuck[2], send=True).counters == sends
    assert flow_of(stuck[1], send=True).counters == upstream
    assert flow_of(stuck[3], send=False).counters == downstream  # in RecvWait: posted, nothing received


def test_killed_rank_ends_and_its_neighbours_freeze() -> None:
    run = recorded_run("i1_kill4")
    oracle = Oracle(run.lines)
    killed = oracle.last("SIGKILL", 2)
    assert oracle.last(None, 2) <= killed
    picture = oracle.at()
    open_ops = {p: next(op for op in picture.of(p) if not op.ended) for p in range(4)}
    sent = [flow.counters for flow in open_ops[1].flows.values() if flow.send]
    assert sent == [(24, 23, 23, 20), (24, 22, 22, 19)]  # in SendWait
    waiting = [flow.counters for flow in open_ops[3].flows.values() if not flow.send]
    assert waiting == [(24, 22, 18, 18, 18), (24, 21, 17, 17, 17)]  # in RecvWait
    assert [op.counters for op in open_ops[2].flows.values() if op.send] == [
        (24, 18, 18, 17),
        (24, 17, 17, 17),
    ]


def test_network_with_credits_refuses_the_sender() -> None:
    picture = Oracle(recorded_run("x1_cts_hang4").lines).at()
    victim = picture.operation(1, seq=9)
    flow = flow_of(victim, send=True)
    assert flow.counters == (12, 1, 0, 0)  # ready for the head step only
    assert flow.no_credit > 100
    assert flow_of(victim, send=False).counters == (12, 6, 4, 4, 2)  # looks like a GPU that does not consume


def test_ring_over_hosts_shows_flows_only_where_it_enters_and_leaves() -> None:
    picture = Oracle(recorded_run("n2_ring8_gpuhang1").lines).at()
    last = {p: picture.operation(p, seq=7) for p in range(8)}
    assert {p: (op.visibility, op.done) for p, op in last.items() if p in (1, 2, 5, 6)} == dict.fromkeys(
        (1, 2, 5, 6), ("launch", None)
    )
    assert flow_of(last[0], send=False).counters == (28, 7, 7, 7, 3)  # the bad host: RecvGPUWait
    assert flow_of(last[3], send=True).counters == (28, 7, 7, 7)
    assert flow_of(last[4], send=False).counters == (28, 11, 7, 7, 7)  # the other one: RecvWait
    assert flow_of(last[7], send=True).counters == (28, 15, 15, 15)
    # steps sent by the leaving rank − consumed by the entering one: 2n starves, less is inside (n = 4)
    assert flow_of(last[7], send=True).done - flow_of(last[4], send=False).consumed == 8
    assert flow_of(last[3], send=True).done - flow_of(last[0], send=False).consumed == 4


def test_sends_through_another_process_come_back_to_their_owner() -> None:
    picture = Oracle(recorded_run("n2_pxn8_gpuhang2").lines).at()
    carriers = {(op.p, flow.carrier) for op, flow in picture.flows() if flow.send}
    assert carriers == {(0, 0), (1, 0), (2, 0), (3, 0), (4, 4), (5, 4), (6, 4), (7, 4)}
    assert all(flow.carrier == op.p for op, flow in picture.flows() if not flow.send)
    stuck = picture.operation(2, func="Send", peer=6, seq=4)
    assert flow_of(stuck, send=True).counters == (8, 3, 3, 3)


def test_kernel_channels_of_finished_operations_are_all_there() -> None:
    for name in ("g0_nshealthy4", "a_nonblock4"):
        picture = Oracle(recorded_run(name).lines, "kernel").at()
        assert picture.operations
        assert all(op.done for op in picture.operations)
        assert all(len(op.kernels) == op.channels for op in picture.operations)


def test_toggled_tracing_leaves_gaps_in_the_numbers() -> None:
    picture = Oracle(recorded_run("m_dyn4").lines).at()
    numbers = [op.seq for op in picture.of(1)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) < max(numbers)
