"""Rounds of diagnose: over when every partition has marked, or a time-out; nothing outlives its round."""

from __future__ import annotations

import pytest

from schemas.envelope import Envelope, MessageKind, split
from schemas.malformed import Malformed
from schemas.records import PROC, WAIT
from streams.facts import Facts, encode
from streams.live.cases import FORGET_ROUNDS, LiveCases, live_body
from tests.records import ATTEMPT_ID, JOB_ID


def epoch(
    partition: int, waits: int, *, processes: int = 0, alive: bool = True, job: int = JOB_ID
) -> Envelope:
    rows, procs = WAIT.empty(waits), PROC.empty(processes)
    rows["partition"], procs["alive"] = partition, alive
    procs["proc"] = range(1, processes + 1)
    return Envelope(
        MessageKind.LIVE_EPOCH, job, ATTEMPT_ID, partition=partition,
        sections={PROC.name: procs, WAIT.name: rows},
        body=live_body("job", "1", encode(Facts()), [500] * processes),
    )  # fmt: skip


def waits(cases: LiveCases) -> list[int]:
    """Waits of each case of the round that ends."""
    return [len(case.waits()) for case in cases.close()]


def test_a_round_is_over_when_all_have_marked() -> None:
    cases = LiveCases(3, 3.0)
    assert not cases.over(100.0), "nothing has begun"
    for partition in (0, 1, 1, 1):
        cases.mark(partition, 10.0)
    assert not cases.over(12.9)
    cases.mark(2, 10.5)
    assert cases.over(10.5)
    assert cases.close() == []
    assert not cases.over(20.0)


def test_after_the_time_out_it_says_who_is_missing() -> None:
    cases = LiveCases(3, 3.0)
    cases.take(epoch(1, 4), 10.0)
    cases.mark(1, 10.0)
    assert not cases.over(12.9)
    assert cases.over(13.0)
    (case,) = cases.close()
    assert (case.missing, len(case.waits())) == ((0, 2), 4)


def test_the_parts_of_an_epoch_are_one() -> None:
    cases = LiveCases(1, 3.0)
    parts = list(split(epoch(0, 500), limit=20_000))
    assert len(parts) > 2
    assert all(part.kind == MessageKind.LIVE_EPOCH for part in parts)
    for part in parts:
        cases.take(part, 10.0)
    assert waits(cases) == [500]


def test_a_later_epoch_of_a_partition_replaces_the_former() -> None:
    cases = LiveCases(2, 3.0)
    for message in (epoch(0, 5), epoch(1, 2), epoch(0, 3)):
        cases.take(message, 10.0)
    assert waits(cases) == [5]


def test_what_is_not_said_again_does_not_hold() -> None:
    cases = LiveCases(1, 3.0)
    cases.take(epoch(0, 5), 10.0)
    assert waits(cases) == [5]
    assert waits(cases) == [0]


def test_a_closed_case_does_not_change_any_more() -> None:
    cases = LiveCases(1, 3.0)
    cases.take(epoch(0, 5, processes=1), 10.0)
    (former,) = cases.close()
    cases.take(epoch(0, 2, processes=1, alive=False), 11.0)
    assert len(former.waits()) == 5
    assert former.processes[1].alive


def test_jobs_are_kept_apart() -> None:
    cases = LiveCases(1, 3.0)
    cases.take(epoch(0, 5), 10.0)
    cases.take(epoch(0, 2, job=99), 10.0)
    assert sorted(waits(cases)) == [2, 5]


def test_processes_are_remembered() -> None:
    """A death is of when it was first told: broker time of the message less its age."""
    cases = LiveCases(1, 3.0)
    for at in (10.0, 11.0):
        cases.take(epoch(0, 0, processes=1, alive=False), at)
        (case,) = cases.close()
        assert case.processes[1].died_at == 9.5
    (case,) = cases.close()
    assert case.processes[1].died_at == 9.5


def test_a_bad_body_changes_nothing() -> None:
    cases = LiveCases(1, 3.0)
    cases.take(epoch(0, 5), 10.0)
    bad = Envelope(MessageKind.LIVE_EPOCH, JOB_ID, ATTEMPT_ID, body={"version": 1})
    with pytest.raises(Malformed):
        cases.take(bad, 10.0)
    assert waits(cases) == [5]


def test_a_job_of_which_nobody_speaks_is_forgotten() -> None:
    cases = LiveCases(1, 3.0)
    cases.take(epoch(0, 1), 10.0)
    for _ in range(FORGET_ROUNDS + 2):
        assert cases.close()
    assert cases.close() == []
