"""What makes a job of a moment ago slow, judged after it is over.

The same windows and the same judgement as in the worker, but over all windows of the job at once and without
a trigger: a run of seconds has no baseline.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from schemas.envelope import Envelope, MessageKind, decode
from schemas.incidents import Incident
from schemas.malformed import Malformed
from schemas.members import Announcement, Member, decode_members
from schemas.topics import MEMBERS, TRACE
from streams.facts import Facts, gather
from streams.kafka import BrokerError, consumer, ranges
from streams.report import Occasion
from streams.slow.blame import localise
from streams.slow.patterns import pattern
from streams.slow.report import slow_incident
from streams.slow.window import Window, merged
from streams.slow.windows import Windows
from streams.topics import partitions

OVER_S: Final = 10.0
"""So long after its last word every window of a job is closed, also those of hosts that are silent."""

CATCH_UP_S: Final = 60.0
"""To read to the end what has been said: far above what it takes on a busy machine."""


class Heard:
    """Follows what collectors say from the oldest message on, in a thread of its own, as a `with` block."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client = consumer(bootstrap, "slowness", "mycroft-slowness")
        self._client.assign(
            [
                TopicPartition(topic.name, number, OFFSET_BEGINNING)
                for topic in (TRACE, MEMBERS)
                for number in range(partitions(bootstrap, topic.name))
            ]
        )
        self._flushes: defaultdict[tuple[int, int, int], list[tuple[float, Envelope]]] = defaultdict(list)
        self._members: defaultdict[str, dict[tuple[bytes, tuple[Member, ...]], Announcement]]
        self._members = defaultdict(dict)
        """All that was ever announced: at the end of a job its ranks leave their communicators one by one."""
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)
        """By topic and partition: the offset behind what has been heard."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Heard:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._client.close()

    def _catch_up(self) -> None:
        """Return when all that stands in the topics by now has been heard."""
        deadline = time.monotonic() + CATCH_UP_S
        for part, (oldest, end) in ranges(self._bootstrap, (TRACE.name, MEMBERS.name)).items():
            while oldest < end and self._next[part] < end:
                if time.monotonic() > deadline:
                    raise BrokerError(f"{part[0]} was not read to its end within {CATCH_UP_S:.0f} s")
                time.sleep(0.05)

    def announcements(self, job: str) -> list[Announcement]:
        """What is known of a job's communicators and devices."""
        return list(self._members[job].values())

    def windows(self, job: str) -> list[Window]:
        """All windows of a job that is over, one for each partition and second, in the order of time.

        What has been said by now is read to its end first. Raises BrokerError.
        """
        self._catch_up()
        ids = {(one.job_id, one.attempt_id) for one in self.announcements(job)}
        found = []
        for (job_id, attempt_id, partition), said in list(self._flushes.items()):
            if (job_id, attempt_id) in ids:
                windows = Windows(job_id, attempt_id, partition)
                for at, message in said:
                    windows.take(message, at)
                    found += [closed.window for closed in windows.close(at)]
                found += [closed.window for closed in windows.close(said[-1][0] + OVER_S)]
        said_something = [window for window in found if len(window.lags) or len(window.flows)]
        return sorted(said_something, key=lambda window: window.start_ns)

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._client.consume(500, 0.1):
                value = message.value()
                if message.error() is not None or value is None:
                    continue
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                with suppress(Malformed):  # the sink reports it
                    if topic == TRACE.name:
                        self._hear(partition, message.timestamp()[1] / 1e3, decode(value))
                    else:
                        announced = decode_members(value)
                        self._members[announced.job][announced.key, announced.members] = announced
                self._next[topic, partition] = offset + 1

    def _hear(self, partition: int, at: float, message: Envelope) -> None:
        if message.kind is MessageKind.FLUSH:
            self._flushes[message.job, message.attempt, partition].append((at, message))


def slow_incidents(windows: Sequence[Window], announcements: Iterable[Announcement]) -> list[Incident]:
    """Who made a job slow that is over, from all its windows; empty: nobody more than the others."""
    known = list(announcements)
    if not windows or not known:
        return []
    facts = _facts(known)
    hosts = {dev: member.host for dev, member in facts.devices.items() if member.host}
    whole, first = merged(windows), known[0]
    occasion = Occasion(first.job, first.attempt, first.job_id, first.attempt_id, time.time_ns())
    return [
        slow_incident(occasion, facts, finding, whole.start_ns, pattern(windows, finding))
        for finding in localise(whole, hosts)
    ]


def _facts(announcements: Sequence[Announcement]) -> Facts:
    devices = {member.dev for one in announcements for member in one.members}
    return gather(announcements, devices, {one.comm for one in announcements})
