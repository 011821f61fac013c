"""Draining the ring of finished operations and flows: native/collector/ring.h says how."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from collectors.agent import layout, native
from collectors.agent.cursor import NOTHING_TOLD, Position
from collectors.agent.groups import stacked
from collectors.agent.layout import NotOurs, Raw
from collectors.agent.native import Verdict
from collectors.agent.reader import CUT, Reader


@dataclass(frozen=True)
class Drained:
    """Finished operations and flows in order, and how many records were lost or nonsense.

    The first `told` operations and `flows_told` flows were told of by an earlier collector, whose sums of
    flows have the first `flows_summed`.
    """

    operations: Raw
    flows: Raw
    lost: int
    corrupt: int
    told: int = 0
    flows_told: int = 0
    flows_summed: int = 0


NOTHING = Drained(np.empty(0, layout.OPERATION), np.empty(0, layout.FLOW), 0, 0)


class Ring:
    """A reader's place in one ring: the reader's headers tell it how much is written.

    It begins with the oldest record that is there; `known` is what an earlier collector has told of them.
    """

    def __init__(self, reader: Reader, known: Position = NOTHING_TOLD) -> None:
        self._reader, self._known = reader, known
        reader.cursor["waited_until"] = known.told  # what was not ready then has been given up

    @property
    def next(self) -> int:
        """Number of the next record to take."""
        return int(self._reader.cursor["next"][0])

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
        end = int(header["ring_next"])
        if self.next >= self._known.told:
            return self._taken(end)
        # Lost records that are summed already were counted by whoever summed them: see Cursor.lost.
        summed = self._before(min(self._known.summed, end))
        told = self._before(min(self._known.told, end)) if self.next >= self._known.summed else NOTHING
        fresh = self._taken(end) if self.next >= self._known.told else NOTHING
        return Drained(
            stacked([summed.operations, told.operations, fresh.operations], layout.OPERATION),
            stacked([summed.flows, told.flows, fresh.flows], layout.FLOW),
            told.lost + fresh.lost,
            summed.corrupt + told.corrupt + fresh.corrupt,
            len(summed.operations) + len(told.operations),
            len(summed.flows) + len(told.flows),
            len(summed.flows),
        )

    def _before(self, bound: int) -> Drained:
        """Takes records before `bound`, all of which were settled once: what is not ready will never be."""
        first = self.next
        if first >= bound:
            return NOTHING
        found = self._taken(bound)
        if self.next == first:
            self._reader.cursor["next"] = bound
        return found

    def _taken(self, end: int) -> Drained:
        """Takes records before number `end`, as many as go at once. Raises NotOurs."""
        library, source = native.library(), self._reader.source.ctypes.data
        room = library.mycroft_ring_waiting(source, end)
        operations, flows = np.empty(room, layout.OPERATION), np.empty(room, layout.FLOW)
        found = native.Drained(operations.ctypes.data, flows.ctypes.data)
        if native.checked(library.mycroft_ring_drain(source, end, ctypes.byref(found))) == Verdict.FAILED:
            raise NotOurs(CUT)
        return Drained(
            operations[: found.operation_count], flows[: found.flow_count], found.lost, found.corrupt
        )
