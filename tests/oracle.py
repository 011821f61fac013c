"""What a recorded run says at any moment: operations, positions, flows and kernel channels.

Straight from the trace and the facts of NCCL's profiler interface, without any code of the plugin or the
collector: what they deliver for the same run has to be this. Numbers of operations start at 1, as in records.

    picture = Oracle(run.lines).at(end)
    picture.operation(p=2, func="AllReduce", seq=7).flows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

OPS = frozenset({"Group", "Coll", "P2p", "GroupApi", "CollApi", "P2pApi", "KernelLaunch"})
FLOWS = OPS | {"ProxyOp", "ProxyStep", "ProxyCtrl"}
KERNEL = FLOWS | {"KernelCh"}
TIERS = {"ops": OPS, "flows": FLOWS, "kernel": KERNEL}
"""Events that the plugin asks NCCL for, by tier."""

SINCE_V5 = frozenset({"GroupApi", "CollApi", "P2pApi", "KernelLaunch"})

SEND_PEER_WAIT, SEND_WAIT, RECV_WAIT, RECV_FLUSH_WAIT, RECV_GPU_WAIT = 20, 9, 10, 11, 12

BYTES = {
    "ncclInt8": 1, "ncclUint8": 1, "ncclInt32": 4, "ncclUint32": 4, "ncclInt64": 8, "ncclUint64": 8,
    "ncclFloat16": 2, "ncclFloat32": 4, "ncclFloat64": 8, "ncclBfloat16": 2, "ncclFloat8e4m3": 1,
    "ncclFloat8e5m2": 1,
}  # fmt: skip

Line = dict[str, Any]


@dataclass(frozen=True)
class Communicator:
    """A communicator as one process has it: `rank` is that of the process in it."""

    id: int
    name: str
    nnodes: int
    nranks: int
    rank: int


@dataclass
class Flow:
    """One channel, peer and direction of an operation; `carrier`: world rank of the process that moves it.

    A sender counts ready, transmitted and done, a receiver posted, received, flushed and consumed; the other
    counters stay 0. `no_credit`: SendPeerWait beyond the first of each step, as replayed. `last`: when a
    counter moved last, `first`: when its first step began, ns of the run, -1 for never.
    """

    channel: int
    peer: int
    send: bool
    carrier: int
    total: int
    ready: int = 0
    transmitted: int = 0
    done: int = 0
    posted: int = 0
    received: int = 0
    flushed: int = 0
    consumed: int = 0
    bytes: int = 0
    no_credit: int = 0
    last: int = -1
    first: int = -1

    @property
    def complete(self) -> bool:
        """Whether its last step has stopped."""
        return (self.done if self.send else self.consumed) >= self.total

    @property
    def moved(self) -> bool:
        """Whether the device's own GPU has worked on it: data that came in proves nothing."""
        return (self.ready if self.send else self.consumed) > 0

    @property
    def counters(self) -> tuple[int, ...]:
        """Total, then the three or four counters in the order in which a step passes them."""
        if self.send:
            return self.total, self.ready, self.transmitted, self.done
        return self.total, self.posted, self.received, self.flushed, self.consumed


@dataclass
class Kernel:
    """One kernel channel: GPU times of start and stop, -1 where it has not (or the version does not say).

    `begun` and `closed`: when NCCL told of it, ns of the run, -1 for not yet.
    """

    channel: int
    started: int
    stopped: int = -1
    open: bool = True
    begun: int = -1
    closed: int = -1


@dataclass
class Operation:
    """One collective, send or receive on one device.

    `p`: world rank. `seq`: NCCL's number + 1; point to point the count per communicator, peer and direction.
    `count`, `datatype`: as given to the call where the version shows it. `launched`: when the call entered
    NCCL (before v5: the Coll or P2p event), `started`: that event. `order`: among its launches.
    `traced`: kernel channels are delivered, so the operation is not over before all of them are. `together`:
    when the group of operations that NCCL launched with it began. `called`: its API call was seen.
    """

    p: int
    comm: Communicator
    func: str
    seq: int
    peer: int
    count: int
    datatype: str
    root: int
    algo: str
    proto: str
    channels: int
    launched: int
    started: int
    order: int
    flows: dict[tuple[int, int, bool], Flow] = field(default_factory=dict)
    kernels: dict[int, Kernel] = field(default_factory=dict)
    implied: bool = False
    traced: bool = False
    together: int = -1
    called: bool = False

    @property
    def bytes(self) -> int:
        """Payload as given to the call."""
        return self.count * BYTES[self.datatype]

    @property
    def visibility(self) -> str:
        """How much of it can be seen: flows, kernel or launch."""
        return "flows" if self.flows else "kernel" if self.kernels else "launch"

    @property
    def done(self) -> bool | None:
        """Whether its own flows and kernel channels are through, None where it has neither."""
        if not self.flows and not self.kernels:
            return None
        kernels = len(self.kernels) >= self.channels and not any(
            kernel.open for kernel in self.kernels.values()
        )
        return (kernels or not self.traced) and all(flow.complete for flow in self.flows.values())

    @property
    def ended(self) -> bool:
        """Done, or (nothing seen of it) certainly over because a later one of the stream has moved."""
        return self.done if self.done is not None else self.implied

    @property
    def moved(self) -> bool:
        """Whether the device's GPU has been seen to work on it."""
        return bool(self.kernels) or any(flow.moved for flow in self.flows.values())


@dataclass(frozen=True)
class Call:
    """An API call whose operation has not been seen yet; `seq` it should get (0 point to point)."""

    p: int
    comm: Communicator
    func: str
    seq: int
    count: int
    datatype: str
    launched: int


@dataclass
class Picture:
    """Everything known at one moment."""

    operations: list[Operation]
    calls: list[Call]
    communicators: dict[tuple[int, int], Communicator]

    def of(self, p: int | None = None, **facts: Any) -> list[Operation]:
        """Operations of a process (None: of all) with these attributes, in order of their start.

        `comm` may be a communicator's name or number.
        """
        comm = facts.pop("comm", None)
        return [
            op
            for op in self.operations
            if (p is None or op.p == p)
            and (comm is None or comm in (op.comm.name, op.comm.id))
            and all(getattr(op, name) == value for name, value in facts.items())
        ]

    def operation(self, p: int, **facts: Any) -> Operation:
        """The one operation with these attributes."""
        (found,) = self.of(p, **facts)
        return found

    def positions(self) -> dict[tuple[int, int, str, int], tuple[int, int]]:
        """(p, communicator, func, peer) → last launched, last ended; peer -1 for collectives."""
        found: dict[tuple[int, int, str, int], tuple[int, int]] = {}
        for op in self.operations:
            key = (op.p, op.comm.id, op.func, op.peer)
            launched, ended = found.get(key, (0, 0))
            found[key] = (max(launched, op.seq), max(ended, op.seq if op.ended else 0))
        for call in self.calls:
            if call.seq:
                key = (call.p, call.comm.id, call.func, -1)
                launched, ended = found.get(key, (0, 0))
                found[key] = (max(launched, call.seq), ended)
        return found

    def flows(self) -> Iterator[tuple[Operation, Flow]]:
        """Every flow with its operation."""
        for op in self.operations:
            for flow in op.flows.values():
                yield op, flow


class Oracle:
    """Pictures of a run, as a tier and an API version of the plugin can show it."""

    def __init__(self, lines: Iterable[Line], tier: str = "flows", api: int = 6) -> None:
        self.lines = list(lines)
        self.api = api
        self.events = TIERS[tier] - (SINCE_V5 if api < 5 else frozenset())

    def at(self, t: int | None = None) -> Picture:
        """What is known after everything up to `t` (ns of the run), None for its end."""
        reader = _Reader(self.events, self.api)
        for line in self.lines:
            if t is not None and line["t"] > t:
                break
            reader.read(line)
        return reader.picture()

    def last(self, what: str | None = None, p: int | None = None) -> int:
        """When the last line with this note (None: the last callback) was, of one process or of all."""
        times = [
            line["t"]
            for line in self.lines
            if (p is None or line["p"] == p) and (line.get("what") == what if what else line["cb"] != "note")
        ]
        latest: int = max(times)
        return latest


@dataclass
class _Step:
    flow: Flow
    passed: set[int] = field(default_factory=set)
    stopped: bool = False


class _Reader:
    """Reads lines in time order. Handles are (process, number): numbers count within a process."""

    def __init__(self, events: frozenset[str], api: int) -> None:
        self.events = events
        self.api = api
        self.comms: dict[tuple[int, int], Communicator] = {}
        self.types: dict[tuple[int, int], str] = {}
        self.api_calls: dict[tuple[int, int], tuple[Line, int]] = {}  # open calls and their order
        self.unseen: dict[tuple[int, int], Call] = {}
        self.operations: dict[tuple[int, int], Operation] = {}
        self.flows: dict[tuple[int, int], Flow] = {}
        self.steps: dict[tuple[int, int], _Step] = {}
        self.kernels: dict[tuple[int, int], Kernel] = {}
        self.groups: dict[tuple[int, int], int] = {}
        self.launches: dict[int, int] = {}
        self.numbers: dict[tuple[int, int, str, int], int] = {}

    def read(self, line: Line) -> None:
        callback, p = line["cb"], line["p"]
        if callback == "init":
            self.comms[p, line["ctx"]] = Communicator(
                int(line["commId"], 0), line["commName"], line["nNodes"], line["nranks"], line["rank"]
            )
        elif callback == "startEvent" and line["ty"] in self.events:
            self.types[p, line["h"]] = line["ty"]
            start = getattr(self, f"_start_{line['ty']}", None)
            if start is not None:
                start(line)
        elif callback == "recordEventState" and (p, line["h"]) in self.types:
            self._state(line)
        elif callback == "stopEvent" and (p, line["h"]) in self.types:
            self._stop(line)

    def picture(self) -> Picture:
        operations = sorted(self.operations.values(), key=lambda op: op.started)
        latest: dict[int, int] = {}
        for op in operations:
            if op.moved:
                latest[op.p] = max(latest.get(op.p, -1), op.order)
        for op in operations:
            op.implied = op.order < latest.get(op.p, -1)
        return Picture(operations, list(self.unseen.values()), dict(self.comms))

    def _start_CollApi(self, line: Line) -> None:  # noqa: N802 - NCCL's names
        self._call(line)

    def _start_P2pApi(self, line: Line) -> None:  # noqa: N802
        self._call(line)

    def _start_Group(self, line: Line) -> None:  # noqa: N802
        self.groups[line["p"], line["h"]] = line["t"]

    def _call(self, line: Line) -> None:
        p, key = line["p"], (line["p"], line["h"])
        self.api_calls[key] = (line, self._order(p))
        comm = self.comms.get((p, line["ctx"]))
        if comm is None:  # its init had failed: nobody knows which one
            return
        seq = 0
        if line["ty"] == "CollApi":
            seq = self.numbers.get((p, line["ctx"], line["func"], -1), 0) + 1
            self.numbers[p, line["ctx"], line["func"], -1] = seq
        self.unseen[key] = Call(p, comm, line["func"], seq, line["count"], line["dt"], line["t"])

    def _order(self, p: int) -> int:
        self.launches[p] = self.launches.get(p, 0) + 1
        return self.launches[p]

    def _start_Coll(self, line: Line) -> None:  # noqa: N802
        if (line["p"], line["ctx"]) in self.comms:
            self.numbers[line["p"], line["ctx"], line["func"], -1] = line["seq"] + 1
        self._operation(line, line["seq"] + 1, -1)

    def _start_P2p(self, line: Line) -> None:  # noqa: N802
        key = (line["p"], line["ctx"], line["func"], line["peer"])
        self.numbers[key] = self.numbers.get(key, 0) + 1
        self._operation(line, self.numbers[key], line["peer"])

    def _operation(self, line: Line, seq: int, peer: int) -> None:
        p = line["p"]
        comm = self.comms.get((p, line["ctx"]))
        if comm is None:
            return
        call, order = self.api_calls.get((p, line["parent"]), (line, 0))
        self.unseen.pop((p, line["parent"]), None)
        self.operations[p, line["h"]] = Operation(
            p=p,
            comm=comm,
            func=line["func"],
            seq=seq,
            peer=peer,
            count=call["count"],
            datatype=call["dt"],
            root=line.get("root", 0),
            algo=line.get("algo", ""),
            proto=line.get("proto", ""),
            channels=line.get("nCh", 1),
            launched=call["t"],
            started=line["t"],
            order=order or self._order(p),
            traced="KernelCh" in self.events,
            together=self.groups.get((p, int(line.get("parentGroup", 0))), int(line["t"])),
            called=(p, line["parent"]) in self.api_calls,
        )

    def _start_ProxyOp(self, line: Line) -> None:  # noqa: N802
        owner = int(
            line["fp"] if "fp" in line else line["p"]
        )  # with PXN another process launched it: the parent is its number
        op = self.operations.get((owner, line["parent"]))
        if op is None:
            return
        flow = Flow(line["ch"], line["peer"], bool(line["isSend"]), line["p"], line["nSteps"])
        key = (flow.channel, flow.peer, flow.send)
        assert key not in op.flows, f"two flows {key} of one operation"
        assert op.comm.rank == line["rank"]
        op.flows[key] = self.flows[line["p"], line["h"]] = flow

    def _start_ProxyStep(self, line: Line) -> None:  # noqa: N802
        flow = self.flows.get((line["p"], line["parent"]))
        if flow is not None:
            self.steps[line["p"], line["h"]] = _Step(flow)
            flow.first = line["t"] if flow.first < 0 else flow.first

    def _start_KernelCh(self, line: Line) -> None:  # noqa: N802
        op = self.operations.get((line["p"], line["parent"]))
        if op is not None:
            kernel = Kernel(line["ch"], line["pTimer"] if self.api >= 4 else -1, begun=line["t"])
            op.kernels[kernel.channel] = self.kernels[line["p"], line["h"]] = kernel

    def _state(self, line: Line) -> None:
        key, state = (line["p"], line["h"]), line["state"]
        if key in self.kernels and state == 22 and self.api >= 4 and self.kernels[key].stopped < 0:
            self.kernels[key].stopped = line["pTimer"]
        step = self.steps.get(key)
        if step is None or step.stopped:
            return
        flow, first = step.flow, state not in step.passed
        step.passed.add(state)
        if state == SEND_PEER_WAIT and self.api >= 4:
            flow.no_credit += not first
            flow.ready += first
        elif state == SEND_WAIT and first:
            flow.ready += self.api < 4
            flow.transmitted += 1
            flow.bytes += line["trans"]
        elif state == RECV_WAIT and first:
            flow.posted += 1
        elif state == RECV_FLUSH_WAIT and first:
            flow.received += 1
            flow.bytes += line["trans"]
        elif state == RECV_GPU_WAIT and first:
            flow.flushed += 1
        else:
            return
        if first:
            flow.last = line["t"]

    def _stop(self, line: Line) -> None:
        key = (line["p"], line["h"])
        if key in self.kernels and self.kernels[key].open:  # NCCL stops some twice
            self.kernels[key].open, self.kernels[key].closed = False, line["t"]
        step = self.steps.get(key)
        if step is not None and not step.stopped:
            step.stopped = True
            if step.flow.send:
                step.flow.done += 1
            else:
                step.flow.consumed += 1
            step.flow.last = line["t"]
