"""The tables of all processes of a host as they are now: a glance at what is in flight, and all of it.

What reads is native/collector (host.h): by `pread`, since a mapping would kill the collector if a file were
cut. Every number that says where to read was checked when the file was opened (where tables lie) or is cut to
what there is (how much is used).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectors.agent import layout, native
from collectors.agent.clocks import Clocks
from collectors.agent.groups import picked
from collectors.agent.heads import heads
from collectors.agent.layout import HOT_HEADER, FlowFlag, Raw, Table
from collectors.agent.native import CLOCK, FAILURES, HEARD, SOURCE, Verdict
from collectors.agent.reader import Reader

Indices = npt.NDArray[np.intp]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Snapshot:
    """What one reading of all processes found; rows of one process after those of another.

    `headers`, `heard` (native.HEARD) and the counts have shape (processes,). `operations` holds every slot,
    `open_operations` those in flight that have to be followed (see heads.py) and `flows` those in flight,
    with the number of their process in `*_where`; `in_flight` counts all operations that are. `headers` and
    `operations` live until the next reading.
    """

    headers: Raw
    clocks: Clocks
    heard: Raw
    communicators: Raw
    comm_count: Indices
    streams: Raw
    stream_count: Indices
    operations: Raw
    operation_count: Indices
    open_operations: Raw
    open_where: Indices
    in_flight: int
    flows: Raw
    flow_where: Indices
    flow_slots: Indices
    torn: int


class Failed(Exception):
    """Files that cannot be read any more: number in the sequence, and why."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = reasons


class _Room:
    """Arrays that native/collector writes into, and where it finds them."""

    def __init__(self) -> None:
        self.found = native.Found()
        self.files(0)
        self.operations(0)
        self.flows(0)

    def files(self, count: int) -> None:
        """Room for so many processes."""
        self.headers, self.clocks = np.zeros(count, HOT_HEADER), np.zeros(count, CLOCK)
        self.heard, self.failed = np.zeros(count, HEARD), np.zeros(count, np.int32)
        self.counts = np.zeros((count, len(Table)), np.int64)
        self._tell("headers", "clocks", "heard", "failed", "counts")

    def operations(self, count: int) -> None:
        """Room for so many operations of all processes together."""
        self.found.operation_room = count
        self.operations_, self.open_operations = np.empty(count, layout.OPERATION), np.empty(count, np.int64)
        self.operation_where, self.shown = np.empty(count, np.int64), np.empty(count, np.bool_)
        self.found.operations = self.operations_.ctypes.data
        self._tell("open_operations", "operation_where", "shown")

    def flows(self, count: int) -> None:
        """Room for so many flows of all processes together."""
        self.found.flow_room = count
        self.flows_, self.open_flows = np.empty(count, layout.FLOW), np.empty(count, np.int64)
        self.flow_where = np.empty(count, np.int64)
        self.found.flows = self.flows_.ctypes.data
        self._tell("open_flows", "flow_where")

    def grow(self) -> None:
        """Room for what was found, and half as much again."""
        if self.found.operation_count > self.found.operation_room:
            self.operations(self.found.operation_count * 3 // 2)
        if self.found.flow_count > self.found.flow_room:
            self.flows(self.found.flow_count * 3 // 2)

    def _tell(self, *names: str) -> None:
        for name in names:
            setattr(self.found, name, getattr(self, name).ctypes.data)


class HostReader:
    """Reads all files at once; keeps its buffers, and what it remembers of them, from tick to tick."""

    def __init__(self) -> None:
        """Raises native.NotBuilt."""
        self._library = native.library()
        self._host = self._library.mycroft_host_open()
        if not self._host:
            raise MemoryError
        weakref.finalize(self, self._library.mycroft_host_close, self._host)
        self._readers: list[Reader] = []
        self._room = _Room()
        self._found = ctypes.byref(self._room.found)

    def headers(self, readers: Sequence[Reader]) -> Raw:
        """The headers' changing parts, checked, shape (readers,). Raises Failed."""
        self._headers(readers)
        return self._room.headers

    def glance(self, readers: Sequence[Reader], now: int, age_ns: int) -> Verdict:
        """Whether what is in flight is worth more than a glance: CALM, STILL, MOVED, or a ring is FILLING.

        `now` is ns of the monotonic clock; nothing younger than `age_ns` is judged. Raises Failed.
        """
        verdict = self._headers(readers)
        return verdict if verdict == Verdict.FILLING else self._glance(now, age_ns, looks=False)

    @property
    def heard(self) -> Raw:
        """When each process was last heard of, as of the last glance or snapshot (native.HEARD)."""
        heard: Raw = self._room.heard.copy()
        return heard

    def snapshot(self, now: int, glanced: bool = False) -> Snapshot:
        """Reads all tables but calls, pairs and rings, after the headers or a glance. Raises Failed."""
        if not glanced:
            # How much of the tables is used, anew: a flow in the rings may belong to an operation of another
            # process whose header was read before it was launched.
            self._headers(self._readers)
            self._glance(now, 0, looks=True)
        room, found, counts = self._room, self._room.found, self._room.counts.copy()
        communicators = np.empty(counts[:, Table.COMMUNICATORS].sum(), layout.COMMUNICATOR)
        streams = np.empty(counts[:, Table.STREAMS].sum(), layout.STREAM)
        self._check(
            self._library.mycroft_host_tables(
                self._host, self._found, communicators.ctypes.data, streams.ctypes.data
            )
        )
        operations, flows = found.operations_open, found.flows_open
        followed = np.ascontiguousarray(_followed(room, communicators, streams))
        open_operations, where = np.empty(operations, layout.OPERATION), np.empty(operations, np.int64)
        open_flows, flow_where = np.empty(flows, layout.FLOW), np.empty(flows, np.int64)
        slots = np.empty(flows, np.int64)
        again = native.Again(
            *(part.ctypes.data for part in (open_operations, where, open_flows, flow_where, slots))
        )
        self._check(
            self._library.mycroft_host_again(
                self._host, self._found, followed.ctypes.data, ctypes.byref(again)
            )
        )
        operations, flows = again.operation_count, again.flow_count
        return Snapshot(
            room.headers, Clocks.of(room.clocks), room.heard.copy(), communicators,
            counts[:, Table.COMMUNICATORS], streams, counts[:, Table.STREAMS],
            room.operations_[: found.operation_count], counts[:, Table.OPERATIONS],
            open_operations[:operations], where[:operations], found.operations_open,
            open_flows[:flows], flow_where[:flows], slots[:flows], again.torn,
        )  # fmt: skip

    def _headers(self, readers: Sequence[Reader]) -> Verdict:
        if self._readers != readers:
            sources = np.concatenate([np.empty(0, SOURCE), *(reader.source for reader in readers)])
            self._readers = list(readers)
            self._room.files(len(readers))
            native.checked(self._library.mycroft_host_sources(self._host, sources.ctypes.data, len(sources)))
        return self._check(self._library.mycroft_host_headers(self._host, self._found))

    def _glance(self, now: int, age_ns: int, looks: bool) -> Verdict:
        while True:
            verdict = self._check(
                self._library.mycroft_host_glance(self._host, self._found, now, age_ns, looks)
            )
            if verdict != Verdict.NO_ROOM:
                return verdict
            self._room.grow()

    def _check(self, code: int) -> Verdict:
        if code == Verdict.FAILED:
            failed = self._room.failed
            raise Failed({number: FAILURES[failed[number]] for number in np.flatnonzero(failed).tolist()})
        return native.checked(code)


def _followed(room: _Room, communicators: Raw, streams: Raw) -> Bools:
    """Which operations in flight are to be followed, a mask of those that a glance found.

    All that show more than their launch, that a flow of another process belongs to, or that a later one has
    shown to be over; of the others the heads.
    """
    found, counts = room.found, room.counts
    chosen: Bools = room.shown[: found.operations_open]
    bare = np.flatnonzero(~chosen)
    if not len(bare):
        return chosen
    raw, where = picked(room.operations_, room.open_operations[bare]), room.operation_where[bare]
    order, launched = raw["order"], raw["launch_tick"] > 0
    over = _moved_past(raw["comm"], where, communicators, counts[:, Table.COMMUNICATORS]) > order
    over |= _moved_past(raw["stream_slot"], where, streams, counts[:, Table.STREAMS]) > order
    keep = over | ~launched
    open_flows = room.open_flows[: found.flows_open]
    foreign = open_flows[(room.flows_["flags"][open_flows] & FlowFlag.FOREIGN) != 0]
    if len(foreign):
        keep |= np.isin(raw["handle"], room.flows_["parent"][foreign])
    rest = np.flatnonzero(~over & launched)
    comm = raw["comm_generation"][rest].astype(np.uint64) << np.uint64(32) | raw["comm"][rest]
    keep[rest] |= heads(
        where[rest].astype(np.uint64), comm, raw["stream"][rest], order[rest], raw["base"][rest]
    )
    followed: Bools = chosen.copy()
    followed[bare] = keep
    return followed


def _moved_past(
    slot: npt.NDArray[np.uint32], where: Indices, rows: Raw, count: Indices
) -> npt.NDArray[np.uint64]:
    """`moved_base` of slots of processes, 0 where there is no such slot."""
    inside = slot < count[where]
    if not len(rows) or not inside.any():
        return np.zeros(len(slot), np.uint64)
    at = _begins(count)[where] + np.where(inside, slot, 0)
    return np.where(inside, rows["moved_base"][np.minimum(at, len(rows) - 1)], np.uint64(0))


def _begins(count: Indices) -> Indices:
    """Where each process's rows begin."""
    return np.cumsum(count) - count
