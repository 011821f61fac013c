"""How every confluent-kafka client of ours is made, and what its errors mean to a user.

librdkafka reports each failed connection attempt on standard error; what matters reaches us as errors of
calls, so its own log is kept to what is critical.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata

ANSWER_TIMEOUT_S = 8.0
"""How long a broker may take to answer before it counts as away: a user waits for this."""

_FETCH_WAIT_MS = 50
"""The embedded broker answers a fetch of an empty partition only when this has passed."""


class BrokerError(RuntimeError):
    """Kafka does not do what is needed; the text is one line: what, where, what to do."""


class BrokerUnreachable(BrokerError):
    """Nothing at the bootstrap address answers as Kafka does."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(
            f"no Kafka answers at {bootstrap}: start the local stack with 'mycroft up', "
            "or point --kafka (MYCROFT_KAFKA) at a broker"
        )


class BrokerRefused(BrokerError):
    """Kafka answers, but refuses what is asked of it."""


def client_config(bootstrap: str, name: str) -> dict[str, Any]:
    """Configuration that all clients share; `name` tells them apart in the broker's logs."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": f"mycroft-{name}",
        "log_level": 2,
        "reconnect.backoff.max.ms": 1000,
    }


def producer(bootstrap: str, name: str, **overrides: str | int | bool) -> Producer:
    """A producer; messages wait in it while the broker is away, and errors arrive in delivery reports.

    Overrides are librdkafka's
    properties with `_` for `.`.
    """
    config = client_config(bootstrap, name) | {"compression.type": "lz4", "linger.ms": 5}
    return Producer(config | _properties(overrides))


def consumer(bootstrap: str, name: str, group: str, **overrides: str | int | bool) -> Consumer:
    """A consumer of a group that commits nothing by itself and begins at the oldest message.

    Overrides are librdkafka's properties with `_` for `.`.
    """
    config = client_config(bootstrap, name) | {
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1500,
    }
    return Consumer(config | _properties(overrides))


def admin(bootstrap: str, name: str) -> AdminClient:
    """A client for topics and metadata."""
    return AdminClient(client_config(bootstrap, name))


def metadata(
    client: AdminClient | Consumer | Producer, bootstrap: str, timeout_s: float = ANSWER_TIMEOUT_S
) -> ClusterMetadata:
    """Brokers and topics as the cluster tells them; may block for `timeout_s`, raises BrokerUnreachable."""
    try:
        return client.list_topics(timeout=timeout_s)
    except KafkaException as error:
        raise BrokerUnreachable(bootstrap) from error


def is_embedded(cluster: ClusterMetadata) -> bool:
    """Whether this is librdkafka's in-process cluster, which lacks most of the admin interface."""
    return str(cluster.cluster_id or "").startswith("mockCluster")


def read_all(bootstrap: str, topic: str) -> Iterator[bytes]:
    """The values of every message that is on a topic now. See read_messages."""
    for message in read_messages(bootstrap, topic):
        if (value := message.value()) is not None:
            yield value


def read_messages(bootstrap: str, topic: str) -> Iterator[Message]:
    """Every message that is on a topic now, partition by partition.

    Blocks until the ends that the topic had at the call are reached. Raises BrokerUnreachable where the
    broker stops answering.
    """
    client = consumer(bootstrap, "reader", "mycroft-reader")
    try:
        known = metadata(client, bootstrap).topics.get(topic)
        for partition in known.partitions if known else ():
            first, end = client.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=ANSWER_TIMEOUT_S
            )
            if first >= end:
                continue
            client.assign([TopicPartition(topic, partition, first)])
            while True:
                message = client.poll(ANSWER_TIMEOUT_S)
                if message is None:
                    raise BrokerUnreachable(bootstrap)
                if message.error() is None:
                    yield message
                if (message.offset() or 0) + 1 >= end:
                    break
    finally:
        client.close()


def ranges(bootstrap: str, topics: Iterable[str]) -> dict[tuple[str, int], tuple[int, int]]:
    """By topic and partition: the oldest offset that is kept, and the one behind the newest.

    Raises BrokerUnreachable where the broker does not answer.
    """
    client = consumer(bootstrap, "ranges", "mycroft-ranges")
    try:
        known = metadata(client, bootstrap).topics
        return {
            (topic, partition): client.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=ANSWER_TIMEOUT_S
            )
            for topic in topics
            for partition in (known[topic].partitions if topic in known else ())
        }
    except KafkaException as error:
        raise BrokerUnreachable(bootstrap) from error
    finally:
        client.close()


def follow(bootstrap: str, topic: str) -> Iterator[bytes]:
    """The values of a topic from its oldest message on, without end. Raises BrokerUnreachable."""
    client = consumer(bootstrap, "follower", "mycroft-follower")
    try:
        known = metadata(client, bootstrap).topics.get(topic)
        client.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for partition in (known.partitions if known else ())
            ]
        )
        while True:
            message = client.poll(1.0)
            if message is not None and message.error() is None and (value := message.value()) is not None:
                yield value
    finally:
        client.close()


def error_of(exception: KafkaException) -> KafkaError:
    """The KafkaError inside an exception."""
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


def _properties(overrides: dict[str, str | int | bool]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in overrides.items()}
