"""What an incident's panels cost in a store full of flows, and what a flow takes on disk.

One job of 1,024 ranks that has trained until the store holds so many flows, all of them told (as with the
collector's budget off), then hangs. Rows go the way of the sink, the incident is found by the live diagnosis,
and every query of the incident's dashboard is asked as Grafana asks it. Times within a flow are drawn: the
sampling is up to a second after the launch, stages have log-normal times, so that disk holds no more order
than a real job leaves in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from clickhouse_connect.driver.client import Client
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.hosts import BEGAN_NS, SECOND_NS, Hosts
from collectors.agent.flush import Counts, messages
from mycroft.local.store_process import start_store
from mycroft.settings import Settings
from queries.client import connect
from queries.grafana import incident as dashboard
from queries.report.evidence import gather
from schemas.enums import Direction
from schemas.envelope import Envelope, MessageKind, decode, encode
from schemas.incidents import Incident
from schemas.members import encode_members
from schemas.migrate import migrate
from schemas.records import FLOW, Records
from schemas.topics import ALERTS, MEMBERS, TRACE, WAITS
from streams.live.board import LiveBoard
from streams.live.cases import LiveCases
from streams.live.watch import epochs, found_in
from streams.severity import Rules
from streams.sink.rows import Rows, decode_message
from streams.sink.store import Store
from tests.grafana import expand, queries

RANKS = 1024
ROWS = 100_000_000
SECONDS_AN_INSERT = 8
CULPRIT = RANKS // 3
HEALTHY_S, STALLED_S = 3, 10
TRIES = 5
LIMIT_S, LIMIT_BYTES = 0.2, 24
"""What a panel may take on two cores, and a row on disk."""


class Filled:
    """A store over a folder, filled with a job's flows and its hang."""

    def __init__(self, url: str) -> None:
        self.client: Client = connect(url)
        self._store = Store(url)
        self._hosts = Hosts(RANKS)
        self._rng = np.random.default_rng(0)
        self._inserts = 0
        self._rows: dict[tuple[str, tuple[str, ...], str], list[bytes]] = {}
        migrate(url)

    def trained(self, rows: int) -> Iterator[int]:
        """Lives seconds of training until there are so many flows; yields how many there are."""
        found = number = 0
        while found < rows:
            parts = []
            for _ in range(SECONDS_AN_INSERT):
                parts.append(timed(self._hosts.every_flow(number), number, self._rng))
                number += 1
            flows = np.concatenate(parts)
            found += len(flows)
            body = Envelope(MessageKind.FLUSH, self._hosts.job, 1, source="h0", sections={FLOW.name: flows})
            self._take(TRACE.name, encode(body))
            self._insert()
            yield found
        self.began = number

    def hung(self) -> Incident:
        """Lives the hang as hosts tell of it, and what a worker says of it."""
        board, cases, rules = LiveBoard(), LiveCases(1, 1.0), Rules.of(Settings())
        for announcement in self._hosts.announcements():
            board.announce(announcement)
            self._take(MEMBERS.name, encode_members(announcement))
        counts = [Counts() for _ in range(self._hosts.hosts)]
        found: list[Incident] = []
        for number in range(self.began - HEALTHY_S, self.began + STALLED_S):
            now = float(number)
            if number < self.began:
                flushes = self._hosts.healthy(number, 1, (0,))
            else:
                flushes = self._hosts.stalled(number, self.began, CULPRIT, 1, (0,))
            for host, flush in enumerate(flushes):
                for ready in messages(flush, 1, f"h{host}", 0, counts[host]):
                    board.take(decode(ready.value), now)
                    self._take(TRACE.name, ready.value)
            for message in epochs(board, 0, number, now):
                cases.take(message, now)
                self._take(WAITS.name, encode(message))
            cases.mark(0, now)
            found += [one for case in cases.close() for one in found_in(case, now, rules)]
            self._insert()
        incident = found[-1]
        if [node.rank for node in incident.culprits] != [CULPRIT]:
            raise SystemExit(f"the benchmark's own hang is told as: {incident.summary}")
        self._take(ALERTS.name, json.dumps(incident.to_json()).encode())
        self._insert()
        return incident

    def panels(self, incident: Incident) -> Iterator[tuple[str, int, float]]:
        """Each query of the dashboard: where it stands, its rows, the median of its times, s."""
        begin = (BEGAN_NS // SECOND_NS) + self.began
        for query in queries(dashboard.build()):
            sql = expand(query.sql, begin - 900, begin + 900, {"incident": incident.id})
            rows, times = 0, []
            for _ in range(TRIES):
                started = time.perf_counter()
                rows = len(self.client.query(sql).result_rows)
                times.append(time.perf_counter() - started)
            yield query.where, rows, statistics.median(times)
        times = []
        for _ in range(TRIES):
            started = time.perf_counter()
            flows = len(gather(self.client, incident).flows)
            times.append(time.perf_counter() - started)
        yield "mycroft report, all its queries", flows, statistics.median(times)

    def on_disk(self) -> tuple[int, float]:
        """How many flows there are, and how many bytes each takes."""
        ((rows, size),) = self.client.query(
            "SELECT sum(rows), sum(bytes_on_disk) FROM system.parts "
            "WHERE active AND database = 'nccl' AND table = 'flows'"
        ).result_rows
        return rows, size / rows

    def _take(self, topic: str, value: bytes) -> None:
        for rows in decode_message(topic, value, int(time.time())).rows:
            self._rows.setdefault((rows.table, rows.columns, rows.format), []).append(rows.data)

    def _insert(self) -> None:
        """Stores what was taken, all rows of a table at once, as the sink does."""
        for (table, columns, form), parts in self._rows.items():
            self._inserts += 1
            self._store.insert(Rows(table, columns, form, b"".join(parts)), f"benchmark {self._inserts}")
        self._rows = {}


def timed(rows: Records, number: int, rng: np.random.Generator) -> Records:
    """Flows that have ended in second `number`, with times drawn for each."""
    sends, shape = rows["direction"] == Direction.SEND, len(rows)
    told = BEGAN_NS + (number + 1) * SECOND_NS
    rows["age_us"] = (told - rows["launched"].astype(np.int64)) // 1000
    rows["quiet_us"] = np.maximum(rows["age_us"] - 3000 * rng.lognormal(0, 0.1, shape), 0)
    rows["first_us"] = 90 * rng.lognormal(0, 0.4, shape)
    rows["gpu_us"] = 300 * rng.lognormal(0, 0.4, shape)
    rows["net_us"] = 1800 * rng.lognormal(0, 0.2, shape)
    rows["credit_us"] = np.where(sends, 150 * rng.lognormal(0, 0.5, shape), 0)
    rows["flush_us"] = np.where(sends, 0, 40 * rng.lognormal(0, 0.5, shape))
    rows["no_credit"] = np.where(sends, rng.poisson(30, shape), 0)
    rows["bytes"] = 1 << 25
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=int, nargs="?", default=ROWS, help=f"flows in the store; {ROWS:,}")
    run(parser.parse_args(arguments).rows)


def run(rows: int = ROWS) -> None:
    """See main. Some seven minutes and 3 GB of disk for the default."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="mycroft-") as folder:
        store = start_store(Path(folder) / "store")
        try:
            filled = Filled(store.url)
            began = time.perf_counter()
            with Progress(console=console, transient=True) as progress:
                task = progress.add_task("filling the store", total=rows)
                for found in filled.trained(rows):
                    progress.update(task, completed=found)
            took = time.perf_counter() - began
            incident = filled.hung()
            count, size = filled.on_disk()
            table = Table(
                title=f"an incident of {RANKS:,} ranks in a store of {count:,} flows, {size:.1f} bytes each "
                f"on disk (at most {LIMIT_BYTES}); {count / took / 1e3:,.0f} k rows/s in"
            )
            table.add_column("query")
            table.add_column("rows", justify="right")
            table.add_column(f"ms (at most {LIMIT_S * 1e3:.0f})", justify="right")
            for where, number, seconds in filled.panels(incident):
                table.add_row(where, f"{number:,}", f"{seconds * 1e3:.0f}")
            console.print(table)
        finally:
            store.stop()


if __name__ == "__main__":
    main()
