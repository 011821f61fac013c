"""A collector in a thread and what it has sent, for tests with a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import TopicPartition

from collectors.agent.agent import Agent, Config
from mycroft.settings import Settings
from schemas.enums import Kind
from schemas.envelope import Envelope, decode
from schemas.topics import MEMBERS, TRACE
from streams.kafka import consumer
from streams.topics import ensure_topics

PATIENCE_S = 60.0


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def running(config: Config) -> Iterator[Agent]:
    """A collector in a thread, stopped at the end."""
    agent, stop = Agent(config), threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        yield agent
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert agent.metrics["errors_total"] == 0


class Reader:
    """Everything on the topics so far, by partition."""

    def __init__(self, bootstrap: str) -> None:
        self._client = consumer(bootstrap, "tests", "collector-tests")
        self._client.assign(
            [TopicPartition(topic, number, 0) for topic in (TRACE.name, MEMBERS.name) for number in range(4)]
        )
        self.flushes: dict[int, list[Envelope]] = {number: [] for number in range(4)}
        self.members: list[tuple[int, bytes]] = []

    def read(self) -> Reader:
        while (message := self._client.poll(0.2)) is not None:
            value, partition = message.value(), message.partition()
            if message.error() is not None or value is None or partition is None:
                continue
            if message.topic() == TRACE.name:
                self.flushes[partition].append(decode(bytes(value)))
            else:
                self.members.append((partition, bytes(value)))
        return self

    def rows(self, section: str, kind: Kind | None = None) -> list[dict[str, int]]:
        return [
            {name: int(row[name]) for name in row.dtype.names}
            for flushes in self.flushes.values()
            for flush in flushes
            for row in flush.sections.get(section, ())
            if kind is None or int(row["kind"]) == kind
        ]

    def close(self) -> None:
        self._client.close()


@contextmanager
def reading(bootstrap: str) -> Iterator[Reader]:
    """A reader of the topics, which are made."""
    ensure_topics(Settings(kafka=bootstrap))
    made = Reader(bootstrap)
    yield made
    made.close()
