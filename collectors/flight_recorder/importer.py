"""Sending a snapshot to Kafka: paced by its readers, every delivery checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage

from collectors.flight_recorder.messages import Message, messages
from collectors.flight_recorder.pace import Pace, Place
from collectors.flight_recorder.snapshot import Snapshot, read_snapshot
from schemas.topics import MEMBERS, SINK_GROUP, TRACE, WORKER_GROUP

__all__ = ["KafkaSettings", "Progress", "SendFailed", "Snapshot", "read_snapshot", "send_snapshot"]

CONNECT_S = 10.0
DELIVER_S = 60.0  # without a delivery for so long, the broker is taken to be gone
STALL_S = 30.0
ASK_EVERY_S = 0.05


class KafkaSettings(Protocol):
    """What sending needs of the settings."""

    @property
    def kafka(self) -> str:
        """Bootstrap servers."""

    @property
    def max_lag_bytes(self) -> int:
        """How much may be unread in each partition."""


class SendFailed(RuntimeError):
    """The snapshot did not reach Kafka; the text says why in one line."""


@dataclass(frozen=True)
class Progress:
    """How far sending is. `waiting` names the partition whose readers are behind, empty while none is."""

    records: int
    of_records: int
    messages: int
    bytes: int
    waiting: str = ""


def send_snapshot(
    snapshot: Snapshot, settings: KafkaSettings, progress: Callable[[Progress], None] = lambda _: None
) -> Progress:
    """Sends all of a snapshot and returns when the broker has it.

    Blocks while a reader is more than `settings.max_lag_bytes` behind in a partition, for as long as it goes
    on reading or has ever committed. Raises SendFailed.
    """
    sender = _Sender(snapshot.records, settings, progress)
    try:
        partitions = sender.partitions()
        for message in messages(snapshot, partitions):
            sender.send(message)
        return sender.finish()
    except KafkaException as error:
        raise SendFailed(f"Kafka at {settings.kafka}: {_said(error)}") from error
    finally:
        sender.close()


class _Sender:
    """One producer with what it knows about its readers."""

    def __init__(
        self, of_records: int, settings: KafkaSettings, progress: Callable[[Progress], None]
    ) -> None:
        self._settings = settings
        self._tell = progress
        self._pace = Pace()
        self._progress = Progress(0, of_records, 0, 0)
        self._failure: str | None = None
        self._on_way = 0
        self._heard = time.monotonic()
        self._readers: dict[str, Consumer] = {}
        client = {"bootstrap.servers": settings.kafka, "log_level": 0, "error_cb": _ignore}
        self._client = client
        # Idempotence keeps the order of a partition over retries: END has to stay last.
        self._producer = Producer({**client, "enable.idempotence": True, "linger.ms": 5})

    def partitions(self) -> int:
        """Partitions of both topics, which have to be as many. A broker that creates topics does so now."""
        counts = {topic: self._count(topic) for topic in (TRACE.name, MEMBERS.name)}
        if len(set(counts.values())) > 1:
            said = " and ".join(f"{topic} {count}" for topic, count in counts.items())
            raise SendFailed(f"Kafka at {self._settings.kafka}: {said} partitions, they have to be as many")
        return counts[TRACE.name]

    def _count(self, topic: str) -> int:
        until = time.monotonic() + CONNECT_S
        while (left := until - time.monotonic()) > 0:
            try:
                found = self._producer.list_topics(topic, timeout=left).topics[topic]
            except KafkaException as error:
                if error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                    raise SendFailed(
                        f"no Kafka answers at {self._settings.kafka}: start the local stack with "
                        "'mycroft up', or point --kafka (MYCROFT_KAFKA) at a broker"
                    ) from error
                raise
            if found.error is None and found.partitions:
                return len(found.partitions)
            time.sleep(0.1)
        raise SendFailed(f"Kafka at {self._settings.kafka} has no topic {topic}: is the stack set up?")

    def send(self, message: Message) -> None:
        """Hands over one message, as soon as its partition has room."""
        place = (message.topic, message.partition)
        self._wait_for_readers(place, len(message.value), message.bulk)
        size = len(message.value)

        def delivered(error: KafkaError | None, told: KafkaMessage) -> None:
            self._heard = time.monotonic()
            self._on_way -= 1
            offset = told.offset()
            if error is not None or offset is None:
                why = "no offset came back" if error is None else error.str()
                self._failure = self._failure or f"{place[0]} partition {place[1]}: {why}"
            else:
                self._pace.delivered(place, offset, size)

        self._check()
        while True:
            try:
                self._producer.produce(
                    message.topic, message.value, key=message.key, partition=message.partition,
                    on_delivery=delivered,
                )  # fmt: skip
                break
            except BufferError:
                self._poll(0.1)
        if self._on_way == 0:
            self._heard = time.monotonic()
        self._on_way += 1
        self._pace.produced(place, size)
        self._poll(0)
        self._step(message.records, size)

    def finish(self) -> Progress:
        """Waits for every delivery."""
        while self._on_way:
            self._poll(0.1)
        self._check()
        return self._progress

    def close(self) -> None:
        """Drops what was not delivered: after an error the rest of a snapshot is of no use."""
        self._producer.purge()
        self._producer.flush(1)
        for reader in self._readers.values():
            reader.close()

    def _wait_for_readers(self, place: Place, size: int, bulk: bool) -> None:
        """Block while the slowest reader is too far behind.

        The worker counts only where it acknowledges what it reads: see Message.bulk.
        """
        groups = (SINK_GROUP, WORKER_GROUP) if bulk else (SINK_GROUP,)
        limit = self._settings.max_lag_bytes
        moved, asked, ever = time.monotonic(), 0.0, False
        waiting = False
        while self._pace.unread(place) and self._pace.unread(place) + size > limit:
            self._poll(ASK_EVERY_S if waiting else 0)
            now = time.monotonic()
            if now - asked >= ASK_EVERY_S:
                asked = now
                offset = min(self._committed(group, place) for group in groups)
                ever |= offset >= 0
                if self._pace.committed(place, offset):
                    moved = now
            if not ever and now - moved > STALL_S:
                raise SendFailed(f"nothing consumes {place[0]}: are worker and sink running?")
            waiting = True
            self._report(waiting=f"{place[0]} partition {place[1]}")
        if waiting:
            self._report(waiting="")

    def _committed(self, group: str, place: Place) -> int:
        """A reader's committed offset, negative where there is none or the broker does not say."""
        if group not in self._readers:
            self._readers[group] = Consumer({**self._client, "group.id": group, "enable.auto.commit": False})
        try:
            (told,) = self._readers[group].committed([TopicPartition(*place)], timeout=5)
        except KafkaException:
            return -1
        return int(told.offset) if told.error is None else -1

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        self._check()
        if self._on_way and time.monotonic() - self._heard > DELIVER_S:
            raise SendFailed(f"Kafka at {self._settings.kafka} has accepted nothing for {DELIVER_S:.0f} s")

    def _check(self) -> None:
        if self._failure is not None:
            raise SendFailed(f"Kafka at {self._settings.kafka} did not accept a message: {self._failure}")

    def _step(self, records: int, size: int) -> None:
        now = self._progress
        self._progress = Progress(
            now.records + records, now.of_records, now.messages + 1, now.bytes + size, now.waiting
        )
        self._tell(self._progress)

    def _report(self, waiting: str) -> None:
        now = self._progress
        if now.waiting != waiting:
            self._progress = Progress(now.records, now.of_records, now.messages, now.bytes, waiting)
            self._tell(self._progress)


def _ignore(_: object) -> None:
    """Librdkafka tells of each attempt to connect; what matters comes back from the calls."""


def _said(error: KafkaException) -> str:
    first = error.args[0]
    return str(first.str()) if isinstance(first, KafkaError) else str(first)
