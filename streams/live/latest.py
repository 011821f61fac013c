"""The latest row of each key, as arrays: what a host has said last, and when."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from schemas.records import Records, RecordType
from streams.grouping import groups_of

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Latest:
    """Rows of one record type with equal `keys` replace one another; the last added stays.

    `at` is the broker time (s) at which each row was said, `source` the number of the host that said it.
    """

    def __init__(self, record: RecordType, keys: Sequence[str]) -> None:
        self._record, self._keys = record, tuple(keys)
        self.rows: Records = record.empty(0)
        self.at: F64 = np.zeros(0)
        self.source: I64 = np.zeros(0, np.int64)
        self._pending: list[tuple[Records, F64, I64]] = []

    def add(self, rows: Records, at: F64, source: I64) -> None:
        """Take in rows, `at` and `source` of each; they count from the next `settle` on."""
        if len(rows):
            self._pending.append((rows, at, source))

    def settle(self) -> None:
        """Bring in what was added."""
        if not self._pending:
            return
        rows = self._record.joined([self.rows, *(rows for rows, _, _ in self._pending)])
        at = np.concatenate([self.at, *(at for _, at, _ in self._pending)])
        source = np.concatenate([self.source, *(source for _, _, source in self._pending)])
        self._pending = []
        group, first = groups_of([rows[name] for name in self._keys])
        last = np.zeros(len(first), np.int64)
        last[group] = np.arange(len(group))
        last.sort()
        self.rows, self.at, self.source = self._record.chosen(rows, last), at[last], source[last]

    def keep(self, mask: Bools) -> None:
        """Forget all settled rows but those of the mask."""
        if not mask.all():
            self.rows = self._record.chosen(self.rows, mask)
            self.at, self.source = self.at[mask], self.source[mask]

    def held(self, rows: Records) -> Bools:
        """Which settled rows have the key of one of `rows`, shape (settled,)."""
        if not len(rows) or not len(self.rows):
            return np.zeros(len(self.rows), np.bool_)
        both = [np.concatenate([self.rows[name], rows[name]]) for name in self._keys]
        group, _ = groups_of(both)
        found: Bools = np.isin(group[: len(self.rows)], group[len(self.rows) :])
        return found


class Counts:
    """Sums by key, as arrays: how many operations have ended of each (communicator, device, algorithm)."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = tuple(keys)
        self._pending: list[list[U64]] = []
        self._columns: list[U64] = [np.zeros(0, np.uint64) for _ in keys]
        self._number: I64 = np.zeros(0, np.int64)

    def add(self, rows: Records, which: Bools) -> None:
        """Count `n` of each of these rows for its key."""
        if which.any():
            self._pending.append([rows[name][which].astype(np.uint64) for name in (*self._keys, "n")])

    def of(self, rows: Records) -> I64:
        """The count of each row's key, shape (rows,)."""
        self._settle()
        both = [np.concatenate([own, rows[key]]) for own, key in zip(self._columns, self._keys, strict=True)]
        group, first = groups_of(both)
        total = np.zeros(len(first), np.int64)
        total[group[: len(self._number)]] = self._number
        return total[group[len(self._number) :]]

    def _settle(self) -> None:
        if not self._pending:
            return
        known = [*self._columns, self._number.astype(np.uint64)]
        *columns, number = (np.concatenate(parts) for parts in zip(known, *self._pending, strict=True))
        self._pending = []
        group, first = groups_of(columns)
        self._columns = [column[first] for column in columns]
        self._number = np.bincount(group, number, len(first)).astype(np.int64)
