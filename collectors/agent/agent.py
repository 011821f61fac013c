"""The collector's loop: every 100 ms read, judge, report, send. It only carries data between its parts."""

from __future__ import annotations

import logging
import os
import resource
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from collectors.agent import native, procfs
from collectors.agent.analysis import Analysis, Tick
from collectors.agent.announce import Announcer
from collectors.agent.backlog import Flush
from collectors.agent.budget import Limits
from collectors.agent.cursor import CursorFile, Position, Progress, Who
from collectors.agent.files import DirectoryTaken, Files
from collectors.agent.hostfacts import HostWatch
from collectors.agent.hostfs import SYS
from collectors.agent.kernellog import KMSG, slot_of
from collectors.agent.metrics import Metrics, MetricsServer
from collectors.agent.observer import Observer
from collectors.agent.process import Traced
from collectors.agent.report import SECOND_NS, Reporter
from collectors.agent.ringlog import RingLog
from collectors.agent.sender import Sender
from schemas.records import FACT

TICK_NS = 100_000_000
_STOP_S = 5.0
"""How long a clean stop waits for Kafka to take what is left."""
_LIVES_NS = SECOND_NS // 2
"""How often the directory and /proc are looked at."""

log = logging.getLogger(__name__)


class CannotCollect(RuntimeError):
    """Its native part is missing, the directory cannot be read, or another collector does; one line."""


@dataclass(frozen=True)
class Config:
    """What a collector needs to know; see mycroft/settings.py for the meaning of each."""

    kafka: str
    directory: Path
    host: str = ""
    limits: Limits = field(default_factory=Limits)
    backlog_bytes: int = 32 * 1024 * 1024
    linger_s: float = 30.0
    metrics_port: int = 0
    proc: Path = procfs.PROC
    sys: Path = SYS
    kmsg: Path = KMSG
    nccl_log: str = ""
    parent: int | None = None
    """Process whose child this is and with which it ends; None: it stays."""


class Agent:
    """One collector. `run` blocks; everything else is for tests."""

    def __init__(self, config: Config) -> None:
        """Raises CannotCollect, and PortTaken where the metrics' port cannot be had."""
        try:
            native.library()
        except native.NotBuilt as error:
            raise CannotCollect(str(error)) from error
        self.config = config
        host = config.host or socket.gethostname()
        self.metrics = Metrics()
        self.files = Files(
            config.directory, host, self.metrics, int(config.linger_s * 1e9), config.proc,
            known=self._told_before,
        )  # fmt: skip
        self._take(config.directory)
        self._cursor = CursorFile(config.directory)
        before = self._cursor.load()
        self._progress = Progress(before)
        self._server = MetricsServer(self.metrics, config.metrics_port) if config.metrics_port else None
        self._observer = Observer(self.files, config.limits, self.metrics)
        self._announcer = Announcer(host)
        self._rings = RingLog(config.nccl_log)
        self.sender = Sender(config.kafka, host, config.backlog_bytes, self.metrics)
        self._host = HostWatch(host, config.sys, config.proc, config.kmsg)
        self._drops: dict[int, int] = {}
        self.drops = before.lost
        """Records lost in the plugin's tables and rings, by earlier collectors too: see Cursor.lost."""
        self._lives_at = 0
        self._longest = (0, 0.0)

    def _take(self, directory: Path) -> None:
        """The directory for this collector alone, if it is there already; see Files.take."""
        try:
            self.files.take()
        except FileNotFoundError:
            pass
        except DirectoryTaken as error:
            raise CannotCollect(str(error)) from error
        except OSError as error:
            raise CannotCollect(f"{directory} cannot be read: {os.strerror(error.errno or 0)}") from error

    def _told_before(self, who: Who) -> Position:
        return self._progress.of(who)

    def run(self, stop: threading.Event) -> None:
        """Ticks until `stop` is set or its parent is gone, then sends what is left and returns."""
        due = time.monotonic_ns()
        try:
            while not stop.wait(max(0, due - time.monotonic_ns()) / 1e9):
                if self.config.parent not in (None, os.getppid()):
                    log.warning("the process that started this collector is gone")
                    break
                started = time.monotonic_ns()
                self.guarded_tick()
                took = (time.monotonic_ns() - started) / 1e9
                self._timed(started, took, late=started - due > TICK_NS)
                due = max(due + TICK_NS, time.monotonic_ns())
            self.guarded_tick(last=True)
            deadline = time.monotonic() + _STOP_S
            while not self.sender.idle and time.monotonic() < deadline:
                self.sender.wait(0.05)
                self.sender.step(self.drops)
        finally:
            self.close()

    def close(self) -> None:
        """Gives everything back; what was not delivered is left to the rings and the next collector."""
        if not self.sender.idle:
            log.warning("stopped before Kafka had everything")
        self._keep(time.monotonic_ns(), last=True)
        self.sender.close()
        self.files.close()
        self._host.close()
        if self._server is not None:
            self._server.close()

    def guarded_tick(self, last: bool = False) -> None:
        """One tick that survives whatever stands in a file: the one that cannot be borne is refused."""
        now = time.monotonic_ns()
        try:
            self.tick(now, time.time_ns(), last)
        except CannotCollect:
            raise
        except Exception:
            self.metrics.add("errors_total")
            log.exception("a tick failed; looking for the file that did it")
            self._quarantine(now)

    def tick(self, now: int, wall: int, last: bool = False) -> None:
        """One sample at `now` (ns, monotonic) and `wall` (ns since the epoch), and all that follows."""
        if now - self._lives_at >= _LIVES_NS:
            try:
                self.files.scan(now)
            except DirectoryTaken as error:  # it was made, or made again, after this collector had started
                raise CannotCollect(str(error)) from error
            self.files.live(now)
            self._lives_at = now
        flushes = self._observer.observe(now, wall, last)
        tick = self._observer.tick
        if flushes is not None and tick is not None:
            self._told(tick, flushes)
        self.sender.step(self.drops)
        self._keep(now)
        self.files.remove(now, self.sender.idle)
        self.metrics.set("drops_total", self.drops + self.sender.lost)

    def _told(self, tick: Tick, flushes: list[Flush]) -> None:
        """Queues what a look found worth telling."""
        traced = tick.readings.traced
        self._count(traced, tick.lost)
        for name, amount in (("slots_torn_total", tick.torn), ("slots_corrupt_total", tick.corrupt)):
            self.metrics.add(name, amount)
        for flush in self._with_facts(tick, flushes):
            self.sender.put(flush)
        self._note(tick)
        self._rings.read(tick.now)
        self.sender.announce(self._announcer.due(traced, tick.now, self._rings.paths))
        self.metrics.set("operations_in_flight", tick.readings.snapshot.in_flight)
        self.metrics.set("communicators", int(tick.world.comms["known"].sum()))

    def _with_facts(self, tick: Tick, flushes: list[Flush]) -> Iterator[Flush]:
        """The flushes, with what each job is to be told of the host."""
        stalls = bool(tick.coll.stalls.any())
        traced = tick.readings.traced
        self._host.watch(stalls, {(each.job.id, each.job.attempt_id) for each in traced})
        for flush in flushes:
            if not len(flush.comms):  # nobody to tell yet
                yield flush
                continue
            devices: defaultdict[str, set[int]] = defaultdict(set)
            for each in traced:
                if (each.job.id, each.job.attempt_id) == (flush.job, flush.attempt):
                    for bus_id, found in each.gpus().items():
                        devices[slot_of(bus_id)] |= found
            rows = self._host.due(flush.job, flush.attempt, stalls, devices, tick.now, tick.wall)
            yield replace(flush, sections={**flush.sections, FACT.name: rows}) if len(rows) else flush

    def _note(self, tick: Tick) -> None:
        """Remembers what the flushes queued so far tell of, where this look told all that had finished."""
        reporter = self._observer.reporter
        if reporter.told_at == tick.now:
            read = {each.who: (each.ring.next, each.drops) for each in tick.readings.traced}
            summed, lost = reporter.summed_at == tick.now, self.drops + self.sender.lost
            self._progress.note(self.sender.queued, read, self.files.present, summed, lost)

    def _keep(self, now: int, last: bool = False) -> None:
        """Writes down for a later collector what has been delivered."""
        if not self.files.held:
            return
        self._progress.settle(self.sender.settled)
        self._cursor.save(self._progress.delivered, now, last)

    def _count(self, processes: list[Traced], lost: int) -> None:
        self.drops += lost
        self.metrics.add("ring_lost_total", lost)
        for traced in processes:
            before = self._drops.get(traced.id, traced.known.drops)
            if traced.drops > before:
                self._drops[traced.id] = traced.drops
                self.drops += traced.drops - before
                self.metrics.add("plugin_drops_total", traced.drops - before)
        dead = sum(traced.died_at is not None for traced in processes)
        self.metrics.set("processes", len(processes) - dead)
        self.metrics.set("processes_dead", dead)
        self.metrics.set("unnamed_processes", sum(not traced.job.named for traced in processes))

    def _quarantine(self, now: int) -> None:
        """Refuses the files that make a tick fail even alone."""
        every = dict(self.files.traced)
        for name, traced in list(every.items()):
            self.files.traced = {name: traced}
            try:
                tick = Analysis().look(self.files.read(now), now, now)
                Reporter(Limits(), Metrics()).flushes(tick, Analysis(), whole=True, last=True)
            except Exception as error:
                self.files.refuse(name, f"{type(error).__name__}: {error}", now)
            if not self.files.traced:
                del every[name]
        self.files.traced = every

    def _timed(self, started: int, took: float, late: bool) -> None:
        self.metrics.add("ticks_total")
        self.metrics.add("tick_seconds_total", took)
        self.metrics.add("ticks_late_total", late)
        at, longest = self._longest
        if took > longest or started - at > 60 * SECOND_NS:
            self._longest = (started, took)
            self.metrics.set("tick_seconds_max", took)
        if int(self.metrics["ticks_total"]) % 10 == 1:
            usage = resource.getrusage(resource.RUSAGE_SELF)
            cpu = usage.ru_utime + usage.ru_stime
            self.metrics.add("cpu_seconds_total", cpu - self.metrics["cpu_seconds_total"])
            self.metrics.set("resident_bytes", _resident())


def _resident() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
