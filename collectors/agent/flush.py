"""When something is said, and the messages that say it.

A flush is a statement: whatever this host's processes had launched on a partition's communicators by
*sampled-through* is in messages up to this one. So one goes each second to every partition in which the host
has a live communicator, empty or not, and more between seconds carry what stalls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from collectors.agent.backlog import Flush
from collectors.agent.groups import picked, stacked
from schemas.envelope import Envelope, MessageKind, encode, split
from schemas.records import COLL, FACT, FLOW, PROC, Records

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Said:
    """What has been told: sorted `keys`, what they showed then, and when; arrays of one length."""

    keys: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    prints: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    at: I64 = field(default_factory=lambda: np.empty(0, np.int64))

    def knows(self, keys: U64) -> Bools:
        """Which of `keys` have been told and were still there at the last look."""
        if not len(self.keys):
            return np.zeros(len(keys), np.bool_)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found: Bools = self.keys[at] == keys
        return found


def due(
    before: Said, keys: U64, prints: U64, now: int, least_ns: int | I64, most_ns: int
) -> tuple[Said, Bools]:
    """Which of `keys` are to be told now, and what has been told then.

    New ones at once; changed ones (by `prints`) when they were told `least_ns` ago or longer (one number, or
    one a key); all others every `most_ns`. `keys` are unique; those that are gone are forgotten.

    >>> first, mask = due(Said(), np.array([1], np.uint64), np.array([5], np.uint64), 0, 10, 50)
    >>> mask.tolist(), due(first, np.array([1], np.uint64), np.array([6], np.uint64), 9, 10, 50)[1].tolist()
    ([True], [False])
    """
    tell = np.ones(len(keys), np.bool_)
    said_prints, said_at = prints.copy(), np.full(len(keys), now, np.int64)
    known = before.knows(keys)
    if known.any():
        at = np.searchsorted(before.keys, keys[known])
        since = now - before.at[at]
        changed = before.prints[at] != prints[known]
        tell[known] = (changed & (since >= np.broadcast_to(least_ns, keys.shape)[known])) | (since >= most_ns)
        quiet = np.flatnonzero(known)[~tell[known]]
        said_prints[quiet] = before.prints[at][~tell[known]]
        said_at[quiet] = before.at[at][~tell[known]]
    order = np.argsort(keys, kind="stable")
    return Said(keys[order], said_prints[order], said_at[order]), tell


def by_partition(flush: Flush, partitions: int) -> dict[int, dict[str, Records]]:
    """The sections of each partition's message; every partition of a live communicator is in it."""
    found: dict[int, dict[str, Records]] = {}
    for partition in np.unique(flush.comms % np.uint64(partitions)).tolist():
        found[partition] = {}
    for name, rows in flush.sections.items():
        if name == FACT.name:  # of the host, not of a communicator: one partition passes them on
            found[int(flush.comms[0]) % partitions][name] = rows
            continue
        comms = flush.proc_comms if name == PROC.name else rows["comm"]
        where = comms % np.uint64(partitions)
        for partition in np.unique(where).tolist():
            found.setdefault(partition, {})[name] = picked(rows, where == partition)
    return dict(sorted(found.items()))


@dataclass
class Counts:
    """Where this source stands in each partition: next sequence number, last sampled-through told."""

    sequence: dict[int, int] = field(default_factory=dict)
    through: dict[tuple[int, int, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """An encoded message for one partition of `nccl.trace`, and how many records it holds."""

    partition: int
    value: bytes
    records: int


def messages(flush: Flush, partitions: int, source: str, drops: int, counts: Counts) -> Iterator[Ready]:
    """The flush as messages, numbered in `counts`.

    Of a flush too large for one message only the last part states the new sampled-through: before it,
    something is still on its way.
    """
    for partition, sections in by_partition(flush, partitions).items():
        whole = Envelope(
            MessageKind.FLUSH, flush.job, flush.attempt, source, drops=drops, through=flush.through,
            sections=sections,
        )  # fmt: skip
        place = (flush.job, flush.attempt, partition)
        for part in split(whole):
            last = part.part == part.parts - 1
            sequence = counts.sequence.get(partition, 0)
            counts.sequence[partition] = sequence + 1
            through = flush.through if last else counts.through.get(place, 0)
            value = encode(replace(part, sequence=sequence, through=through))
            yield Ready(partition, value, sum(len(rows) for rows in part.sections.values()))
        counts.through[place] = flush.through


def sections(coll: list[Records], flow: list[Records], proc: list[Records]) -> dict[str, Records]:
    """Sections of a flush from pieces; those without records are left out."""
    found = {}
    for record, pieces in ((COLL, coll), (FLOW, flow), (PROC, proc)):
        filled = [piece for piece in pieces if len(piece)]
        if filled:
            found[record.name] = stacked(filled, record.dtype)
    return found


def home(comms: list[int], process: int) -> int:
    """What decides the partition in which a process is told of: its lowest communicator, else its own id."""
    return min(comms) if comms else process
