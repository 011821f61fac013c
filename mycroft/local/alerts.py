"""The alerts topic as it grows, for whoever waits for an answer to a job of a moment ago."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from schemas.incidents import Incident, decode_incident
from schemas.malformed import Malformed
from schemas.topics import ALERTS, WAITS
from streams.kafka import BrokerError, consumer
from streams.topics import partitions

WATCHING_S: Final = 60.0
"""How long a worker may take to start: on a busy machine it loads its compiled kernels for seconds."""


@dataclass(frozen=True)
class Alert:
    """A revision of an incident, and when the broker took it, s since the epoch."""

    at: float
    incident: Incident


class Alerts:
    """Follows the alerts topic from its oldest message on, in a thread of its own, as a `with` block."""

    def __init__(self, bootstrap: str) -> None:
        self._client = consumer(bootstrap, "alerts", "mycroft-alerts")
        self._client.assign(_beginning(bootstrap, ALERTS.name))
        self._told: defaultdict[str, list[Alert]] = defaultdict(list)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Alerts:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()

    def of(self, job: str) -> list[Alert]:
        """What has been told of a job so far, in the order of its coming."""
        return list(self._told[job])

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._client.consume(100, 0.1):
                value = message.value()
                if message.error() is not None or value is None:
                    continue
                try:
                    incident = decode_incident(value)
                except Malformed:  # the sink reports it
                    continue
                self._told[incident.job].append(Alert(message.timestamp()[1] / 1e3, incident))


def latest(told: list[Alert]) -> list[Incident]:
    """Each incident as it was told last, in the order of their first coming."""
    return list({alert.incident.id: alert.incident for alert in told}.values())


def wait_watching(bootstrap: str) -> None:
    """Return when a worker watches running jobs: it says so twice a second on nccl.waits.

    Raises BrokerError where none does.
    """
    client = consumer(bootstrap, "watching", "mycroft-watching")
    try:
        client.assign(_beginning(bootstrap, WAITS.name))
        deadline = time.monotonic() + WATCHING_S
        while time.monotonic() < deadline:
            message = client.poll(0.5)
            if message is not None and message.error() is None:
                return
    finally:
        client.close()
    raise BrokerError(f"no worker speaks at {bootstrap}: start 'mycroft worker', or look at its log")


def _beginning(bootstrap: str, topic: str) -> list[TopicPartition]:
    numbers = range(partitions(bootstrap, topic))
    return [TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers]
