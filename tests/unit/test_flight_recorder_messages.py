"""A snapshot in messages: members, what finished, what hangs, END; and how unread ones are counted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.flight_recorder.messages import ROWS_PER_MESSAGE, Message, messages
from collectors.flight_recorder.pace import Pace
from collectors.flight_recorder.snapshot import Snapshot, read_snapshot
from schemas.enums import Kind
from schemas.envelope import MAX_MESSAGE_BYTES, Envelope, MessageKind, decode
from schemas.malformed import Malformed
from schemas.members import decode_members
from schemas.snapshots import SnapshotEnd, decode_end, encode_end
from tests.flight_recorder_dumps import JobDumps
from tests.flight_recorder_sets import recorded


def trace(sent: list[Message]) -> dict[int, list[Envelope]]:
    """Envelopes by partition of nccl.trace."""
    found: dict[int, list[Envelope]] = defaultdict(list)
    for message in sent:
        if message.topic == "nccl.trace":
            found[message.partition].append(decode(message.value))
    return found


@pytest.mark.parametrize("partitions", [1, 4, 7])
def test_messages_of_a_snapshot(partitions: int) -> None:
    snapshot = read_snapshot(recorded("gloo_hang"), "job")
    sent = list(messages(snapshot, partitions))
    assert sum(message.records for message in sent) == snapshot.records == 358 + 5 + 24

    announced = [message for message in sent if message.topic == "nccl.members"]
    assert sent[: len(announced)] == announced
    assert [decode_members(message.value) for message in announced] == list(snapshot.announcements)
    for message in announced:
        announcement = decode_members(message.value)
        assert message.key == announcement.key
        assert message.partition == announcement.comm % partitions
        assert announcement.source == snapshot.source

    by_partition = trace(sent)
    assert sorted(by_partition) == list(range(partitions))
    for partition, envelopes in by_partition.items():
        assert [each.sequence for each in envelopes] == list(range(len(envelopes)))
        assert {(each.job, each.attempt) for each in envelopes} == {(snapshot.job_id, snapshot.attempt_id)}
        assert {each.through for each in envelopes} == {1796103040641104072}
        *imports, last = envelopes
        assert all(each.kind is MessageKind.IMPORT for each in imports)
        kinds = [kind for each in imports for kind in each.sections["coll"]["kind"].tolist()]
        finished = kinds.count(Kind.DONE)
        assert set(kinds[:finished]) <= {Kind.DONE}
        assert all((each.sections["coll"]["comm"] % partitions == partition).all() for each in imports)
        assert last.kind is MessageKind.END
        assert decode_end(last.body) == SnapshotEnd(
            snapshot.id, "job", snapshot.attempt, partitions, len(imports),
            sum(message.partition == partition for message in announced), tuple(range(8)), (), ("p2p",),
        )  # fmt: skip


def test_large_snapshots_are_split(tmp_path: Path) -> None:
    job = JobDumps(1, {"1": ("DATA_GROUP", [0])})
    job.launch(0, "1", "all_reduce")
    small = read_snapshot(job.write(tmp_path), "job")
    rows = 2 * ROWS_PER_MESSAGE + 10
    done = np.repeat(small.pending, rows)
    done["kind"], done["seq"] = Kind.DONE, np.arange(1, rows + 1)
    thirds = tuple(np.array_split(done, 3))
    (envelopes,) = trace(sent := list(messages(replace(small, done=thirds), 1))).values()
    assert all(len(message.value) <= MAX_MESSAGE_BYTES for message in sent)
    full, second, rest, hanging, end = envelopes
    joined = np.concatenate([each.sections["coll"] for each in (full, second, rest)])
    assert joined["seq"].tolist() == list(range(1, rows + 1))
    assert [len(each.sections["coll"]) for each in (full, second, rest, hanging)] == [
        ROWS_PER_MESSAGE
    ] * 2 + [10, 2]
    assert decode_end(end.body).messages == 4


def test_silent_ranks_are_named_at_the_end(tmp_path: Path) -> None:
    job = JobDumps(3, {"1": ("DATA_GROUP", [0, 1, 2])})
    for rank in range(3):
        job.launch(rank, "1", "all_reduce")
    snapshot: Snapshot = read_snapshot(job.write(tmp_path, omit_ranks={1}, truncate={2}), "job")
    for envelopes in trace(list(messages(snapshot, 2))).values():
        end = decode_end(envelopes[-1].body)
        assert (end.ranks, end.silent) == ((0, 1, 2), (1, 2))


END = SnapshotEnd(0xABC, "job", "first", 4, 3, 2, (0, 1), (1,), ("p2p",))


def test_an_end_survives_the_trip() -> None:
    assert encode_end(END)["snapshot"] == "0000000000000abc"
    assert decode_end(encode_end(END)) == END


@pytest.mark.parametrize(
    "body",
    [
        None, {}, encode_end(END) | {"version": 2}, encode_end(END) | {"snapshot": "xyz"},
        encode_end(END) | {"snapshot": 7}, encode_end(END) | {"ranks": ["a"]}, encode_end(END) | {"job": 1},
        encode_end(END) | {"partitions": 0}, encode_end(END) | {"messages": -1},
        encode_end(END) | {"blind": 1},
    ],
)  # fmt: skip
def test_what_is_no_end_is_refused(body: dict[str, object] | None) -> None:
    with pytest.raises(Malformed):
        decode_end(body)


PLACE = ("nccl.trace", 0)


def test_unread_bytes_fall_as_the_reader_commits() -> None:
    pace = Pace()
    for offset, size in ((10, 100), (11, 200), (13, 50)):  # 12 is somebody else's
        pace.produced(PLACE, size)
        pace.delivered(PLACE, offset, size)
    pace.produced(PLACE, 7)  # still on its way
    assert pace.unread(PLACE) == 357
    assert not pace.committed(PLACE, -1001)
    assert not pace.committed(PLACE, 10)
    assert pace.committed(PLACE, 11)
    assert pace.unread(PLACE) == 257
    assert not pace.committed(PLACE, 11)
    assert pace.committed(PLACE, 14)
    assert pace.unread(PLACE) == 7
    assert pace.unread(("nccl.trace", 1)) == 0


@given(st.lists(st.integers(1, 1000), max_size=30), st.lists(st.integers(0, 40), max_size=30))
def test_unread_is_what_lies_at_or_above_the_highest_commit(sizes: list[int], commits: list[int]) -> None:
    pace = Pace()
    for offset, size in enumerate(sizes):
        pace.produced(PLACE, size)
        pace.delivered(PLACE, offset, size)
    for commit in commits:
        pace.committed(PLACE, commit)
    assert pace.unread(PLACE) == sum(sizes[max(commits, default=0) :])
