"""How much of what one producer sent is still unread, by offset and bytes.

A broker that keeps little (the embedded one some MB a partition) drops what is not read in time, and no error
says so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

Place = tuple[str, int]
"""Topic and partition."""


@dataclass
class _Sent:
    offsets: list[int] = field(default_factory=list)
    totals: list[int] = field(default_factory=list)  # bytes up to and with this offset
    produced: int = 0
    read: int = 0


class Pace:
    """Counts of one producer. Offsets come back by partition in ascending order."""

    def __init__(self) -> None:
        self._sent: defaultdict[Place, _Sent] = defaultdict(_Sent)

    def produced(self, place: Place, size: int) -> None:
        """`size` bytes were handed to the producer."""
        self._sent[place].produced += size

    def delivered(self, place: Place, offset: int, size: int) -> None:
        """The broker gave `size` of these bytes an offset."""
        sent = self._sent[place]
        sent.offsets.append(offset)
        sent.totals.append((sent.totals[-1] if sent.totals else 0) + size)

    def committed(self, place: Place, offset: int) -> bool:
        """A reader has everything below `offset`; returns whether that is more of ours than before."""
        sent = self._sent[place]
        at = bisect_left(sent.offsets, offset)
        read = sent.totals[at - 1] if at else 0
        further = read > sent.read
        sent.read = max(read, sent.read)
        return further

    def unread(self, place: Place) -> int:
        """Bytes that are not known to be read, those on their way included."""
        sent = self._sent[place]
        return sent.produced - sent.read
