"""Brokers for tests: `embedded_broker`, `apache_kafka`, and `broker`, which is each in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.integration.kafka_harness import ApacheKafka, KafkaUnavailable, in_ci

_ROOT = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 30


class Broker(Protocol):
    """What a test needs to know of a broker."""

    kind: str  # "embedded" or "kafka"
    bootstrap: str


class EmbeddedBroker:
    """`python -m mycroft.local.broker` as a child process."""

    kind = "embedded"

    def __init__(self, folder: Path) -> None:
        ready = folder / "broker.address"
        command = [sys.executable, "-m", "mycroft.local.broker", "--ready-file", str(ready)]
        self.process = subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, env=dict(os.environ))
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                assert self.process.stderr is not None
                raise AssertionError(f"the embedded broker does not start: {self.process.stderr.read()!r}")
            time.sleep(0.01)
        self.bootstrap = ready.read_text()

    def stop(self) -> int:
        """Asks it to end and returns its exit status."""
        self.process.terminate()
        return self.process.wait(_START_TIMEOUT_S)


@pytest.fixture
def embedded_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A fresh embedded broker."""
    broker = EmbeddedBroker(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One Apache Kafka for the whole run; a failure in CI and a skip elsewhere where it cannot be had."""
    try:
        kafka = ApacheKafka(tmp_path_factory.mktemp("kafka"))
    except KafkaUnavailable as error:
        if in_ci():
            pytest.fail(f"Apache Kafka: {error}")
        pytest.skip(f"NO APACHE KAFKA, these tests did not run: {error}")
    yield kafka
    kafka.stop()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each broker in turn, without topics or groups of an earlier test."""
    if request.param == "embedded":
        embedded: EmbeddedBroker = request.getfixturevalue("embedded_broker")
        return embedded
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    kafka.wipe()
    return kafka
