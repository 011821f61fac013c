"""The way to Kafka: a producer that is handed little at a time, so that the rest waits in our own backlog.

librdkafka retries for ever and in order (idempotence): what it has taken is delivered once Kafka is back.
No call here blocks; who asks the broker for partitions is a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from collectors.agent.backlog import Backlog, Flush
from collectors.agent.flush import Counts, Ready, messages
from collectors.agent.metrics import Metrics
from schemas.members import Announcement, encode_members
from schemas.topics import MEMBERS, TRACE, partition_of

IN_FLIGHT_BYTES = 1024 * 1024
"""What librdkafka may hold, at the default budget eight seconds' worth."""
_REFRESH_S = 60.0
_RETRY_S = 1.0
_ASK_S = 5.0

log = logging.getLogger(__name__)


class Partitions(threading.Thread):
    """Asks the broker how many partitions there are, until it answers and then each minute."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="partitions", daemon=True)
        self._servers = bootstrap
        self._ended = threading.Event()
        self.count: int | None = None
        """Partitions of `nccl.trace`, None until known."""

    def run(self) -> None:
        """Asks until told to stop."""
        client = Producer(_client(self._servers))
        said = ""
        while not self._ended.is_set():
            found, wrong = _partitions(client, self._servers)
            if found is not None:
                self.count = found
            if wrong != said and (wrong or self.count is not None):
                log.warning("%s", wrong or f"Kafka answers at {self._servers}")
            said = wrong
            self._ended.wait(_RETRY_S if wrong else _REFRESH_S)

    def stop(self) -> None:
        """Ends the thread soon; does not wait for it."""
        self._ended.set()


def _partitions(client: Producer, bootstrap: str) -> tuple[int | None, str]:
    """Partitions of the trace, and what is wrong, empty where nothing is."""
    counts = []
    for name in (TRACE.name, MEMBERS.name):
        try:
            # On a broker that makes topics by itself, asking for one makes it.
            topic = client.list_topics(name, timeout=_ASK_S).topics[name]
        except KafkaException:
            return None, f"no Kafka answers at {bootstrap}: what is collected waits"
        if topic.error is not None or not topic.partitions:
            return None, f"Kafka at {bootstrap} has no topic {name} yet: start Mycroft's worker or sink"
        counts.append(len(topic.partitions))
    if counts[0] != counts[1]:
        return None, (
            f"Kafka at {bootstrap}: {TRACE.name} has {counts[0]} partitions and {MEMBERS.name} {counts[1]}; "
            "they have to be as many"
        )
    return counts[0], ""


class Sender:
    """Backlog, producer and what it has told so far. For one thread."""

    def __init__(self, bootstrap: str, source: str, backlog_bytes: int, metrics: Metrics) -> None:
        self._bootstrap, self._source, self._metrics = bootstrap, source, metrics
        self._backlog = Backlog(backlog_bytes)
        self._counts = Counts()
        self._announcements: dict[bytes, Announcement] = {}
        self._ready: list[Ready] = []
        self._in_flight = 0
        self.queued = 0
        """Flushes that were queued so far; the last one has this number."""
        self._taken = 0
        self._under_way: dict[int, int] = {}
        """By number of a flush that has left the backlog, ascending: its messages not yet delivered."""
        self._broken = False
        self._failure = ""
        self.lost = 0
        """Records lost on this way so far."""
        self._partitions = Partitions(bootstrap)
        self._partitions.start()
        self._producer = self._made()

    def _made(self) -> Producer:
        return Producer(
            _client(self._bootstrap)
            | {
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "compression.type": "lz4",
                "linger.ms": 5,
                "error_cb": self._on_error,
            }
        )

    def put(self, flush: Flush) -> None:
        """Queue a flush; what has to go for it is counted."""
        self.queued += 1
        self._lose(self._backlog.put(flush), "backlog_dropped_total")

    def announce(self, announcements: Iterable[Announcement]) -> None:
        """Queue announcements of members; a later one of the same key replaces an earlier one."""
        self._announcements.update((each.key, each) for each in announcements)

    def step(self, other_drops: int) -> None:
        """Hands over what fits and takes note of what was delivered.

        `other_drops` are records lost before they came here, by earlier collectors too.
        """
        if self._broken:
            self._renew()
        self._producer.poll(0)
        partitions = self._partitions.count
        while partitions and self._in_flight < IN_FLIGHT_BYTES:
            if self._ready:
                if not self._produce(self._ready[0], partitions):
                    break
                del self._ready[0]
            elif self._announcements:
                _, said = self._announcements.popitem()
                self._members(said, partitions)
            elif len(self._backlog):
                drops = other_drops + self.lost
                flush = self._backlog.pop()
                self._ready = list(messages(flush, partitions, self._source, drops, self._counts))
                if self._ready:
                    self._taken = self.queued - len(self._backlog)
                    self._under_way[self._taken] = len(self._ready)
            else:
                break
        self._metrics.set("backlog_bytes", self._backlog.size + self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether everything has been delivered."""
        return not (self._ready or self._announcements or len(self._backlog) or self._in_flight)

    @property
    def settled(self) -> int:
        """Up to which number all flushes have been delivered, or given up and counted as lost."""
        return next(iter(self._under_way), self.queued - len(self._backlog) + 1) - 1

    def wait(self, seconds: float) -> None:
        """Blocks for so long while deliveries come in."""
        self._producer.poll(seconds)

    def close(self) -> None:
        """Gives up what was not delivered."""
        self._partitions.stop()
        self._producer.purge()
        self._producer.flush(1)

    def _members(self, said: Announcement, partitions: int) -> None:
        value = encode_members(said)
        self._hand(MEMBERS.name, partition_of(said.comm, partitions), value, said.key, 0, None)

    def _produce(self, ready: Ready, partitions: int) -> bool:
        partition = ready.partition % partitions
        return self._hand(TRACE.name, partition, ready.value, None, ready.records, self._taken)

    def _hand(
        self, topic: str, partition: int, value: bytes, key: bytes | None, records: int, flush: int | None
    ) -> bool:
        size = len(value)

        def delivered(error: KafkaError | None, _: Message) -> None:
            self._in_flight -= size
            self._settle(flush)
            if error is None:
                self._metrics.add("messages_delivered_total")
                return
            self._metrics.add("messages_failed_total")
            self._lose(max(records, 1), None)
            self._tell(f"Kafka refused a message for {topic}: {error.str()}")
            self._broken = self._broken or error.fatal()

        try:
            self._producer.produce(topic, value, key=key, partition=partition, on_delivery=delivered)
        except BufferError:
            return False
        except KafkaException as error:
            self._metrics.add("messages_failed_total")
            self._lose(max(records, 1), None)
            self._tell(f"Kafka refused a message for {topic}: {error}")
            self._broken = True
            self._settle(flush)
            return True
        self._in_flight += size
        for name, amount in (("messages", 1), ("bytes", size), ("records", records)):
            self._metrics.add(f"{name}_sent_total", amount)
        return True

    def _settle(self, flush: int | None) -> None:
        """One message fewer of that flush is under way."""
        if flush is not None:
            self._under_way[flush] -= 1
            if not self._under_way[flush]:
                del self._under_way[flush]

    def _renew(self) -> None:
        """After a fatal error a producer accepts nothing more; what it held counts as lost by its reports."""
        self._producer.purge()
        self._producer.flush(1)
        self._broken = False
        self._producer = self._made()

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = True
            self._tell(f"Kafka at {self._bootstrap}: {error.str()}")

    def _lose(self, records: int, metric: str | None) -> None:
        self.lost += records
        if metric is not None and records:
            self._metrics.add(metric, records)

    def _tell(self, what: str) -> None:
        if what != self._failure:
            log.warning("%s", what)
        self._failure = what


def _client(bootstrap: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "mycroft-collector",
        "log_level": 2,
        "reconnect.backoff.max.ms": 1000,
    }
