"""Who makes the others wait, in windows written by hand: ten seconds, ten steps, devices from 100 on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.enums import Algo, Direction, Func, Proto, Visibility
from schemas.records import FLOW, LAG, UNKNOWN_NS, UNKNOWN_US, Records
from streams.slow.blame import FLOOR_S, localise
from streams.slow.findings import Finding, Scope, Stage
from streams.slow.window import Window

SECONDS = 10.0
STEPS = 10
CHANNELS = 2
WORLD = 1


def dev(rank: int) -> int:
    return 100 + rank


def us(seconds: float) -> int:
    return round(seconds * 1e6)


def lag(comm: int, rank: int, device: int, nranks: int, waited: float = 0.0, **other: Any) -> Records:
    """Ten operations of a device, all told one by one and joined; durations are seconds in all of them."""
    row = LAG.empty(1)
    row["comm"], row["dev"], row["rank"], row["nranks"] = comm, device, rank, nranks
    row["func"], row["algo"], row["proto"] = Func.ALL_REDUCE, Algo.RING, Proto.SIMPLE
    row["visibility"] = Visibility.FLOWS
    row["n"] = row["timed"] = row["singles"] = row["joined"] = STEPS
    row["channels"] = CHANNELS
    row["waited_sum_us"] = us(waited)
    row["duration_sum_us"] = us(waited + 1)
    row["clock_bound_ns"] = UNKNOWN_NS
    for name, value in other.items():
        row[name] = value
    return row


def flow(
    comm: int, device: int, peer: int, direction: Direction, channel: int = -1, rank: int = 0,
    **seconds: float,
) -> Records:  # fmt: skip
    """A flow's sums; seconds in each stage on each channel."""
    row = FLOW.empty(1)
    row["rank"] = rank
    row["comm"], row["dev"], row["peer"], row["direction"] = comm, device, peer, direction
    row["carrier"], row["channel"], row["n"] = device, channel, STEPS
    for name, value in seconds.items():
        row[f"{name}_us"] = us(value * (CHANNELS if channel < 0 else 1))
    return row


def ring(
    ranks: int, comm: int = WORLD, *, first: int = 0, gpu: Mapping[int, float] | None = None,
    net: Mapping[int, float] | None = None, flush: Mapping[int, float] | None = None,
) -> list[Records]:  # fmt: skip
    """The flows of a ring of `ranks` from device `first`, all alike but what is given by rank."""
    gpu, net, flush = gpu or {}, net or {}, flush or {}
    rows = []
    for rank in range(ranks):
        before, after, own = (rank - 1) % ranks, (rank + 1) % ranks, dev(first + rank)
        rows.append(flow(comm, own, before, Direction.RECV, gpu=gpu.get(rank, 0.2), net=3.0,
                         flush=flush.get(rank, 0.01)))  # fmt: skip
        rows.append(flow(comm, own, after, Direction.SEND, gpu=3.0, net=net.get(rank, 0.2)))
    return rows


def window(lags: Sequence[Records], flows: Sequence[Records] = ()) -> Window:
    return Window(1, 1, 0, us(SECONDS), LAG.joined(lags), FLOW.joined(flows))


def alone(count: int) -> dict[int, str]:
    """A host for each device."""
    return {dev(rank): f"host{rank}" for rank in range(count)}


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


def test_nobody_is_accused_where_all_are_equally_slow() -> None:
    everybody = dict.fromkeys(range(4), 4.0)
    lags = [lag(WORLD, rank, dev(rank), 4, waited=2.0, run_sum_us=us(6), run_n=STEPS) for rank in range(4)]
    assert localise(window(lags, ring(4, gpu=everybody, net=everybody)), alone(4)) == []


def test_nothing_was_heard() -> None:
    assert localise(window([], []), {}) == []


def test_a_late_host() -> None:
    lags = [lag(WORLD, rank, dev(rank), 4, waited=0.0 if rank == 2 else 3.0) for rank in range(4)]
    finding = only(localise(window(lags, ring(4)), alone(4)))
    assert (finding.category, finding.culprits, finding.stage) == ("late-launch", (dev(2),), Stage.LAUNCH)
    assert finding.lost_s == pytest.approx(3.0)
    assert (finding.waiting, finding.steps) == (3, STEPS)
    assert finding.stolen_per_step_s == pytest.approx(3.0 * 3 / STEPS)
    assert finding.share == pytest.approx(0.3)


def test_what_was_queued_together_is_late_once() -> None:
    """Four operations a step launched at once, 0.2 s late each: a step loses 0.2 s, not 0.8 s."""
    lags = []
    for rank in range(4):
        waited = 0.0 if rank == 2 else 0.2
        lags.append(lag(WORLD, rank, dev(rank), 4, waited=waited * STEPS))
        many = {"n": 4 * STEPS, "timed": 4 * STEPS, "singles": 4 * STEPS, "joined": 4 * STEPS}
        lags.append(lag(WORLD, rank, dev(rank), 4, waited=waited * 4 * STEPS, size_class=9, **many))
    assert only(localise(window(lags), alone(4))).lost_s == pytest.approx(0.2 * STEPS)


def test_who_is_late_because_it_waited_elsewhere_is_a_victim() -> None:
    """Rank 1 waits for 0 in their communicator, so it is late in the one that it shares with 3."""
    lags = [
        lag(1, 0, dev(0), 2, waited=0.0), lag(1, 1, dev(1), 2, waited=3.0),
        lag(2, 0, dev(1), 2, waited=0.0), lag(2, 1, dev(3), 2, waited=3.0),
    ]  # fmt: skip
    assert only(localise(window(lags), alone(4))).culprits == (dev(0),)


def test_late_launches_count_only_beyond_the_bound_of_the_clocks() -> None:
    unseen = {"visibility": Visibility.LAUNCH, "timed": 0, "duration_max_us": UNKNOWN_US}
    for bound_ms, named in ((1, 1), (400, 0)):
        lags = [
            lag(WORLD, rank, dev(rank), 4, waited=0.0 if rank == 2 else 3.0, clock_bound_ns=bound_ms * 10**6,
                **unseen)
            for rank in range(4)
        ]  # fmt: skip
        assert len(localise(window(lags), alone(4))) == named, bound_ms


def test_launches_on_one_host_need_no_clock() -> None:
    """tp inside a host: no end and no offset is known, but all launches are of one clock."""
    unseen = {"visibility": Visibility.LAUNCH, "timed": 0, "duration_max_us": UNKNOWN_US}
    lags = [lag(WORLD, rank, dev(rank), 4, waited=0.0 if rank == 2 else 3.0, **unseen) for rank in range(4)]
    assert only(localise(window(lags), {dev(rank): "host0" for rank in range(4)})).culprits == (dev(2),)
    assert localise(window(lags), alone(4)) == []


def test_a_stream_that_starts_late() -> None:
    """Kernels of the culprit run 1 s where the others' run 4 s, and its host launched in time."""
    lags = [
        lag(WORLD, rank, dev(rank), 4, waited=3.0, run_sum_us=us(1 if rank == 2 else 4), run_n=STEPS)
        for rank in range(4)
    ]
    finding = only(localise(window(lags, ring(4, gpu={2: 3.2})), alone(4)))
    assert (finding.category, finding.culprits, finding.stage) == ("gpu-slow", (dev(2),), Stage.STREAM)


def test_stages_of_a_pipeline_are_not_compared() -> None:
    """Two stages of two ranks each; the second one computes more. Sends and receives tell nothing of it."""
    lags = []
    for pair, (low, high) in enumerate(((0, 2), (1, 3))):
        for rank, own in enumerate((low, high)):
            lags.append(lag(10 + pair, rank, dev(own), 2, func=(Func.SEND, Func.RECV)[rank], waited=0.0,
                            run_sum_us=us(5 if rank else 1), run_n=STEPS))  # fmt: skip
    for stage, members in enumerate(((0, 1), (2, 3))):
        lags += [
            lag(20 + stage, rank, dev(own), 2, run_sum_us=us(1), run_n=STEPS)
            for rank, own in enumerate(members)
        ]
    flows = [
        each
        for pair, (low, high) in enumerate(((0, 2), (1, 3)))
        for each in (
            flow(10 + pair, dev(low), 1, Direction.RECV, rank=0, gpu=0.1, net=1),
            flow(10 + pair, dev(high), 0, Direction.RECV, rank=1, gpu=4.0, net=1),
        )
    ]
    assert localise(window(lags, flows), alone(4)) == []


def test_a_gpu_that_takes_late() -> None:
    lags = [lag(WORLD, rank, dev(rank), 4) for rank in range(4)]
    finding = only(localise(window(lags, ring(4, gpu={2: 4.0}, net={1: 2.0})), alone(4)))
    assert (finding.category, finding.culprits, finding.stage) == ("gpu-slow", (dev(2),), Stage.GPU)
    assert finding.lost_s == pytest.approx(3.8)


def test_a_slow_wire_explains_the_gpu_before_it() -> None:
    """And the wire before that one; in a ring nothing tells which of its ends it is."""
    lags = [lag(WORLD, rank, dev(rank), 4) for rank in range(4)]
    finding = only(localise(window(lags, ring(4, gpu={2: 2.0}, net={1: 1.5, 2: 5.0})), alone(4)))
    assert (finding.category, finding.candidates, finding.culprits) == ("link", (dev(2), dev(3)), ())
    assert finding.scope is Scope.LINK


def test_one_slow_channel_is_told_apart() -> None:
    lags = [lag(WORLD, rank, dev(rank), 4) for rank in range(4)]
    flows = [
        each for each in ring(4) if not (each["dev"][0] == dev(2) and each["direction"] == Direction.SEND)
    ]
    flows.append(flow(WORLD, dev(2), 3, Direction.SEND, gpu=3.0, net=0.1))
    flows[-1]["gpu_us"] //= 2
    flows[-1]["net_us"] //= 2
    flows.append(flow(WORLD, dev(2), 3, Direction.SEND, channel=1, net=4.0))
    finding = only(localise(window(lags, flows), alone(4)))
    assert (finding.category, finding.measures[0].channel) == ("link", 1)
    assert finding.lost_s == pytest.approx(3.8)


def everybody_sends_to_everybody(slow: set[tuple[int, int]]) -> list[Records]:
    return [
        flow(WORLD, dev(a), b, direction, gpu=0.2, net=4.0 if slow and (a, b) in slow else 0.2)
        for a in range(4)
        for b in range(4)
        if a != b
        for direction in (Direction.SEND, Direction.RECV)
    ]


@pytest.mark.parametrize(
    ("slow", "category", "named", "scope"),
    [
        ({(2, 0), (2, 1), (2, 3)}, "nic-send", {2}, Scope.NIC),
        ({(0, 2), (1, 2), (3, 2)}, "nic-recv", {2}, Scope.NIC),
        ({(0, 2)}, "link", {0, 2}, Scope.LINK),
    ],
)
def test_wires_that_share_an_end(
    slow: set[tuple[int, int]], category: str, named: set[int], scope: Scope
) -> None:
    lags = [lag(WORLD, rank, dev(rank), 4) for rank in range(4)]
    finding = only(localise(window(lags, everybody_sends_to_everybody(slow)), alone(4)))
    assert (finding.category, {d - 100 for d in finding.named}, finding.scope) == (category, named, scope)
    assert bool(finding.culprits) == (category != "link")


def test_links_with_nothing_in_common_point_at_what_lies_between() -> None:
    lags = [lag(WORLD, rank, dev(rank), 8) for rank in range(8)]
    found = localise(window(lags, ring(8, net={1: 5.0, 5: 5.0})), alone(8))
    assert [one.scope for one in found] == [Scope.SWITCH] * 2


def test_a_late_proxy_explains_all_that_it_carries() -> None:
    lags = [lag(WORLD, rank, dev(rank), 4) for rank in range(4)]
    flows = ring(4, gpu={2: 3.0}, net={1: 3.0, 2: 2.0}, flush={2: 0.6})
    finding = only(localise(window(lags, flows), alone(4)))
    assert (finding.category, finding.culprits, finding.stage) == ("proxy", (dev(2),), Stage.PROXY)


def two_hosts(
    kernels: Mapping[int, float] | None = None,
) -> tuple[list[Records], list[Records], dict[int, str]]:
    """A ring over two hosts of four ranks, 0–3 and 4–7, whose second host takes late what arrives at 4."""
    traced = {"visibility": Visibility.KERNEL} if kernels else {"visibility": Visibility.LAUNCH, "timed": 0}
    lags = []
    for rank in range(8):
        seen = {} if rank in (0, 3, 4, 7) else traced
        run = {"run_sum_us": us(kernels.get(rank, 4.0)), "run_n": STEPS} if kernels else {}
        lags.append(lag(WORLD, rank, dev(rank), 8, joined=STEPS if kernels else 0, **{**seen, **run}))
    flows = [
        flow(WORLD, dev(0), 7, Direction.RECV, gpu=0.2, net=3.0),
        flow(WORLD, dev(4), 3, Direction.RECV, gpu=3.5, net=0.1),
        flow(WORLD, dev(3), 4, Direction.SEND, gpu=3.0, net=0.2),
        flow(WORLD, dev(7), 0, Direction.SEND, gpu=3.0, net=0.2),
    ]
    return lags, flows, {dev(rank): f"host{rank // 4}" for rank in range(8)}


def test_several_ranks_a_host_are_candidates() -> None:
    lags, flows, hosts = two_hosts()
    finding = only(localise(window(lags, flows), hosts))
    assert (finding.category, finding.culprits) == ("gpu-slow", ())
    assert finding.candidates == tuple(dev(rank) for rank in range(4, 8))
    assert finding.waiting == 7


def test_kernels_tell_which_of_them_starts_late() -> None:
    lags, flows, hosts = two_hosts({6: 1.0})
    assert only(localise(window(lags, flows), hosts)).culprits == (dev(6),)


def test_kernels_that_start_in_time_leave_the_candidates() -> None:
    lags, flows, hosts = two_hosts(dict.fromkeys(range(8), 4.0))
    assert only(localise(window(lags, flows), hosts)).candidates == tuple(dev(rank) for rank in range(4, 8))


def tensor_and_data(gpu: Mapping[int, float]) -> tuple[list[Records], list[Records], dict[int, str]]:
    """tp inside two hosts of two, where only launches are seen, and dp across: (0, 2) and (1, 3)."""
    unseen = {"visibility": Visibility.LAUNCH, "timed": 0}
    lags = [lag(10 + host, rank, dev(2 * host + rank), 2, **unseen) for host in range(2) for rank in range(2)]
    lags += [lag(20 + pair, rank, dev(2 * rank + pair), 2) for pair in range(2) for rank in range(2)]
    flows = []
    for pair in range(2):
        for rank in range(2):
            own = 2 * rank + pair
            flows.append(flow(20 + pair, dev(own), 1 - rank, Direction.RECV, gpu=gpu.get(own, 0.1), net=2.0))
    return lags, flows, {dev(rank): f"host{rank // 2}" for rank in range(4)}


def test_who_is_late_alike_behind_what_nobody_sees_is_a_candidate() -> None:
    lags, flows, hosts = tensor_and_data({2: 3.0, 3: 2.8})
    finding = only(localise(window(lags, flows), hosts))
    assert (finding.culprits, finding.candidates) == ((), (dev(2), dev(3)))
    assert finding.scope is Scope.HOST


def test_one_that_is_later_than_those_beside_it_is_named() -> None:
    lags, flows, hosts = tensor_and_data({2: 1.2, 3: 4.0})
    assert only(localise(window(lags, flows), hosts)).culprits == (dev(3),)


def test_in_a_tree_a_gpu_that_holds_data_may_wait_for_another_child() -> None:
    lags = [lag(WORLD, rank, dev(rank), 4, algo=Algo.TREE) for rank in range(4)]
    assert localise(window(lags, ring(4, gpu={2: 4.0})), alone(4)) == []


@given(
    st.integers(3, 8), st.data(), st.floats(2 * FLOOR_S, 5.0),
    st.sampled_from(["launch", "stream", "gpu", "proxy"]),
)  # fmt: skip
def test_only_the_one_that_is_slow_is_named(ranks: int, data: st.DataObject, lost: float, what: str) -> None:
    """Whoever it is, whatever the others lose to it in waiting: no victim is ever named."""
    bad = data.draw(st.integers(0, ranks - 1))
    lags = []
    for rank in range(ranks):
        late = what == "launch" and rank != bad
        run = 5.0 - lost if what in ("stream", "launch") and rank == bad else 5.0
        traced = {} if what == "gpu" else {"run_sum_us": us(run), "run_n": STEPS}
        lags.append(lag(WORLD, rank, dev(rank), ranks, waited=lost if late else 0.0, **traced))
    slow = {bad: 0.2 + lost}
    flows = {
        "launch": ring(ranks), "stream": ring(ranks, gpu=slow),
        "gpu": ring(ranks, gpu=slow, net={(bad - 1) % ranks: 0.2 + lost * 0.9}),
        "proxy": ring(ranks, gpu=slow, net=slow, flush={bad: 0.8}),
    }[what]  # fmt: skip
    finding = only(localise(window(lags, flows), alone(ranks)))
    category = {"launch": "late-launch", "proxy": "proxy"}.get(what, "gpu-slow")
    assert (finding.category, finding.culprits) == (category, (dev(bad),))
    assert finding.lost_s == pytest.approx(lost, rel=0.01)


def test_order_of_rows_does_not_matter() -> None:
    lags, flows, hosts = tensor_and_data({2: 1.2, 3: 4.0})
    forward = localise(window(lags, flows), hosts)
    assert localise(window(lags[::-1], flows[::-1]), hosts) == forward
    shuffled = np.random.default_rng(1).permutation(len(lags))
    assert localise(window([lags[at] for at in shuffled], flows), hosts) == forward
