"""A snapshot as messages, in the order in which they are to be sent.

First who is a member of what, then finished operations, which are most of it, then pending ones and
positions, then an END to every partition. A reader that restarts in between has little to go back for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from collectors.flight_recorder.snapshot import Snapshot
from schemas.envelope import MAX_MESSAGE_BYTES, Envelope, MessageKind, encode
from schemas.members import encode_members
from schemas.records import COLL, Records
from schemas.snapshots import SnapshotEnd, encode_end
from schemas.topics import MEMBERS, TRACE, partition_of

ROWS_PER_MESSAGE = (MAX_MESSAGE_BYTES - 4096) // COLL.dtype.itemsize
"""4096 bytes are more than the header and the source's name take."""


@dataclass(frozen=True)
class Message:
    """One message; `records` of the snapshot ride in it.

    `bulk`: nothing but finished operations, which the worker acknowledges as it reads. It keeps the rest
    unacknowledged until the verdict.
    """

    topic: str
    partition: int
    key: bytes | None
    value: bytes
    records: int = 0
    bulk: bool = False


def messages(snapshot: Snapshot, partitions: int) -> Iterator[Message]:
    """All messages of a snapshot, for topics of so many partitions. Built one by one: they may be many."""
    announced, sent = [0] * partitions, [0] * partitions
    for announcement in snapshot.announcements:
        partition = partition_of(announcement.comm, partitions)
        announced[partition] += 1
        yield Message(MEMBERS.name, partition, announcement.key, encode_members(announcement))
    for bulk, arrays in ((True, snapshot.done), (False, (snapshot.positions, snapshot.pending))):
        for partition, rows in _by_partition(arrays, partitions):
            envelope = _envelope(snapshot, MessageKind.IMPORT, sent[partition], {COLL.name: rows})
            yield Message(TRACE.name, partition, None, encode(envelope), len(rows), bulk)
            sent[partition] += 1
    for partition in range(partitions):
        end = SnapshotEnd(
            snapshot.id, snapshot.job, snapshot.attempt, partitions, sent[partition], announced[partition],
            snapshot.ranks, tuple(sorted(snapshot.silent)), snapshot.blind,
        )  # fmt: skip
        envelope = _envelope(snapshot, MessageKind.END, sent[partition], {}, end)
        yield Message(TRACE.name, partition, None, encode(envelope))


def _envelope(
    snapshot: Snapshot,
    kind: MessageKind,
    sequence: int,
    sections: dict[str, Records],
    end: SnapshotEnd | None = None,
) -> Envelope:
    return Envelope(
        kind, snapshot.job_id, snapshot.attempt_id, snapshot.source, sequence, through=snapshot.through,
        sections=sections, body=None if end is None else encode_end(end),
    )  # fmt: skip


def _by_partition(arrays: Iterable[Records], partitions: int) -> Iterator[tuple[int, Records]]:
    """Rows by partition, each piece as full as a message may be; the last pieces hold the rest."""
    waiting: list[list[Records]] = [[] for _ in range(partitions)]
    held = [0] * partitions
    for rows in arrays:
        partition = rows["comm"] % np.uint64(partitions)
        for at in np.unique(partition).tolist():
            waiting[at].append(rows[partition == at])
            held[at] += len(waiting[at][-1])
            while held[at] >= ROWS_PER_MESSAGE:
                joined = np.concatenate(waiting[at])
                yield at, joined[:ROWS_PER_MESSAGE]
                waiting[at] = [joined[ROWS_PER_MESSAGE:]]
                held[at] -= ROWS_PER_MESSAGE
    for at, rest in enumerate(waiting):
        if held[at]:
            yield at, np.concatenate(rest)
