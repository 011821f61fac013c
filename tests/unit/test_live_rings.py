"""Rings: one rank a host, and several, by diagnosis-rules "A ring over hosts: judge host by host"."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import Proto, Reason
from schemas.members import RingPath
from streams.live.rings import Ring, holdings
from streams.live.wires import End, Holding
from tests.live_jobs import LiveJob, Told
from tests.rings import RingModel

EIGHT = {rank: f"h{rank // 4}" for rank in range(8)}
"""Ring 0-1-2-3 | 4-5-6-7: 4 enters the second host, 7 leaves it."""
RECEIVER = End(4, 3, 0, False, 0, 0, 4.0, 64, 0, 0, 0, 0, 0, 0, 0)
SENDER = End(7, 0, 0, True, 0, 0, 4.0, 64, 0, 0, 0, 0, 0, 0, 0)


def entering(received: int, consumed: int) -> End:
    return RECEIVER._replace(posted=max(received, consumed + 4), received=received, consumed=consumed)


def leaving(ready: int) -> End:
    return SENDER._replace(ready=ready, transmitted=ready, done=ready)


def suspects(ends: list[End], proto: Proto = Proto.SIMPLE) -> list[int]:
    found = holdings(Ring(EIGHT, proto, False), ends)
    # Never sure: unchecked on a GPU.
    assert {(held.reason, held.sure) for held in found} <= {(Reason.UNSEEN, False)}
    return [held.rank for held in found]


@pytest.mark.parametrize(
    ("held", "ranks"),
    [
        # held = D·u + r hops behind the entering rank: r ≤ 1 a kernel that stopped, 2 one that never started
        (0, [4]), (1, [4]), (2, [4]),
        (4, [5, 6]), (5, [5, 6]), (6, [5, 6]), (8, [5, 6]), (10, [5, 6]),
        (12, [7]), (13, [7]), (14, [7]),
        (3, [4, 5, 6, 7]), (7, [4, 5, 6, 7]), (15, [4, 5, 6, 7]), (16, [4, 5, 6, 7]),  # no conclusion
    ],
)  # fmt: skip
def test_data_waits_at_the_entry(held: int, ranks: list[int]) -> None:
    """Simple: held = min(total of L, consumed by E + 2·4) − ready of L."""
    assert suspects([entering(24, 20), leaving(20 + 8 - held)]) == ranks


@pytest.mark.parametrize(
    ("held", "ranks"), [(0, [4]), (1, [4]), (8, [5, 6]), (9, [5, 6]), (16, [5, 6]), (24, [7]), (25, [7])]
)
def test_ll_adds_one_step_and_has_eight_slots(held: int, ranks: list[int]) -> None:
    assert suspects([entering(28, 20), leaving(20 + 4 - held)], Proto.LL) == ranks


@pytest.mark.parametrize(
    ("held", "ranks"),
    [
        (0, []),  # starves: all its ranks are victims
        (1, [5, 6, 7]), (2, [5, 6, 7]), (6, [5, 6, 7]), (10, [5, 6, 7]),
        (11, [7]), (14, [7]),  # u ≥ (11 − 2) / 4, rounded up 3
    ],
)  # fmt: skip
def test_nothing_waits_at_the_entry(held: int, ranks: list[int]) -> None:
    """Then it is not E, and u ≥ (held − q) / D."""
    assert suspects([entering(20, 20), leaving(20 + 8 - held)]) == ranks


ORDER = {(0, rank): after for rank, after in pairwise((0, 3, 1, 2, 4, 6, 5, 7, 0))}
"""What NCCL's log tells: 5 is two hops behind the entering rank 4."""


@pytest.mark.parametrize(("held", "ranks"), [(1, [4]), (4, [6]), (6, [6]), (8, [5]), (10, [5]), (14, [7])])
def test_the_known_order_names_an_inner_rank(held: int, ranks: list[int]) -> None:
    """held = D·u + r: u hops behind E."""
    ring = Ring(EIGHT, Proto.SIMPLE, False, after=ORDER)
    found = holdings(ring, [entering(24, 20), leaving(20 + 8 - held)])
    assert [each.rank for each in found] == ranks


@pytest.mark.parametrize(
    ("held", "ranks"), [(0, []), (1, [5, 6, 7]), (6, [5, 6, 7]), (10, [5, 7]), (14, [7])]
)
def test_the_known_order_leaves_out_who_is_too_near(held: int, ranks: list[int]) -> None:
    """Nothing waits at the entry: u ≥ (held − q) / D, so 6, one hop behind it, goes first."""
    ring = Ring(EIGHT, Proto.SIMPLE, False, after=ORDER)
    found = holdings(ring, [entering(20, 20), leaving(20 + 8 - held)])
    assert [each.rank for each in found] == ranks


@pytest.mark.parametrize(
    "after",
    [
        {(1, 4): 6, (1, 6): 5, (1, 5): 7},  # another channel
        {(0, 4): 6, (0, 6): 5},  # a part of it
        {(0, 4): 6, (0, 6): 7, (0, 7): 5},  # it leaves elsewhere
        {(0, 4): 6, (0, 6): 4, (0, 5): 7},  # a circle
        {(0, 4): 1, (0, 1): 2, (0, 2): 7},  # through another host
    ],
)
def test_an_order_that_does_not_fit_is_not_used(after: dict[tuple[int, int], int]) -> None:
    ring = Ring(EIGHT, Proto.SIMPLE, False, after=after)
    assert [each.rank for each in holdings(ring, [entering(24, 20), leaving(22)])] == [5, 6]


def test_channels_are_intersected() -> None:
    other = [entering(20, 20)._replace(channel=1), leaving(26)._replace(channel=1)]  # 5, 6 or 7
    assert suspects([entering(24, 20), leaving(22), *other]) == [5, 6]
    assert suspects([entering(24, 20), leaving(16), *other]) == [7]


def test_the_last_steps_tell_nobody_apart() -> None:
    """Not in the last steps: E or L complete."""
    assert suspects([RECEIVER._replace(posted=64, received=64, consumed=64), leaving(60)]) == [4, 5, 6, 7]


def test_who_has_ended_it_does_not_hold_it() -> None:
    ring = Ring(EIGHT, Proto.SIMPLE, False, frozenset({5}))
    assert [held.rank for held in holdings(ring, [entering(24, 20), leaving(22)])] == [6]


def test_an_end_that_moves_tells_nothing() -> None:
    assert suspects([entering(24, 20)._replace(quiet_s=0.3), leaving(22)]) == []


def told(model: RingModel, job: LiveJob, proto: Proto = Proto.SIMPLE) -> list[Told]:
    model.run().tell(job, "dp", 21, proto=proto)
    return job.told()


def one_a_host() -> LiveJob:
    return LiveJob({"dp": range(4)})


def by_two() -> LiveJob:
    return LiveJob({"dp": range(8)}, per_host=4)


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("frozen", range(4))
def test_one_rank_a_host(frozen: int, started: bool) -> None:
    """Kernel that stops midway: receives in RecvGPUWait, sends in SendGPUWait; nobody else is named."""
    job = one_a_host()
    model = RingModel(range(4), job.host, frozen=frozen, stops_at=10, started=started)
    assert told(model, job) == [Told("gpu-hang", "likely", (frozen,))]


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(
    ("frozen", "named"), [(0, (0,)), (1, (1, 2)), (2, (1, 2)), (3, (3,)), (4, (4,)), (6, (5, 6)), (7, (7,))]
)
def test_several_ranks_a_host(frozen: int, named: tuple[int, ...], started: bool) -> None:
    """The ends are named; between them lie the inner ranks, whose order NCCL does not say."""
    job = by_two()
    model = RingModel(range(8), job.host, frozen=frozen, stops_at=20, started=started)
    assert told(model, job) == [Told("gpu-hang", "candidates", (), named)]


def test_the_wire_between_two_hosts() -> None:
    """Link down: a node of its own, both ends are named, all else waits in a circle that ends at it."""
    job = one_a_host()
    assert told(RingModel(range(4), job.host, cut=1, cut_at=3, buffered=2), job) == [
        Told("link", "candidates", (), (1, 2))
    ]


@st.composite
def _frozen(draw: st.DrawFn, per_host: int) -> tuple[LiveJob, RingModel, Proto]:
    hosts = draw(st.integers(2, 5))
    ranks = hosts * per_host
    job = LiveJob({"dp": range(ranks)}, per_host=per_host)
    order: list[int] = []
    for host in draw(st.permutations(range(hosts))):
        order += draw(st.permutations(range(host * per_host, (host + 1) * per_host)))
    proto = draw(st.sampled_from([Proto.SIMPLE, Proto.LL]))
    model = RingModel(
        order, job.host, total=draw(st.integers(40, 90)), credits=draw(st.booleans()),
        buffered=draw(st.integers(0, 6)), frozen=draw(st.sampled_from(order)),
        started=draw(st.booleans()), stops_at=draw(st.integers(1, 30)),
        step=2 if proto == Proto.SIMPLE else 1, slots=4 if proto == Proto.SIMPLE else 8,
    )  # fmt: skip
    return job, model, proto


@settings(max_examples=50)
@given(_frozen(1))
def test_nobody_but_the_frozen_rank_is_named(case: tuple[LiveJob, RingModel, Proto]) -> None:
    job, model, proto = case
    assert model.frozen is not None
    (incident,) = told(model, job, proto)
    assert (incident.category, (*incident.culprits, *incident.candidates)) == ("gpu-hang", (model.frozen,))


@settings(max_examples=50)
@given(_frozen(4), st.booleans())
def test_with_the_order_known_it_is_among_fewer(case: tuple[LiveJob, RingModel, Proto], whole: bool) -> None:
    """The order as rank 0 logs it, or each rank its own place: it never leads away from the frozen one."""
    job, model, proto = case
    (before,) = told(model, job, proto)
    ring = [*model.order, model.order[0]]
    paths = (
        (RingPath(0, tuple(ring)),)
        if whole
        else tuple(RingPath(0, tuple(part)) for part in zip([ring[-2], *ring], ring, ring[1:], strict=False))
    )
    knowing = LiveJob(job.comms, per_host=job.per_host, rings={"dp": paths})
    (incident,) = told(model, knowing, proto)
    named = {*incident.culprits, *incident.candidates}
    assert model.frozen in named
    assert named <= {*before.culprits, *before.candidates}


@settings(max_examples=50)
@given(_frozen(4))
def test_nobody_but_ranks_of_its_host_are_candidates(case: tuple[LiveJob, RingModel, Proto]) -> None:
    job, model, proto = case
    (incident,) = told(model, job, proto)
    assert incident.category == "gpu-hang"
    assert model.frozen in (*incident.culprits, *incident.candidates)
    named = (*incident.culprits, *incident.candidates)
    assert {job.host(rank) for rank in named} == {job.host(model.frozen or 0)}


@pytest.mark.parametrize("per_host", [1, 4])
def test_the_last_steps_of_a_ring(per_host: int) -> None:
    """A kernel that stops when the entry of its host is complete: nothing of that end is told any more."""
    job = LiveJob({"dp": range(20)}, per_host=per_host)
    model = RingModel(range(20), job.host, total=40, step=1, slots=8, frozen=3, stops_at=23)
    (incident,) = told(model, job, Proto.LL)
    assert incident.category == "gpu-hang"
    assert 3 in (*incident.culprits, *incident.candidates)
    assert {job.host(rank) for rank in (*incident.culprits, *incident.candidates)} == {job.host(3)}


def test_a_holding_names_the_ends_it_rests_on() -> None:
    found = holdings(Ring(EIGHT, Proto.SIMPLE, False), [entering(24, 20), leaving(28)])
    assert found == [Holding(Reason.UNSEEN, 4, False, 0, -1, leaving(28), entering(24, 20))]
