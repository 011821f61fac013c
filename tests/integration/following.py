"""Everything on `nccl.trace` so far, by job: several jobs share one broker, and one reader serves all."""

from __future__ import annotations

import threading
import time
from collections import defaultdict

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from schemas.envelope import Envelope, decode
from schemas.ids import job_id
from schemas.topics import TRACE
from streams.kafka import consumer, ranges
from streams.topics import partitions

PATIENCE_S = 60.0


class Follower:
    """Reads from the oldest message on whenever it is asked. For any thread."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap, self._lock = bootstrap, threading.Lock()
        self._client = consumer(bootstrap, "tests", "follower")
        parts = range(partitions(bootstrap, TRACE.name))
        self._client.assign([TopicPartition(TRACE.name, number, OFFSET_BEGINNING) for number in parts])
        self._next: defaultdict[int, int] = defaultdict(int)
        self._flushes: defaultdict[int, list[Envelope]] = defaultdict(list)

    def flushes(self, job: str) -> list[Envelope]:
        """What was said of a job until now; of each partition in its order."""
        with self._lock:
            ends = {number: end for (_, number), (_, end) in ranges(self._bootstrap, (TRACE.name,)).items()}
            deadline = time.monotonic() + PATIENCE_S
            while any(self._next[number] < end for number, end in ends.items()):
                assert time.monotonic() < deadline, "the trace was not read to its end"
                for message in self._client.consume(500, 0.1):
                    value, number, offset = message.value(), message.partition(), message.offset()
                    assert message.error() is None, message.error()
                    assert value is not None
                    assert number is not None
                    assert offset is not None
                    flush = decode(bytes(value))
                    self._flushes[flush.job].append(flush)
                    self._next[number] = offset + 1
            return list(self._flushes[job_id(job)])

    def close(self) -> None:
        """No more is read."""
        self._client.close()
