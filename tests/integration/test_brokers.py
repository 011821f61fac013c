"""What the product relies on in a broker, shown on the embedded one and on Apache Kafka alike."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from mycroft.settings import Settings
from schemas.topics import TOPICS, TRACE
from streams.kafka import BrokerRefused, BrokerUnreachable, consumer, is_embedded, metadata, producer
from streams.topics import ensure_topics, partitions, topic_ids
from tests.integration.kafka_fixtures import Broker, EmbeddedBroker
from tests.integration.kafka_harness import ApacheKafka

DEADLINE_S = 60
MESSAGE_BYTES = 512 * 1024


@pytest.fixture
def topics(broker: Broker) -> Broker:
    """The broker with all of our topics."""
    ensure_topics(Settings(kafka=broker.bootstrap))
    return broker


@pytest.fixture
def open_consumer() -> Iterator[Callable[[Broker, str], Consumer]]:
    """Makes consumers of nccl.trace that are closed after the test."""
    opened: list[Consumer] = []

    def make(broker: Broker, group: str) -> Consumer:
        client = consumer(broker.bootstrap, "tests", group)
        client.subscribe([TRACE.name])
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.close()


def send(broker: Broker, values: list[bytes], partition: int = 0) -> None:
    client = producer(broker.bootstrap, "tests", enable_idempotence=True)  # as all of ours whose order counts
    for value in values:
        client.produce(TRACE.name, value, partition=partition)
        client.poll(0)
    assert client.flush(DEADLINE_S) == 0


def receive(client: Consumer, count: int) -> list[Message]:
    deadline = time.monotonic() + DEADLINE_S
    messages: list[Message] = []
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages"
        message = client.poll(0.2)
        if message is not None and message.error() is None:
            messages.append(message)
    return messages


def test_topics_are_made_once_and_left_alone(topics: Broker) -> None:
    ids = topic_ids(topics.bootstrap, [topic.name for topic in TOPICS])
    send(topics, [b"kept"])
    ensure_topics(Settings(kafka=topics.bootstrap, partitions=7))
    for topic in TOPICS:
        assert partitions(topics.bootstrap, topic.name) == 4
    assert topic_ids(topics.bootstrap, [topic.name for topic in TOPICS]) == ids
    assert len(set(ids.values())) == len(TOPICS)


@pytest.mark.kafka
def test_partitions_of_an_unknown_topic_is_one_clear_line(apache_kafka: ApacheKafka) -> None:
    """Not on the embedded broker: there a topic comes into being when it is asked for."""
    with pytest.raises(BrokerRefused, match="no such thing does not exist at"):
        partitions(apache_kafka.bootstrap, "no such thing")


def test_an_absent_broker_is_one_clear_line() -> None:
    with pytest.raises(BrokerUnreachable, match=r"no Kafka answers at 127\.0\.0\.1:1: start") as caught:
        ensure_topics(Settings(kafka="127.0.0.1:1"))
    assert "\n" not in str(caught.value)


def test_a_partition_keeps_order(topics: Broker, open_consumer: Callable[[Broker, str], Consumer]) -> None:
    values = [b"%d" % number for number in range(500)]
    send(topics, values, partition=2)
    messages = receive(open_consumer(topics, "order"), len(values))
    assert [message.value() for message in messages] == values
    assert {message.partition() for message in messages} == {2}
    assert [message.offset() for message in messages] == list(range(len(values)))


def test_messages_carry_broker_time(topics: Broker, open_consumer: Callable[[Broker, str], Consumer]) -> None:
    before = time.time() * 1000
    send(topics, [b"now"])
    _, stamp = receive(open_consumer(topics, "time"), 1)[0].timestamp()
    assert before - 1000 <= stamp <= time.time() * 1000 + 1000


def test_groups_are_independent(topics: Broker, open_consumer: Callable[[Broker, str], Consumer]) -> None:
    send(topics, [b"a", b"b"])
    for group in ("one", "two"):
        client = open_consumer(topics, group)
        assert [message.value() for message in receive(client, 2)] == [b"a", b"b"]
        client.commit(offsets=[TopicPartition(TRACE.name, 0, 1 if group == "one" else 2)], asynchronous=False)
    committed = [
        open_consumer(topics, group).committed([TopicPartition(TRACE.name, 0)], timeout=DEADLINE_S)[0].offset
        for group in ("one", "two")
    ]
    assert committed == [1, 2]


def test_a_commit_carries_metadata(topics: Broker, open_consumer: Callable[[Broker, str], Consumer]) -> None:
    send(topics, [b"x"] * 5)
    client = open_consumer(topics, "metadata")
    receive(client, 5)
    where = TopicPartition(TRACE.name, 0)
    client.commit(offsets=[TopicPartition(TRACE.name, 0, 2, '{"last":4}')], asynchronous=False)
    committed = client.committed([where], timeout=DEADLINE_S)[0]
    assert (committed.offset, committed.metadata) == (2, '{"last":4}')
    client.commit(offsets=[TopicPartition(TRACE.name, 0, 5)], asynchronous=False)
    committed = client.committed([where], timeout=DEADLINE_S)[0]
    assert (committed.offset, committed.metadata or "") == (5, "")


def test_large_messages_arrive_whole(
    topics: Broker, open_consumer: Callable[[Broker, str], Consumer]
) -> None:
    values = [os.urandom(MESSAGE_BYTES) for _ in range(8)]
    send(topics, values)
    assert [message.value() for message in receive(open_consumer(topics, "large"), 8)] == values


_READ_AND_DIE = """
import os, sys
from streams.kafka import consumer
client = consumer(sys.argv[1], "tests", sys.argv[2])
client.subscribe(["nccl.trace"])
while True:
    message = client.poll(0.2)
    if message is not None and message.error() is None:
        os._exit(9)
"""


def test_a_killed_consumer_gives_way(
    topics: Broker, open_consumer: Callable[[Broker, str], Consumer]
) -> None:
    send(topics, [b"first"])
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", _READ_AND_DIE, topics.bootstrap, "killed"]
    assert subprocess.run(command, cwd=root, timeout=DEADLINE_S, check=False).returncode == 9
    assert receive(open_consumer(topics, "killed"), 1)[0].value() == b"first"


def test_embedded_tells_its_starts_apart(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    other = EmbeddedBroker(tmp_path / "..")
    try:
        ids = [topic_ids(each.bootstrap, [TRACE.name])[TRACE.name] for each in (embedded_broker, other)]
    finally:
        other.stop()
    assert ids[0] != ids[1]
    assert is_embedded(metadata(Producer({"bootstrap.servers": embedded_broker.bootstrap}), "embedded"))


def test_embedded_loses_the_head_of_a_burst(
    embedded_broker: EmbeddedBroker, open_consumer: Callable[[Broker, str], Consumer]
) -> None:
    """The limit that writers pace themselves for, and how a reader notices: a gap in the offsets."""
    count = 24  # 12 MB
    send(embedded_broker, [os.urandom(MESSAGE_BYTES) for _ in range(count)])
    client = open_consumer(embedded_broker, "burst")
    low, high = client.get_watermark_offsets(TopicPartition(TRACE.name, 0), timeout=DEADLINE_S)
    assert high == count
    assert 0 < low < high
    assert receive(client, high - low)[0].offset() == low


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_embedded_ends_cleanly(embedded_broker: EmbeddedBroker, number: signal.Signals) -> None:
    embedded_broker.process.send_signal(number)
    assert embedded_broker.process.wait(DEADLINE_S) == 0
    assert embedded_broker.process.stderr is not None
    assert embedded_broker.process.stderr.read() == b""


def test_embedded_ends_with_its_parent(tmp_path: Path) -> None:
    ready = tmp_path / "address"
    script = (
        "import subprocess, sys, time\nfrom pathlib import Path\n"
        f"ready = Path({str(ready)!r})\n"
        "module = 'mycroft.local.broker'\n"
        "subprocess.Popen([sys.executable, '-m', module, '--ready-file', str(ready)])\n"
        "while not ready.exists(): time.sleep(0.01)\n"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=root, timeout=DEADLINE_S, check=True)
    host, port = ready.read_text().split(":")
    deadline = time.monotonic() + DEADLINE_S
    while accepts(host, int(port)):
        assert time.monotonic() < deadline, "the broker outlived its parent"
        time.sleep(0.1)


def accepts(host: str, port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((host, port)) == 0


@pytest.mark.kafka
def test_kafka_keeps_its_messages_over_a_restart(
    apache_kafka: ApacheKafka, open_consumer: Callable[[Broker, str], Consumer]
) -> None:
    apache_kafka.wipe()
    ensure_topics(Settings(kafka=apache_kafka.bootstrap))
    send(apache_kafka, [b"before"])
    client = open_consumer(apache_kafka, "restart")
    assert receive(client, 1)[0].value() == b"before"
    client.commit(offsets=[TopicPartition(TRACE.name, 0, 1)], asynchronous=False)
    apache_kafka.restart()
    send(apache_kafka, [b"after"])
    assert receive(client, 1)[0].value() == b"after"
