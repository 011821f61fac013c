"""Finished operations and flows until the second in which they finished is told."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collectors.agent.budget import NOTHING, levels
from collectors.agent.groups import picked, stacked
from schemas.records import COLL, FLOW, MAX_US, UNKNOWN_US, Records

HELD_ROWS = 40_000
"""Finished rows kept until the second's end; beyond, those go first that a budget would not send anyway."""


class Held:
    """Finished operations and flows of the running second."""

    def __init__(self, bounded: bool) -> None:
        self._bounded = bounded
        self._parts: dict[str, list[tuple[int, Records]]] = {COLL.name: [], FLOW.name: []}
        self._rows = 0
        self._level = 0
        self.thinned = 0
        """Rows let go in this second."""

    def add(self, name: str, rows: Records, now: int) -> None:
        """Keep rows of a section, aged at `now`, as far as there is room."""
        if self._level:
            kept = picked(rows, levels_of(rows) >= self._level)
            self.thinned += len(rows) - len(kept)
            rows = kept
        if len(rows):
            self._parts[name].append((now, rows))
            self._rows += len(rows)
        while self._bounded and self._rows > HELD_ROWS and self._level < NOTHING:
            self._level += 1
            before, self._rows = self._rows, 0
            for section, parts in self._parts.items():
                kept_parts = [(at, picked(part, levels_of(part) >= self._level)) for at, part in parts]
                self._parts[section] = kept_parts
                self._rows += sum(len(part) for _, part in kept_parts)
            self.thinned += before - self._rows

    def take(self, now: int) -> tuple[Records, Records, int]:
        """Operations, flows, aged at `now`, and how many rows were let go; a new second begins."""
        coll, flow = (
            stacked([aged(rows, now - at) for at, rows in self._parts[record.name]], record.dtype)
            for record in (COLL, FLOW)
        )
        thinned = self.thinned
        self._parts = {COLL.name: [], FLOW.name: []}
        self._rows = self._level = self.thinned = 0
        return coll, flow, thinned


def aged(rows: Records, ns: int) -> Records:
    """The rows, so much later: age and quiet time count to when they are told."""
    rows = np.frombuffer(bytearray(np.ascontiguousarray(rows)), rows.dtype)
    for name in ("age_us", "quiet_us"):
        later = np.minimum(rows[name].astype(np.int64) + ns // 1000, MAX_US)
        rows[name] = np.where(rows[name] == UNKNOWN_US, UNKNOWN_US, later)
    return rows


def levels_of(rows: Records) -> npt.NDArray[np.uint8]:
    """Levels of operations or flows: those of one operation are equal."""
    return levels(np.ascontiguousarray(rows["comm"]), np.ascontiguousarray(rows["seq"]))
