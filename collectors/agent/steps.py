"""A job's step time as one host sees it: how long from one launch of an operation to the next like it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collectors.agent.groups import mixed, picked
from collectors.agent.stall import Medians
from schemas.records import MAX_US, Records

U64 = npt.NDArray[np.uint64]


class Steps:
    """The median interval between launches of the same communicator, func, count and peer on a device.

    Of an operation that a training step calls once that is the step; of others less, so it is a lower bound.
    """

    def __init__(self) -> None:
        self._medians = Medians()
        self._last: dict[int, int] = {}

    def add(self, done: Records) -> None:
        """Take finished operations into account, each once; any order within a call."""
        done = picked(done, done["launched"] > 0)
        if not len(done):
            return
        classes, launched = _classes(done), done["launched"]
        order = np.lexsort((launched, classes))
        classes, launched = classes[order], launched[order]
        names, starts = np.unique(classes, return_index=True)
        ends = np.append(starts[1:], len(classes)) - 1
        before = np.concatenate([launched[:1], launched[:-1]])
        before[starts] = [self._last.pop(name, 0) for name in names.tolist()]
        known = (before > 0) & (launched > before)
        self._medians.add(classes[known], (launched[known] - before[known]) / 1e3)
        self._last.update(zip(names.tolist(), launched[ends].tolist(), strict=True))
        while len(self._last) > Medians.MAX_CLASSES:  # the ones that were unused for longest
            del self._last[next(iter(self._last))]

    def of(self, rows: Records) -> npt.NDArray[np.uint32]:
        """µs for each operation, 0 where not known yet."""
        usual = np.nan_to_num(self._medians.of(_classes(rows)), nan=0.0)
        return np.minimum(usual, MAX_US).astype(np.uint32)


def _classes(rows: Records) -> U64:
    names = ("dev", "comm", "func", "count", "peer")
    return mixed(*(np.ascontiguousarray(rows[name]) for name in names))
