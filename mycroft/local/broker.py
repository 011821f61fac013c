"""The embedded broker: librdkafka's in-process mock cluster, in a process of its own.

`python -m mycroft.local.broker --ready-file FILE` serves on a free port of loopback, writes its address to
FILE once every topic exists, and ends on SIGTERM, on SIGINT and when its parent is gone.

It speaks Kafka's protocol to any client, without anything to install, and has limits that its users must
know:

- Memory only, and a random port: when it ends, its messages are gone. The stack then ends too.
- About 5 MB and at most 100,000 messages are kept of each partition, and no reader is waited for: what
  exceeds that falls off the head without an error. Writers pace themselves by the readers' lag, readers see
  a gap in the offsets.
- One broker, loopback only, no authentication, no compaction, no retention by time.
- CreateTopics and most of the admin interface are missing. A topic that is asked for comes into being
  with 4 partitions; ours are made at the start.
- Offsets begin at 0 at each start. The topic `mycroft.start` holds one message, a UUID of this start, for
  readers that must tell the starts apart.
- It answers a fetch of an empty partition only when the fetch's maximum wait is over.

The Python client can start such a cluster but not say how many partitions a topic has, nor that a new group
need not wait 3 s for further members; librdkafka's C interface can. So this module calls the very library
that the client has loaded.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import uuid
from pathlib import Path

import confluent_kafka

from schemas.topics import TOPICS
from streams.kafka import ANSWER_TIMEOUT_S, BrokerError, producer
from streams.process import stop_event
from streams.topics import START_TOPIC

DEFAULT_PARTITIONS = 4

_PRODUCER_TYPE = 0
_ERROR_BYTES = 512


class MockCluster:
    """A running cluster of one broker; it lives as long as its process."""

    def __init__(self, partitions: int = DEFAULT_PARTITIONS) -> None:
        """Starts it; `partitions` for each of our topics. Raises BrokerError where it cannot run."""
        library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        config = library.rd_kafka_conf_new()
        library.rd_kafka_conf_set(config, b"log_level", b"0", error, _ERROR_BYTES)
        handle = library.rd_kafka_new(_PRODUCER_TYPE, config, error, _ERROR_BYTES)
        cluster = library.rd_kafka_mock_cluster_new(handle, 1) if handle else None
        if not cluster:
            raise BrokerError(f"the embedded broker does not start: {error.value.decode() or 'no free port'}")
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0)
        for name, count in [(START_TOPIC, 1), *((topic.name, partitions) for topic in TOPICS)]:
            library.rd_kafka_mock_topic_create(cluster, name.encode(), count, 1)
        self.bootstrap: str = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()
        self._tell_start()

    def _tell_start(self) -> None:
        client = producer(self.bootstrap, "broker")
        client.produce(START_TOPIC, key=b"start", value=str(uuid.uuid4()).encode(), partition=0)
        if client.flush(ANSWER_TIMEOUT_S):
            raise BrokerError(
                f"the embedded broker at {self.bootstrap} does not take messages: is loopback up?"
            )


def _library() -> ctypes.CDLL:
    """The librdkafka that confluent_kafka has loaded, whichever way it was packaged."""
    loaded = {
        line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "librdkafka" in line
    }
    if not loaded:
        raise BrokerError(
            f"confluent-kafka {confluent_kafka.__version__} carries librdkafka inside itself: "
            "install its wheel, or use a real broker (--kafka)"
        )
    library = ctypes.CDLL(loaded.pop())
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def main(arguments: list[str] | None = None) -> int:
    """Serves until told to stop; returns the exit status."""
    parser = argparse.ArgumentParser(prog="mycroft.local.broker", description="The embedded broker.")
    parser.add_argument("--ready-file", type=Path, required=True, help="gets the address once topics exist")
    parser.add_argument("--partitions", type=int, default=DEFAULT_PARTITIONS, help="partitions of each topic")
    parser.add_argument(
        "--parent",
        type=int,
        default=os.getppid(),
        help="pid of the parent process, whose end is this one's too",
    )
    options = parser.parse_args(arguments)
    stop = stop_event(options.parent)
    try:
        cluster = MockCluster(options.partitions)
    except BrokerError as error:
        print(error, file=sys.stderr)
        return 1
    _write_whole(options.ready_file, cluster.bootstrap)
    stop.wait()
    return 0


def _write_whole(path: Path, text: str) -> None:
    """A reader sees the file complete or not at all."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(text)
    draft.replace(path)


if __name__ == "__main__":
    sys.exit(main())
