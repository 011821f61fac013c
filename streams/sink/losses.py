"""What is missing between messages: offsets that the broker lost, numbers and records that a source did.

A source numbers its flushes to a partition from 0, in order, and each says how many records the source has
lost since it started. Both are compared with its former flush, which is remembered as long as a sink holds
the partition. What is lost exactly between the last flush that one sink stored and the first that the next
one reads is therefore not told; nothing is ever told that did not happen. A range that is stored again may
thus have fewer losses than the first time, never others, and its token keeps whichever came first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

OFFSET_GAP = "offset-gap"
SEQUENCE_GAP = "sequence-gap"
DROPS = "drops"

MAX_SOURCES = 65_536
"""Remembered of a partition; the one that was silent for longest is forgotten first."""


@dataclass(frozen=True)
class Loss:
    """A row of nccl.losses: `missing` of `what`, numbered from `first`; `source` is empty for a broker's."""

    source: str
    what: str
    first: int
    missing: int


@dataclass(frozen=True)
class Numbered:
    """What a flush says of itself: see schemas/envelope.py."""

    source: str
    sequence: int
    drops: int


def offset_gaps(gaps: Iterable[tuple[int, int]]) -> list[Loss]:
    """Losses of a broker; a gap is its first missing offset and how many are missing."""
    return [Loss("", OFFSET_GAP, first, missing) for first, missing in gaps]


class Sources:
    """The last flush of each source in one partition."""

    def __init__(self, limit: int = MAX_SOURCES) -> None:
        self._limit = limit
        self._last: dict[str, Numbered] = {}

    def losses(self, flush: Numbered) -> list[Loss]:
        """What was lost between the former flush of its source and this one.

        A lower number is a source that has started again: it counts from 0, and its count of lost records
        begins with this flush. The same number again says nothing.
        """
        before = self._last.pop(flush.source, None)
        self._last[flush.source] = flush
        if len(self._last) > self._limit:
            del self._last[next(iter(self._last))]
        if before is None or flush.sequence == before.sequence:
            return []
        anew = flush.sequence < before.sequence
        expected = 0 if anew else before.sequence + 1
        found = []
        if flush.sequence > expected:
            found.append(Loss(flush.source, SEQUENCE_GAP, expected, flush.sequence - expected))
        if not anew and flush.drops > before.drops:
            found.append(Loss(flush.source, DROPS, before.drops, flush.drops - before.drops))
        return found
