"""Rows of equal key, as index arrays: what the sums are built on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.records import Records


@dataclass(frozen=True)
class Groups:
    """A division of rows into groups of equal key.

    `order`: row numbers, sorted by group and, within it, as before. `starts`: where in `order` each group
    begins. `group`: number of the group of each row.
    """

    order: npt.NDArray[np.intp]
    starts: npt.NDArray[np.intp]
    group: npt.NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def firsts(self) -> npt.NDArray[np.intp]:
        """The first row of each group, shape (groups,)."""
        return self.order[self.starts]

    @property
    def sizes(self) -> npt.NDArray[np.intp]:
        """Rows in each group, shape (groups,)."""
        return np.diff(np.append(self.starts, len(self.order)))

    def sum(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum of `values` (one a row) in each group, shape (groups,), in 64 bits."""
        wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)
        return np.add.reduceat(wide[self.order], self.starts) if len(self) else wide[:0]

    def sums(self, values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The same of several values at once: from shape (values, rows) to (values, groups)."""
        if not len(self):
            return values[:, :0]
        found: npt.NDArray[np.uint64] = np.add.reduceat(values[:, self.order], self.starts, axis=1)
        return found


def divide(keys: Sequence[npt.NDArray[Any]]) -> Groups:
    """Groups of rows whose `keys` (arrays of one length, the first one leads) are equal.

    >>> divide([np.array([2, 1, 2])]).group.tolist()
    [1, 0, 1]
    """
    rows = len(keys[0])
    order = np.lexsort(tuple(reversed(keys)))
    edge = np.zeros(rows, np.bool_)
    edge[:1] = True
    for key in keys:
        ordered = key[order]
        edge[1:] |= ordered[1:] != ordered[:-1]
    group = np.empty(rows, np.intp)
    group[order] = np.cumsum(edge) - 1
    return Groups(order, np.flatnonzero(edge), group)


def columns(rows: Records, names: Sequence[str]) -> list[npt.NDArray[Any]]:
    """Fields of structured rows as contiguous arrays."""
    return [np.ascontiguousarray(rows[name]) for name in names]


def mixed(*parts: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """A 64-bit mix of integer arrays of one shape, position by position."""
    result = np.zeros(np.shape(parts[0]), np.uint64)
    for part in parts:
        result = (result ^ part.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        result ^= result >> np.uint64(29)
    return result


def stacked(parts: Sequence[npt.NDArray[Any]], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Arrays of `dtype` one after another; what numpy does too, but it looks at every field each time."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return np.empty(0, dtype)
    if len(filled) == 1:
        return filled[0]
    plain = np.dtype((np.void, dtype.itemsize))
    same = [part if part.dtype is dtype else part.astype(dtype) for part in filled]
    return np.concatenate([np.ascontiguousarray(part).view(plain) for part in same]).view(dtype)


def picked(rows: npt.NDArray[Any], which: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of the rows that a mask or places name; twenty times as fast as numpy does it field by field."""
    plain = np.dtype((np.void, rows.dtype.itemsize))
    found: npt.NDArray[Any] = np.ascontiguousarray(rows).view(plain)[which].view(rows.dtype)
    return found
