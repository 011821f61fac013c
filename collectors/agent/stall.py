"""What is in flight, and whether it moves: pure functions over arrays, one element an operation.

Nothing in shared memory says when a counter moved last: the collector looks every 100 ms and remembers
(`Movement`), which costs the training process nothing. All times are ns of this host's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from collectors.agent.groups import mixed
from schemas.enums import Visibility
from schemas.records import MAX_US

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

STALL_AGE_NS = 300_000_000
STALL_QUIET_NS = 300_000_000
STALL_MEDIANS = 10
"""An operation stalls when it is older than STALL_AGE_NS and so many medians, and quiet so long."""

SILENCE_NS = 1_150_000_000
"""A process that begins to call nothing for so long is told of at once, with what it has launched.

A little more than streams.live.causes.SETTLED_S: then it stands in nothing that is not told as a stall, and
whoever waits for it may say that it is late.
"""

_MEMORY = 31
"""Durations remembered of each class: odd, so that the median is one of them."""


@dataclass(frozen=True)
class Movement:
    """What was seen of each thing that may move: sorted `keys`, what they showed, and since when.

    Three arrays of one length. `prints` is any number that changes whenever the thing has moved.
    """

    keys: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    prints: U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    since: I64 = field(default_factory=lambda: np.empty(0, np.int64))


def watch(
    before: Movement, keys: U64, prints: U64, now: int, hint: Callable[[Bools], I64] | None = None
) -> tuple[Movement, I64]:
    """What is seen now, and for how long each of `keys` has shown the same, in ns.

    `keys` are unique, in any order. What is new counts as having moved now, or when `hint` says, which is
    asked with the mask of what is new; what is gone is forgotten.

    >>> first, _ = watch(Movement(), np.array([7], np.uint64), np.array([1], np.uint64), 100)
    >>> watch(first, np.array([7], np.uint64), np.array([1], np.uint64), 150)[1].tolist()
    [50]
    """
    since = np.full(len(keys), now, np.int64)
    new = np.ones(len(keys), np.bool_)
    if len(before.keys) and len(keys):
        at = np.minimum(np.searchsorted(before.keys, keys), len(before.keys) - 1)
        new = before.keys[at] != keys
        same = ~new & (before.prints[at] == prints)
        since[same] = np.minimum(before.since[at[same]], now)
    if hint is not None and new.any():
        since[new] = np.minimum(hint(new), now)
    order = np.argsort(keys, kind="stable")
    return Movement(keys[order], prints[order], since[order]), now - since


def current(
    order: U64, stream: U64, comm: U64, group: U64, device: U64, visibility: U8, progressed: Bools
) -> U8:
    """For each operation in flight, 1 where its device is working on it, 2 where it may be, else 0.

    A stream, and a communicator, run one operation after another, a group call is one. So an operation with
    an older visible one before it in either is queued, unless its own GPU has shown progress (`progressed`).
    What is first in both is current, for certain only if nothing older is open on the device at all:
    communicators that share resources take turns, and nothing says which do. Operations of which only the
    launch is known count as "may be", and so does what is right behind them.
    """
    result = np.zeros(len(order), np.uint8)
    if not len(order):
        return result
    seen = visibility > Visibility.LAUNCH
    in_stream, in_comm = (_heads(device, lane, order, group, seen) for lane in (stream, comm))
    unseen_in_stream, unseen_in_comm = (_heads(device, lane, order, group, ~seen) for lane in (stream, comm))
    oldest = _heads(device, np.zeros_like(stream), order, group, np.ones(len(order), np.bool_))
    behind = (in_stream.oldest < order) | (in_comm.oldest < order)
    head = in_stream.first & in_comm.first
    result[seen & head] = 2
    result[~seen & unseen_in_stream.first & unseen_in_comm.first & ~behind] = 2
    result[seen & head & oldest.first] = 1
    result[progressed] = 1
    return result


@dataclass(frozen=True)
class _Heads:
    """For each operation: whether nothing of the mask is older in its lane, and the oldest order there."""

    first: Bools
    oldest: U64


def _heads(device: U64, lane: U64, order: U64, group: U64, mask: Bools) -> _Heads:
    """Oldest order of the masked operations in each (device, lane); group calls count as one operation."""
    _, which = np.unique(mixed(device, lane), return_inverse=True)
    which = which.reshape(-1)
    none = np.iinfo(np.uint64).max
    oldest = np.full(int(which.max()) + 1, none, np.uint64)
    np.minimum.at(oldest, which[mask], order[mask])
    mine = oldest[which]
    first = order <= mine
    # Of the group call whose member is the oldest, all are.
    head_group = np.zeros(len(oldest), np.uint64)
    is_head = mask & (order == mine)
    head_group[which[is_head]] = group[is_head]
    first |= (group != 0) & (group == head_group[which])
    return _Heads(first, mine)


def stall_age(median_us: npt.NDArray[np.float64]) -> I64:
    """The age in ns beyond which an operation of that median may stall; median NaN where unknown."""
    usual = np.nan_to_num(median_us * (1000.0 * STALL_MEDIANS), nan=0.0)
    return np.maximum(float(STALL_AGE_NS), usual).astype(np.int64)


def stalled(age_ns: I64, quiet_ns: I64, limit_ns: I64, current_: U8) -> Bools:
    """Which operations stall: current ones that are older than their limit and have not moved.

    Queued operations never stall: they wait for the one before them.
    """
    return (current_ > 0) & (age_ns > limit_ns) & (quiet_ns >= STALL_QUIET_NS)


def device_quiet(device: U64, quiet_ns: I64) -> dict[int, int]:
    """For how long nothing at all has moved on each device, ns: the least of what its things show."""
    found: dict[int, int] = {}
    for dev, quiet in zip(device.tolist(), quiet_ns.tolist(), strict=True):
        found[dev] = min(quiet, found.get(dev, quiet))
    return found


def micros(ns: I64) -> npt.NDArray[np.uint32]:
    """Nanoseconds as a record's microseconds: negative ones are 0, long ones saturate."""
    return np.clip(ns // 1000, 0, MAX_US).astype(np.uint32)


class Medians:
    """The usual duration of each class of operations: the median of the last few, the very first left out.

    NCCL connects at a class's first operation, which says nothing of the usual one. Bounded: the class that
    was unused for longest is forgotten.
    """

    MAX_CLASSES: Final = 4096

    def __init__(self) -> None:
        self._durations: dict[int, list[float]] = {}
        self._cache: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._durations)

    def add(self, classes: U64, duration_us: npt.NDArray[np.float64]) -> None:
        """Take durations of finished operations into account; arrays of one length, in order of their end."""
        if not len(classes):
            return
        order = np.argsort(classes, kind="stable")
        names, starts = np.unique(classes[order], return_index=True)
        for name, durations in zip(
            names.tolist(), np.split(duration_us[order], starts[1:].tolist()), strict=True
        ):
            known = self._durations.pop(name, None)
            fresh = durations[-_MEMORY - 1 :].tolist()
            if known is None:
                known, fresh = [], durations[1:][-_MEMORY:].tolist()
            self._durations[name] = (known + fresh)[-_MEMORY:]
            self._cache.pop(name, None)
        while len(self._durations) > self.MAX_CLASSES:
            oldest = next(iter(self._durations))
            del self._durations[oldest]
            self._cache.pop(oldest, None)

    def of(self, classes: U64) -> npt.NDArray[np.float64]:
        """Median in µs of each class, NaN where none is known yet; shape as `classes`."""
        names, where = np.unique(classes, return_inverse=True)
        return np.array([self._median(name) for name in names.tolist()], np.float64)[where.reshape(-1)]

    def _median(self, name: int) -> float:
        if name not in self._cache:
            durations = self._durations.get(name)
            self._cache[name] = float(median(durations)) if durations else float("nan")
        return self._cache[name]
