"""Single operations of all members meet: who started last, and how long the others waited for it.

Of collectives that end everywhere at once, which all do that move everybody's data to everybody, the
difference of two members' durations is the difference of their launches: no clock is compared. Of all others
launches are compared, where the offsets of the hosts' clocks are known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from schemas.enums import Flag, Func
from schemas.records import UNKNOWN_NS, UNKNOWN_US, Records
from streams.grouping import groups_of
from streams.operations import is_pair, pair_of, seq_space
from streams.slow.clocks import Clocks, Seen

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TOGETHER = (Func.ALL_REDUCE, Func.ALL_GATHER, Func.REDUCE_SCATTER, Func.ALL_TO_ALL, Func.BARRIER)
"""Operations that end nowhere before they have started everywhere, and end everywhere within a step."""


@dataclass(frozen=True)
class Joined:
    """O operations of which all members were told; R rows, those of operation o at first[o]:first[o + 1]."""

    row: I64
    """Place of each among the records given, shape (R,)."""
    first: I64
    """Shape (O + 1,)."""
    known: Bools
    """Whether it is known who started last, shape (O,); what follows is 0 where it is not."""
    last: Bools
    """The row that started last, shape (R,)."""
    waited_us: I64
    """For how long each waited for that one, shape (R,)."""
    held_us: I64
    """For how long, in all, the others waited for this one, shape (R,)."""
    timed: Bools
    """Whether the hosts' clocks can be compared, shape (O,)."""
    start_lag_us: I64
    """Launch after the first one's, shape (R,)."""
    end_lag_us: I64
    """End after the first one's, 0 where an end is not known, shape (R,)."""


def whole(singles: Records, host: I64) -> tuple[I64, I64]:
    """The operations that all members have told: their rows, by operation and host, and where each begins.

    `singles` are COLL records of kind DONE, `host` the number of the host of each. Of an operation that a
    member told twice the last counts; those captured in a graph are not joined. Shapes (R,) and (O + 1,).
    """
    usable = np.flatnonzero((singles["flags"] & np.uint32(Flag.GRAPH)) == 0)
    rows = singles[["comm", "func", "rank", "peer", "flags", "seq", "nranks"]][usable]
    sender, receiver = pair_of(rows)
    space, pair = seq_space(rows), is_pair(rows)
    operation, example = groups_of([rows["comm"], space, sender, receiver, rows["seq"]])
    # By operation, host and rank; a stable sort keeps what was told last of each rank at the end.
    order = np.lexsort((rows["rank"], host[usable], operation))
    ordered, rank = operation[order], rows["rank"][order]
    latest = np.ones(len(order), np.bool_)
    latest[:-1] = (ordered[1:] != ordered[:-1]) | (rank[1:] != rank[:-1])
    order, ordered = order[latest], ordered[latest]
    wanted = np.where(pair, 2, rows["nranks"])[example]
    complete = np.bincount(ordered, minlength=len(example)) == wanted
    kept = complete[ordered]
    order, ordered = order[kept], ordered[kept]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else ordered
    return usable[order], np.append(first, len(order)).astype(np.int64)


def seen(singles: Records, host: I64, row: I64, first: I64) -> Seen:
    """Of joined operations those that say something about clocks."""
    told = singles[["comm", "func", "rank", "launched", "end_us"]][row]
    good = np.isin(told["func"], TOGETHER) & (told["end_us"] != UNKNOWN_US) & (told["launched"] > 0)
    all_good = np.logical_and.reduceat(good, first[:-1]) if len(row) else np.zeros(0, np.bool_)
    kept = np.repeat(all_good, np.diff(first))
    told = told[kept]
    sizes = np.diff(first)[all_good]
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    start = told["launched"].astype(np.int64)
    return Seen(
        begins, np.ascontiguousarray(told["comm"][begins[:-1]]), told["rank"].astype(np.int64),
        host[row][kept], start, start + told["end_us"].astype(np.int64) * 1000,
    )  # fmt: skip


def joined(singles: Records, host: I64, row: I64, first: I64, clocks: Clocks, second: int) -> Joined:
    """Who waited for whom in the joined operations, with the offsets known in that second."""
    told = singles[["comm", "func", "launched", "end_us"]][row]
    offset, bound = clocks.of(np.ascontiguousarray(told["comm"]), host[row], second)
    alone = np.zeros(0, np.bool_)
    if len(row):
        own = host[row]
        alone = np.repeat(
            np.minimum.reduceat(own, first[:-1]) == np.maximum.reduceat(own, first[:-1]), np.diff(first)
        )
    comparable = (bound != UNKNOWN_NS) | alone
    start = told["launched"].astype(np.int64) - np.where(alone, 0, offset)
    return Joined(
        row, first,
        *_who_waited(
            first, np.isin(told["func"], TOGETHER), comparable & (told["launched"] > 0), start,
            np.where(told["end_us"] == UNKNOWN_US, -1, told["end_us"].astype(np.int64)),
        ),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _lags(begin: int, stop: int, start: I64, duration: I64, start_lag: I64, end_lag: I64) -> None:
    """Launch and end after the first ones of one operation, µs; `ends` only where all are known."""
    earliest, first_end, ends = start[begin], start[begin] + duration[begin] * 1000, True
    for row in range(begin, stop):
        earliest = min(earliest, start[row])
        first_end = min(first_end, start[row] + duration[row] * 1000)
        ends &= duration[row] >= 0
    for row in range(begin, stop):
        start_lag[row] = (start[row] - earliest) // 1000
        if ends:
            end_lag[row] = (start[row] + duration[row] * 1000 - first_end) // 1000


@njit(cache=True, nogil=True)
def _who_waited(
    first: I64, together: Bools, comparable: Bools, start: I64, duration: I64
) -> tuple[Bools, Bools, I64, I64, Bools, I64, I64]:
    """`start` in ns of one clock, `duration` in µs, −1 where unknown; see Joined."""
    rows, operations = len(start), len(first) - 1
    known, timed = np.zeros(operations, np.bool_), np.zeros(operations, np.bool_)
    last = np.zeros(rows, np.bool_)
    waited, held = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    start_lag, end_lag = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    for operation in range(operations):
        begin, stop = first[operation], first[operation + 1]
        clocks, ends = True, True
        shortest, latest = begin, begin
        for row in range(begin, stop):
            clocks &= comparable[row]
            ends &= duration[row] >= 0
            shortest = row if duration[row] < duration[shortest] else shortest
            latest = row if start[row] > start[latest] else latest
        timed[operation] = clocks
        if clocks:
            _lags(begin, stop, start, duration, start_lag, end_lag)
        by_duration = together[begin] and ends
        known[operation] = by_duration or clocks
        if not known[operation]:
            continue
        culprit = shortest if by_duration else latest
        last[culprit] = True
        for row in range(begin, stop):
            if by_duration:
                waited[row] = duration[row] - duration[culprit]
            else:
                waited[row] = (start[culprit] - start[row]) // 1000
            held[culprit] += waited[row]
    return known, last, waited, held, timed, start_lag, end_lag
