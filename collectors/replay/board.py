"""The memory that the processes of a replay share: start time, pids, handles, and how late each call was.

One anonymous file, as 64-bit words:

    start (monotonic ns, 0 until set) · wall clock then (ns) · pid of each rank · slots · lateness by line

A slot holds a context or handle as the plugin returned it, so that a relay can pass on another process's.
Lateness is 0 until the line's call has been made, then ns + 1; `SKIPPED` where the plugin's mask did not ask
for it; `FAILED` where the plugin answered an error.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

SKIPPED: Final = -1
FAILED: Final = -2
START: Final = 0
WALL: Final = 1
PIDS: Final = 2


class Board:
    """A view of the shared words. `ranks`, `slots`, `lines`: how many of each."""

    def __init__(self, fd: int, ranks: int, slots: int, lines: int) -> None:
        self.slots_at = PIDS + ranks
        self.lines_at = self.slots_at + slots
        self.map = mmap.mmap(fd, 8 * (self.lines_at + lines))
        self.words = memoryview(self.map).cast("Q")
        self.lateness = memoryview(self.map).cast("q")[self.lines_at :]

    @staticmethod
    def create(ranks: int, slots: int, lines: int) -> tuple[int, Board]:
        """A new file, as a descriptor to hand to the processes, and the view of it."""
        fd = os.memfd_create("mycroft-replay")
        os.ftruncate(fd, 8 * (PIDS + ranks + slots + lines))
        return fd, Board(fd, ranks, slots, lines)
