"""What a host pays for being watched: CPU, memory and traffic of `mycroft collect`, healthy and stalled.

The real collector reads the files of eight real processes with the real plugin (native/bench/load.cpp) and
sends to the embedded broker. CPU is user and system time of all its threads by wall time.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import native
from mycroft.local.processes import Child

PROCESSES = 8
FLOWS = 64
SECONDS = 20.0
_SETTLE_S = 6.0
"""From a change to what is measured: caches are warm, first states are told, the longest period is over."""
_PATIENCE_S = 60.0
CPU_LIMIT, MEMORY_LIMIT = 2.0, 100
"""Percent of one core and MiB that a collector may take."""


@dataclass(frozen=True)
class Work:
    """How the traced processes spend their time: see native/bench/load.cpp."""

    name: str
    milliseconds: int
    inside: int


WORKS = (
    Work("10 collectives a second", 100, 0),
    Work("the same, 80 more inside the host", 100, 8),
    Work("one collective lasts 2 s, 40 inside", 2000, 80),
)


@dataclass(frozen=True)
class Sample:
    """Where the collector stands at one moment."""

    at: float
    cpu_s: float
    resident_mib: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """What it took between two samples, each second."""

    cpu: float
    resident_mib: float
    kilobytes: float
    messages: float
    records: float
    finished: float
    late: float

    @classmethod
    def between(cls, first: Sample, last: Sample) -> Cost:
        """Rates; `cpu` is percent of a core."""
        seconds = last.at - first.at

        def rate(name: str) -> float:
            return (last.metrics[name] - first.metrics[name]) / seconds

        return cls(
            100 * (last.cpu_s - first.cpu_s) / seconds, last.resident_mib, rate("bytes_sent_total") / 1000,
            rate("messages_sent_total"), rate("records_sent_total"),
            rate("operations_total") + rate("flows_total"), rate("ticks_late_total"),
        )  # fmt: skip


class Collector:
    """A running `mycroft collect`."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._port = _free_port()
        command = [
            str(Path(sys.executable).with_name("mycroft")), "collect", "--kafka", bootstrap,
            "--dir", str(directory), "--metrics-port", str(self._port), "--log-level", "ERROR",
        ]  # fmt: skip
        self.process = subprocess.Popen(command)

    def metrics(self) -> dict[str, float]:
        """What it says of itself, empty until it does."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return {}
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name.removeprefix("mycroft_collector_"): float(value) for name, value in pairs}

    def sample(self) -> Sample:
        """Now."""
        proc = Path("/proc") / str(self.process.pid)
        fields = (proc / "stat").read_text().rsplit(")", 1)[1].split()
        ticks = int(fields[11]) + int(fields[12])
        resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return Sample(
            time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"), resident / (1 << 20), self.metrics()
        )

    def cost(self) -> Cost:
        """What it takes from now on, for SECONDS."""
        time.sleep(_SETTLE_S)
        first = self.sample()
        time.sleep(SECONDS)
        return Cost.between(first, self.sample())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    ready = folder / "broker.address"
    child = Child("broker", ["mycroft.local.broker", "--ready-file", str(ready)], folder / "broker.log", {})
    child.start()
    try:
        yield child.wait_ready(ready, _PATIENCE_S)
    finally:
        child.ask_to_stop()
        child.stop()


@contextmanager
def _processes(work: Work, directory: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    environment = {**os.environ, "MYCROFT_DIR": str(directory), "MYCROFT_JOB": "bench"}
    arguments = [str(FLOWS), str(work.milliseconds), str(work.inside)]
    started = [
        subprocess.Popen([str(native.LOAD), str(native.PLUGIN), str(rank), *arguments], env=environment)
        for rank in range(PROCESSES)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def _collector(bootstrap: str, directory: Path) -> Iterator[Collector]:
    collector = Collector(bootstrap, directory)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while collector.metrics().get("messages_delivered_total", 0.0) == 0.0:
            if collector.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the collector delivers nothing")
            time.sleep(0.1)
        yield collector
    finally:
        collector.process.terminate()
        collector.process.wait()


def measure(work: Work) -> tuple[Cost, Cost]:
    """Healthy, then frozen."""
    with ExitStack() as stack:
        # A real job's files lie in memory, too.
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        bootstrap = stack.enter_context(_broker(Path(stack.enter_context(tempfile.TemporaryDirectory()))))
        started = stack.enter_context(_processes(work, directory))
        collector = stack.enter_context(_collector(bootstrap, directory))
        healthy = collector.cost()
        for process in started:
            process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + _PATIENCE_S
        while collector.metrics()["operations_stalled"] != PROCESSES:
            if time.monotonic() > deadline:
                raise SystemExit("the benchmark's own stall is not seen")
            time.sleep(0.2)
        return healthy, collector.cost()


def _row(name: str, state: str, cost: Cost) -> tuple[str, ...]:
    return (
        name, state, f"{cost.cpu:.1f} %", f"{cost.resident_mib:.0f}", f"{cost.finished:,.0f}",
        f"{cost.records:,.0f}", f"{cost.messages:.0f}", f"{cost.kilobytes:.0f}", f"{cost.late:.1f}",
    )  # fmt: skip


_SENT = (
    ("healthy", "positions and sums each second, sums of flows each 5 s, processes each second; within the "
     "budget of 131 KB/s single finished operations and flows"),
    ("stalled", "at once, then on change, at least each second: the state of what stalls and of all its "
     "flows, whatever the budget"),
)  # fmt: skip
"""What the design says of it."""


def main() -> None:
    """Every kind of work, healthy and then stalled."""
    native.build()
    table = Table(
        title=f"mycroft collect, {PROCESSES} processes with {FLOWS} flows in flight each "
        f"(at most {CPU_LIMIT:.0f} % of a core, {MEMORY_LIMIT} MiB), per second"
    )
    for column in ("work of each", ""):
        table.add_column(column)
    for column in ("CPU", "MiB", "finished", "records", "messages", "KB", "late"):
        table.add_column(column, justify="right", no_wrap=True)
    for work in WORKS:
        healthy, stalled = measure(work)
        table.add_row(*_row(work.name, "healthy", healthy))
        table.add_row(*_row("", "stalled", stalled))
    console = Console()
    console.print(table)
    sent = Table(title="what is sent by the design", show_header=False)
    for row in _SENT:
        sent.add_row(*row)
    console.print(sent)


if __name__ == "__main__":
    main()
