"""Looking less does not say less: what is left out changes no answer, what is due is not slept through."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.agent.groups import mixed
from collectors.agent.heads import heads
from collectors.agent.layout import StepState
from collectors.agent.stall import current
from schemas.enums import Kind, Visibility
from tests.unit.test_collector_host import Host, at, host, rows

__all__ = ["host"]  # the fixture

OPERATION = st.tuples(
    st.integers(0, 1),  # process
    st.integers(0, 2),  # communicator
    st.integers(0, 2),  # stream
    st.integers(0, 3),  # operations of one launch share it
    st.sampled_from([Visibility.LAUNCH, Visibility.LAUNCH, Visibility.FLOWS]),
    st.booleans(),  # its GPU has shown progress
)


@given(st.lists(OPERATION, min_size=1, max_size=40))
def test_what_is_not_followed_would_never_have_been_told(
    found: list[tuple[int, int, int, int, Visibility, bool]],
) -> None:
    process, comm, stream, together, visibility, progressed = (
        np.array(column, np.uint64) for column in zip(*found, strict=True)
    )
    order = np.random.default_rng(len(found)).permutation(len(found)).astype(np.uint64) + np.uint64(1)
    bare = visibility == Visibility.LAUNCH
    moved = (progressed > 0) & ~bare
    # Those of one launch have one base and stand next to each other in the order of launches.
    launch = order // np.uint64(4) * np.uint64(4) + together // np.uint64(4)
    group, device = mixed(process, launch), process

    def answers(which: npt.NDArray[np.bool_]) -> list[int]:
        found: list[int] = current(
            order[which], stream[which], comm[which], group[which], device[which],
            visibility[which].astype(np.uint8), moved[which],
        ).tolist()  # fmt: skip
        return found

    kept = ~bare
    kept[bare] = heads(process[bare], comm[bare], stream[bare], order[bare], launch[bare])
    every = np.ones(len(order), np.bool_)
    whole = np.array(answers(every))
    assert answers(kept) == whole[kept].tolist()
    assert not whole[~kept].any()
    for lane in {(int(p), int(c)) for p, c in zip(process[bare], comm[bare], strict=True)}:
        mine = bare & (process == lane[0]) & (comm == lane[1])
        assert kept[mine][np.argmax(order[mine])], "the newest of a communicator"


def looks(host: Host, first_ms: int, last_ms: int) -> int:
    """How many ticks looked further than a glance."""
    seen = set()
    for ms in range(first_ms, last_ms + 1, 100):
        host.tick(ms)
        seen.add(id(host.last))
    return len(seen)


def test_what_stands_still_is_told_each_second_with_few_looks(host: Host) -> None:
    made = host.process()
    made.communicator()
    made.operation(0, at(10))
    flow = made.flow(0, 0, since=at(15), head_state=StepState.SEND_CREDIT)
    host.run(0, 900)
    ticks = [ms for ms in range(1000, 5000, 100) if len(rows(host.tick(ms), "coll", Kind.STATE))]
    assert len(ticks) == 4
    assert all(later - sooner == 1000 for sooner, later in pairwise(ticks))
    flow["no_credit"] += 1000  # polls are no movement
    flow["calls"] += 1000
    assert looks(host, 5000, 5900) <= 3
    flow["counters"][0] = 1
    host.tick(6050)
    assert host.last is not None
    assert host.last.now == at(6050), "movement is looked at"


@pytest.mark.parametrize("silent_ms", [700, 1700])
def test_a_process_that_falls_silent_is_quiet_since_then(host: Host, silent_ms: int) -> None:
    made = host.process()
    made.communicator()
    made.operation(0, at(-1000))
    flow = made.flow(0, 0, head_state=StepState.SEND_CREDIT, since=at(-900))
    told: list[int] = []
    for ms in range(0, 3100, 100):
        if ms <= silent_ms:
            flow["calls"] += 10
        told = [*told[-1:], *rows_of_procs(host, ms)]
    assert told[-1] == (3000 - silent_ms) * 1000


def rows_of_procs(host: Host, ms: int) -> list[int]:
    flushes = host.tick(ms)
    return [
        int(quiet)
        for flush in flushes
        if "proc" in flush.sections
        for quiet in flush.sections["proc"]["quiet_us"]
    ]


def test_many_operations_inside_the_host_do_not_hide_the_one_that_stalls(tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    host = Host(folder)
    made = host.process()
    made.communicator(0, comm=0xA)
    made.communicator(1, comm=0xB)
    for slot in range(40):
        seq = slot + 1
        made.operation(slot, at(-5000 + slot), seq=seq, order=seq, comm=1, visibility=Visibility.LAUNCH)
    made.operation(50, at(-2000), seq=1, order=41, stream=0x58)
    made.flow(0, 50)
    host.run(0, 400)
    assert host.last is not None
    assert host.last.readings.snapshot.in_flight == 41
    assert len(host.last.coll) == 3  # the first and the last inside the host
    flushes = host.run(500, 1500)
    states = rows(flushes, "coll", Kind.STATE)
    assert 0xA in states["comm"].tolist()
