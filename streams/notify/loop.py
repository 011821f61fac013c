"""The notifier's loop: reads nccl.alerts, sends, commits what was taken.

At its start it reads the topic from its beginning: what lies before the group's offsets was sent, and tells
which incidents are open and under which labels. An offset is committed only after Alertmanager has taken the
revision, so a crash sends it again, which Alertmanager takes for the same alert.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from mycroft.settings import Settings
from schemas.incidents import decode_incident
from schemas.malformed import Malformed
from schemas.topics import ALERTS, NOTIFY_GROUP
from streams.kafka import ANSWER_TIMEOUT_S, BrokerError, BrokerUnreachable, consumer, error_of
from streams.notify.alertmanager import Alertmanager, Away, Refused
from streams.notify.outbox import REFRESH_S, Outbox
from streams.topics import ensure_topics

MAX_WAITING: Final = 1000
"""Revisions in memory; while there are more, Kafka keeps the rest."""
_POLL_S: Final = 0.1

log = logging.getLogger(__name__)


def run_notify(settings: Settings, stop: threading.Event, tell: Callable[[str], None] = log.info) -> None:
    """Sends until `stop` is set. Waits for Kafka and Alertmanager wherever they are away.

    Raises BadAddress, and BrokerError where Kafka refuses its work.
    """
    target = Alertmanager(settings.alertmanager)
    while not stop.is_set():
        try:
            ensure_topics(settings)
        except BrokerUnreachable as error:
            log.warning("%s (trying again)", error)
        else:
            tell(f"alerts of {settings.kafka} go to {target.shown}")
            Notifier(settings.kafka, target, stop).run()


class Notifier:
    """One member of the group; several share the partitions."""

    def __init__(
        self, bootstrap: str, target: Alertmanager, stop: threading.Event, refresh_s: float = REFRESH_S
    ) -> None:
        self._bootstrap = bootstrap
        self._target = target
        self._stop = stop
        self._outbox = Outbox(refresh_s)
        self._consumer: Consumer = consumer(bootstrap, "notify", NOTIFY_GROUP, enable_partition_eof=True)
        self._sent_before: dict[int, int] = {}
        self._catching_up: set[int] = set()
        """Partitions whose past is not read to its end: what is open there is not known yet."""
        self._away = False
        self._paused = False

    def run(self) -> None:
        """See run_notify."""
        self._consumer.subscribe(
            [ALERTS.name], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )
        try:
            while not self._stop.is_set():
                message = self._consumer.poll(_POLL_S)
                if message is not None:
                    self._take(message)
                if not self._catching_up:
                    self._send()
                self._hold_back()
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._catching_up.discard(partition or 0)
                return
            if error.fatal():
                raise BrokerError(f"Kafka at {self._bootstrap}: {error.str()}")
            log.warning("Kafka at %s: %s", self._bootstrap, error.str())
            return
        assert partition is not None
        assert offset is not None
        if offset + 1 >= self._sent_before.get(partition, 0):
            self._catching_up.discard(partition)
        try:
            incident = decode_incident(bytes(value or b""))
        except Malformed as error:  # the sink keeps it in nccl.dead
            log.warning("%s partition %d offset %d: %s", ALERTS.name, partition, offset, error)
            return
        if offset < self._sent_before.get(partition, 0):
            self._outbox.remember(partition, incident)
        else:
            self._outbox.take(partition, offset, incident)

    def _send(self) -> None:
        post = self._outbox.due(time.time())
        if post is None:
            return
        try:
            if post.alerts:
                self._target.post(post.alerts)
        except Away as error:
            if not self._away:
                log.warning("%s (waiting; Kafka keeps what comes)", error)
            self._away = True
            self._outbox.failed(time.time())
            return
        except Refused as error:
            log.error("%s; passed over: %s", error, dict(post.alerts[0].labels))
        else:
            if self._away and post.alerts:
                log.warning("Alertmanager is back")
                self._away = False
        self._outbox.sent(post, time.time())
        if post.place is not None:
            self._commit(*post.place)

    def _commit(self, partition: int, offset: int) -> None:
        try:
            self._consumer.commit(
                offsets=[TopicPartition(ALERTS.name, partition, offset + 1)], asynchronous=False
            )
        except KafkaException as error:
            # At worst it is sent again.
            log.warning("commit at %s: %s", self._bootstrap, error_of(error).str())

    def _hold_back(self) -> None:
        full = len(self._outbox) >= MAX_WAITING
        if full != self._paused:
            assigned = self._consumer.assignment()
            (self._consumer.pause if full else self._consumer.resume)(assigned)
            self._paused = full

    # -- the group

    def _on_assign(self, client: Consumer, assigned: list[TopicPartition]) -> None:
        for place in self._committed(client, assigned):
            self._outbox.forget(place.partition)
            self._sent_before[place.partition] = max(place.offset, 0)
            if place.offset > 0:
                self._catching_up.add(place.partition)
        client.assign([TopicPartition(each.topic, each.partition, OFFSET_BEGINNING) for each in assigned])
        # A partition that was paused when it went away comes back paused.
        client.resume(assigned)
        self._paused = False

    def _committed(self, client: Consumer, assigned: list[TopicPartition]) -> list[TopicPartition]:
        """The group's offsets, asked for until Kafka answers: without them all is sent again."""
        while not self._stop.is_set():
            try:
                return list(client.committed(assigned, timeout=ANSWER_TIMEOUT_S))
            except KafkaException as error:
                log.warning("offsets at %s: %s (trying again)", self._bootstrap, error_of(error).str())
                self._stop.wait(_POLL_S)
        return []

    def _on_revoke(self, client: Consumer, revoked: list[TopicPartition]) -> None:  # noqa: ARG002
        for place in revoked:
            self._outbox.forget(place.partition)
            self._catching_up.discard(place.partition)
