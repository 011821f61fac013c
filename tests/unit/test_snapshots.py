"""Snapshots on their way in: when each is whole, and what is held until it was judged."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from schemas.enums import Kind
from schemas.envelope import Envelope, MessageKind
from schemas.ids import hash64
from schemas.malformed import Malformed
from schemas.members import Announcement
from schemas.records import COLL, WAIT, Records
from schemas.snapshots import SnapshotEnd, encode_end
from streams.snapshots import PATIENCE_S, SnapshotBoard, belongs, judge
from tests.records import ATTEMPT_ID, JOB_ID, Told, announcement, comm_of, dev_of

Board = SnapshotBoard[str]


def rows(*kinds: Kind) -> Records:
    found = COLL.empty(len(kinds))
    found["kind"] = kinds
    return found


def part(sequence: int, *kinds: Kind, job: int = JOB_ID, attempt: int = ATTEMPT_ID) -> Envelope:
    sections = {"coll": rows(*kinds)} if kinds else {}
    return Envelope(MessageKind.IMPORT, job, attempt, "import", sequence, sections=sections)


def end(messages: int, members: int = 0, *, job: int = JOB_ID, attempt: int = ATTEMPT_ID) -> Envelope:
    body = json.loads(json.dumps(encode_end(SnapshotEnd(7, "job", "1", 4, messages, members, (0, 1)))))
    return Envelope(MessageKind.END, job, attempt, "import", messages, body=body)


def members(name: str = "a", *, job: int = JOB_ID, attempt: int = ATTEMPT_ID) -> Announcement:
    return replace(announcement(name, (0, 1)), job_id=job, attempt_id=attempt)


def test_whole_with_all_messages_and_members() -> None:
    board = Board()
    board.announce(members(), "m")
    assert board.take(part(0, Kind.STATE), "0", 1.0)
    assert board.settled(100.0) == []
    assert board.take(part(1, Kind.POSITION), "1", 2.0)
    assert board.settled(100.0) == []
    assert board.take(end(2, 1), "end", 3.0)
    (snapshot,) = board.settled(3.0)
    assert (snapshot.job, snapshot.attempt, snapshot.missing()) == (JOB_ID, ATTEMPT_ID, 0)
    assert snapshot.tokens == ["m", "0", "1", "end"]
    assert sum(len(batch) for batch in snapshot.batches.values()) == 2
    assert snapshot.end is not None
    assert snapshot.end.snapshot == 7


@pytest.mark.parametrize("late", ["m", "1"])
def test_what_comes_after_the_end_is_waited_for(late: str) -> None:
    """The topics of members and of records are read side by side: either may lag behind."""
    board = Board()
    for token in ("m", "0", "1"):
        if token != late:
            give(board, token)
    board.take(end(2, 1), "end", 0.0)
    assert board.settled(PATIENCE_S - 0.1) == []
    give(board, late)
    (snapshot,) = board.settled(PATIENCE_S - 0.1)
    assert snapshot.missing() == 0


def give(board: Board, token: str) -> None:
    if token == "m":
        board.announce(members(), token)
    else:
        board.take(part(int(token), Kind.STATE), token, 0.0)


def test_patience_ends() -> None:
    board = Board()
    board.take(part(0, Kind.STATE), "0", 0.0)
    board.take(end(3, 2), "end", 5.0)
    assert board.settled(5.0 + PATIENCE_S - 0.1) == []
    (snapshot,) = board.settled(5.0 + PATIENCE_S)
    assert snapshot.missing() == 2 + 2


def test_without_an_end_nothing_is_judged() -> None:
    board = Board()
    board.take(part(0, Kind.STATE), "0", 0.0)
    assert board.settled(1e9) == []


def test_an_empty_snapshot_is_whole_at_once() -> None:
    board = Board()
    board.take(end(0, 0), "end", 0.0)
    (snapshot,) = board.settled(0.0)
    assert snapshot.batches == {}


def test_a_message_read_twice_counts_once() -> None:
    board = Board()
    for _ in range(2):
        board.announce(members(), "m")
        board.take(part(0, Kind.STATE, Kind.STATE), "0", 0.0)
    board.take(end(2, 1), "end", 0.0)
    assert board.settled(1.0) == []
    board.take(part(1, Kind.STATE), "1", 0.0)
    (snapshot,) = board.settled(1.0)
    assert sum(len(batch) for batch in snapshot.batches.values()) == 3
    # Each copy is acknowledged.
    assert sorted(snapshot.tokens) == ["0", "0", "1", "end", "m", "m"]


def test_finished_operations_are_not_held() -> None:
    board = Board()
    assert not board.take(part(0, Kind.DONE, Kind.DONE), "0", 0.0)
    assert not board.take(part(1), "1", 0.0)
    assert board.take(part(2, Kind.DONE, Kind.STATE), "2", 0.0)
    assert board.take(end(3), "end", 0.0)
    (snapshot,) = board.settled(0.0)
    assert snapshot.tokens == ["2", "end"]
    # Their rows are there nevertheless.
    assert sum(len(batch) for batch in snapshot.batches.values()) == 4


def test_after_a_restart_what_had_been_acknowledged_is_not_missing() -> None:
    """A worker before this one acknowledged 0 and 1."""
    board = Board()
    board.take(part(2, Kind.STATE), "2", 0.0)
    board.take(part(3, Kind.POSITION), "3", 0.0)
    board.take(end(4), "end", 0.0)
    (snapshot,) = board.settled(0.0)
    assert snapshot.missing() == 0


def test_after_a_restart_with_nothing_but_the_end() -> None:
    """All its records were of finished operations, and acknowledged."""
    board = Board()
    board.take(end(5), "end", 0.0)
    (snapshot,) = board.settled(0.0)
    assert snapshot.missing() == 0


def test_sources_may_each_announce_a_part() -> None:
    board = Board()
    for source in ("h1", "h2"):
        board.announce(replace(members(), source=source), source)
    board.take(end(0, 2), "end", 0.0)
    (snapshot,) = board.settled(0.0)
    assert snapshot.missing() == 0
    assert {each.source for each in snapshot.announcements.values()} == {"h1", "h2"}


def test_jobs_and_attempts_are_apart() -> None:
    board = Board()
    for job, attempt in ((1, 1), (1, 2), (2, 1)):
        board.announce(members(job=job, attempt=attempt), f"m{job}{attempt}")
        board.take(part(0, Kind.STATE, job=job, attempt=attempt), f"0{job}{attempt}", 0.0)
    board.take(end(1, 1, job=1, attempt=2), "end", 0.0)
    (snapshot,) = board.settled(0.0)
    assert (snapshot.job, snapshot.attempt) == (1, 2)
    assert snapshot.tokens == ["m12", "012", "end"]


def test_dropped_is_forgotten() -> None:
    board = Board()
    board.take(end(0), "end", 0.0)
    (snapshot,) = board.settled(0.0)
    assert board.settled(0.0) == [snapshot]
    board.drop(snapshot)
    assert board.settled(0.0) == []
    board.drop(snapshot)
    # It may come again.
    board.take(end(0), "end", 1.0)
    assert len(board.settled(1.0)) == 1


@pytest.mark.parametrize("kind", [MessageKind.FLUSH, MessageKind.EPOCH, MessageKind.MARKER])
def test_other_messages_are_refused(kind: MessageKind) -> None:
    with pytest.raises(ValueError, match=kind.name):
        Board().take(Envelope(kind), "x", 0.0)


def test_an_end_that_cannot_be_read_leaves_no_trace() -> None:
    board = Board()
    board.take(part(0, Kind.STATE), "0", 0.0)
    for body in (None, {}, {"version": 1}):
        with pytest.raises(Malformed):
            board.take(Envelope(MessageKind.END, JOB_ID, ATTEMPT_ID, body=body), "bad", 0.0)
    assert board.settled(1e9) == []
    board.take(end(1), "end", 2e9)
    (snapshot,) = board.settled(2e9)
    assert snapshot.tokens == ["0", "end"]


def late() -> Told:
    told = Told({"a": (0, 1, 2), "b": (2, 3)})
    for rank in (0, 1):
        told.state(rank, "a", 5)
        told.at(rank, "a", 5, 4)
    told.at(2, "a", 4, 4)
    told.at(2, "b", 1, 1)
    told.at(3, "b", 1, 1)
    return told


def test_judge_joins_batches() -> None:
    told = late()
    whole = told.judged()
    parted = judge(iter(told.announcements()), iter(told.rows), JOB_ID, ATTEMPT_ID)
    assert parted.waits.tobytes() == whole.waits.tobytes()
    assert parted.waits.dtype == WAIT.dtype
    assert len(whole.waits) == 3
    assert set(whole.waits["job"].tolist()) == {JOB_ID}
    assert set(whole.waits["attempt"].tolist()) == {ATTEMPT_ID}
    assert whole.stray == 0


def test_judge_sends_the_facts_of_what_the_waits_mention() -> None:
    facts = late().judged().facts
    assert set(facts.devices) == {dev_of(rank) for rank in (0, 1, 2)}
    assert set(facts.comms) == {comm_of("a")}
    # Also the rank where it does not wait.
    assert facts.ranks[dev_of(2)] == {comm_of("a"): 2, comm_of("b"): 0}


def test_judge_counts_strays() -> None:
    told = late()
    stranger = told.rows[0].copy()
    stranger["comm"] = 5
    assert judge(told.announcements(), [*told.rows, stranger], 1, 2).stray == 1
    assert judge([], told.rows, 1, 2).stray == len(told.rows)


def test_judge_of_nothing() -> None:
    judged = judge([], [], 1, 2)
    assert len(judged.waits) == 0
    assert judged.waits.dtype == WAIT.dtype
    assert judge(late().announcements(), [], 1, 2).stray == 0


def test_judge_finds_mismatches_too() -> None:
    told = Told({"a": (0, 1, 2)})
    for rank in told.ranks:
        told.done(rank, "a", 1)["count"] = np.uint64(rank == 1)
    judged = told.judged()
    assert judged.waits["holder"].tolist() == [dev_of(1)]
    assert set(judged.facts.devices) == {dev_of(1)}


def test_members_belong_where_their_records_are() -> None:
    told = announcement("a", (0, 1))
    home = comm_of("a") % 4
    assert [belongs(told, partition, 4) for partition in range(4)] == [at == home for at in range(4)]
    assert hash64("communicator", "a") == comm_of("a")


def test_what_the_broker_dropped_is_missing() -> None:
    """Messages 0 and 1 fell off the head before they were read; a message of another job shows the gap."""
    board: SnapshotBoard[str] = SnapshotBoard()
    board.at(10)
    board.at(13)
    board.take(part(2, Kind.STATE), "2", 0.0)
    board.at(14)
    board.take(end(3), "end", 0.0)
    (snapshot,) = board.settled(PATIENCE_S)
    assert snapshot.missing() == 2
