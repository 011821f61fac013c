"""What /proc tells of a process, where this process may look. Every reader takes the root, for tests.

Another user's processes, and those of other PID namespaces, may be invisible; then the answer is None, which
means "unknown", never "dead". Start times are clock ticks since boot: with the pid they name one instance.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

_STATE, _FLAGS, _UTIME, _STIME, _START, _PENDING = 0, 6, 11, 12, 19, 28
"""Fields of /proc/PID/stat after the name, counted from 0."""
_STAT_BYTES = 4096
"""More than /proc/PID/stat can have: some fifty numbers and a name of at most 64 bytes."""
_EXITING = 0x4
"""The kernel's PF_EXITING: the thread runs nothing of its program any more."""
_KILLED = 1 << (signal.SIGKILL - 1)
"""Pending in every thread of a process that was killed, until each gets a processor."""


@dataclass(frozen=True)
class Status:
    """One process: state letter, CPU time of all threads in µs, start in ticks since boot.

    `ending`: its main thread has ended or will run no more instruction of its program.
    """

    state: str
    cpu_us: int
    start_ticks: int
    ending: bool


def status(pid: int, root: Path = PROC) -> Status | None:
    """What /proc/PID/stat says; None where it cannot be read, or is not what the kernel writes."""
    return _status(f"{root}/{pid}/stat")


def ended(pid: int, root: Path = PROC) -> bool:
    """Whether every thread of a process has ended or will run no more instruction of its program.

    A killed process exists until its threads have had a processor and its memory is given back: on a busy
    host, or with a GPU to clean up, that takes seconds. One whose main thread alone has ended lives on.
    """
    try:
        threads = [entry.name for entry in os.scandir(root / str(pid) / "task")]
    except OSError:
        return True
    found = (_status(f"{root}/{pid}/task/{thread}/stat") for thread in threads)
    return all(status is None or status.ending for status in found)


def _status(path: str) -> Status | None:
    # Asked of every process several times a second: the plainest way to read a file.
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        text = os.read(fd, _STAT_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)
    # The name, in parentheses, may hold anything, so count from the last one.
    fields = text[text.rfind(b")") + 1 :].split()
    try:
        ticks = int(fields[_UTIME]) + int(fields[_STIME])
        state = fields[_STATE].decode("ascii")[:1]
        ending = state in "ZX" or int(fields[_FLAGS]) & _EXITING or int(fields[_PENDING]) & _KILLED
        return Status(state, ticks * 1_000_000 // _TICKS_PER_S, int(fields[_START]), bool(ending))
    except (IndexError, ValueError):
        return None


def pid_namespace(pid: int | str = "self", root: Path = PROC) -> int | None:
    """Inode of a process's PID namespace; None where it may not be read."""
    try:
        target = str((root / str(pid) / "ns" / "pid").readlink())
    except OSError:
        return None
    inside = target.partition("[")[2].rstrip("]")
    return int(inside) if inside.isdigit() else None


def boot_id(root: Path = PROC) -> str:
    """The kernel's id of this boot, empty where there is none."""
    try:
        return (root / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
    except OSError:
        return ""


def boot_time_ns(root: Path = PROC) -> int | None:
    """When the machine started, ns of the wall clock, to the second; None where unknown."""
    try:
        lines = (root / "stat").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "btime" and value.strip().isdigit():
            return int(value) * 10**9
    return None


def find_pid(pid_there: int, namespace: int, start_ticks: int, root: Path = PROC) -> int | None:
    """The pid here of a process that is `pid_there` in another PID namespace below ours; None if unseen.

    Walks /proc: for finding a process once, not for each tick.
    """
    try:
        names = [entry.name for entry in os.scandir(root) if entry.name.isdigit()]
    except OSError:
        return None
    for name in names:
        if _inner_pid(root / name / "status") != pid_there:
            continue
        found = status(int(name), root)
        if found is not None and found.start_ticks == start_ticks:
            seen = pid_namespace(name, root)
            if seen is None or seen == namespace:
                return int(name)
    return None


def _inner_pid(path: Path) -> int | None:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
    for line in text.splitlines():
        if line.startswith("NSpid:"):
            last = line.split()[-1]
            return int(last) if last.isdigit() else None
    return None
