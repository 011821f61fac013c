"""Draining the ring of finished operations and flows: native/collector/ring.h says how."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from collectors.agent import layout, native
from collectors.agent.layout import NotOurs, Raw
from collectors.agent.native import Verdict
from collectors.agent.reader import CUT, Reader


@dataclass(frozen=True)
class Drained:
    """Finished operations and flows in order, and how many records were lost or nonsense."""

    operations: Raw
    flows: Raw
    lost: int
    corrupt: int


NOTHING = Drained(np.empty(0, layout.OPERATION), np.empty(0, layout.FLOW), 0, 0)


class Ring:
    """A reader's place in one ring: the reader's headers tell it how much is written."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    @property
    def behind(self) -> int:
        """Records that were there at the last look and have not been taken."""
        return int(self._reader.cursor["behind"][0])

    @property
    def filling(self) -> bool:
        """Whether it should be drained soon, by what was there at the last look."""
        return self.behind > self._reader.places[layout.Table.RING].capacity // 4

    def drain(self, header: np.void) -> Drained:
        """Takes what is there. Raises NotOurs where the file was cut."""
        library, source = native.library(), self._reader.source.ctypes.data
        end = int(header["ring_next"])
        room = library.mycroft_ring_waiting(source, end)
        operations, flows = np.empty(room, layout.OPERATION), np.empty(room, layout.FLOW)
        found = native.Drained(operations.ctypes.data, flows.ctypes.data)
        if native.checked(library.mycroft_ring_drain(source, end, ctypes.byref(found))) == Verdict.FAILED:
            raise NotOurs(CUT)
        return Drained(
            operations[: found.operation_count], flows[: found.flow_count], found.lost, found.corrupt
        )
