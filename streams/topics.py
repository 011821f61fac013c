"""Makes sure that our topics exist, and tells what the broker says about them."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic

from mycroft.settings import Settings
from schemas.topics import MEMBERS, TOPICS, TRACE, Topic
from streams.kafka import (
    ANSWER_TIMEOUT_S,
    BrokerRefused,
    BrokerUnreachable,
    admin,
    consumer,
    error_of,
    is_embedded,
    metadata,
)

START_TOPIC = "mycroft.start"
"""Of the embedded broker only: one message whose value is a UUID of this start (see topic_ids)."""


def ensure_topics(settings: Settings) -> dict[str, int]:
    """Creates what is missing of schemas.topics.TOPICS; existing topics are left as they are.

    Returns how many partitions each of them has.
    Blocks until all of them are there, at most about 20 s. Raises BrokerUnreachable, and BrokerRefused
    where the broker does not create a topic or an existing one cannot be worked with.
    """
    client = admin(settings.kafka, "topics")
    cluster = metadata(client, settings.kafka)
    missing = [topic for topic in TOPICS if topic.name not in cluster.topics]
    if missing and is_embedded(cluster):
        # No CreateTopics there; asking for a topic makes it.
        for topic in missing:
            client.list_topics(topic.name, timeout=ANSWER_TIMEOUT_S)
    elif missing:
        _create(client, settings, missing)
    settled = _settled(client, settings.kafka)
    _check(settled, settings.kafka)
    return {topic.name: len(settled.topics[topic.name].partitions) for topic in TOPICS}


def partitions(bootstrap: str, topic: str) -> int:
    """How many partitions the broker gives a topic.

    Raises BrokerUnreachable, and BrokerRefused where there is no such topic.
    """
    known = metadata(admin(bootstrap, "topics"), bootstrap).topics.get(topic)
    if known is None or known.error is not None:
        raise BrokerRefused(
            f"topic {topic} does not exist at {bootstrap}: start Mycroft's worker or sink first"
        )
    return len(known.partitions)


def topic_ids(bootstrap: str, names: list[str]) -> dict[str, str]:
    """An id for each topic that changes whenever its offsets begin anew.

    Apache Kafka has one (a UUID). The embedded broker has none, and its topics are new at each start: there
    the id is the start's own. Raises BrokerUnreachable and BrokerRefused.
    """
    client = admin(bootstrap, "topics")
    if is_embedded(metadata(client, bootstrap)):
        start = _start_id(bootstrap)
        return {name: f"{start}.{name}" for name in names}
    try:
        described = client.describe_topics(TopicCollection(names), request_timeout=ANSWER_TIMEOUT_S)
        return {name: str(future.result().topic_id) for name, future in described.items()}
    except KafkaException as error:
        raise BrokerRefused(f"topics at {bootstrap} cannot be described: {error_of(error).str()}") from error


def _create(client: AdminClient, settings: Settings, missing: list[Topic]) -> None:
    new = [
        NewTopic(topic.name, settings.partitions, settings.replication, config=dict(topic.config))
        for topic in missing
    ]
    for name, future in client.create_topics(new, request_timeout=ANSWER_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as exception:
            error = error_of(exception)
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:  # somebody else was faster
                continue
            raise BrokerRefused(
                f"Kafka at {settings.kafka} does not create topic {name} with {settings.partitions} "
                f"partitions and {settings.replication} replicas: {error.str()}; create it by hand "
                "or change the settings"
            ) from exception


def _settled(client: AdminClient, bootstrap: str) -> ClusterMetadata:
    """Metadata in which every topic has a leader; a new topic takes a moment to get there."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        cluster = metadata(client, bootstrap)
        ready = {
            name
            for name, topic in cluster.topics.items()
            if topic.partitions and all(part.leader >= 0 for part in topic.partitions.values())
        }
        absent = [topic.name for topic in TOPICS if topic.name not in ready]
        if not absent:
            return cluster
        if time.monotonic() > deadline:
            raise BrokerRefused(
                f"Kafka at {bootstrap} has no leader for {', '.join(absent)}: look at its log"
            )
        time.sleep(0.1)


def _check(cluster: ClusterMetadata, bootstrap: str) -> None:
    trace, members = (len(cluster.topics[topic.name].partitions) for topic in (TRACE, MEMBERS))
    if trace != members:
        raise BrokerRefused(
            f"{TRACE.name} has {trace} partitions and {MEMBERS.name} {members} at {bootstrap}: "
            "a communicator's records and members must meet in one; give both topics the same number"
        )


def _start_id(bootstrap: str) -> str:
    client: Consumer = consumer(bootstrap, "topics", "mycroft-topics")
    try:
        client.assign([TopicPartition(START_TOPIC, 0, 0)])
        message = client.poll(ANSWER_TIMEOUT_S)
        if message is None or message.error() is not None:
            raise BrokerUnreachable(bootstrap)
        return bytes(message.value() or b"").decode()
    finally:
        client.close()
