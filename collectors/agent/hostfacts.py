"""What of a host's facts is worth telling, and when: readings in, records out.

Told are changes, and, when something begins to stall and every AGAIN_NS while it does, everything. Reading
may hang (a device that has fallen off its bus, a driver's lock), so a thread of its own does it: what it has
not read is not told, and the collector goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.agent.hostfs import SYS, Carrier, carriers
from collectors.agent.kernellog import KMSG, KernelLog, Report
from collectors.agent.procfs import PROC
from schemas.enums import FactKind, PortState
from schemas.records import FACT, MAX_US, UNKNOWN_US, Records

_SECOND_NS = 1_000_000_000
STALL_PERIOD_NS = _SECOND_NS
"""How often the host is read while something stalls: a carrier lost is told within a second."""
IDLE_PERIOD_NS = 10 * _SECOND_NS
"""How often otherwise, for what changes before anything stalls."""
AGAIN_NS = 10 * _SECOND_NS
"""How often everything is told again while something stalls: a worker may have started since."""
KEEP_NS = 600 * _SECOND_NS
"""What was logged, or has vanished, longer ago is of no stall that lasts."""
_MAX_REPORTS = 256

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """One thing as last read. `since`: ns of the monotonic clock at which it was first seen so, or logged;
    None where it was so at the first look. `change`: number of the change that made it so.
    """

    thing: Carrier | Report
    since: int | None
    change: int


@dataclass
class _Told:
    """What a job has been told of."""

    change: int = -1
    stalls: bool = False
    at: int = -AGAIN_NS


@dataclass
class HostFacts:
    """All that was read, and what of it each job has been told. No I/O; ns of the monotonic clock."""

    host: str
    _carriers: dict[tuple[FactKind, str], Known] = field(default_factory=dict)
    _reports: deque[Known] = field(default_factory=lambda: deque(maxlen=_MAX_REPORTS))
    _told: dict[tuple[int, int], _Told] = field(default_factory=dict)
    _changes: int = 0
    _heard_at: int | None = None

    def carriers(self, found: Iterable[Carrier], now: int) -> None:
        """Take in a reading of the network. What is not there any more is down, and forgotten later."""
        first, self._changes = not self._changes, self._changes + 1
        current = {each.key: each for each in found}
        for key, each in current.items():
            self._carriers[key] = self._noted(each, self._carriers.get(key), None if first else now)
        for key in self._carriers.keys() - current.keys():
            gone = self._noted(Carrier(*key, PortState.DOWN), self._carriers[key], now)
            self._carriers[key] = gone
            if gone.since is not None and now - gone.since > KEEP_NS:
                del self._carriers[key]

    def _noted(self, thing: Carrier, before: Known | None, since: int | None) -> Known:
        if before is None or not isinstance(before.thing, Carrier):
            return Known(thing, since, self._changes)
        if thing.state != before.thing.state:
            return Known(thing, since, self._changes)
        same = thing.speed_mbps == before.thing.speed_mbps
        return Known(thing, before.since, before.change if same else self._changes)

    def reports(self, reports: Iterable[Report], now: int) -> None:
        """Take in what the kernel has logged since the last call."""
        for report in reports:
            self._changes += 1
            # The kernel's clock strays from this one within weeks: what is new came since the last call.
            at = report.at_us * 1000
            at = min(at if self._heard_at is None else max(at, self._heard_at), now)
            self._reports.append(Known(report, at, self._changes))
        while self._reports and now - (self._reports[0].since or 0) > KEEP_NS:
            self._reports.popleft()
        self._heard_at = now

    def due(
        self, job: int, attempt: int, stalls: bool, devices: Mapping[str, Iterable[int]], now: int, wall: int
    ) -> Records:
        """What this attempt of a job is to be told now, shape (facts,).

        `devices`: its devices by PCI address (see kernellog.slot_of); `wall`: ns since the epoch, now.
        """
        told = self._told.setdefault((job, attempt), _Told())
        everything = stalls and now - told.at >= (AGAIN_NS if told.stalls else STALL_PERIOD_NS)
        chosen = [
            known
            for known in (*self._carriers.values(), *self._reports)
            if everything or known.change > told.change
        ]
        told.change, told.stalls = self._changes, stalls
        if everything:
            told.at = now
        rows = [
            _row(known, dev, now)
            for known in chosen
            for dev in (devices.get(known.thing.pci, (0,)) if isinstance(known.thing, Report) else (0,))
        ]
        records = FACT.joined(rows)
        records["job"], records["attempt"], records["sampled"] = job, attempt, wall
        records["host"] = self.host.encode()
        return records

    def forget(self, jobs: Iterable[tuple[int, int]]) -> None:
        """Only these attempts of jobs are still here."""
        self._told = {key: self._told[key] for key in jobs if key in self._told}


def _row(known: Known, dev: int, now: int) -> Records:
    row, thing = FACT.empty(1), known.thing
    row["what"], row["dev"] = thing.what, dev
    row["age_us"] = UNKNOWN_US if known.since is None else min(max(now - known.since, 0) // 1000, MAX_US)
    if isinstance(thing, Report):
        row["name"], row["code"] = thing.pci.encode(), thing.code
        return row
    row["name"], row["state"] = thing.name.encode(), thing.state
    for name in ("speed_mbps", "errors", "retransmits", "timeouts"):
        row[name] = getattr(thing, name)
    return row


class HostWatch:
    """Reads the host in a thread: every IDLE_PERIOD_NS, or every STALL_PERIOD_NS while something stalls."""

    def __init__(self, host: str, sys: Path = SYS, proc: Path = PROC, kmsg: Path = KMSG) -> None:
        self._facts = HostFacts(host)
        self._sys, self._proc = sys, proc
        self._kernel = KernelLog(kmsg)
        self._lock = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._stalls = False
        self._thread = threading.Thread(target=self._run, name="host facts", daemon=True)
        self._thread.start()

    def due(
        self, job: int, attempt: int, stalls: bool, devices: Mapping[str, Iterable[int]], now: int, wall: int
    ) -> Records:
        """As HostFacts.due."""
        with self._lock:
            return self._facts.due(job, attempt, stalls, devices, now, wall)

    def watch(self, stalls: bool, jobs: Iterable[tuple[int, int]]) -> None:
        """Whether something stalls here, and which attempts of jobs there are."""
        with self._lock:
            self._facts.forget(jobs)
        if stalls and not self._stalls:
            self._wake.set()
        self._stalls = stalls

    def close(self) -> None:
        """Ends the thread, unless it hangs."""
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        read_at = -IDLE_PERIOD_NS  # at once
        while not self._stop.is_set():
            self._wake.clear()
            try:
                read_at = self._read(read_at)
            except Exception:
                log.exception("facts of this host are not told any more")
                break
            self._wake.wait(STALL_PERIOD_NS / 1e9)
        self._kernel.close()

    def _read(self, read_at: int) -> int:
        """Reads what is due; `read_at`, and what is returned: when the network was read last."""
        # The log costs next to nothing, and a report may precede whatever it makes stall.
        reports, now = self._kernel.read(), time.monotonic_ns()
        with self._lock:
            self._facts.reports(reports, now)
        if now - read_at < (STALL_PERIOD_NS if self._stalls else IDLE_PERIOD_NS):
            return read_at
        found = carriers(self._sys, self._proc)
        with self._lock:
            self._facts.carriers(found, time.monotonic_ns())
        return now
