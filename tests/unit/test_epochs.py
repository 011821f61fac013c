"""Which jobs can be judged, and with what."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import pytest

from schemas.envelope import Envelope, MessageKind
from schemas.ids import hex_id
from schemas.malformed import Malformed
from schemas.records import WAIT, Records
from schemas.snapshots import SnapshotEnd
from streams.epochs import Case, EpochBoard, epoch_body
from streams.facts import Facts, encode, gather
from tests.records import announcement, comm_of, dev_of

SNAPSHOT_S, EPOCH_S = 30.0, 3.0
PARTITIONS = 3
END = SnapshotEnd(7, "job", "1", PARTITIONS, 5, 2, (0, 1))
Board = EpochBoard[str]


def board() -> Board:
    return Board(snapshot_timeout_s=SNAPSHOT_S, epoch_timeout_s=EPOCH_S)


def waits(*seqs: int) -> Records:
    rows = WAIT.empty(len(seqs))
    rows["seq"] = seqs
    return rows


def body(*, lost: int = 0, facts: Facts | None = None, end: SnapshotEnd = END) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(epoch_body(end, encode(facts or Facts()), lost)))
    return read


def epoch(
    partition: int, *seqs: int, second: int = 100, part: int = 0, parts: int = 1, job: int = 1,
    attempt: int = 2, said: dict[str, Any] | None = None,
) -> Envelope:  # fmt: skip
    return Envelope(
        MessageKind.EPOCH, job, attempt, epoch=second, partition=partition, part=part, parts=parts,
        sections={"wait": waits(*seqs)} if seqs else {}, body=said or (body() if part == 0 else None),
    )  # fmt: skip


def seqs(case: Case[str]) -> list[int]:
    return sorted(case.waits()["seq"].tolist())


def test_judged_when_all_have_reported() -> None:
    known = board()
    for partition in range(PARTITIONS):
        assert known.ready(0.0) == []
        known.report(epoch(partition, partition + 10), f"t{partition}", 0.0)
    (case,) = known.ready(0.0)
    assert (case.job, case.attempt, case.missing(), case.epoch()) == (1, 2, (), 100)
    assert seqs(case) == [10, 11, 12]
    assert case.tokens == ["t0", "t1", "t2"]
    assert case.end == END


@pytest.mark.parametrize("late", range(PARTITIONS))
def test_a_late_partition_holds_the_judgement_back(late: int) -> None:
    """Whichever it is: without it a victim would look like the culprit."""
    known = board()
    for partition in range(PARTITIONS):
        known.mark(partition, 0.0)  # to be watched is no report
        if partition != late:
            known.report(epoch(partition, 1), "t", 0.0)
    assert known.ready(SNAPSHOT_S - 0.1) == []
    known.report(epoch(late, 2), "late", SNAPSHOT_S - 0.1)
    (case,) = known.ready(SNAPSHOT_S - 0.1)
    assert case.missing() == ()
    assert len(case.waits()) == PARTITIONS


@pytest.mark.parametrize("late", range(PARTITIONS))
def test_the_time_out_names_who_is_missing(late: int) -> None:
    known = board()
    for partition in range(PARTITIONS):
        if partition != late:
            known.report(epoch(partition, 1), "t", 5.0)
    assert known.ready(5.0 + SNAPSHOT_S - 0.1) == []
    (case,) = known.ready(5.0 + SNAPSHOT_S)
    assert case.missing() == (late,)


@pytest.mark.parametrize("order", list(permutations(range(PARTITIONS))))
def test_order_of_partitions_does_not_matter(order: tuple[int, ...]) -> None:
    known = board()
    for partition in order:
        assert known.ready(0.0) == []
        known.report(epoch(partition, partition), "t", 0.0)
    (case,) = known.ready(0.0)
    assert seqs(case) == [0, 1, 2]


def test_partitions_that_nobody_watches() -> None:
    known = board()
    assert known.unread(range(PARTITIONS), 0.0) == (0, 1, 2)
    known.mark(0, 10.0)
    known.mark(2, 11.0)
    assert known.unread(range(PARTITIONS), 11.0) == (1,)
    assert known.unread((0, 2), 10.0 + EPOCH_S) == ()
    assert known.unread((0, 2), 10.5 + EPOCH_S) == (0,)
    known.mark(0, 10.5 + EPOCH_S)
    assert known.unread((0, 2), 10.5 + EPOCH_S) == ()
    assert known.unread((), 1e9) == ()


def test_a_newer_epoch_replaces_the_older_one() -> None:
    known = board()
    known.report(epoch(0, 1, 2, second=100), "old", 0.0)
    known.report(epoch(0, 3, second=101), "new", 0.0)
    for partition in (1, 2):
        known.report(epoch(partition), "t", 0.0)
    (case,) = known.ready(0.0)
    assert seqs(case) == [3]
    assert case.epoch() == 101
    assert case.tokens[:2] == ["old", "new"]


def test_an_older_epoch_that_comes_late_changes_nothing() -> None:
    known = board()
    known.report(epoch(0, 3, second=101), "new", 0.0)
    known.report(epoch(0, 1, 2, second=100, said=body(lost=9)), "old", 0.0)
    for partition in (1, 2):
        known.report(epoch(partition), "t", 0.0)
    (case,) = known.ready(0.0)
    assert seqs(case) == [3]
    assert case.losses[0] == 0
    # It is acknowledged with the others.
    assert "old" in case.tokens


def test_a_newer_epoch_without_waits_empties_it() -> None:
    known = board()
    known.report(epoch(0, 1, 2, second=100), "old", 0.0)
    known.report(epoch(0, second=101), "new", 0.0)
    for partition in (1, 2):
        known.report(epoch(partition), "t", 0.0)
    (case,) = known.ready(0.0)
    assert len(case.waits()) == 0
    assert case.waits().dtype == WAIT.dtype


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_parts(order: tuple[int, ...]) -> None:
    known = board()
    for partition in (1, 2):
        known.report(epoch(partition), "t", 0.0)
    for part in order:
        assert known.ready(SNAPSHOT_S - 0.1) == []
        known.report(epoch(0, 10 * part, 10 * part + 1, part=part, parts=3), f"p{part}", 0.0)
    (case,) = known.ready(0.0)
    assert case.waits()["seq"].tolist() == [0, 1, 10, 11, 20, 21]


def test_a_missing_part_is_a_missing_partition() -> None:
    known = board()
    known.report(epoch(0, 1, part=0, parts=2), "p0", 0.0)
    for partition in (1, 2):
        known.report(epoch(partition), "t", 0.0)
    (case,) = known.ready(SNAPSHOT_S)
    assert case.missing() == (0,)


def test_a_part_read_twice_counts_once() -> None:
    known = board()
    for _ in range(2):
        known.report(epoch(0, 1, 2, part=0, parts=2), "p0", 0.0)
    for partition in (1, 2):
        known.report(epoch(partition), "t", 0.0)
    assert known.ready(0.0) == []
    known.report(epoch(0, 3, part=1, parts=2), "p1", 0.0)
    (case,) = known.ready(0.0)
    assert seqs(case) == [1, 2, 3]


def test_losses_of_partitions_are_kept_apart() -> None:
    known = board()
    for partition, lost in ((0, 4), (1, 0), (2, 3)):
        for _ in range(2):
            known.report(epoch(partition, said=body(lost=lost)), "t", 0.0)
    (case,) = known.ready(0.0)
    assert case.losses == {0: 4, 1: 0, 2: 3}


def test_facts_of_partitions_are_merged() -> None:
    known = board()
    for partition, (name, ranks) in enumerate({"a": (0, 1), "b": (1, 2), "c": (2, 0)}.items()):
        facts = gather([announcement(name, ranks)], [dev_of(rank) for rank in ranks], [comm_of(name)])
        known.report(epoch(partition, said=body(facts=facts)), "t", 0.0)
    (case,) = known.ready(0.0)
    assert case.facts.ranks == {
        dev_of(0): {comm_of("a"): 0, comm_of("c"): 1},
        dev_of(1): {comm_of("a"): 1, comm_of("b"): 0},
        dev_of(2): {comm_of("b"): 1, comm_of("c"): 0},
    }
    assert [case.facts.world_rank(dev_of(rank)) for rank in (0, 1, 2)] == [0, 1, 2]


def test_jobs_and_attempts_are_apart() -> None:
    known = board()
    for partition in range(PARTITIONS):
        known.report(epoch(partition, 1, job=1, attempt=1), "t11", 0.0)
        known.report(epoch(partition, 2, job=1, attempt=2), "t12", 0.0)
    known.report(epoch(0, 3, job=2, attempt=1), "t21", 0.0)
    ready = {(case.job, case.attempt): case for case in known.ready(0.0)}
    assert set(ready) == {(1, 1), (1, 2)}
    assert seqs(ready[1, 1]) == [1] * PARTITIONS
    assert ready[1, 2].tokens == ["t12"] * PARTITIONS


def test_dropped_is_forgotten() -> None:
    known = board()
    for partition in range(PARTITIONS):
        known.report(epoch(partition), "t", 0.0)
    (case,) = known.ready(0.0)
    assert known.ready(0.0) == [case]
    known.drop(case)
    assert known.ready(1e9) == []
    known.drop(case)


def test_a_case_whose_end_is_not_known_is_given_up_in_time() -> None:
    known = board()
    known.report(epoch(0, 1, part=1, parts=2), "p1", 0.0)
    assert known.ready(SNAPSHOT_S - 0.1) == []
    (case,) = known.ready(SNAPSHOT_S)
    assert case.end is None
    assert case.missing() == ()


@pytest.mark.parametrize(
    "change",
    [
        {"end": None}, {"end": {}}, {"facts": None}, {"facts": {}}, {"lost": None}, {"lost": "many"},
        {"facts": {"comms": {}, "devices": {"x": {}}}}, {"facts": {"comms": [], "devices": {}}},
        {"facts": {"comms": {"xyz": ["a", 1]}, "devices": {}}},
        {"facts": {"comms": {hex_id(1): "abc"}, "devices": {}}},
    ],
    ids=str,
)  # fmt: skip
def test_a_body_that_cannot_be_read_changes_nothing(change: dict[str, Any]) -> None:
    known = board()
    for partition in range(PARTITIONS):
        known.report(epoch(partition, partition), "t", 0.0)
    with pytest.raises(Malformed):
        known.report(epoch(0, second=2**60, said={**body(), **change}), "bad", 0.0)
    (case,) = known.ready(0.0)
    assert seqs(case) == [0, 1, 2]
    assert case.tokens == ["t"] * PARTITIONS
    assert case.losses == {0: 0, 1: 0, 2: 0}


def test_an_epoch_sent_again_in_other_parts_counts() -> None:
    """A worker died after the first of two parts; its successor needed only one, in the same second."""
    known = board()
    for partition in (1, 2):
        known.report(epoch(partition), "t", 0.0)
    known.report(epoch(0, 1, part=0, parts=2), "p0", 0.0)
    known.report(epoch(0, 1, 2, part=0, parts=1), "whole", 0.0)
    (case,) = known.ready(0.0)
    assert seqs(case) == [1, 2]
