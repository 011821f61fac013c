"""Watch's memory of one trace partition: snapshots on their way in, and when each is whole.

Pure state, no I/O. What a verdict rests on stays unacknowledged (`tokens`) until the waits have been sent
on, so a worker that dies in between reads it again from the broker. Messages of nothing but finished
operations are not held: they are the bulk, an importer paces itself by their acknowledgement, and they are
only needed to see that finished operations were called alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from schemas.enums import Kind
from schemas.envelope import Envelope, MessageKind
from schemas.members import Announcement
from schemas.records import COLL, WAIT, Records
from schemas.snapshots import SnapshotEnd, decode_end
from schemas.topics import partition_of
from streams.facts import Facts, gather
from streams.judge import waits
from streams.membership import Membership, membership
from streams.mismatch import mismatches
from streams.operations import join

PATIENCE_S = 10.0
"""How long after a snapshot's end its other messages may still come.

They were sent before the end and lie in the same partition or in that of the members, so what is missing
after this was lost by the broker.
"""

Token = TypeVar("Token")


@dataclass
class Snapshot(Generic[Token]):
    """What has arrived of one attempt of a job."""

    job: int
    attempt: int
    announcements: dict[tuple[int, str], Announcement] = field(default_factory=dict)
    """By communicator and source, as the topic is compacted."""
    batches: dict[int, Records] = field(default_factory=dict)
    """Records by the sequence number of their message, so that one read twice counts once."""
    end: SnapshotEnd | None = None
    ended: float = 0.0
    """When the end was read, in the caller's seconds."""
    gap: bool = False
    """Offsets of the partition were skipped: nothing that was not read may be taken for acknowledged."""
    tokens: list[Token] = field(default_factory=list)

    def missing(self) -> int:
        """Messages that have not arrived, as far as the end tells.

        What lies before the first that was read here had been acknowledged by a worker before this one,
        unless the broker dropped it.
        """
        if self.end is None:
            return 0
        first = 0 if self.gap else min(self.batches, default=self.end.messages)
        records = max(0, self.end.messages - first - len(self.batches))
        return records + max(0, self.end.members - len(self.announcements))

    def settled(self, now: float) -> bool:
        """Whether nothing more is to be waited for."""
        return self.end is not None and (self.missing() == 0 or now - self.ended >= PATIENCE_S)


@dataclass(frozen=True)
class Judged:
    """The waits of one snapshot on one partition."""

    waits: Records
    facts: Facts
    stray: int
    """Records of unknown communicators or ranks."""


class SnapshotBoard(Generic[Token]):
    """All snapshots of one partition."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[int, int], Snapshot[Token]] = {}
        self._next: int | None = None
        self._gap = False

    def announce(self, announcement: Announcement, token: Token) -> None:
        """Take in members."""
        snapshot = self._of(announcement.job_id, announcement.attempt_id)
        snapshot.announcements[announcement.comm, announcement.source] = announcement
        snapshot.tokens.append(token)

    def take(self, message: Envelope, token: Token, now: float) -> bool:
        """Take in a part of a snapshot, or its end; returns whether the token is held.

        Raises Malformed where the end cannot be read; ValueError for a message of another kind.
        """
        if message.kind == MessageKind.IMPORT:
            snapshot = self._of(message.job, message.attempt)
            rows = message.sections.get(COLL.name, COLL.empty(0))
            snapshot.batches[message.sequence] = rows
            if (rows["kind"] == Kind.DONE).all():
                return False
        elif message.kind == MessageKind.END:
            end = decode_end(message.body)
            snapshot = self._of(message.job, message.attempt)
            snapshot.end, snapshot.ended = end, now
        else:
            raise ValueError(f"a snapshot is not made of {message.kind.name} messages")
        snapshot.tokens.append(token)
        return True

    def at(self, offset: int) -> None:
        """Note where in the partition of `nccl.trace` the reader is, before each message.

        A skipped offset means that the broker had dropped something, of whatever snapshot.
        """
        if self._next is not None and offset > self._next:
            self._gap = True
            for snapshot in self._snapshots.values():
                snapshot.gap = True
        self._next = offset + 1

    def settled(self, now: float) -> list[Snapshot[Token]]:
        """Snapshots that can be judged; they stay until `drop`."""
        return [snapshot for snapshot in self._snapshots.values() if snapshot.settled(now)]

    def drop(self, snapshot: Snapshot[Token]) -> None:
        """Forget a snapshot whose waits have been sent."""
        self._snapshots.pop((snapshot.job, snapshot.attempt), None)

    def _of(self, job: int, attempt: int) -> Snapshot[Token]:
        return self._snapshots.setdefault((job, attempt), Snapshot(job, attempt, gap=self._gap))


def judge(
    announcements: Iterable[Announcement], batches: Iterable[Records], job: int, attempt: int
) -> Judged:
    """Who waits for whom in the communicators of one partition. Takes a while: run it off the event loop."""
    announcements, batches = list(announcements), list(batches)
    members = membership(announcements)
    rows = np.concatenate(batches) if batches else COLL.empty(0)
    operations, positions, stray = join(members, rows)
    found = np.concatenate([waits(members, operations, positions), mismatches(members, operations)])
    found["job"], found["attempt"] = job, attempt
    assert found.dtype == WAIT.dtype
    device = found["holder_rank"] >= 0
    devices = {*found["holder"][device].tolist(), *found["waiter"][found["waiter_rank"] >= 0].tolist()}
    devices |= _ends(members, found)
    facts = gather(announcements, devices, set(found["comm"].tolist()))
    if any(announcement.blind for announcement in announcements):
        _add_orders(facts, announcements, rows)
    return Judged(found, facts, stray)


def _ends(members: Membership, found: Records) -> set[int]:
    """Devices at both ends of the sends and receives among the waits."""
    pairs = found[found["sender"] >= 0]
    at, _ = members.index(pairs["comm"])
    slots = [members.first[at] + pairs[end] for end in ("sender", "receiver")]
    return set(members.dev[np.concatenate(slots)].tolist())


def _add_orders(facts: Facts, announcements: list[Announcement], rows: Records) -> None:
    """Every device with its launch order, since any idle one may hold up others unseen."""
    orders = rows[rows["kind"] == Kind.POSITION][["dev", "order"]].tolist()
    for dev, order in orders:
        facts.orders[dev] = max(order, facts.orders.get(dev, 0))
    facts.merge(gather(announcements, facts.orders, ()))


def belongs(announcement: Announcement, partition: int, partitions: int) -> bool:
    """Whether a members message lies in the partition where its communicator's records are."""
    return partition_of(announcement.comm, partitions) == partition
