"""What waits while Kafka is away: bounded, and what can be spared goes first.

A flush is thinned before it is given up: its states go first (the next tick says more), then single finished
operations (sums cover them), and completions, positions and the flush's own statement last. All that goes is
counted, in records, and told in `drops` of every later message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from collectors.agent.groups import picked
from schemas.enums import Kind
from schemas.records import COLL, FLOW, Records

U64 = npt.NDArray[np.uint64]

_FIXED_BYTES = 1024
"""What one flush takes here beside its records."""


@dataclass(frozen=True)
class Flush:
    """What a host states about one job at one moment, not yet divided by partition.

    `through`: sampled-through, ns of the wall clock. `comms`: its live communicators, all of whose partitions
    are told, with or without records. `proc_comms`: for each row of section proc, the communicator in whose
    partition it is said, 0 where the process has none.
    """

    job: int
    attempt: int
    through: int
    comms: U64
    sections: Mapping[str, Records] = field(default_factory=dict)
    proc_comms: U64 = field(default_factory=lambda: np.empty(0, np.uint64))

    @property
    def records(self) -> int:
        """Records in all sections."""
        return sum(len(rows) for rows in self.sections.values())

    @property
    def size(self) -> int:
        """Bytes that it takes in memory."""
        return _FIXED_BYTES + self.comms.nbytes + sum(rows.nbytes for rows in self.sections.values())


def without_states(flush: Flush) -> Flush:
    """The flush without operations and flows in flight."""
    return _only(flush, lambda kind: kind != Kind.STATE)


def without_details(flush: Flush) -> Flush:
    """The flush with nothing but sums, positions, orphans and processes."""
    return _only(flush, lambda kind: (kind != Kind.STATE) & (kind != Kind.DONE))


def _only(flush: Flush, keep: Callable[[npt.NDArray[np.uint8]], npt.NDArray[np.bool_]]) -> Flush:
    sections = dict(flush.sections)
    for name in (COLL.name, FLOW.name):
        if name in sections:
            sections[name] = picked(sections[name], keep(sections[name]["kind"]))
    return replace(flush, sections=sections)


class Backlog:
    """A queue of flushes whose size never exceeds `limit` bytes. A full one neither blocks nor raises."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._queue: deque[Flush] = deque()
        self._thinned = [0, 0]  # how many at the head have no states, no details

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, flush: Flush) -> int:
        """Add one; returns how many records had to go for it, its own among them.

        The oldest are thinned first, then the new one; then the oldest go as a whole, a flush without
        records counting as one.
        """
        self._queue.append(flush)
        self.size += flush.size
        gone = self._thin(0, without_states)
        gone += self._thin(1, without_details)
        while self.size > self.limit and self._queue:
            gone += max(1, self.pop().records)
        return gone

    def peek(self) -> Flush | None:
        """The oldest, None where there is none."""
        return self._queue[0] if self._queue else None

    def pop(self) -> Flush:
        """Take the oldest out; raises IndexError where there is none."""
        flush = self._queue.popleft()
        self.size -= flush.size
        self._thinned = [max(0, count - 1) for count in self._thinned]
        return flush

    def _thin(self, stage: int, thin: Callable[[Flush], Flush]) -> int:
        gone = 0
        while self.size > self.limit and self._thinned[stage] < len(self._queue):
            at = self._thinned[stage]
            before = self._queue[at]
            after = thin(before)
            self._queue[at] = after
            self.size += after.size - before.size
            gone += before.records - after.records
            self._thinned[stage] += 1
        return gone
