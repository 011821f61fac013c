"""Rows of equal columns, numbered by one pass over an open-addressed hash table: what all joins rest on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

I64 = npt.NDArray[np.int64]


def groups_of(columns: Sequence[npt.NDArray[Any]]) -> tuple[I64, I64]:
    """A number for each row that rows of equal columns share, in order of appearance, and a row of each.

    Columns are integers of at most 64 bits, shape (rows,); the numbers are (rows,), the rows (groups,).
    """
    keys = np.empty((len(columns[0]), len(columns)), np.uint64)
    for place, column in enumerate(columns):
        keys[:, place] = column
    table = np.full(1 << max(4, (2 * len(keys)).bit_length()), -1, np.int64)
    group, example = _numbered(keys, table)
    return group, example


def places_of(known: Sequence[npt.NDArray[Any]], asked: Sequence[npt.NDArray[Any]]) -> I64:
    """The last row of `known` that equals each row of `asked`, −1 for none, shape (rows of asked,)."""
    rows = len(known[0])
    both = [
        np.concatenate([one.astype(np.uint64), other.astype(np.uint64)])
        for one, other in zip(known, asked, strict=True)
    ]
    group, first = groups_of(both)
    last = np.full(len(first), -1, np.int64)
    last[group[:rows]] = np.arange(rows)
    return last[group[rows:]]


@njit(cache=True, nogil=True)
def _numbered(keys: npt.NDArray[np.uint64], table: I64) -> tuple[I64, I64]:
    """Rows numbered by key in order of appearance; `table`: of -1, a power of two, twice as long as keys."""
    rows, width = keys.shape
    group = np.empty(rows, np.int64)
    example = np.empty(rows, np.int64)
    found = 0
    mask = np.uint64(len(table) - 1)
    for row in range(rows):
        mixed = np.uint64(0)
        for place in range(width):
            mixed = (mixed ^ keys[row, place]) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        at = mixed & mask
        while True:
            known = table[at]
            if known < 0:
                table[at] = found
                example[found] = row
                group[row] = found
                found += 1
                break
            same = True
            for place in range(width):
                same &= keys[example[known], place] == keys[row, place]
            if same:
                group[row] = known
                break
            at = (at + np.uint64(1)) & mask
    return group, example[:found]
