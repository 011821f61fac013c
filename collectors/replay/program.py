"""From a run to what each thread of each process has to call, and when: everything that can be done before
the clock starts, in plain values that `marshal` takes to the processes (`calls.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

from collectors.replay import abi
from collectors.replay.calls import (
    ARGS_BYTES,
    FINALIZE,
    FIRST_SLOT,
    INIT,
    MASK,
    NULL_SLOT,
    STALE_SLOT,
    START,
    STATE,
    STOP,
    Call,
)
from collectors.replay.trace import BadRun, Line, Run

_LAUNCHING: Final = {"GroupApi", "CollApi", "P2pApi", "KernelLaunch", "Group", "Coll", "P2p", "CeColl"}
_BUFFER: Final = 0x7F10_0000_0000  # stands for user buffers: unmapped, so that following it shows
_STREAM: Final = 0x7F20_0000_1000

# Up to v3 the proxy op records what its steps do: state of the step → that of the op.
_OP_STATE: Final = {8: 0, 9: 2, 10: 4, 11: 5, 12: 6}
_OP_STATE_AT_STOP: Final = {0: 7, 1: 3}  # by isSend
_STATES_FROM_V4: Final = {19, 20, 21, 22}
_FILLED: Final = {20, 9}  # SendPeerWait, SendWait: the GPU has filled the step


@dataclass
class Process:
    """What one process does. Fields are plain values; `end` is when it ends by itself, ns, or -1.

    `descriptors`, `args`: packed back to back. `strings`: texts with the words of `descriptors` that point to
    them. `timers`: words of descriptors and of args that hold GPU times. `pids`: byte offsets of pids with
    the rank meant. `inits`: facts of the communicators.
    """

    threads: dict[int, list[Call]] = field(default_factory=dict)
    descriptors: bytearray = field(default_factory=bytearray)
    args: bytearray = field(default_factory=bytearray)
    strings: dict[bytes, list[int]] = field(default_factory=dict)
    descriptor_timers: list[int] = field(default_factory=list)
    args_timers: list[int] = field(default_factory=list)
    pids: list[tuple[int, int]] = field(default_factory=list)
    inits: list[tuple[int, bytes, int, int, int]] = field(default_factory=list)
    end: int = -1

    def plain(self) -> dict[str, Any]:
        """The same as a dict that `marshal` can write."""
        return {**vars(self), "descriptors": bytes(self.descriptors), "args": bytes(self.args)}


@dataclass
class Program:
    """All processes of a replay, the number of shared slots and lines, and the calls it makes at most."""

    version: int
    processes: list[Process]
    slots: int
    lines: int
    calls: int


@dataclass
class _Seen:
    """What compiling one process has to remember."""

    last_launch: tuple[int, int] = (-1, 0)  # line and thread
    last_of_thread: dict[int, int] = field(default_factory=dict)
    touched: dict[int, tuple[int, int]] = field(default_factory=dict)  # handle → line, thread
    started: dict[int, Line] = field(default_factory=dict)
    start_line: dict[int, int] = field(default_factory=dict)
    contexts: dict[int, tuple[int, Line]] = field(default_factory=dict)  # context → line of its init
    known: set[tuple[int, int, int]] = field(default_factory=set)  # contexts that a thread has waited for
    stale: dict[tuple[int, str], int] = field(default_factory=dict)  # thread and type → slot
    args: dict[bytes, int] = field(default_factory=dict)
    op_steps: dict[tuple[int, int], int] = field(default_factory=dict)  # proxy op and state → steps so far
    op_bytes: dict[int, int] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)  # proxy ops whose GPU has shown itself
    open: int = 0


def compile_run(run: Run, version: int, speed: float) -> Program:
    """The program of a run for an API version; `speed` 2 takes half the time. Raises BadRun."""
    compiler = _Compiler(run, version, speed)
    for number, line in enumerate(run.lines):
        try:
            compiler.add(number, line)
        except (struct.error, ValueError, TypeError, OverflowError) as error:
            raise BadRun(f"{run.name}: callback {number + 1} cannot be replayed: {error}") from error
    return compiler.program()


class _Compiler:
    def __init__(self, run: Run, version: int, speed: float) -> None:
        self.run = run
        self.version = version
        self.speed = speed
        self.layout = abi.layout(version)
        self.processes = [Process() for _ in range(run.ranks)]
        self.seen = [_Seen() for _ in range(run.ranks)]
        self.slots: dict[tuple[int, str, int], int] = {}
        self.last_call = _last_calls(run)

    def program(self) -> Program:
        calls = sum(len(calls) for process in self.processes for calls in process.threads.values())
        return Program(self.version, self.processes, FIRST_SLOT + len(self.slots), len(self.run.lines), calls)

    def add(self, number: int, line: Line) -> None:
        callback = line["cb"]
        if callback == "startEvent":
            self._start(number, line)
        elif callback == "stopEvent":
            self._stop(number, line)
        elif callback == "recordEventState":
            self._state(number, line)
        elif callback == "init":
            self._init(number, line)
        elif callback == "finalize":
            self._finalize(number, line)
        elif callback == "MASK":
            self._append(number, line, MASK, (), int(line["v"]))
        elif callback == "note" and line["what"] in ("process exits", "process ends normally"):
            self.processes[line["p"]].end = self._due(line["t"])

    def _due(self, t: int) -> int:
        return int(t / self.speed)

    def _append(self, number: int, line: Line, code: int, after: tuple[int, ...], *what: Any) -> None:
        calls = self.processes[line["p"]].threads.setdefault(line["th"], [])
        calls.append((number, self._due(line["t"]), code, after, *what))
        self.seen[line["p"]].last_of_thread[line["th"]] = number

    def _slot(self, process: int, kind: str, number: int) -> int:
        if number == -1 or (number == 0 and kind == "h"):
            return NULL_SLOT
        return self.slots.setdefault((process, kind, number), FIRST_SLOT + len(self.slots))

    def _after(self, number: int, line: Line, event: str, handle: int | None) -> list[int]:
        """Lines on other threads that come first: NCCL's own order, which a late thread must not break."""
        seen, thread = self.seen[line["p"]], line["th"]
        after = []
        if event in _LAUNCHING:
            if seen.last_launch[0] >= 0 and seen.last_launch[1] != thread:
                after.append(seen.last_launch[0])
            seen.last_launch = (number, thread)
        if handle is not None:
            last = seen.touched.get(handle)
            if last is not None and last[1] != thread:
                after.append(last[0])
            seen.touched[handle] = (number, thread)
        return after

    def _others(self, line: Line) -> list[int]:
        """The last line so far of every other thread of the process."""
        last = self.seen[line["p"]].last_of_thread
        return [number for thread, number in last.items() if thread != line["th"]]

    def _first_sign(self, line: Line, proxy_op: int) -> list[int]:
        """What comes before a GPU shows that it works on something: all that the process has done until then.

        Communicators that share a stream have proxy threads of their own. One that is late in the replay only
        would tell that an operation was overtaken, which the recorded one never was.
        """
        seen = self.seen[line["p"]]
        if proxy_op in seen.moved:
            return []
        seen.moved.add(proxy_op)
        return self._others(line)

    def _init(self, number: int, line: Line) -> None:
        process, seen = self.processes[line["p"]], self.seen[line["p"]]
        after = self._after(number, line, "Group", None)
        process.inits.append(
            (
                _int(line["commId"]),
                str(line.get("commName") or "").encode(),
                line["nNodes"],
                line["nranks"],
                line["rank"],
            )
        )
        seen.contexts[line["ctx"]] = (number, line)
        seen.open += 1
        self._append(
            number, line, INIT, tuple(after), self._slot(line["p"], "c", line["ctx"]), len(process.inits) - 1
        )

    def _finalize(self, number: int, line: Line) -> None:
        seen = self.seen[line["p"]]
        after = set(self._after(number, line, "Group", None))
        after.update(self._others(line))
        seen.open -= 1
        unload = int(seen.open <= 0 and self.last_call[line["p"]] <= number)
        self._append(
            number, line, FINALIZE, tuple(sorted(after)), self._slot(line["p"], "c", line["ctx"]), unload
        )

    def _start(self, number: int, line: Line) -> None:
        event, p, thread = line["ty"], line["p"], line["th"]
        seen = self.seen[p]
        seen.started[line["h"]] = line
        if not abi.exists(event, self.version):
            return
        owner = (
            int(line["fp"]) if "fp" in line else p
        )  # PXN: whose context it is, and for a ProxyOp whose parent
        parent_owner = owner if event == "ProxyOp" else p
        parent = int(line["parent"])
        if self.version < abi.FIRST_WITH_API_EVENTS and "parentGroup" in line:
            parent = int(line["parentGroup"])
        after = self._after(number, line, event, line["h"])
        after += self._needs(owner, line["ctx"], parent_owner, parent, line)
        if event == "KernelCh":
            after += self._others(line)
        seen.start_line[line["h"]] = number
        index = self._describe(line, owner)
        patches = [(self._word(index, self.layout.parent), self._slot(parent_owner, "h", parent))]
        if (group := self.layout.members.get((event, "parentGroup"))) is not None:
            slot = self._slot(p, "h", line.get("parentGroup", 0))
            patches.append((self._word(index, group[0]), slot))
        slot = self._slot(p, "h", line["h"])
        stale = seen.stale.get((thread, event), STALE_SLOT) if line.get("hIn") else NULL_SLOT
        seen.stale[thread, event] = slot
        self._append(
            number,
            line,
            START,
            tuple(dict.fromkeys(after)),
            slot,
            self._slot(owner, "c", line["ctx"]),
            index,
            abi.wanted_by(event),
            tuple(patches),
            stale,
        )

    def _needs(self, owner: int, context: int, parent_owner: int, parent: int, line: Line) -> list[int]:
        """Lines that make the context and the parent of a start, where another thread makes them."""
        seen, p, thread = self.seen[line["p"]], line["p"], line["th"]
        needs = []
        if (thread, owner, context) not in seen.known:
            seen.known.add((thread, owner, context))
            made = self.seen[owner].contexts.get(context)
            if made is not None and (owner != p or made[1]["th"] != thread):
                needs.append(made[0])
        theirs = self.seen[parent_owner]
        if parent in theirs.start_line and (parent_owner != p or theirs.started[parent]["th"] != thread):
            needs.append(theirs.start_line[parent])
        return needs

    def _word(self, index: int, offset: int) -> int:
        return (index * self.layout.size + offset) // 8

    def _describe(self, line: Line, owner: int) -> int:
        """Write the event's descriptor; returns its number."""
        process, layout, event = self.processes[line["p"]], self.layout, line["ty"]
        index = len(process.descriptors) // layout.size
        base = len(process.descriptors)
        process.descriptors.extend(bytes(layout.size))
        if layout.type_format == "B":  # the bytes after it are padding: anything may stand there
            process.descriptors[base : base + 8] = b"\xa5" * 8
        struct.pack_into(layout.type_format, process.descriptors, base, abi.EVENTS[event])
        struct.pack_into("i", process.descriptors, base + layout.rank, line.get("rank", 0))
        known = self.seen[owner].contexts.get(line["ctx"])
        for member in abi.MEMBERS[event]:
            place = layout.members.get((event, member.name))
            if place is None or member.name == "parentGroup":
                continue
            at, code = base + place[0], place[1]
            value = self._value(member, line, known[1] if known else None)
            if member.type is abi.TEXT:
                if value is not None:
                    process.strings.setdefault(str(value).encode(), []).append(at // 8)
            elif member.key == "pTimer":
                struct.pack_into("Q", process.descriptors, at, self._due(_int(value)) % (1 << 64))
                process.descriptor_timers.append(at // 8)
            elif member.key == "opPid":
                process.pids.append((at, _int(value)))
            else:
                struct.pack_into(code, process.descriptors, at, bool(value) if code == "?" else _int(value))
        return index

    def _value(self, member: abi.Member, line: Line, init: Line | None) -> Any:
        if member.key in ("commName", "commId"):
            return init.get(member.key) if init else None
        if member.key == "stream":
            return line.get("stream", _STREAM)
        if member.key == "opPid":
            return line.get("opPid", line["p"])
        if member.key is None:
            return _BUFFER if member.type is abi.POINTER else None
        return line.get(member.key)

    def _stop(self, number: int, line: Line) -> None:
        start = self.seen[line["p"]].started.get(line["h"])
        if start is None or not abi.exists(start["ty"], self.version):
            return
        after = self._after(number, line, start["ty"], line["h"])
        if start["ty"] == "ProxyStep":
            after += self._first_sign(line, start["parent"])
        slot = self._slot(line["p"], "h", line["h"])
        if start["ty"] == "ProxyStep" and self.version < abi.FIRST_WITH_PEER_WAIT:
            op = self.seen[line["p"]].started.get(start["parent"])
            if op is not None:
                self._op_state(number, line, start["parent"], _OP_STATE_AT_STOP[int(bool(op["isSend"]))])
        self._append(number, line, STOP, tuple(dict.fromkeys(after)), slot)

    def _state(self, number: int, line: Line) -> None:
        start = self.seen[line["p"]].started.get(line["h"])
        if start is None or not abi.exists(start["ty"], self.version):
            return
        state = line["state"]
        old = self.version < abi.FIRST_WITH_PEER_WAIT
        if old and state in _STATES_FROM_V4:
            return
        after = self._after(number, line, start["ty"], line["h"])
        step = start["ty"] == "ProxyStep"
        if step and state in _FILLED:
            after += self._first_sign(line, start["parent"])
        if old and step and state in _OP_STATE:
            self._op_state(number, line, start["parent"], _OP_STATE[state])
        args = -1 if old and step else self._args(line)
        slot = self._slot(line["p"], "h", line["h"])
        self._append(number, line, STATE, tuple(dict.fromkeys(after)), slot, state, args)

    def _op_state(self, number: int, line: Line, op: int, state: int) -> None:
        """Record on the proxy op, as NCCL did up to v3: steps so far, and bytes before this step."""
        seen = self.seen[line["p"]]
        steps = seen.op_steps.get((op, state), 0) + 1
        seen.op_steps[op, state] = steps
        size = seen.op_bytes.get(op, 0)
        if line.get("state") in (9, 11):
            seen.op_bytes[op] = size + line.get("trans", 0)
        args = self._packed(line["p"], struct.pack("QiI", size, steps, 0))
        self._append(number, line, STATE, (), self._slot(line["p"], "h", op), state, args)

    def _args(self, line: Line) -> int:
        if not line.get("args"):
            return -1
        process = self.processes[line["p"]]
        if "pTimer" in line:
            time = struct.pack("QQ", self._due(_int(line["pTimer"])) % (1 << 64), 0)
            process.args_timers.append(len(process.args) // 8)
            process.args.extend(time)
            return len(process.args) // ARGS_BYTES - 1
        value = line.get("trans", line.get("appended", line.get("data", 0)))
        return self._packed(line["p"], struct.pack("QQ", _int(value) % (1 << 64), 0))

    def _packed(self, p: int, packed: bytes) -> int:
        process, seen = self.processes[p], self.seen[p]
        if packed not in seen.args:
            seen.args[packed] = len(process.args) // ARGS_BYTES
            process.args.extend(packed)
        return seen.args[packed]


def _int(value: Any) -> int:
    return int(value, 0) if isinstance(value, str) else int(value or 0)


def _last_calls(run: Run) -> list[int]:
    """The last line of each process in which NCCL uses the plugin."""
    last = [-1] * run.ranks
    for number, line in enumerate(run.lines):
        if line["cb"] in ("init", "startEvent", "stopEvent", "recordEventState", "finalize"):
            last[line["p"]] = number
    return last
