"""One look at a running job on one trace partition: what its hosts have said last, as arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.members import Announcement
from schemas.records import UNKNOWN_US, Records
from streams.grouping import groups_of, places_of
from streams.live.latest import F64, I64, U64, Bools, Counts, Latest
from streams.membership import Membership
from streams.operations import is_pair

REST_S = 0.3
"""What has not moved for so long, a host tells again as soon as it moves (collectors.agent.stall)."""
SILENT_S = 3.0
"""A host that speaks each second and has not for so long is silent."""
UNHEARD_S = 10.0
"""A host that has never spoken may still be starting for so long after the job was first heard of."""
UNKNOWN_S = float("inf")
_STOPPED = (ord("T"), ord("t"))
KERNEL_TIER = 2
"""Of PROC records: kernel channels are traced."""
WARM = 3
"""Operations after which a device's next one of the kind is an ordinary one."""
POSITION_KEYS = ("comm", "dev", "func", "peer")
_WHOSE = ("comm", "dev", "seq", "func")


@dataclass(frozen=True)
class Process:
    """What a host last said of a process. `died_at`, `stopped_at`: when it first said so; `well_at`: when it
    last said that the process lives and runs, before that.
    """

    dev: int
    alive: bool
    tier: int
    quiet_s: float
    busy_s: float
    """How old its oldest operation in flight was that shows anything, stalling or not; inf for none."""
    at: float
    died_at: float | None
    stopped_at: float | None
    cont_at: float | None
    well_at: float | None

    @property
    def gone_since(self) -> float:
        """The earliest at which it may have died or stopped, as far as is known; inf where it is well."""
        told = self.died_at if self.died_at is not None else self.stopped_at
        if told is None:
            return UNKNOWN_S
        return told if self.well_at is None else self.well_at

    @property
    def interrupted(self) -> bool:
        """Whether it is dead, stopped, or has been stopped before."""
        return self.died_at is not None or self.stopped_at is not None or self.cont_at is not None


_TOLD = ("proc", "dev", "alive", "state", "tier", "quiet_us", "busy_us")


def hear(known: dict[int, Process], rows: Records, at: Iterable[float]) -> None:
    """Take in PROC records, each said `at`, into what is known of each process by its id."""
    columns = (rows[name].tolist() for name in _TOLD)
    for when, proc, dev, alive, state, tier, quiet_us, busy_us in zip(at, *columns, strict=False):
        before = known.get(proc)
        stopped = bool(alive) and state in _STOPPED
        died_at = None if alive else when
        stopped_at = when if stopped else None
        cont_at = well_at = None
        if before is not None:
            if not alive and before.died_at is not None:
                died_at = before.died_at
            if stopped and before.stopped_at is not None:
                stopped_at = before.stopped_at
            cont_at = when if before.stopped_at is not None and not stopped else before.cont_at
            well_at = before.well_at
        if alive and not stopped:
            well_at = when
        known[proc] = Process(
            dev, bool(alive), tier, _seconds(quiet_us), _seconds(busy_us), when, died_at, stopped_at, cont_at,
            well_at,
        )  # fmt: skip


def _seconds(us: int) -> float:
    return UNKNOWN_S if us == UNKNOWN_US else us / 1e6


@dataclass
class Sources:
    """Hosts that speak on a partition: when each was last heard, and when something of it was lost."""

    names: list[str] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    lost_at: list[float] = field(default_factory=list)
    """When each was last seen to have lost a message or records, −inf for never."""
    _drops: list[int] = field(default_factory=list)
    _sequence: list[int] = field(default_factory=list)
    _numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        """The number of a host, a new one where it was not known."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
            self.at.append(-UNKNOWN_S)
            self.lost_at.append(-UNKNOWN_S)
            self._drops.append(-1)
            self._sequence.append(-1)
        return self._numbers[name]

    def heard(self, source: int, at: float, sequence: int, drops: int) -> None:
        """A host has flushed; numbers that start anew are those of a restarted collector."""
        before, dropped = self._sequence[source], self._drops[source]
        if 0 <= before < sequence - 1 or 0 <= dropped < drops:
            self.lost_at[source] = at
        self._sequence[source], self._drops[source] = sequence, drops
        self.at[source] = max(at, self.at[source])

    def last(self, source: I64) -> F64:
        """When each of the given hosts was last heard, shape as the argument."""
        return np.array(self.at, np.float64)[source] if len(self.at) else np.zeros(len(source))


def homes(announcements: Iterable[Announcement], sources: Sources) -> tuple[U64, I64]:
    """Devices, ascending, and the number of the host that tells of each, shapes (devices,)."""
    found: dict[int, int] = {}
    for announcement in announcements:
        source = sources.number(announcement.source)
        found.update((member.dev, source) for member in announcement.members)
    devices = np.array(list(found), np.uint64)
    order = np.argsort(devices)
    return devices[order], np.array(list(found.values()), np.int64)[order]


class Moment:
    """Everything that one partition knows of a job at `now`."""

    def __init__(
        self, job: int, attempt: int, now: float, members: Membership,
        announcements: Mapping[tuple[int, str], Announcement], states: Latest, positions: Latest,
        flows: Latest, processes: Mapping[int, Process], sources: Sources, ended: Counts, done: Records,
        since: float, mismatched: Mapping[int, Records], homes: tuple[U64, I64],
    ) -> None:  # fmt: skip
        self.since, self.mismatched, self._homes = since, mismatched, homes
        self.job, self.attempt, self.now = job, attempt, now
        self.members, self.announcements = members, announcements
        self.states, self.positions, self.flows = states, positions, flows
        self.processes, self.sources, self.ended, self.done = processes, sources, ended, done

    def sources_of(self, devices: U64) -> I64:
        """The number of the host that tells of each device, −1 for none, shape as the argument."""
        known, source = self._homes
        if not len(known):
            return np.full(len(devices), -1, np.int64)
        at = np.minimum(np.searchsorted(known, devices), len(known) - 1)
        return np.where(known[at] == devices, source[at], -1)

    @cached_property
    def process_of(self) -> dict[int, Process]:
        """The process of each device."""
        return {process.dev: process for process in self.processes.values()}

    @cached_property
    def kernels_traced(self) -> bool:
        """Whether kernel channels of any process are traced."""
        return any(process.tier >= KERNEL_TIER for process in self.processes.values())

    @cached_property
    def nnodes(self) -> dict[int, int]:
        """Hosts of each communicator, as NCCL said at its init."""
        return {announcement.comm: announcement.nnodes or 0 for announcement in self.announcements.values()}

    @cached_property
    def following(self) -> dict[int, dict[tuple[int, int], int]]:
        """By communicator: by channel and rank the next one of the ring, as far as NCCL's log told it."""
        found: defaultdict[int, dict[tuple[int, int], int]] = defaultdict(dict)
        for announcement in self.announcements.values():
            for path in announcement.rings:
                for rank, after in pairwise(path.ranks):
                    found[announcement.comm][path.channel, rank] = after
        return dict(found)

    @cached_property
    def connected(self) -> Bools:
        """Of which states the device has ended a few operations like it, shape (states,).

        Their connections are made, and their host knows medians.
        """
        rows = self.states.rows
        warm = self.ended.of(rows) >= WARM
        pair = np.flatnonzero(is_pair(rows))
        at = self.positions_at(*(rows[name][pair] for name in POSITION_KEYS))
        warm[pair] = (at >= 0) & (self.positions.rows["ended"][at] >= WARM) if len(pair) else False
        return warm

    @cached_property
    def begun(self) -> Bools:
        """Which states are of operations that a GPU has moved: they are connected, shape (states,)."""
        flows, states = self.flows.rows, self.states.rows
        moved = flows["consumed"] + flows["ready"] > 0
        return places_of([flows[name][moved] for name in _WHOSE], [states[name] for name in _WHOSE]) >= 0

    def positions_at(self, *keys: npt.NDArray[Any]) -> I64:
        """The rows in `positions` of each (comm, dev, func, peer), −1 for none; shapes as each argument."""
        return places_of([self.positions.rows[name] for name in POSITION_KEYS], keys)

    @cached_property
    def _spoken(self) -> tuple[U64, U64, F64]:
        """Communicators and devices of which a position is known at all, and since when all were told."""
        rows, told = self.positions.rows, self.positions.at
        comm, dev = rows["comm"], rows["dev"]
        group, first = groups_of([comm, dev])
        since = np.full(len(first), UNKNOWN_S)
        np.minimum.at(since, group, told)
        return comm[first], dev[first], since

    def spoken(self, comm: U64, dev: U64) -> F64:
        """Since when all positions of each device in a communicator were told, inf where none was."""
        *keys, since = self._spoken
        at = places_of(keys, [comm, dev])
        return np.where(at >= 0, since[at] if len(since) else UNKNOWN_S, UNKNOWN_S)

    @cached_property
    def age(self) -> F64:
        """How long ago the operation of each state was launched, s."""
        age: F64 = self.states.rows["age_us"] / 1e6 + np.maximum(self.now - self.states.at, 0.0)
        return age

    @cached_property
    def quiet(self) -> F64:
        """How long each state has been quiet, s: what stalls is told again as soon as it moves."""
        told = self.states.rows["quiet_us"] / 1e6
        since = np.maximum(self.now - self.states.at, 0.0)
        return np.where(told >= REST_S, told + since, told)

    @cached_property
    def flows_quiet(self) -> F64:
        """How long each flow has been quiet, s.

        What stalls is told again as soon as it moves; of what moves, the last word may be a second old.
        """
        flows, states = self.flows.rows, self.states.rows
        resting = states["quiet_us"] >= REST_S * 1e6
        stalls = places_of([states[name][resting] for name in _WHOSE], [flows[name] for name in _WHOSE]) >= 0
        since = np.maximum(self.now - self.flows.at, 0.0)
        quiet: F64 = flows["quiet_us"] / 1e6 + np.where(stalls, since, 0.0)
        return quiet

    def heard(self, devices: U64) -> F64:
        """When the host of each device has last spoken here, −inf for never; shape as the argument."""
        return _at(self.sources.at, self.sources_of(devices))

    def lost_at(self, devices: U64) -> F64:
        """When something of the host of each device was last lost: what it had said may be outdated."""
        return _at(self.sources.lost_at, self.sources_of(devices))

    def silent(self, devices: U64) -> Bools:
        """Of which devices the host does not speak any more, or has not begun to in a long while."""
        heard = self.heard(devices)
        since = np.where(heard > -UNKNOWN_S, heard, self.since + UNHEARD_S)
        silent: Bools = self.now - since > SILENT_S
        return silent


def _at(values: Sequence[float], source: I64) -> F64:
    return np.array([*values, -UNKNOWN_S])[source]  # −1 takes the last
