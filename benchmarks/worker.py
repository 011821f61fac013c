"""What a worker pays for what the hosts of a job send, on Apache Kafka, from 64 to 16,384 ranks.

The hosts are those of hosts.py, each at its budget, and send in real time to eight partitions; the worker is
`mycroft worker`. Of large jobs it is sent the share that one of several workers would have, and what all of
them take is reckoned from that. Then the largest job hangs, told whole to one worker. Beside them, on the
same data, agents of Faust that do nothing, or have one JSON event a message.

python -m benchmarks.worker [--plot FILE.svg] [RANKS …]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from confluent_kafka import Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.hosts import Hosts
from benchmarks.plot import Line, plot
from collectors.agent.backlog import Flush
from collectors.agent.budget import Limits
from collectors.agent.flush import Counts, Ready, messages
from mycroft.local.alerts import wait_watching
from mycroft.settings import Settings
from schemas.incidents import Incident
from schemas.members import encode_members
from schemas.records import COLL
from schemas.topics import MEMBERS, TRACE, WORKER_GROUP, partition_of
from streams.incidentlog import read_incidents
from streams.kafka import consumer, producer
from streams.topics import ensure_topics, partitions
from tests.integration.kafka_harness import ApacheKafka

PARTITIONS = 8
SHARES = {64: 8, 256: 8, 1024: 8, 4096: 2, 16_384: 1}
"""Partitions of which one worker is sent the messages, by ranks: what two cores carry beside Kafka."""
SEED = 0
SECONDS = 10
STALLED_S = 12
EVENTS = 40_000
"""As JSON, one a message: enough to see what one costs."""
_SETTLE_S = 4
_PATIENCE_S = 60.0
_TOLD_S = 10.0
"""Messages that wait when the last one is sent, are handled in this time."""


@dataclass(frozen=True)
class Sent:
    """What goes to nccl.trace each second on average."""

    records: float
    messages: float
    bytes: float


@dataclass(frozen=True)
class Cost:
    """What the worker took meanwhile: CPU beyond that of an idle one, of a core; MiB resident; s behind."""

    cpu: float
    idle: float
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
def _worker(kafka: str) -> Iterator[int]:
    """The pid of a worker that watches."""
    command = [str(Path(sys.executable).with_name("mycroft")), "worker", "--kafka", kafka]
    process = subprocess.Popen([*command, "--log-level", "ERROR"], stdout=subprocess.DEVNULL)
    try:
        wait_watching(kafka)
        yield process.pid
        if process.poll() is not None:
            raise SystemExit(f"the worker ended with {process.returncode}")
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


class Sender:
    """Sends for the hosts, each second what was made before: no time is lost between messages."""

    def __init__(self, kafka: str, hosts: Hosts) -> None:
        self._client = _client(kafka)
        self._counts = [Counts() for _ in range(hosts.hosts)]
        for said in hosts.announcements():
            where = partition_of(said.comm, PARTITIONS)
            self._client.produce(MEMBERS.name, encode_members(said), said.key, where)
            self._client.poll(0)
        self._client.flush(60)

    def made(self, flushes: Sequence[Flush]) -> list[Ready]:
        """The messages of a second."""
        return _made(flushes, self._counts)

    def send(self, seconds: Sequence[Sequence[Ready]]) -> float:
        """Send in real time; returns how long it took, s."""
        began = time.monotonic()
        for number, second in enumerate(seconds):
            for place, ready in enumerate(second):
                self._client.produce(TRACE.name, ready.value, partition=ready.partition)
                if place % 100 == 0:  # hosts do not all speak at once
                    self._client.poll(0)
                    due = began + number + place / len(second)
                    time.sleep(max(0.0, due - time.monotonic()))
            time.sleep(max(0.0, began + number + 1 - time.monotonic()))
        self._client.flush(60)
        return time.monotonic() - began


def _made(flushes: Sequence[Flush], counts: Sequence[Counts]) -> list[Ready]:
    """A flush of each host as messages, numbered in that host's counts."""
    return [
        ready
        for host, flush in enumerate(flushes)
        for ready in messages(flush, PARTITIONS, f"h{host}", 0, counts[host])
    ]


def _client(kafka: str) -> Producer:
    return producer(
        kafka, "benchmark", queue_buffering_max_kbytes=1 << 20, queue_buffering_max_messages=1_000_000
    )


def _sent(seconds: Sequence[Sequence[Ready]]) -> Sent:
    every = [ready for second in seconds for ready in second]
    return Sent(
        sum(ready.records for ready in every) / len(seconds), len(every) / len(seconds),
        sum(len(ready.value) for ready in every) / len(seconds),
    )  # fmt: skip


def _prepared(kafka: ApacheKafka) -> None:
    kafka.wipe()
    ensure_topics(Settings(kafka=kafka.bootstrap, partitions=PARTITIONS))


def measured(
    kafka: ApacheKafka, hosts: Hosts, flushes: Sequence[Callable[[], list[Flush]]],
    then: Callable[[], None] = lambda: None,
) -> tuple[Sent, Cost]:  # fmt: skip
    """What a worker takes for these seconds, but for the first _SETTLE_S; `then` is done before it ends."""
    settle = _SETTLE_S
    _prepared(kafka)
    with _worker(kafka.bootstrap) as pid:
        idle = _idle(pid)
        sender = Sender(kafka.bootstrap, hosts)
        seconds = [sender.made(make()) for make in flushes]
        sender.send(seconds[:settle])
        began, before = time.monotonic(), _cpu(pid)
        took = sender.send(seconds[settle:])
        while _lag(kafka.bootstrap) > len(seconds[-1]) and time.monotonic() - began < _PATIENCE_S:
            time.sleep(0.5)
        past = time.monotonic() - began
        cpu = (_cpu(pid) - before - idle * past) / (len(seconds) - settle)
        cost = Cost(cpu, idle, _resident(pid), past - took)
        then()
        return _sent(seconds[settle:]), cost


@dataclass(frozen=True)
class Point:
    """A job of so many ranks: all that its hosts send, and what workers take for it."""

    ranks: int
    sent: Sent
    share: Sent
    cost: Cost
    partitions: int

    @property
    def rate(self) -> float:
        """Records for each CPU second of the worker."""
        return self.share.records / self.cost.cpu

    @property
    def cores(self) -> float:
        """Of all workers, one for each share."""
        return (self.cost.cpu + self.cost.idle) * PARTITIONS / self.partitions


def healthy(kafka: ApacheKafka, ranks: int) -> Point:
    """A job that trains; the communicator of all is in the share."""
    hosts = Hosts(ranks, SEED)
    first = int(hosts.uses[-1].comm[0]) % PARTITIONS
    wanted = [(first + number) % PARTITIONS for number in range(SHARES[ranks])]
    flushes = [
        lambda number=number: hosts.healthy(number, PARTITIONS, wanted)
        for number in range(_SETTLE_S + SECONDS)
    ]
    share, cost = measured(kafka, hosts, flushes)
    counts = [Counts() for _ in range(hosts.hosts)]
    whole = [_made(hosts.healthy(number, PARTITIONS, range(PARTITIONS)), counts) for number in range(5)]
    return Point(ranks, _sent(whole), share, cost, len(wanted))


def stalled(kafka: ApacheKafka, ranks: int) -> tuple[Sent, Cost, str]:
    """The whole job hangs; ends the program where another than who did it is named as the culprit."""
    hosts, every = Hosts(ranks, SEED, Limits(host_bytes=1)), range(PARTITIONS)
    culprit = ranks // 3
    flushes = [lambda number=number: hosts.healthy(number, PARTITIONS, every) for number in range(_SETTLE_S)]
    flushes += [
        lambda number=number: hosts.stalled(number, _SETTLE_S, culprit, PARTITIONS, every)
        for number in range(_SETTLE_S, _SETTLE_S + STALLED_S)
    ]
    told: list[Incident] = []

    def named() -> None:
        time.sleep(_TOLD_S)
        told.extend(each for each in read_incidents(kafka.bootstrap).values() if each.kind == "stall")

    sent, cost = measured(kafka, hosts, flushes, named)
    accused = {node.rank for each in told for node in each.culprits}
    if accused - {culprit}:
        raise SystemExit(
            f"the benchmark's own hang by {culprit} was told as by {sorted(accused, key=str)[:9]}"
        )
    if not accused:
        return sent, cost, f"NOT told while the hosts spoke, which was {STALLED_S} s"
    found = next(each for each in told if each.culprits)
    return sent, cost, f"{found.category}, {found.waiting:,} wait"


def beside(kafka: ApacheKafka, what: str, values: Sequence[tuple[int, bytes]]) -> float:
    """CPU seconds of a Faust agent for these messages, each with its partition."""
    _prepared(kafka)
    client = _client(kafka.bootstrap)
    for partition, value in values:
        client.produce(TRACE.name, value, partition=partition)
        client.poll(0)
    client.flush(60)
    command = [sys.executable, "-m", "benchmarks.faust_agent", kafka.bootstrap, what, str(len(values))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return float(done.stdout.split()[-1])  # Faust draws its spinner before


def _as_json(flushes: Sequence[Flush]) -> list[tuple[int, bytes]]:
    names = COLL.dtype.names or ()
    rows = np.concatenate([flush.sections[COLL.name] for flush in flushes])
    return [
        (number % PARTITIONS, json.dumps(dict(zip(names, row, strict=True))).encode())
        for number, row in enumerate(np.resize(rows, EVENTS).tolist())
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker")
    parser.add_argument("--plot", type=Path, help="write what is sent and taken to this SVG")
    parser.add_argument("ranks", type=int, nargs="*", help=f"of {', '.join(map(str, SHARES))}; all")
    arguments = parser.parse_args()
    run(arguments.ranks or list(SHARES), arguments.plot)


def run(ranks: Sequence[int], picture: Path | None = None) -> None:
    """These sizes of job, what others take for the same, then a hang of the smallest and the largest."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="mycroft-") as folder:
        kafka = ApacheKafka(Path(folder))
        try:
            points = [healthy(kafka, each) for each in ranks]
            console.print(_sent_table(points), _cost_table(points))
            if picture is not None:
                picture.write_text(_plot(points))
            hosts = Hosts(512, SEED)
            flushes = hosts.healthy(0, PARTITIONS, range(PARTITIONS))
            same = 8 * _made(flushes, [Counts() for _ in flushes])
            values = [(ready.partition, ready.value) for ready in same]
            records = sum(ready.records for ready in same)
            nothing, stock = (records / beside(kafka, what, values) for what in ("nothing", "stock"))
            events = EVENTS / beside(kafka, "json", _as_json(flushes))
            console.print(
                "beside it an agent of Faust on the same messages that does nothing: "
                f"{nothing / 1e3:,.0f} k records/CPU-s, with Faust's own transport {stock / 1e3:,.0f} k; "
                "one JSON event a message, parsed and kept: "
                f"{events / 1e3:,.0f} k"
            )
            for each in sorted({min(ranks), max(ranks)}):
                console.print(_hang(each, *stalled(kafka, each)))
        finally:
            kafka.stop()


def _hang(ranks: int, sent: Sent, cost: Cost, told: str) -> str:
    return (
        f"a hang of {ranks:,} ranks, whole, at one worker: {sent.records:,.0f} records in "
        f"{sent.messages:,.0f} messages a second, {cost.cpu:.0%} of a core, "
        f"{sent.records / cost.cpu / 1e3:,.0f} k records/CPU-s, {cost.resident_mib:.0f} MiB, "
        f"{cost.behind_s:.1f} s behind; told: {told}"
    )


def _sent_table(points: Sequence[Point]) -> Table:
    table = Table(
        title=f"what the hosts of a job send each second, each at its budget; {PARTITIONS} partitions"
    )
    for column in ("ranks", "hosts", "records", "messages", "MB", "KB a host", "records a message"):
        table.add_column(column, justify="right")
    for point in points:
        hosts = point.ranks // 8
        table.add_row(
            f"{point.ranks:,}", f"{hosts:,}", f"{point.sent.records:,.0f}", f"{point.sent.messages:,.0f}",
            f"{point.sent.bytes / 1e6:.1f}", f"{point.sent.bytes / hosts / 1e3:.0f}",
            f"{point.sent.records / point.sent.messages:.0f}",
        )  # fmt: skip
    return table


def _cost_table(points: Sequence[Point]) -> Table:
    table = Table(title="one worker on Apache Kafka with a share of them; CPU beyond that of an idle worker")
    for column in (
        "ranks",
        "partitions",
        "records/s",
        "of a core",
        "idle",
        "records/CPU-s",
        "MiB",
        "behind",
        "workers",
        "cores of all",
    ):
        table.add_column(column, justify="right")
    for point in points:
        cost = point.cost
        table.add_row(
            f"{point.ranks:,}", f"{point.partitions} of {PARTITIONS}", f"{point.share.records:,.0f}",
            f"{cost.cpu:.0%}", f"{cost.idle:.0%}", f"{point.rate / 1e3:,.0f} k",
            f"{cost.resident_mib:.0f}", f"{cost.behind_s:.1f} s",
            f"{PARTITIONS // point.partitions}", f"{point.cores:.2f}",
        )  # fmt: skip
    return table


def _plot(points: Sequence[Point]) -> str:
    ranks = [float(point.ranks) for point in points]
    lines = [
        Line("records a second", ranks, [point.sent.records for point in points]),
        Line("messages a second", ranks, [point.sent.messages for point in points]),
        Line("KB a second", ranks, [point.sent.bytes / 1e3 for point in points]),
        Line("workers' CPU, ms a second", ranks, [point.cores * 1e3 for point in points]),
    ]
    return plot("What a job's hosts send, and what workers take for it", "ranks", lines)


if __name__ == "__main__":
    main()
