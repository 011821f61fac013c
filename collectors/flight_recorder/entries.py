"""The entries of one dump → columns.

A dump has up to some thousand entries of some twenty fields, a folder a thousand dumps: fields are taken
column by column. Which entry is wrong is only looked for once one is.

What differs between writers: JSON writes unknown times as 0; `process_group` came with 2.1 and
`collective_seq_id` with 2.2 (before: `pg_id` alone and `seq_id`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.flight_recorder.errors import BadDump
from collectors.flight_recorder.operations import datatype, operation

COLUMNS = np.dtype(
    [
        ("record_id", "i8"),
        ("group", "i4"),  # index into Table.names
        ("pg_id", "i8"),
        ("collective", "i8"),  # number of the collective within its group, from 1
        ("p2p", "i8"),  # number of the send or receive within its group, over all peers
        ("func", "u1"),
        ("peer", "i4"),  # rank within the group
        ("is_p2p", "?"),
        ("coalesced", "?"),  # closing entry of a coalesced call
        ("finished", "?"),
        ("count", "i8"),  # elements of all inputs
        ("datatype", "u1"),
        ("itemsize", "u1"),
        ("created", "i8"),  # ns; 0 where unknown, as the two below
        ("started", "i8"),
        ("completed", "i8"),
    ]
)

Entries = npt.NDArray[np.void]
"""Structured array of COLUMNS, one row per entry, by ascending record_id."""

MAX_NUMBER = 1 << 60
# Times fit the records' signed 64-bit nanoseconds; counts times 16 bytes fit 64 bits.
_LIMITS = {"count": 1 << 56, "pg_id": 1 << 31, "created": 1 << 62, "started": 1 << 62, "completed": 1 << 62}

_FIELDS = (
    "record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "profiling_name",
    "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns", "input_sizes",
    "input_dtypes", "state", "retired", "is_p2p",
)  # fmt: skip
_ABSENT: dict[str, Any] = {
    "p2p_seq_id": 0, "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
    "input_sizes": (), "input_dtypes": (), "retired": False,
}  # fmt: skip
_pick = itemgetter(*_FIELDS)


@dataclass(frozen=True)
class Table:
    """All entries of a dump; `names` are (name, description) of the groups they mention, shape (G,)."""

    names: tuple[tuple[str, str], ...]
    rows: Entries
    backends: frozenset[str]


def read_entries(entries: Sequence[Any], name: str) -> Table:
    """Columns of a dump's entries; `name` is its file's. Raises BadDump that says which entry is wrong."""
    try:
        return _table(entries)
    except Exception as error:  # whatever a malformed entry leads to
        for index, entry in enumerate(entries):
            try:
                _table([entry])
            except Exception as reason:
                said = f"{type(reason).__name__}: {str(reason)[:200]}"
                raise BadDump(f"{name}: entry {index}: {said}") from reason
        raise BadDump(f"{name}: entries: {type(error).__name__}: {str(error)[:200]}") from error


def _table(entries: Sequence[Any]) -> Table:
    rows = np.zeros(len(entries), COLUMNS)
    if not entries:
        return Table((), rows, frozenset())
    column: dict[str, Sequence[Any]] = dict(zip(_FIELDS, _transposed(entries), strict=True))
    groups: dict[tuple[Any, ...], int] = {}
    _fill(rows, "group", [groups.setdefault(tuple(group), len(groups)) for group in column["process_group"]])
    _fill(rows, "record_id", column["record_id"])
    _fill(rows, "pg_id", column["pg_id"])
    _fill(rows, "collective", column["collective_seq_id"])
    _fill(rows, "p2p", column["p2p_seq_id"])
    _fill(rows, "created", column["time_created_ns"])
    _fill(rows, "started", [time or 0 for time in column["time_discovered_started_ns"]])
    _fill(rows, "completed", [time or 0 for time in column["time_discovered_completed_ns"]])
    _fill(rows, "count", [sum(map(math.prod, sizes)) for sizes in column["input_sizes"]])
    rows["is_p2p"] = column["is_p2p"]
    states = zip(column["retired"], column["state"], strict=True)
    rows["finished"] = [bool(retired) or state == "completed" for retired, state in states]

    said, index = _distinct(column["profiling_name"])
    operations = [operation(name) for name in said]
    for field in ("func", "peer", "coalesced"):
        rows[field] = np.array([getattr(each, field) for each in operations])[index]
    first, index = _distinct([names[0] if names else "" for names in column["input_dtypes"]])
    kinds = [datatype(name) if name else (0, 0) for name in first]
    rows["datatype"] = np.array([kind for kind, _ in kinds])[index]
    rows["itemsize"] = np.array([size for _, size in kinds])[index]

    order = np.argsort(rows["record_id"], kind="stable")
    return Table(
        tuple(_group(group) for group in groups), rows[order], frozenset(each.backend for each in operations)
    )


def _transposed(entries: Sequence[Any]) -> Iterable[Sequence[Any]]:
    try:
        return zip(*map(_pick, entries), strict=True)
    except KeyError:
        return zip(*(_pick(_of_today(entry)) for entry in entries), strict=True)


def _of_today(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of an older format with what it lacks."""
    known = _ABSENT | dict(entry)
    known.setdefault("process_group", (str(entry["pg_id"]), ""))
    known.setdefault("is_p2p", operation(entry["profiling_name"]).peer >= 0)
    if "collective_seq_id" not in known:
        known["collective_seq_id"] = entry["seq_id"]
    return known


def _fill(rows: Entries, name: str, values: Sequence[int]) -> None:
    numbers = np.array(values, np.int64)
    if numbers.min() < 0 or numbers.max() >= _LIMITS.get(name, MAX_NUMBER):
        raise ValueError(f"{name} is out of range")
    rows[name] = numbers


def _distinct(names: Sequence[str]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The different names, and for each the index of its own among them."""
    place: dict[str, int] = {}
    index = [place.setdefault(name, len(place)) for name in names]
    return list(place), np.array(index, np.int64)


def _group(group: tuple[Any, ...]) -> tuple[str, str]:
    name, desc = group
    if not isinstance(name, str) or not isinstance(desc, str):
        raise TypeError("process_group is not a pair of texts")
    return name, desc
