"""From what the plugin wrote to the records that everybody else reads, for all processes of a host at once.

`World` is what is known of the processes and communicators; each raw row comes with the number of its
process there. Rows that cannot be (an unknown code, a communicator that is not there) are left out and
counted: any bytes may stand in a file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectors.agent import layout
from collectors.agent.clocks import ticks_array
from collectors.agent.groups import mixed, picked
from collectors.agent.layout import EndReason, FlowFlag, OperationState, Raw, StepState
from collectors.agent.stall import micros
from schemas.enums import Direction, Flag, Kind, Visibility
from schemas.records import COLL, FLOW, UNKNOWN_US, Records, enum_values

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]

COMM_FACTS = np.dtype(
    [
        ("known", "?"), ("state", "<u4"), ("generation", "<u4"), ("job", "<u8"), ("attempt", "<u8"),
        ("comm", "<u8"), ("dev", "<u8"), ("context", "<u8"), ("rank", "<u4"), ("nranks", "<u4"),
        ("nnodes", "<u4"), ("moved_base", "<u8"),
    ]
)  # fmt: skip
"""One communicator slot: `known` where all of it that a record needs is."""

_HEAD = np.zeros(256, np.int8) - 1
"""Which of Flow.time the head's state counts towards, by head_state; −1 none."""
for _state, _time in (
    (StepState.SEND_GPU, 0), (StepState.RECV_GPU, 0), (StepState.SEND_CREDIT, 1), (StepState.SEND_NET, 2),
    (StepState.RECV_NET, 2), (StepState.RECV_FLUSH, 3),
):  # fmt: skip
    _HEAD[_state] = _time

_CODES = enum_values(COLL)
_OPERATION_CODES = ("func", "datatype", "algo", "proto", "visibility")


def _lookup(codes: frozenset[int]) -> Bools:
    found = np.zeros(256, np.bool_)
    found[list(codes)] = True
    return found


_VALID = {name: _lookup(_CODES[name]) for name in _OPERATION_CODES}
_VALID_DIRECTION = _lookup(frozenset(int(value) for value in Direction))


@dataclass(frozen=True)
class World:
    """The processes of a host, numbered; arrays of shape (processes,) unless said otherwise.

    `comm_first`, `stream_first`: where each process's slots begin in `comms` (COMM_FACTS) and in
    `stream_moved` (Stream.moved_base).
    """

    process: U64
    tag: U64
    ticks: I64
    monotonic_ns: I64
    wall_ns: I64
    rate: npt.NDArray[np.float64]
    comm_first: Indices
    comm_count: Indices
    comms: Raw
    stream_first: Indices
    stream_count: Indices
    stream_moved: U64

    def monotonic(self, where: Indices, ticks: U64) -> I64:
        """Ticks of process `where` on this host's monotonic clock, ns."""
        return self.monotonic_ns[where] + self.since_anchor(where, ticks)

    def wall(self, where: Indices, ticks: U64) -> I64:
        """Ticks of process `where` on the wall clock, ns; 0 where the tick is 0."""
        return np.where(ticks == 0, 0, self.wall_ns[where] + self.since_anchor(where, ticks))

    def span_us(self, where: Indices, start: U64, end: U64) -> U32:
        """Microseconds between two ticks, UNKNOWN_US where either is 0; never negative."""
        elapsed = (ticks_array(end) - ticks_array(start)) / self.rate[where]
        return np.where((start == 0) | (end == 0), np.uint32(UNKNOWN_US), micros(_whole(elapsed)))

    def since_anchor(self, where: Indices, ticks: U64) -> I64:
        """Ticks of process `where` since its anchor, ns."""
        return _whole((ticks_array(ticks) - self.ticks[where]) / self.rate[where])


def _whole(ns: npt.NDArray[np.float64]) -> I64:
    """As integers; a garbage tick must not overflow."""
    return np.clip(ns, -(2.0**61), 2.0**61).astype(np.int64)


@dataclass(frozen=True)
class Operations:
    """Operations that can be: raw rows, and of each the number of its process and its COMM_FACTS.

    `kept` are their places among the rows that were given, the others were nonsense or nobody's.
    """

    raw: Raw
    where: Indices
    facts: Raw
    corrupt: int
    kept: Indices

    def only(self, which: Bools) -> Operations:
        """Those of a mask."""
        return Operations(
            picked(self.raw, which), self.where[which], picked(self.facts, which), 0, self.kept[which]
        )


def operations(raw: Raw, where: Indices, world: World) -> Operations:
    """The operations of known communicators whose codes exist; the others are counted where nonsense."""
    inside = raw["comm"] < world.comm_count[where]
    good = inside & (raw["launch_tick"] > 0)
    for name in _OPERATION_CODES:
        good &= _VALID[name][raw[name]]
    facts = _facts(world, where, raw["comm"], good)
    good &= (facts["generation"] == raw["comm_generation"]) & facts["known"]
    if good.all():
        return Operations(raw, where, facts, 0, np.arange(len(raw)))
    corrupt = int((~good & ~(inside & ~facts["known"])).sum())
    return Operations(picked(raw, good), where[good], picked(facts, good), corrupt, np.flatnonzero(good))


def operation_rows(found: Operations, world: World, now: int) -> Records:
    """Operations in flight as `state`, ended ones as `done` or `orphan`; `now` is ns of the monotonic clock.

    `quiet_us` is time since the last thing that the plugin timed: of those in flight the caller knows more.
    """
    raw, where, facts = found.raw, found.where, found.facts
    rows = COLL.empty(len(raw))
    for name in ("job", "attempt", "comm", "dev", "rank", "nranks", "nnodes"):
        rows[name] = facts[name]
    for name in (
        "func", "visibility", "datatype", "algo", "proto", "channels", "flags", "seq", "order", "group",
        "stream", "bytes", "count", "peer",
    ):  # fmt: skip
        rows[name] = raw[name]
    rows["n"] = 1
    rows["kind"] = Kind.STATE
    launch = raw["launch_tick"]
    rows["launched"] = world.wall(where, launch)
    rows["api_us"] = world.span_us(where, raw["api_tick"], launch)
    rows["first_us"] = world.span_us(where, launch, raw["first_tick"])
    rows["end_us"] = world.span_us(where, launch, raw["end_tick"])
    rows["age_us"] = micros(now - world.monotonic(where, launch))
    rows["quiet_us"] = micros(now - last_sign(raw, where, world))
    for name, timer, tick in (
        ("kernel_start_us", "kernel_start_ns", "kernel_start_tick"),
        ("kernel_end_us", "kernel_end_ns", "kernel_end_tick"),
    ):
        rows[name] = _kernel_us(world, where, rows["launched"], raw[timer], launch, raw[tick])
    _ended(rows, raw)
    return rows


def last_sign(raw: Raw, where: Indices, world: World) -> I64:
    """When the plugin timed the last thing of each operation, ns of the monotonic clock."""
    last = np.maximum.reduce([raw[name] for name in ("launch_tick", "first_tick", "moved_tick", "last_tick")])
    return world.monotonic(where, last)


def last_sign_of_flows(raw: Raw, where: Indices, world: World) -> I64:
    """The same of flows."""
    last = np.maximum.reduce([raw[name] for name in ("start_tick", "first_tick", "since", "end_tick")])
    return world.monotonic(where, last)


def _ended(rows: Records, raw: Raw) -> None:
    """Kinds and flags of operations that the plugin has ended or retired.

    One that was retired with nothing to show (only its launch was ever known) is done, when nobody knows.
    """
    reason = raw["end_reason"]
    ended = layout.control_state(raw["control"]) == OperationState.ENDED
    shown = rows["visibility"] != Visibility.LAUNCH
    aborted = ended & (reason == EndReason.ABORTED)
    recycled = ended & (reason == EndReason.RECYCLED)
    rows["kind"][ended] = Kind.DONE
    rows["kind"][aborted | (recycled & shown)] = Kind.ORPHAN
    rows["flags"][aborted] |= np.uint32(Flag.ABORTED)
    rows["flags"][recycled] |= np.uint32(Flag.OVERWRITTEN)


def _kernel_us(world: World, where: Indices, launched: I64, timer: U64, launch: U64, tick: U64) -> U32:
    """Launch to a kernel's start or end, by the GPU's timer where it shows the time of day, else by callback.

    The timer may differ from the host's clock by some ms: what is slightly before the launch is 0.
    """
    by_tick = world.span_us(where, launch, tick)
    ahead = np.where(timer < np.uint64(1 << 62), timer, np.uint64(0)).astype(np.int64) - launched
    sane = (timer > 0) & (np.abs(ahead) < 3_600_000_000_000)
    return np.where(sane, micros(ahead), by_tick)


def in_flight(found: Operations, world: World) -> Bools:
    """Which operations may still be running.

    One that has shown nothing has ended when a later one of its stream or communicator was moved by its GPU.
    """
    raw, where = found.raw, found.where
    order = raw["order"]
    passed = found.facts["moved_base"] > order
    has_stream = raw["stream_slot"] < world.stream_count[where]
    if len(world.stream_moved):
        at = world.stream_first[where] + np.where(has_stream, raw["stream_slot"], 0)
        at = np.minimum(at, len(world.stream_moved) - 1)
        passed = passed | (has_stream & (world.stream_moved[at] > order))
    running: Bools = ~(passed & (raw["moved_tick"] == 0))
    return running


def prints(raw: Raw) -> U64:
    """A number for each operation that changes whenever it moves, but for the counters of its flows."""
    parts = [
        raw[name]
        for name in ("control", "first_tick", "moved_tick", "last_tick", "kernels_started", "kernels_stopped")
    ]
    return mixed(*parts, raw["flows_started"], raw["flows_finished"])


def flow_prints(raw: Raw) -> U64:
    """A number for each flow that changes whenever a counter or the state of its head does.

    Polls without credit change neither. The first 32 bytes of a Flow are generation, states, head, total and
    counters.
    """
    words = np.ascontiguousarray(raw).view(np.uint64).reshape(len(raw), raw.dtype.itemsize // 8)
    return mixed(*(words[:, at] for at in range(4)))


@dataclass(frozen=True)
class Flows:
    """Translated flows; `kept` are their places among the raw rows, the others were nonsense or unowned."""

    rows: Records
    kept: Indices
    corrupt: int
    unowned: int


@dataclass(frozen=True)
class Owners:
    """Operations by handle, sorted: what a flow that another process carries is looked up in."""

    handle: U64
    raw: Raw
    where: Indices


def owners(raw: Raw, where: Indices) -> Owners:
    """Operations of all processes by their handle; raw rows of any state."""
    order = np.argsort(raw["handle"], kind="stable")
    return Owners(np.ascontiguousarray(raw["handle"][order]), raw[order], where[order])


def flows(raw: Raw, where: Indices, world: World, known: Owners, now: int, kind: Kind) -> Flows:
    """Flows as records of `kind` (state or done).

    A flow that another process's operation owns (PXN) is given back to that one: its handle says whose it
    is. Where the operation is gone, the communicator is found by its context and seq stays 0; where that is
    not on this host either, the flow is left out and counted as unowned.
    """
    good = _VALID_DIRECTION[raw["direction"]] & _VALID["func"][raw["func"]] & (raw["start_tick"] > 0)
    kept = np.flatnonzero(good)
    corrupt = len(raw) - len(kept)
    if corrupt:
        raw, where = picked(raw, good), where[good]
    foreign = (raw["flags"] & FlowFlag.FOREIGN) != 0
    local = ~foreign & (raw["comm"] < world.comm_count[where])
    facts = _facts(world, where, raw["comm"], local)
    match = local & facts["known"] & (facts["generation"] == raw["comm_generation"])
    seq, func, launch, launch_where = (
        raw["seq"].copy(),
        raw["func"].copy(),
        raw["launch_tick"].copy(),
        where.copy(),
    )
    if foreign.any():
        lost = np.flatnonzero(foreign)
        facts[lost], match[lost] = _by_context(world, raw["parent"][lost], raw["context"][lost])
        if len(known.handle):
            at = np.minimum(np.searchsorted(known.handle, raw["parent"][lost]), len(known.handle) - 1)
            hit = known.handle[at] == raw["parent"][lost]
            lost, at = lost[hit], at[hit]
            for target, name in ((seq, "seq"), (func, "func"), (launch, "launch_tick")):
                target[lost] = known.raw[name][at]
            launch_where[lost] = known.where[at]
    match &= _VALID["func"][func]
    unowned = int((~match).sum())
    if unowned:
        raw, where, facts, kept = picked(raw, match), where[match], picked(facts, match), kept[match]
        seq, func, launch, launch_where = seq[match], func[match], launch[match], launch_where[match]
    rows = FLOW.empty(len(raw))
    for name in ("job", "attempt", "comm", "dev"):
        rows[name] = facts[name]
    rows["rank"], rows["peer"] = facts["rank"], raw["peer"]
    rows["carrier"], rows["seq"], rows["func"], rows["kind"] = world.process[where], seq, func, kind
    for name in ("direction", "channel", "total", "bytes"):
        rows[name] = raw[name]
    rows["n"] = 1
    rows["no_credit"] = np.minimum(raw["no_credit"], np.uint64(UNKNOWN_US))
    _counters(rows, raw)
    since = world.since_anchor(launch_where, launch)
    rows["launched"] = np.where(launch == 0, 0, world.wall_ns[launch_where] + since)
    launched = world.monotonic_ns[launch_where] + since
    first = np.where(raw["first_tick"] > 0, world.monotonic(where, raw["first_tick"]) - launched, -1)
    rows["first_us"] = np.where((first < 0) | (launch == 0), UNKNOWN_US, micros(first))
    rows["age_us"] = np.where(launch == 0, UNKNOWN_US, micros(now - launched))
    rows["quiet_us"] = micros(now - last_sign_of_flows(raw, where, world))
    _times(rows, raw, where, world, now if kind == Kind.STATE else None)
    return Flows(rows, kept, corrupt, unowned)


def _counters(rows: Records, raw: Raw) -> None:
    sends = (raw["direction"] == Direction.SEND)[:, None]
    counters = np.ascontiguousarray(raw["counters"])
    sent, received = counters * sends, counters * ~sends
    for at, name in enumerate(("ready", "transmitted", "done")):
        rows[name] = sent[:, at]
    for at, name in enumerate(("posted", "received", "flushed", "consumed")):
        rows[name] = received[:, at]


def _times(rows: Records, raw: Raw, where: Indices, world: World, now: int | None) -> None:
    """Head-of-line times; of a flow in flight the state that its head is in lasts until now."""
    spent = ticks_array(raw["time"]) / world.rate[where][:, None]
    if now is not None and len(raw):
        which = _HEAD[raw["head_state"]]
        lasting = np.flatnonzero((which >= 0) & (raw["since"] > 0))
        elapsed = now - world.monotonic(where[lasting], raw["since"][lasting])
        spent[lasting, which[lasting]] += np.maximum(elapsed, 0)
    for at, name in enumerate(("gpu_us", "credit_us", "net_us", "flush_us")):
        rows[name] = (np.clip(spent[:, at], 0, 2.0**61) / 1000).astype(np.uint64)


def _facts(world: World, where: Indices, slot: npt.NDArray[np.integer], valid: Bools) -> Raw:
    """COMM_FACTS of slots of processes; of those that are not valid, of nobody."""
    found = np.zeros(len(where), COMM_FACTS)
    inside = valid & (slot < world.comm_count[where])
    if inside.all():
        return picked(world.comms, world.comm_first[where] + slot.astype(np.intp))
    places = world.comm_first[where[inside]] + slot[inside].astype(np.intp)
    found[inside] = picked(world.comms, places)
    return found


def _by_context(world: World, parent: U64, context: U64) -> tuple[Raw, Bools]:
    """COMM_FACTS of the communicator that another process calls `context`, and which were found.

    The process is the one whose tag is in the handle `parent`; a context alone may be another's, too.
    """
    found, hit = np.zeros(len(context), COMM_FACTS), np.zeros(len(context), np.bool_)
    tags = np.repeat(world.tag, world.comm_count)
    keys = mixed(tags, world.comms["context"])
    usable = np.flatnonzero(world.comms["known"])
    if not len(usable):
        return found, hit
    usable = usable[np.argsort(keys[usable], kind="stable")]
    wanted = mixed(layout.handle_tag(parent), context)
    at = np.minimum(np.searchsorted(keys[usable], wanted), len(usable) - 1)
    hit = keys[usable][at] == wanted
    found[hit] = world.comms[usable[at[hit]]]
    return found, hit
