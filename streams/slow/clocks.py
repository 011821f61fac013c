"""Offsets of hosts' clocks, from the collectives themselves.

An AllReduce cannot end anywhere before it has started everywhere. With S a launch and E an end on the clocks
of hosts a and r, and o the amount by which a's clock is ahead of r's, each operation of both says

    S_a − E_r ≤ o ≤ E_a − S_r

The tightest of these bounds hold whatever the network does. Within them the best guess is that all ends of
an operation coincide: they do within one step. Bounds widen by MAX_DRIFT as they age, so a drifting clock is
followed; bounds that contradict one another mean that a clock was set, and what was known is dropped.

Offsets serve to compare launches of two hosts, and nothing else: no rule about stalls uses them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from schemas.records import UNKNOWN_NS
from streams.grouping import groups_of

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

MAX_DRIFT = 100e-6
"""Two clocks that are off by 50 ppm, the worst that crystals are sold with, in opposite directions."""
FOLLOW = 0.5
"""How much of the way to a window's own estimate: noise of one window is halved, drift is a window behind."""
FORGET_S = 600
"""A host that was in no operation for so long is forgotten; by then its bound is 60 ms wider."""

_FAR = np.int64(1) << np.int64(62)


@dataclass(frozen=True)
class Seen:
    """Complete collectives that end everywhere only after they have started everywhere.

    R rows, those of an operation together and by host; operation o has rows first[o]:first[o + 1].
    """

    first: I64
    comm: U64
    """Communicator of each operation, shape (O,)."""
    rank: I64
    """Rank of each row, shape (R,)."""
    host: I64
    """Number of its host."""
    start_ns: I64
    """Launch by that host's clock."""
    end_ns: I64


class Clocks:
    """The offset of each host in each communicator against the host of its rank 0."""

    def __init__(self) -> None:
        self._comm, self._host = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._low, self._high, self._guess, self._at = (np.zeros(0, np.int64) for _ in range(4))

    def take(self, seen: Seen, second: int) -> None:
        """Learn from the operations of one window, which ended in that second."""
        row_comm, row_host, row_low, row_high, row_diff = _bounds(
            seen.first, seen.comm, seen.rank, seen.host, seen.start_ns, seen.end_ns
        )
        known = len(self._comm)
        every_comm, every_host = (
            np.concatenate([self._comm, row_comm]),
            np.concatenate([self._host, row_host]),
        )
        group, example = groups_of([every_comm, every_host])
        old, new, size = group[:known], group[known:], len(example)
        fresh, first_time = np.zeros(size, np.bool_), np.ones(size, np.bool_)
        fresh[new], first_time[old] = True, False
        # What is not seen now keeps its bounds, and the second as of which they hold.
        widened = np.where(fresh[old], _widened(second - self._at), 0)
        old_low, new_low = np.full(size, -_FAR), np.full(size, -_FAR)
        old_high, new_high = np.full(size, _FAR), np.full(size, _FAR)
        old_low[old], old_high[old] = self._low - widened, self._high + widened
        np.maximum.at(new_low, new, row_low)
        np.minimum.at(new_high, new, row_high)
        low, high = np.maximum(old_low, new_low), np.minimum(old_high, new_high)
        was_set = low > high
        low, high = np.where(was_set, new_low, low), np.where(was_set, new_high, high)
        guess, at = np.zeros(size, np.int64), np.full(size, second)
        guess[old], at[old] = self._guess, np.where(fresh[old], second, self._at)
        step = np.where(first_time | was_set, 1.0, FOLLOW)
        moved = guess + np.rint((_medians(new, row_diff, size) - guess) * step).astype(np.int64)
        guess = np.clip(np.where(fresh, moved, guess), low, high)
        keep = second - at <= FORGET_S
        self._comm, self._host = every_comm[example][keep], every_host[example][keep]
        self._low, self._high, self._guess, self._at = low[keep], high[keep], guess[keep], at[keep]

    def of(self, comm: U64, host: I64, second: int) -> tuple[I64, U64]:
        """Offset of each (communicator, host) and how wrong it may be, ns; UNKNOWN_NS where nothing is known.

        A time of that host minus the offset is one of the host of rank 0. Shapes as the arguments.
        """
        known = len(self._comm)
        group, example = groups_of([np.concatenate([self._comm, comm]), np.concatenate([self._host, host])])
        offset = np.zeros(len(example), np.int64)
        bound = np.full(len(example), UNKNOWN_NS, np.uint64)
        widened = _widened(second - self._at)
        # A host's own clock is exact, however old what is known of it.
        widened[(self._low == 0) & (self._high == 0)] = 0
        offset[group[:known]] = self._guess
        wrong = np.maximum(self._high - self._guess, self._guess - self._low) + widened
        bound[group[:known]] = np.where(wrong >= _FAR // 2, np.uint64(UNKNOWN_NS), wrong.astype(np.uint64))
        return offset[group[known:]], bound[group[known:]]


def _widened(seconds: I64) -> I64:
    """By how much bounds widen in that time, ns."""
    found: I64 = np.rint(seconds * (MAX_DRIFT * 1e9)).astype(np.int64)
    return found


def _medians(group: I64, values: I64, size: int) -> npt.NDArray[np.float64]:
    """Lower median of the values of each group, shape (size,); 0 for a group without any."""
    found = np.zeros(size)
    if len(values):
        order = np.lexsort((values, group))
        ordered = group[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        sizes = np.diff(np.append(starts, len(ordered)))
        found[ordered[starts]] = values[order][starts + (sizes - 1) // 2]
    return found


@njit(cache=True, nogil=True)
def _bounds(
    first: I64, comm: U64, rank: I64, host: I64, start: I64, end: I64
) -> tuple[U64, I64, I64, I64, I64]:
    """For each operation and host: communicator, host, lower and upper bound, difference of the ends."""
    rows = len(rank)
    out_comm = np.empty(rows, np.uint64)
    out_host, low, high, diff = (
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
    )
    found = 0
    for operation in range(len(comm)):
        begin, stop = first[operation], first[operation + 1]
        reference = np.int64(-1)
        for row in range(begin, stop):
            if rank[row] == 0:
                reference = host[row]
        if reference < 0:
            continue
        last_start, first_end = -_FAR, _FAR
        for row in range(begin, stop):
            if host[row] == reference:
                last_start = max(last_start, start[row])
                first_end = min(first_end, end[row])
        row = begin
        while row < stop:
            own = host[row]
            own_start, own_end = -_FAR, _FAR
            while row < stop and host[row] == own:
                own_start = max(own_start, start[row])
                own_end = min(own_end, end[row])
                row += 1
            out_comm[found], out_host[found] = comm[operation], own
            if own == reference:
                low[found] = high[found] = diff[found] = 0
            else:
                low[found], high[found] = own_start - first_end, own_end - last_start
                diff[found] = own_end - first_end
            found += 1
    return out_comm[:found], out_host[:found], low[:found], high[:found], diff[:found]
