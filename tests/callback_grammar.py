"""The order in which NCCL calls its profiler, as rules: state machines of handles, parents, threads.

Recorded runs of NCCL obey them (test_callback_grammar.py); what imitates NCCL has to obey them too. The rules
are those of one process: a start that another process launched (PXN, `fp`) has parents elsewhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from collectors.replay.trace import Line

SEND_GPU_WAIT, SEND_WAIT, RECV_WAIT, RECV_FLUSH_WAIT, RECV_GPU_WAIT = 8, 9, 10, 11, 12
IDLE, ACTIVE, SLEEP, WAKEUP, APPEND, APPEND_END = 13, 14, 15, 16, 17, 18
IN_PROGRESS, SEND_PEER_WAIT, KERNEL_STOP, GROUP_START_STOP, GROUP_END_START = 19, 20, 22, 23, 24
RING_SLOTS, SLOTS = 4, 8

PARENTS = {
    "GroupApi": set(), "Group": set(), "ProxyCtrl": set(),
    "CollApi": {"GroupApi"}, "P2pApi": {"GroupApi"}, "KernelLaunch": {"GroupApi"},
    "Coll": {"CollApi"}, "P2p": {"P2pApi"},
    "ProxyOp": {"Coll", "P2p"}, "KernelCh": {"Coll", "P2p"}, "ProxyStep": {"ProxyOp"},
    "NetPlugin": {"ProxyStep"},
}  # fmt: skip
OPEN_PARENTS = {"CollApi", "P2pApi", "ProxyStep"}
"""Started while their parent is open; the others' may have stopped before."""

_ONCE: dict[str, tuple[tuple[int, ...], ...]] = {
    "GroupApi": ((GROUP_START_STOP, GROUP_END_START),),
    "ProxyCtrl": ((IDLE,), (ACTIVE,), (SLEEP, WAKEUP), (APPEND, APPEND_END)),
    "KernelCh": ((KERNEL_STOP,),),
    "ProxyOp": ((IN_PROGRESS,),),
}
_RECEIVES = (RECV_WAIT, RECV_FLUSH_WAIT, RECV_GPU_WAIT)


@dataclass
class Handle:
    """An event between its start and its end."""

    type: str
    line: Line
    parent: Handle | None
    states: list[int] = field(default_factory=list)
    stops: int = 0
    steps: list[int] = field(default_factory=list)  # of a ProxyOp: numbers of its steps, as started
    open_steps: int = 0


@dataclass
class Checker:
    """Reads the callbacks of one process in order and keeps what breaks a rule."""

    faults: list[str] = field(default_factory=list)
    handles: dict[int, Handle] = field(default_factory=dict)
    contexts: set[int] = field(default_factory=set)
    masked: bool = False  # the activation mask was changed while running: events may be missing
    threads: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def fault(self, line: Line, what: str) -> None:
        self.faults.append(f"t={line['t']} p={line['p']}: {what}: {line}")

    def take(self, line: Line) -> None:
        rules: dict[str, Callable[[Line], None]] = {
            "init": lambda one: self.contexts.add(one["ctx"]),
            "startEvent": self._start,
            "recordEventState": self._state,
            "stopEvent": self._stop,
            "MASK": self._mask,
        }
        if rule := rules.get(line["cb"]):
            rule(line)

    def _mask(self, _: Line) -> None:
        self.masked = True

    def _start(self, line: Line) -> None:
        kind = line["ty"]
        self.threads[line["th"]].add("proxy" if kind in ("ProxyOp", "ProxyStep", "ProxyCtrl") else kind)
        if line["h"] in self.handles:
            self.fault(line, "a handle is given out twice")
        foreign = "fp" in line and kind != "ProxyStep"  # a relay's steps have its own ProxyOp as parent
        parent = self.handles.get(line["parent"]) if line["parent"] and not foreign else None
        if line["ctx"] >= 0 and "fp" not in line and line["ctx"] not in self.contexts:
            self.fault(line, "a context that init has not made")
        made = self.handles[line["h"]] = Handle(kind, line, parent)
        if kind in PARENTS and not foreign and not self.masked:
            self._check_parent(line, kind, parent)
        if kind == "ProxyStep" and parent is not None and parent.type == "ProxyOp" and not self.masked:
            self._start_step(line, made, parent)

    def _check_parent(self, line: Line, kind: str, parent: Handle | None) -> None:
        allowed = PARENTS[kind]
        if parent.type not in allowed if parent else bool(allowed):
            self.fault(line, f"the parent of {kind} is {parent.type if parent else 'none'}")
        elif parent is not None and kind in OPEN_PARENTS and parent.stops:
            self.fault(line, f"the parent of {kind} has stopped")

    def _start_step(self, line: Line, made: Handle, op: Handle) -> None:
        if op.states != [IN_PROGRESS]:
            self.fault(line, "a step of an operation that is not in progress")
        repeated = bool(op.steps) and line["step"] == op.steps[-1] and not op.line["isSend"]
        if line["step"] != len(set(op.steps)) and not repeated:
            self.fault(line, f"step {line['step']} after {op.steps[-1:]}")
        if line["step"] >= op.line["nSteps"]:
            self.fault(line, f"a step beyond the {op.line['nSteps']} of the operation")
        op.steps.append(line["step"])
        op.open_steps += 0 if repeated else 1
        if op.open_steps > slots(op):
            self.fault(line, f"{op.open_steps} open steps")
        made.parent = op

    def _state(self, line: Line) -> None:
        made = self.handles.get(line["h"])
        if made is None:
            self.fault(line, "a state of nothing")
            return
        state = line["state"]
        if made.stops and made.type == "KernelCh":
            return  # NCCL keeps the handle and stops it again
        if made.stops and not self.masked:
            self.fault(line, "a state after the stop")
        repeat = made.states[-1:] == [state] == [SEND_PEER_WAIT]
        if not repeat:
            made.states.append(state)
        if not any(made.states == list(order[: len(made.states)]) for order in orders(made)):
            self.fault(line, f"states {made.states} of {made.type}")

    def _stop(self, line: Line) -> None:
        made = self.handles.get(line["h"])
        if made is None:
            self.fault(line, "a stop of nothing")
            return
        made.stops += 1
        if made.type not in ("CollApi", "KernelCh") and made.stops > 1:
            self.fault(line, "stopped twice")  # those two handles NCCL keeps, and may stop again
        if self.masked:
            return
        if made.type not in ("NetPlugin",) and not any(made.states == list(order) for order in orders(made)):
            self.fault(line, f"{made.type} stopped after states {made.states}")
        if made.type == "ProxyStep" and made.parent is not None and made.parent.type == "ProxyOp":
            made.parent.open_steps -= 1
        if made.type == "ProxyOp":
            missing = made.line["nSteps"] - len(set(made.steps))
            if missing or made.open_steps:
                self.fault(line, f"an operation stopped with {missing} steps missing, {made.open_steps} open")

    def end(self) -> None:
        """What can only be said of all: launching threads launch, proxy threads progress."""
        for thread, kinds in self.threads.items():
            if "proxy" in kinds and kinds & {"GroupApi", "CollApi", "P2pApi", "Coll", "P2p", "KernelLaunch"}:
                self.faults.append(f"thread {thread} launches and progresses: {kinds}")


def slots(op: Handle) -> int:
    """Steps that a flow may have open: four halves of a chunk in a ring of Simple, else eight."""
    launch = op.parent.line if op.parent else {}
    ring = (
        launch.get("algo") == "RING" and launch.get("proto") == "SIMPLE" and launch.get("func") != "Broadcast"
    )
    return RING_SLOTS if ring else SLOTS


def orders(made: Handle) -> tuple[tuple[int, ...], ...]:
    """The orders of states that a whole life of this event may have; SendPeerWait counts once."""
    if made.type == "ProxyStep":
        op = made.parent
        if op is None or op.type != "ProxyOp":
            return ((SEND_GPU_WAIT, SEND_PEER_WAIT, SEND_WAIT), _RECEIVES)
        return ((SEND_GPU_WAIT, SEND_PEER_WAIT, SEND_WAIT),) if op.line["isSend"] else (_RECEIVES,)
    return _ONCE.get(made.type, ((),))


def grammar_faults(lines: Iterable[Line]) -> list[str]:
    """What breaks a rule, in order; empty for a run as NCCL makes it."""
    checkers: dict[int, Checker] = {}
    for line in lines:
        if line["p"] >= 0:
            checkers.setdefault(line["p"], Checker()).take(line)
    found = []
    for checker in checkers.values():
        checker.end()
        found += checker.faults
    return found


_LAUNCH = (
    "start GroupApi", f"state GroupApi {GROUP_START_STOP}", "start Api", "stop Api",
    f"state GroupApi {GROUP_END_START}", "start KernelLaunch", "stop KernelLaunch", "start Group", "start Op",
    "stop Op", "stop Group", "stop GroupApi",
)  # fmt: skip


def launch_orders(lines: Iterable[Line]) -> Counter[tuple[str, ...]]:
    """The sequences of callbacks from start to stop of a GroupApi on its thread, and how often each.

    CollApi and P2pApi count as Api, Coll and P2p as Op; what repeats counts once, so that a group of many
    operations reads as one of a single operation.
    """
    current: dict[tuple[int, int], list[str]] = {}
    found: Counter[tuple[str, ...]] = Counter()
    types: dict[tuple[int, int], str] = {}
    for line in lines:
        if line["cb"] == "startEvent":
            types[line["p"], line["h"]] = line["ty"]
        kind = types.get((line["p"], line.get("h", -1)))
        if kind not in ("GroupApi", "CollApi", "P2pApi", "KernelLaunch", "Group", "Coll", "P2p"):
            continue
        where = (line["p"], line["th"])
        name = {"CollApi": "Api", "P2pApi": "Api", "Coll": "Op", "P2p": "Op"}.get(kind, kind)
        word = {"startEvent": f"start {name}", "stopEvent": f"stop {name}"}.get(
            line["cb"], f"state {name} {line.get('state')}"
        )
        if word == "start GroupApi":
            current[where] = []
        if where in current:
            current[where].append(word)
            if word == "stop GroupApi":
                found[_once(current.pop(where))] += 1
    return found


def _once(words: list[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for word in words:
        if word.split()[1] in ("Api", "Op") and word in kept:
            continue
        kept.append(word)
    return tuple(kept)


LAUNCH_ORDER: tuple[str, ...] = _LAUNCH
"""What NCCL's calling thread does for an operation with a blocking communicator."""


def closed(lines: Iterable[Line], kind: str) -> Counter[str]:
    """How many events of a type have started and stopped, by a word: {"started": …, "stopped": …}."""
    types: dict[tuple[int, Any], str] = {}
    counts: Counter[str] = Counter()
    for line in lines:
        if line["cb"] == "startEvent":
            types[line["p"], line["h"]] = line["ty"]
            counts["started"] += line["ty"] == kind
        elif line["cb"] == "stopEvent":
            counts["stopped"] += types.get((line["p"], line["h"])) == kind
    return counts
