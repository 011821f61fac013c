"""What the plugin recorded of each process, as one run.

With MYCROFT_RECORD=DIR every process writes its own `*.jsonl` there (native/plugin/recorder.h): its
first line says who it is, the others are callbacks like those of a run, but

    t                         CLOCK_MONOTONIC; the first line has the wall clock of one such moment
    raw                       beside `ctx` or `h`: the value itself, to which other processes may refer
    ctxRaw, parentRaw, hRaw   a value that this process did not give out (PXN, stale handles)
    opPid                     the pid

Here times become those since the first callback, pids world ranks, and a value of another process that
process's number, marked `fp`. Processes of one host share its first file's clock, so their order is exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import merge as merge_sorted
from pathlib import Path
from typing import Any, Final

from collectors.replay.trace import BadRun, Line, fault

SUFFIX: Final = ".jsonl"
_WORLD_RANKS: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_DROPPED: Final = frozenset({"raw", "ctxRaw", "parentRaw", "hRaw"})


@dataclass
class Recorded:
    """One process's file: who it is, its callbacks, and what its values stand for."""

    path: Path
    rank: int | None
    host: str
    pid: int
    to_wall: int
    lines: list[Line]
    p: int = -1
    contexts: dict[int, int] = field(default_factory=dict)  # value → number
    handles: dict[int, int] = field(default_factory=dict)


def merge(folder: Path) -> list[Line]:
    """The run in a folder of recordings, in time order. Raises BadRun."""
    paths = sorted(folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []
    if not paths:
        raise BadRun(f"{folder} holds no recording (*{SUFFIX}): was MYCROFT_RECORD set to it?")
    processes = [_read(path) for path in paths]
    _rank(processes)
    _share_clocks(processes)
    for process in processes:
        _learn(process)
    merger = _Merger(processes)
    lines = list(merge_sorted(*map(merger.lines, processes), key=lambda line: line["t"]))
    if not lines:
        raise BadRun(f"{folder} holds no callback")
    began = lines[0]["t"]
    for line in lines:
        line["t"] -= began
        if line.get("pTimer"):
            line["pTimer"] -= began
    return [*lines, {"t": lines[-1]["t"], "p": -1, "cb": "end"}]


def _read(path: Path) -> Recorded:
    lines: list[Line] = []
    texts = path.read_bytes().splitlines()
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except ValueError as error:
            if number == len(texts) > 1:  # the process was killed while it wrote
                break
            raise BadRun(f"{path} line {number} is no JSON: {error}") from error
        if not isinstance(line, dict) or type(line.get("t")) is not int:
            raise BadRun(f"{path} line {number}: t is no integer")
        lines.append(line)
    head = lines[0] if lines else {}
    numbers = [head.get("pid"), head.get("wall")]
    environment = head.get("environment", {})
    if (
        head.get("cb") != "process"
        or any(type(n) is not int for n in numbers)
        or type(environment) is not dict
    ):
        raise BadRun(f"{path} does not begin with its process: no recording of mycroft's plugin")
    ranks = [environment[name] for name in _WORLD_RANKS if str(environment.get(name, "")).isdecimal()]
    return Recorded(
        path,
        int(ranks[0]) if ranks else None,
        str(environment.get("MYCROFT_HOST") or head.get("host", "")),
        head["pid"],
        head["wall"] - head["t"],
        lines[1:],
    )


def _rank(processes: list[Recorded]) -> None:
    """World ranks as they are known; where they are not, or twice, the free ones in order of host and pid."""
    taken: set[int] = set()
    left = []
    for process in sorted(processes, key=lambda one: (one.host, one.pid)):
        rank = process.rank
        if rank is not None and rank < len(processes) and rank not in taken:
            process.p = rank
            taken.add(rank)
        else:
            left.append(process)
    free = (p for p in range(len(processes)) if p not in taken)
    for process, p in zip(left, free, strict=False):
        process.p = p


def _share_clocks(processes: list[Recorded]) -> None:
    first: dict[str, int] = {}
    for process in processes:
        process.to_wall = first.setdefault(process.host, process.to_wall)


def _learn(process: Recorded) -> None:
    """Which values the process gave out; and, before v4, which communicator an init was for."""
    inits: dict[int, Line] = {}
    for line in process.lines:
        if line["cb"] == "init" and "raw" in line:
            process.contexts[_value(line["raw"])] = line["ctx"]
            inits[line["ctx"]] = line
        elif line["cb"] == "startEvent":
            if "raw" in line:
                process.handles[_value(line["raw"])] = line["h"]
            init = inits.get(line.get("ctx", -1))
            if "commHash" in line and init is not None and not _value(init.get("commId", 0)):
                init |= {
                    "commId": line["commHash"],
                    "commName": line.get("commName", ""),
                    "rank": line.get("rank", 0),
                }


class _Merger:
    """Rewrites the lines of each process."""

    def __init__(self, processes: list[Recorded]) -> None:
        self.processes = processes
        self.pids = {(process.host, process.pid): process.p for process in processes}

    def lines(self, process: Recorded) -> Iterator[Line]:
        """The lines of one process, by time on the wall clock. Raises BadRun."""
        for line in sorted(process.lines, key=lambda one: int(one["t"])):
            new: Line = {key: value for key, value in line.items() if key not in _DROPPED}
            new |= {"t": line["t"] + process.to_wall, "p": process.p}
            if line.get("cb") == "init":
                new["host"] = process.host
            if "ctxRaw" in line or "parentRaw" in line:
                self._resolve(line, new, process)
            if "opPid" in line:
                new["opPid"] = self._of_pid(line["opPid"], process)
            if wrong := fault(new):
                raise BadRun(f"{process.path}: {wrong} in {json.dumps(line)[:200]}")
            yield new

    def _resolve(self, line: Line, new: Line, process: Recorded) -> None:
        """Numbers for values of another process; -1 and 0, NULL, where nobody gave them out."""
        context, parent = _value(line.get("ctxRaw", 0)), _value(line.get("parentRaw", 0))
        owner = next((o for o in self.processes if context in o.contexts or parent in o.handles), None)
        if "ctxRaw" in line:
            new["ctx"] = owner.contexts.get(context, -1) if owner else -1
        if "parentRaw" in line:
            new["parent"] = owner.handles.get(parent, 0) if owner else 0
        if owner is not None and owner is not process:
            new["fp"] = owner.p

    def _of_pid(self, pid: Any, process: Recorded) -> int:
        known = self.pids.get((process.host, pid))
        if known is None:  # a pid of another PID namespace
            known = next((other.p for other in self.processes if other.pid == pid), process.p)
        return known


def _value(raw: Any) -> int:
    return int(raw, 0) if isinstance(raw, str) else int(raw or 0)
