"""Which processes are traced on this host just now, by their files."""

from __future__ import annotations

import os
import socket
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collectors.agent import layout, procfs
from collectors.agent.discovery import Lives, names, open_file
from collectors.agent.identity import job_name
from collectors.agent.layout import DROPS_LOST, HEADER, HEADER_BYTES, NotOurs, State, Tier
from mycroft.doctor.check import Check, ok, warning
from mycroft.doctor.versions import Version, text, version_of_code

NAME = "traced processes"
SHOWN = 6
"""So many lines at most; the screen is one."""

NAMELESS = "(no name)"

OFF_REASONS = {
    0: "no reason given",
    1: "somebody shortened its file",
    2: "it was forked from a traced process",
}
"""Header.off_reason in words."""


@dataclass(frozen=True)
class Process:
    """One file. `alive` None: cannot be seen from here. `refused`: why the collector does not read it.

    `job` is the name that the collector tells, empty where it has none.
    """

    name: str
    refused: str = ""
    pid: int = 0
    alive: bool | None = None
    state: int = State.ON
    off_reason: int = 0
    tier: int = Tier.FLOWS
    kernel_allowed: bool = False
    nccl: Version | None = None
    lost: int = 0
    job: str = ""


def find_processes(directory: Path, proc: Path = procfs.PROC, host: str = "") -> list[Process]:
    """Every file of the plugin in the folder, sorted by name; none where it is absent or not to be read.

    `host`: this host's name as the collector has it, a part of some jobs' names.
    """
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return []
    lives = Lives(proc)
    try:
        return [_look(fd, name, lives, host or socket.gethostname()) for name in names(fd)]
    finally:
        os.close(fd)


def _look(directory: int, name: str, lives: Lives, host: str) -> Process:
    try:
        file = open_file(directory, name)
    except NotOurs as error:
        return Process(name, refused=str(error))
    try:
        raw = os.pread(file.fd, HEADER_BYTES, 0)
    finally:
        file.close()
    if len(raw) < HEADER_BYTES:
        return Process(name, refused="it was shortened while being read")
    header = np.frombuffer(raw, HEADER)[0]
    return Process(
        name,
        pid=file.identity.pid,
        alive=lives.of(file.identity).alive,
        state=int(header["state"]),
        off_reason=int(header["off_reason"]),
        tier=int(header["applied_tier"]),
        kernel_allowed=bool(header["kernel_allowed"]),
        nccl=version_of_code(int(header["nccl_version"])),
        lost=sum(int(header["drops"][kind]) for kind in DROPS_LOST),
        job=job_name(file.environment, host) or "",
    )


def check_processes(processes: list[Process]) -> list[Check]:
    """A line for all, and one for each that is not as it should be."""
    if not processes:
        return [ok(NAME, "none now")]
    checks = [ok(NAME, _summary(processes))]
    odd = [check for process in processes for check in _odd(process)]
    left = len(odd) - SHOWN
    return (
        checks + odd[:SHOWN] + ([warning(NAME, f"{left} more lines like these: --json")] if left > 0 else [])
    )


def _summary(processes: list[Process]) -> str:
    read = [one for one in processes if not one.refused]
    alive = [one for one in read if one.alive is not False]
    on = Counter(f"{tier_name(one)} with NCCL {text(one.nccl)}" for one in alive if one.state != State.OFF)
    parts = [f"{count} on ({what})" for what, count in sorted(on.items())]
    for count, what in (
        (sum(one.state == State.OFF for one in alive), "off"),
        (len(read) - len(alive), "dead"),
        (len(processes) - len(read), "not readable"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return f"{len(processes)} file{'s' if len(processes) > 1 else ''}: " + ", ".join(parts)


def tier_name(process: Process) -> str:
    """What it traces, in a few words."""
    try:
        name = Tier(process.tier).name.lower()
    except ValueError:
        return f"unknown tier {process.tier}"
    if process.tier == Tier.KERNEL and not process.kernel_allowed:
        return "flows, kernel refused"
    return name


def _odd(process: Process) -> list[Check]:
    if process.refused:
        remedy = "the collector leaves it alone; remove it if it is nobody's"
        if "layout version" in process.refused:
            remedy = f"use plugin and collector of the same version (this one reads layout {layout.VERSION})"
        return [warning(NAME, f"{process.name} is not read: {process.refused}", remedy)]
    who = f"pid {process.pid}" + (f" of job {process.job}" if process.job else "")
    if process.alive is False:
        says = f"{who} is dead; its file stays until a collector has read it"
        return [warning(NAME, says, f"start the collector, or remove {process.name}")]
    found = []
    if process.state == State.OFF:
        why = OFF_REASONS.get(process.off_reason, f"reason {process.off_reason}")
        found.append(
            warning(NAME, f"{who} has turned tracing off: {why}", "restart the job to trace it again")
        )
    elif process.state not in (State.STARTING, State.ON):
        found.append(warning(NAME, f"{who} is in unknown state {process.state}"))
    if process.lost:
        says = f"{who} could not keep {process.lost:,} events: its tables were full"
        found.append(warning(NAME, says, "a larger MYCROFT_SHM_BYTES"))
    return found
