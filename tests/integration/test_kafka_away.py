"""Kafka is away for half a minute: what is lost is what the policy says, and all of it is counted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from collectors.agent import sender
from collectors.agent.agent import Config
from collectors.agent.backlog import Flush, without_details
from collectors.agent.budget import Limits
from collectors.agent.sender import Sender
from mycroft.settings import Settings
from schemas.enums import Kind
from schemas.envelope import Envelope
from streams.topics import ensure_topics
from tests.collector_files import FakeProcess
from tests.figures import Figure
from tests.integration.collecting import Reader, running, until
from tests.integration.kafka_harness import ApacheKafka

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(300)]

AWAY_S = 30.0
SAMPLE_S = 5.0
OPERATIONS_A_SECOND = 20


class Training:
    """A process that ends operations all the time, beside one that it stands in."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._made = FakeProcess(directory, environment={"MYCROFT_JOB": "llama"})
        self._made.communicator(comm=0xA1)
        self._made.operation(0, time.monotonic_ns() - 2 * 10**9, seq=1)
        self._made.flow(0, 0, counters=[3, 3, 2, 0])
        self._numbers = count(10)
        self.ended = 0
        self.last = 0

    def run(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.last = next(self._numbers)
            slot, now = self.last % 32 + 2, time.monotonic_ns()
            self._made.operation(slot, now - 10**6, seq=self.last)
            self._made.end(slot, now)
            self.ended += 1
            time.sleep(1 / OPERATIONS_A_SECOND)


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> list[Flush]:
    """What collectors had to say, whether it found room or not; what waits, waits in their own backlog."""
    said: list[Flush] = []
    original = Sender.put

    def noted(self: Sender, flush: Flush) -> None:
        said.append(flush)
        original(self, flush)

    monkeypatch.setattr(Sender, "put", noted)
    monkeypatch.setattr(sender, "IN_FLIGHT_BYTES", 1)
    return said


def test_what_is_lost_meanwhile_is_detail_and_counted(
    apache_kafka: ApacheKafka, put: list[Flush], tmp_path: Path, figure: Figure
) -> None:
    apache_kafka.wipe()
    ensure_topics(Settings(kafka=apache_kafka.bootstrap))
    sample = Training(tmp_path / "sample")
    with running(Config(apache_kafka.bootstrap, tmp_path / "sample", "sampled", Limits(0, 0))):
        sample.run(SAMPLE_S)
    room = room_for(put, AWAY_S / SAMPLE_S)
    put.clear()
    training, reader = Training(tmp_path / "shm"), Reader(apache_kafka.bootstrap)
    config = Config(apache_kafka.bootstrap, tmp_path / "shm", "node1", Limits(0, 0), backlog_bytes=room)
    with running(config) as agent:
        until(lambda: mine(reader), "the first flush")
        apache_kafka.stop()
        try:
            training.run(AWAY_S)
        finally:
            apache_kafka.start()
        training.run(2.0)
        until(lambda: last_position(reader) == training.last, "all that it had to say")
        lost = agent.sender.lost
    flushes = mine(reader)
    arrived = sum(len(rows) for flush in flushes for rows in flush.sections.values())
    said = sum(flush.records for flush in put)
    figure(
        f"Kafka away for {AWAY_S:.0f} s: {said:,} records said, {arrived:,} arrived, {lost:,} counted as lost"
    )
    assert arrived + lost == said
    assert 0 < lost == flushes[-1].drops
    assert [flush.sequence for flush in flushes] == list(range(len(flushes)))
    # Detail is what went: what has ended is known by its sums, and how far each device is.
    assert len(rows_of(flushes, Kind.DONE)) < training.ended
    assert sum(row["n"] for row in rows_of(flushes, Kind.SUM)) == training.ended
    reader.close()


def room_for(said: Sequence[Flush], times: float) -> int:
    """Bytes for so many times what was said, with half of its details."""
    bare = sum(without_details(flush).size for flush in said)
    return int(times * (bare + sum(flush.size for flush in said)) / 2)


def mine(reader: Reader) -> list[Envelope]:
    return [flush for flush in reader.read().flushes[1] if flush.source == "node1"]


def rows_of(flushes: Sequence[Envelope], kind: Kind) -> list[Any]:
    every = [flush.sections["coll"] for flush in flushes if "coll" in flush.sections]
    return [row for rows in every for row in rows[rows["kind"] == kind]]


def last_position(reader: Reader) -> int:
    return max((int(row["seq"]) for row in rows_of(mine(reader), Kind.POSITION)), default=0)
