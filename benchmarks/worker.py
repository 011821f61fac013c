"""What a worker pays for what the hosts of a job send, on Apache Kafka: CPU and memory from 64 ranks up.

A generator sends, each second, what the collectors of a healthy job's hosts would: positions and sums of four
communicators a device, two operations in detail, sums of eight flows, one process a device. The worker is
`python -m streams.worker` as users run it. Beside it, on the same records, the obvious way: one JSON event a
message through an agent of Faust that parses it and keeps the latest of each key.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import TopicPartition
from rich.console import Console
from rich.table import Table

from collectors.agent.backlog import Flush
from collectors.agent.flush import Counts, messages
from mycroft.local.alerts import wait_watching
from mycroft.settings import Settings
from schemas.enums import Algo, DataType, Func, Kind, Proto, Visibility
from schemas.ids import hash64
from schemas.members import Announcement, Member, encode_members
from schemas.records import COLL, FLOW, PROC, UNKNOWN_US, Records
from schemas.topics import MEMBERS, TRACE, WORKER_GROUP, partition_of
from streams.kafka import consumer, producer
from streams.topics import ensure_topics, partitions
from tests.integration.kafka_harness import ApacheKafka

RANKS = (64, 512, 4096, 16384)
A_HOST = 8
SECONDS = 10
_SETTLE_S = 3
_VARIANTS = 3
"""Seconds that differ, in turn."""
_PATIENCE_S = 60.0
EVENTS = 40_000
"""As JSON, one a message: enough to see what one costs."""


class Hosts:
    """The hosts of a healthy job of `ranks`, each with eight devices in four communicators."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.job = hash64("benchmark", ranks)
        dev = np.arange(ranks)
        host, place = np.divmod(dev, A_HOST)
        stages = min(16, max(1, ranks // A_HOST // 4))
        groups = ranks // A_HOST // stages
        group, stage = np.divmod(host, stages)
        self.host = host
        self._comms = {
            "tp": (hash_of("tp", host), place, A_HOST, 1),
            "dp": (hash_of("dp", stage * A_HOST + place), group, groups, groups),
            "pp": (hash_of("pp", group * A_HOST + place), stage, stages, stages),
            "world": (hash_of("world", np.zeros(ranks)), dev, ranks, ranks // A_HOST),
        }  # fmt: skip
        self._devs = np.array([hash64("device", ranks, number) for number in dev.tolist()], np.uint64)

    def announcements(self) -> Iterator[Announcement]:
        """One for each communicator and host."""
        for name, (comm, rank, size, nodes) in self._comms.items():
            for host in range(self.ranks // A_HOST):
                mine = np.arange(host * A_HOST, (host + 1) * A_HOST)
                for each in np.unique(comm[mine]).tolist():
                    members = tuple(
                        Member(int(rank[at]), int(self._devs[at]), int(at), f"h{host}")
                        for at in mine[comm[mine] == each].tolist()
                    )
                    yield Announcement(
                        f"bench-{self.ranks}", self.job, "1", 1, each, name, f"h{host}", size, nodes, members
                    )

    def flushes(self, seq: int) -> list[Flush]:
        """What each host says in a second in which operations up to `seq` have ended."""
        coll, flow, proc = self._coll(seq), self._flow(), self._proc()
        comms = [column for column, *_ in self._comms.values()]
        found = []
        for host in range(self.ranks // A_HOST):
            mine = slice(host * A_HOST, (host + 1) * A_HOST)
            sections = {COLL.name: coll[mine].ravel(), FLOW.name: flow[mine].ravel(), PROC.name: proc[mine]}
            alive = np.unique(np.concatenate([column[mine] for column in comms]))
            home = np.minimum.reduce([column[mine] for column in comms])
            found.append(Flush(self.job, 1, time.time_ns(), alive, sections, home))
        return found

    def _coll(self, seq: int) -> Records:
        """Shape (ranks, 16)."""
        kinds = (Kind.POSITION, Kind.SUM, Kind.DONE, Kind.DONE)
        rows = COLL.empty(self.ranks * 4 * len(kinds)).reshape(self.ranks, 4, len(kinds))
        for number, (comm, rank, size, nodes) in enumerate(self._comms.values()):
            part = rows[:, number]
            part["comm"], part["rank"], part["nranks"] = comm[:, None], rank[:, None], size
            part["visibility"] = Visibility.LAUNCH if nodes == 1 else Visibility.FLOWS
        rows["job"], rows["attempt"], rows["dev"] = self.job, 1, self._devs[:, None, None]
        rows["kind"], rows["func"], rows["peer"] = kinds, Func.ALL_REDUCE, -1
        rows["algo"], rows["proto"], rows["datatype"] = Algo.RING, Proto.SIMPLE, DataType.BFLOAT16
        rows["count"] = rows["bytes"] = 1 << 26
        rows["seq"] = rows["ended"] = [seq, seq, seq, seq - 1]
        rows["n"] = [0, 10, 1, 1]
        for name in ("kernel_start_us", "kernel_end_us"):
            rows[name] = UNKNOWN_US
        return rows.reshape(self.ranks, -1)

    def _flow(self) -> Records:
        """Shape (ranks, 8)."""
        rows = FLOW.empty(self.ranks * 8).reshape(self.ranks, 8)
        comm, rank, size, _ = self._comms["world"]
        rows["job"], rows["attempt"], rows["comm"], rows["rank"] = self.job, 1, comm[:, None], rank[:, None]
        rows["dev"], rows["carrier"] = self._devs[:, None], self._devs[:, None]
        rows["kind"], rows["func"], rows["direction"] = Kind.SUM, Func.ALL_REDUCE, [0, 1] * 4
        rows["channel"], rows["peer"] = [0, 0, 1, 1, 2, 2, 3, 3], ((rank + 1) % size)[:, None]
        return rows

    def _proc(self) -> Records:
        rows = PROC.empty(self.ranks)
        rows["job"], rows["attempt"], rows["proc"], rows["dev"] = self.job, 1, self._devs, self._devs
        rows["alive"], rows["state"], rows["tier"], rows["busy_us"] = 1, ord("S"), 1, UNKNOWN_US
        return rows


def hash_of(name: str, numbers: np.ndarray) -> np.ndarray:
    """A communicator's id for each number."""
    ids = {number: hash64("comm", name, number) for number in np.unique(numbers).tolist()}
    return np.array([ids[number] for number in numbers.tolist()], np.uint64)


@dataclass(frozen=True)
class Cost:
    """What so many records took: CPU beyond that of an idle worker, MiB resident, how far behind it was."""

    cpu_s: float
    records: int
    resident_mib: float
    behind_s: float


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _idle(pid: int) -> float:
    """CPU of a worker that hears of no job, of a core."""
    time.sleep(_SETTLE_S)
    before = _cpu(pid)
    time.sleep(_SETTLE_S)
    return (_cpu(pid) - before) / _SETTLE_S


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@contextmanager
def _worker(arguments: list[str], kafka: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, *arguments, "--parent", str(os.getpid())]
    process = subprocess.Popen(command, env={**os.environ, "MYCROFT_KAFKA": kafka})
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _lag(kafka: str) -> int:
    """Messages of nccl.trace that the worker has not acknowledged."""

    client = consumer(kafka, "benchmark", WORKER_GROUP)
    try:
        places = [TopicPartition(TRACE.name, number) for number in range(partitions(kafka, TRACE.name))]
        done = client.committed(places, timeout=10)
        return sum(client.get_watermark_offsets(place)[1] - max(place.offset, 0) for place in done)
    finally:
        client.close()


class Generator:
    """Sends for the hosts, each second what was made before: no time is lost between messages."""

    def __init__(self, kafka: str, hosts: Hosts) -> None:
        self._client = producer(
            kafka, "benchmark", queue_buffering_max_kbytes=1 << 20, queue_buffering_max_messages=1_000_000
        )
        count = partitions(kafka, TRACE.name)
        for said in hosts.announcements():
            self._client.produce(MEMBERS.name, encode_members(said), said.key, partition_of(said.comm, count))
            self._client.poll(0)
        counts = [Counts() for _ in range(hosts.ranks // A_HOST)]
        self._seconds = [
            [
                ready
                for host, flush in enumerate(hosts.flushes(10 * number))
                for ready in messages(flush, count, f"h{host}", 0, counts[host])
            ]
            for number in range(1, _VARIANTS + 1)
        ]
        self._client.flush(30)
        second = self._seconds[0]
        self.records = sum(ready.records for ready in second)
        self.messages = len(second)
        self.bytes = sum(len(ready.value) for ready in second)

    def send(self, seconds: int) -> float:
        """Send in real time; returns how long it took, s."""
        began = time.monotonic()
        for second in range(seconds):
            for ready in self._seconds[second % _VARIANTS]:
                self._client.produce(TRACE.name, ready.value, partition=ready.partition)
                self._client.poll(0)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
        self._client.flush(60)
        return time.monotonic() - began


def _measure(generator: Generator, kafka: str, pid: int, idle: float) -> Cost:
    generator.send(_SETTLE_S)
    began, before = time.monotonic(), _cpu(pid)
    took = generator.send(SECONDS)
    while _lag(kafka) > generator.messages and time.monotonic() - began < _PATIENCE_S:
        time.sleep(0.5)
    past = time.monotonic() - began
    return Cost(_cpu(pid) - before - idle * past, generator.records * SECONDS, _resident(pid), past - took)


def main() -> None:
    """Measure and print."""
    table = Table(title="one worker on Apache Kafka; what the hosts of a healthy job send each second")
    for column in ("ranks", "records", "messages", "MB", "CPU of a core", "records/CPU-s", "MiB", "behind"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory(prefix="mycroft-") as folder:
        kafka = ApacheKafka(Path(folder))
        try:
            for ranks in RANKS:
                table.add_row(*_row(kafka, ranks))
            events = _json(kafka)
        finally:
            kafka.stop()
    table.caption = (
        "CPU beyond that of an idle worker; beside it one JSON event a message through a Faust agent that "
        f"parses it and keeps the latest of each key: {events / 1e3:,.0f} k records/CPU-s"
    )
    Console().print(table)


def _row(kafka: ApacheKafka, ranks: int) -> list[str]:
    kafka.wipe()
    ensure_topics(Settings(kafka=kafka.bootstrap))
    with _worker(["-m", "streams.worker"], kafka.bootstrap) as process:
        wait_watching(kafka.bootstrap)
        idle = _idle(process.pid)
        generator = Generator(kafka.bootstrap, Hosts(ranks))
        cost = _measure(generator, kafka.bootstrap, process.pid, idle)
    rate = cost.records / cost.cpu_s / 1e3
    return [
        f"{ranks:,}", f"{generator.records:,}", f"{generator.messages:,}", f"{generator.bytes / 1e6:.1f}",
        f"{cost.cpu_s / SECONDS:.0%}", f"{rate:,.0f} k", f"{cost.resident_mib:.0f}",
        f"{cost.behind_s:.1f} s",
    ]  # fmt: skip


def _json(kafka: ApacheKafka) -> float:
    """Records per CPU second of an agent that hears EVENTS JSON events."""
    kafka.wipe()
    ensure_topics(Settings(kafka=kafka.bootstrap))
    client = producer(kafka.bootstrap, "benchmark", queue_buffering_max_messages=1_000_000)
    names = COLL.dtype.names or ()
    rows = np.concatenate([flush.sections[COLL.name] for flush in Hosts(512).flushes(10)])
    for number, row in enumerate(np.resize(rows, EVENTS).tolist()):
        text = json.dumps(dict(zip(names, row, strict=True)))
        client.produce(TRACE.name, text.encode(), partition=number % 4)
        client.poll(0)
    client.flush(60)
    command = [sys.executable, "-m", "benchmarks.json_agent", kafka.bootstrap, str(EVENTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return EVENTS / float(done.stdout.split()[-1])  # Faust draws its spinner before


if __name__ == "__main__":
    main()
