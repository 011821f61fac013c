"""The whole pipeline for tests: a local stack on each kind of broker, and ways to ask it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from clickhouse_connect.driver.client import Client

from collectors.flight_recorder.importer import send_snapshot
from collectors.flight_recorder.snapshot import Snapshot, read_snapshot
from mycroft.local.stack import Addresses, Stack
from mycroft.settings import Settings
from queries import answers
from queries.client import connect
from schemas.incidents import Incident, decode_incident
from schemas.malformed import Malformed
from schemas.topics import ALERTS
from streams.kafka import read_all
from tests.integration.kafka_harness import ApacheKafka

PATIENCE_S = 60.0
"""Bounds every wait for an answer: far above what it takes, so that only a hang reaches it."""

T = TypeVar("T")


@dataclass
class Pipeline:
    """A running stack."""

    stack: Stack
    client: Client

    @property
    def addresses(self) -> Addresses:
        """Where it is."""
        assert self.stack.addresses is not None
        return self.stack.addresses

    @property
    def settings(self) -> Settings:
        """Settings that lead to it."""
        return Settings(kafka=self.addresses.kafka, clickhouse=self.addresses.clickhouse)

    def bring(self, folder: Path, job: str, attempt: str | None = None) -> Snapshot:
        """Import a folder of dumps."""
        snapshot = read_snapshot(folder, job, attempt)
        send_snapshot(snapshot, self.settings)
        return snapshot

    def verdict(self, snapshot: Snapshot) -> answers.StoredVerdict:
        """The verdict on a snapshot, once it is in the store."""
        return self.until(lambda: answers.verdict(self.client, snapshot.job, snapshot.attempt))

    def found(self, snapshot: Snapshot) -> list[Incident]:
        """The incidents of a snapshot as the store has them, once its verdict is there."""
        wanted = set(self.verdict(snapshot).incidents)

        def stored() -> list[Incident] | None:
            rows = answers.incidents(self.client, job=snapshot.job, attempt=snapshot.attempt)
            return rows if {row.id for row in rows} >= wanted else None

        return self.until(stored)

    def alerts(self, job: str) -> list[Incident]:
        """Every alert on the topic about a job, in order."""
        read = []
        for raw in read_all(self.addresses.kafka, ALERTS.name):
            with suppress(Malformed):  # some tests put garbage there
                read.append(decode_incident(raw))
        return [alert for alert in read if alert.job == job]

    def count(self, table: str, where: str = "1", **parameters: object) -> int:
        """Rows of a table."""
        query = f"SELECT count() FROM nccl.{table} WHERE {where}"
        return int(self.client.query(query, parameters=parameters).result_rows[0][0])

    @staticmethod
    def until(ask: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
        """The first answer that is not None."""
        deadline = time.monotonic() + patience_s
        while (answer := ask()) is None:
            assert time.monotonic() < deadline, "no answer in time"
            time.sleep(0.1)
        return answer


@pytest.fixture(scope="module", params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """A supervised stack on each broker in turn, with an empty store."""
    kafka = None
    if request.param == "kafka":
        apache: ApacheKafka = request.getfixturevalue("apache_kafka")
        apache.wipe()
        kafka = apache.bootstrap
    stop = threading.Event()
    with Stack(tmp_path_factory.mktemp("stack"), kafka=kafka) as stack:
        supervisor = threading.Thread(target=stack.supervise, args=(stop.is_set,), daemon=True)
        supervisor.start()
        assert stack.addresses is not None
        client = connect(stack.addresses.clickhouse)
        yield Pipeline(stack, client)
        stop.set()
        supervisor.join()
        client.close()
