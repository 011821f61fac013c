"""What all processes of a host are doing at one tick.

Carries arrays from the readings through translate and stall; remembers only what a decision needs of former
ticks: what moved when, usual durations, numbers of finished sends and receives. Most ticks find nothing
worth telling, so records are made only of what somebody asks for (`Tick.states`, `Tick.flow_states`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from collectors.agent import layout, translate
from collectors.agent.files import Readings
from collectors.agent.groups import mixed, picked, stacked
from collectors.agent.hearing import Heard, heard
from collectors.agent.layout import FUNCS, EndReason, FlowFlag, OperationState, Raw, control_state
from collectors.agent.positions import Highest, pair_key
from collectors.agent.process import Traced
from collectors.agent.stall import (
    STALL_AGE_NS,
    STALL_QUIET_NS,
    Medians,
    Movement,
    current,
    micros,
    stall_age,
    stalled,
    watch,
)
from collectors.agent.steps import Steps
from collectors.agent.translate import Indices, Operations, World
from schemas.enums import Direction, Flag, Func, Kind, Visibility
from schemas.records import COLL, FLOW, UNKNOWN_US, Records
from schemas.sizes import size_class

NEVER_NS = 1 << 62

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class InFlight:
    """Operations in flight; arrays of their length.

    `keys` name them from tick to tick, `prints` change when they move. `stalls`: seen to stall. `unseen`: of
    those only whose launch is known, where a device at rest may stand. `dead`: their process is no more.
    `due_ns`, of any length: after how long ones that do not stall may, unless they move.
    """

    found: Operations
    process: U64
    keys: U64
    prints: U64
    quiet_ns: I64
    stalls: Bools
    unseen: Bools
    dead: Bools
    due_ns: I64

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def current(self) -> U8:
        """See stall.current."""
        raw, facts = self.found.raw, self.found.facts
        return current(
            raw["order"], raw["stream"], facts["comm"], mixed(self.process, raw["base"]), facts["dev"],
            raw["visibility"], raw["moved_tick"] > 0,
        )  # fmt: skip


@dataclass(frozen=True)
class FlowsInFlight:
    """Flows in flight; `of` is the place of each one's operation in InFlight, −1 for none."""

    raw: Raw
    where: Indices
    keys: U64
    prints: U64
    quiet_ns: I64
    of: Indices


@dataclass(frozen=True)
class Finished:
    """What the rings held: records, and of the operations their keys, and which are told a second time.

    `told`, `flow_told`: what an earlier collector has sent; `flow_summed`: what its sums of flows have.
    """

    coll: Records
    keys: U64
    amended: Bools
    told: Bools
    flow: Records
    flow_told: Bools
    flow_summed: Bools


@dataclass(frozen=True)
class Tick:
    """One look at a host. `comms_raw`, `comms_where`, `ended` and `moved_order` are what positions need."""

    now: int
    wall: int
    readings: Readings
    world: World
    coll: InFlight
    flow: FlowsInFlight
    done: Finished
    device_quiet: dict[int, int]
    comms_raw: Raw
    comms_where: Indices
    torn: int
    corrupt: int
    lost: int
    steps: Steps

    def states(self, which: Bools) -> Records:
        """Records of operations in flight, those of a mask."""
        if not which.any():
            return COLL.empty(0)
        rows = translate.operation_rows(self.coll.found.only(which), self.world, self.now)
        rows["quiet_us"], rows["current"] = micros(self.coll.quiet_ns[which]), self.coll.current[which]
        rows["step_us"] = self.steps.of(rows)
        return rows

    def flow_states(self, which: Bools) -> Records:
        """Records of flows in flight, those of a mask that can be told of."""
        if not which.any():
            return FLOW.empty(0)
        raw, of = picked(self.flow.raw, which), self.flow.of[which]
        known = translate.owners(self.coll.found.raw, self.coll.found.where)
        if ((raw["flags"] & FlowFlag.FOREIGN > 0) & (of < 0)).any():
            known = _owners(self.readings, self.coll.found)  # those that have ended, too
        flows = translate.flows(raw, self.flow.where[which], self.world, known, self.now, Kind.STATE)
        flows.rows["quiet_us"] = micros(self.flow.quiet_ns[which][flows.kept])
        of = of[flows.kept]
        if len(self.coll):
            flows.rows["current"] = np.where(of >= 0, self.coll.current[np.maximum(of, 0)], 0)
        return flows.rows

    @property
    def heard(self) -> list[Heard]:
        """When each process was last heard of."""
        return heard(self.readings.snapshot.heard, self.now)

    @property
    def due_ns(self) -> int:
        """After how long something may be judged otherwise although nothing has moved."""
        rest = np.array(list(self.device_quiet.values()), np.int64)
        left = np.concatenate([self.coll.due_ns, STALL_QUIET_NS - rest[rest < STALL_QUIET_NS]])
        return int(left.min()) if len(left) else NEVER_NS

    @property
    def busy_us(self) -> npt.NDArray[np.uint32]:
        """By process: how long its oldest operation that shows anything is in flight, stalling or not."""
        found = np.full(len(self.readings), UNKNOWN_US, np.uint32)
        live = self.coll.found
        seen = np.flatnonzero(live.raw["visibility"] != Visibility.LAUNCH)
        if len(seen):
            where = live.where[seen]
            age = micros(self.now - self.world.monotonic(where, live.raw["launch_tick"][seen]))
            oldest = np.zeros(len(found), np.uint32)
            np.maximum.at(oldest, where, age)
            found[where] = oldest[where]
        return found

    @property
    def ended(self) -> U64:
        """By communicator slot and func: see Traced.ended."""
        parts = [traced.ended for traced in self.readings.traced]
        return np.concatenate(parts) if parts else np.zeros((0, FUNCS), np.uint64)

    @property
    def moved_order(self) -> U64:
        """By process: highest launch order whose GPU has shown progress."""
        found: U64 = self.readings.snapshot.headers["moved_order"]
        return found


class Analysis:
    """Memory between ticks. One call of `look` a tick."""

    def __init__(self) -> None:
        self._operations, self._flows = Movement(), Movement()
        self._devices = Movement()
        self._medians = Medians()
        self._steps = Steps()
        self.pairs = Highest()
        """Last finished send and receive of each pair: see positions.pair_key."""

    def look(self, readings: Readings, now: int, wall: int) -> Tick:
        """Everything that these readings show; `now` and `wall` are ns from just before they were taken."""
        world, snapshot = world_of(readings), readings.snapshot
        comms_raw = snapshot.communicators
        comms_where = np.repeat(np.arange(len(readings)), snapshot.comm_count)
        live = translate.operations(snapshot.open_operations, snapshot.open_where, world)
        carried = _flow_of(snapshot.flows, live)
        carried = carried[carried >= 0]
        # With PXN an operation's flows lie in another process, and its own calls it launch.
        live.raw["visibility"][carried] = Visibility.FLOWS
        running = translate.in_flight(live, world)
        running[carried] = True
        corrupt = live.corrupt
        if not running.all():
            _raise_ended(readings.traced, live, ~running)
            live = live.only(running)
        done, bad = self._finished(readings, world, now)
        keys, prints = mixed(world.process[live.where], live.raw["handle"]), translate.prints(live.raw)
        flow = self._flows_in_flight(readings, world, live, prints, now)
        self._operations, quiet = watch(
            self._operations, keys, prints, now,
            lambda new: translate.last_sign(picked(live.raw, new), live.where[new], world),
        )  # fmt: skip
        device_quiet = self._device_quiet(world, comms_raw, live, prints, now)
        died = np.array([traced.died_at is not None for traced in readings.traced], np.bool_)
        return Tick(
            now, wall, readings, world,
            self._judged(live, keys, prints, quiet, died[live.where], device_quiet, world, now),
            flow, done, device_quiet, comms_raw, comms_where,
            snapshot.torn,
            corrupt + bad + sum(drained.corrupt for drained in readings.drained),
            sum(drained.lost for drained in readings.drained),
            self._steps,
        )  # fmt: skip

    def _judged(
        self, live: Operations, keys: U64, prints: U64, quiet: I64, dead: Bools, device_quiet: dict[int, int],
        world: World, now: int,
    ) -> InFlight:  # fmt: skip
        raw, facts = live.raw, live.facts
        nothing = np.zeros(len(raw), np.bool_)
        age = now - world.monotonic(live.where, raw["launch_tick"])
        old = age > STALL_AGE_NS
        seen = raw["visibility"] != Visibility.LAUNCH
        # When both limits are passed; the median is asked only of those that have passed them.
        left = np.maximum(STALL_AGE_NS + 1 - age, STALL_QUIET_NS - quiet)
        found = InFlight(
            live, world.process[live.where], keys, prints, quiet, nothing, nothing, dead,
            left[seen & (left > 0)],
        )  # fmt: skip
        still = old & (quiet >= STALL_QUIET_NS)
        if not still.any():
            return found
        now_current = found.current
        limit = stall_age(self._medians.of(_classes(live)))
        stalls = seen & stalled(age, quiet, limit, now_current)
        waits = seen & still & (now_current > 0) & ~stalls
        due_ns = np.concatenate([found.due_ns, limit[waits] + 1 - age[waits]])
        rest = np.array([device_quiet.get(dev, 0) for dev in facts["dev"].tolist()], np.int64)
        unseen = ~seen & (rest >= STALL_QUIET_NS) & old & ((now_current > 0) | _newest(live))
        return replace(found, stalls=stalls, unseen=unseen, due_ns=due_ns)

    def _flows_in_flight(
        self, readings: Readings, world: World, live: Operations, prints: U64, now: int
    ) -> FlowsInFlight:
        """The flows, and what they show added to the prints of their operations."""
        snapshot = readings.snapshot
        raw, where = snapshot.flows, snapshot.flow_where
        keys = mixed(world.process[where], snapshot.flow_slots, raw["generation"])
        shown = translate.flow_prints(raw)
        of = _flow_of(raw, live)
        mine = of >= 0
        np.add.at(prints, of[mine], shown[mine])
        self._flows, quiet = watch(
            self._flows, keys, shown, now,
            lambda new: translate.last_sign_of_flows(picked(raw, new), where[new], world),
        )  # fmt: skip
        return FlowsInFlight(raw, where, keys, shown, quiet, of)

    def _finished(self, readings: Readings, world: World, now: int) -> tuple[Finished, int]:
        """What the rings held, and how many rows of it were nonsense."""
        raw, where = _gathered([drained.operations for drained in readings.drained], layout.OPERATION)
        flow_raw, flow_where = _gathered([drained.flows for drained in readings.drained], layout.FLOW)
        if not len(raw) and not len(flow_raw):
            none = np.zeros(0, np.uint64)
            return Finished(COLL.empty(0), none, none > 0, none > 0, FLOW.empty(0), none > 0, none > 0), 0
        found = translate.operations(raw, where, world)
        rows = translate.operation_rows(found, world, now)
        known = _owners(readings, found) if (flow_raw["flags"] & FlowFlag.FOREIGN).any() else _NO_OWNERS
        flows = translate.flows(flow_raw, flow_where, world, known, now, Kind.DONE)
        reason = found.raw["end_reason"]
        _raise_ended(
            readings.traced, found, (reason == EndReason.BY_SUCCESSOR) | (reason == EndReason.FINALISED)
        )
        pairwise = (rows["flags"] & np.uint32(Flag.P2P) > 0) & (rows["kind"] == Kind.DONE)
        pairs = picked(rows, pairwise & (reason != EndReason.RECYCLED))
        direction = np.where(pairs["func"] == Func.SEND, int(Direction.SEND), int(Direction.RECV))
        self.pairs.add(pair_key(pairs["dev"], pairs["comm"], direction, pairs["peer"]), pairs["seq"])
        measured = (rows["kind"] == Kind.DONE) & (rows["end_us"] != UNKNOWN_US)
        self._medians.add(_classes(found.only(measured)), rows["end_us"][measured].astype(np.float64))
        self._steps.add(picked(rows, (rows["kind"] == Kind.DONE) & (found.raw["amended"] == 0)))
        keys = mixed(world.process[found.where], found.raw["handle"])
        done = Finished(
            rows, keys, found.raw["amended"] > 0,
            _leading([(each.told, len(each.operations)) for each in readings.drained])[found.kept],
            flows.rows,
            _leading([(each.flows_told, len(each.flows)) for each in readings.drained])[flows.kept],
            _leading([(each.flows_summed, len(each.flows)) for each in readings.drained])[flows.kept],
        )  # fmt: skip
        return done, found.corrupt + flows.corrupt

    def _device_quiet(
        self, world: World, comms: Raw, live: Operations, prints: U64, now: int
    ) -> dict[int, int]:
        """For how long nothing at all has moved on each device, ns. Launching something moves nothing."""
        known = world.comms["known"]
        dev = np.concatenate([world.comms["dev"][known], live.facts["dev"]])
        shows = np.concatenate(
            [
                mixed(comms["ended_count"], comms["moved_base"], world.comms["comm"])[known],
                np.where(live.raw["moved_tick"] > 0, prints, np.uint64(0)),
            ]
        )
        devices, where = np.unique(dev, return_inverse=True)
        total = np.zeros(len(devices), np.uint64)
        np.add.at(total, where.reshape(-1), shows)
        self._devices, quiet = watch(self._devices, devices, total, now)
        return dict(zip(devices.tolist(), quiet.tolist(), strict=True))


_NO_OWNERS = translate.owners(np.empty(0, layout.OPERATION), np.empty(0, np.intp))


def _owners(readings: Readings, others: Operations) -> translate.Owners:
    """All operations that a flow of another process may belong to: those in the tables, and others."""
    snapshot = readings.snapshot
    raw, where = snapshot.operations, np.repeat(np.arange(len(readings)), snapshot.operation_count)
    used = control_state(raw["control"]) >= OperationState.OPEN
    return translate.owners(
        stacked([picked(raw, used), others.raw], layout.OPERATION),
        np.concatenate([where[used], others.where]),
    )


def world_of(readings: Readings) -> World:
    """The processes as arrays."""
    snapshot = readings.snapshot
    return World(
        np.array([traced.id for traced in readings.traced], np.uint64),
        np.array([traced.file.identity.nonce_tag for traced in readings.traced], np.uint64),
        snapshot.clocks.ticks,
        snapshot.clocks.monotonic_ns,
        snapshot.clocks.wall_ns,
        snapshot.clocks.rate,
        np.cumsum(snapshot.comm_count) - snapshot.comm_count,
        snapshot.comm_count,
        readings.facts,
        np.cumsum(snapshot.stream_count) - snapshot.stream_count,
        snapshot.stream_count,
        snapshot.streams["moved_base"],
    )


def _classes(found: Operations) -> U64:
    """A number that operations of one device, communicator, func, size, algorithm and protocol share."""
    raw, facts = found.raw, found.facts
    size = size_class(np.ascontiguousarray(raw["bytes"]))
    return mixed(facts["dev"], facts["comm"], raw["func"], raw["algo"], raw["proto"], size)


def _raise_ended(traced: Sequence[Traced], found: Operations, which: Bools) -> None:
    """Operations that later ones have shown to be over, although no event of their own says so."""
    which = which & (found.raw["flags"] & np.uint32(Flag.P2P) == 0) & (found.raw["func"] < FUNCS - 1)
    if not which.any():
        return
    where, raw = found.where[which], picked(found.raw, which)
    for number in np.unique(where).tolist():
        mine = raw[where == number]
        ended = traced[number].ended
        np.maximum.at(ended, (mine["comm"].astype(np.intp), mine["func"].astype(np.intp)), mine["seq"])


def _gathered(parts: list[Raw], dtype: np.dtype[np.void]) -> tuple[Raw, Indices]:
    """Rows of all processes, and the number of the process of each."""
    sizes = np.array([len(part) for part in parts], np.intp)
    return stacked(parts, dtype), np.repeat(np.arange(len(parts), dtype=np.intp), sizes)


def _flow_of(raw: Raw, live: Operations) -> Indices:
    """The place of each flow's operation among those in flight, −1 for none: by handle, PXN or not."""
    if not len(live.raw) or not len(raw):
        return np.full(len(raw), -1, np.intp)
    handles, parent = np.ascontiguousarray(live.raw["handle"]), raw["parent"]
    order = np.argsort(handles, kind="stable")
    at = order[np.minimum(np.searchsorted(handles, parent, sorter=order), len(handles) - 1)]
    return np.where(handles[at] == parent, at, -1)


def _newest(live: Operations) -> Bools:
    """The last launched operation of each device and communicator."""
    newest = np.zeros(len(live.raw), np.bool_)
    if len(newest):
        place = mixed(live.facts["dev"], live.facts["comm"])
        order = np.lexsort((live.raw["order"], place))
        last = np.append(place[order][1:] != place[order][:-1], True)
        newest[order[last]] = True
    return newest


def _leading(parts: list[tuple[int, int]]) -> Bools:
    """A mask of rows of all processes: of each, the first so many of all that it has."""
    found = np.zeros(sum(size for _, size in parts), np.bool_)
    begins = 0
    for count, size in parts:
        found[begins : begins + count] = True
        begins += size
    return found
