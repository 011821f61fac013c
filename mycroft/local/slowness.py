"""What makes a job of a moment ago slow, judged after it is over.

The same windows and the same judgement as in the worker, but over all windows of the job at once and without
a trigger: a run of seconds has no baseline.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from schemas.envelope import Envelope, MessageKind, decode
from schemas.incidents import Incident
from schemas.malformed import Malformed
from schemas.members import Announcement, decode_members
from schemas.topics import MEMBERS, TRACE
from streams.facts import Facts, gather
from streams.kafka import consumer
from streams.report import Occasion
from streams.slow.blame import localise
from streams.slow.patterns import pattern
from streams.slow.report import slow_incident
from streams.slow.window import Window, merged
from streams.slow.windows import Windows
from streams.topics import partitions

OVER_S: Final = 10.0
"""So long after its last word every window of a job is closed, also those of hosts that are silent."""


class Heard:
    """Follows what collectors say from the oldest message on, in a thread of its own, as a `with` block."""

    def __init__(self, bootstrap: str) -> None:
        self._client = consumer(bootstrap, "slowness", "mycroft-slowness")
        self._client.assign(
            [
                TopicPartition(topic.name, number, OFFSET_BEGINNING)
                for topic in (TRACE, MEMBERS)
                for number in range(partitions(bootstrap, topic.name))
            ]
        )
        self._flushes: defaultdict[tuple[int, int, int], list[tuple[float, Envelope]]] = defaultdict(list)
        self._members: defaultdict[str, dict[bytes, Announcement]] = defaultdict(dict)
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

    def announcements(self, job: str) -> list[Announcement]:
        """What is known of a job's communicators and devices."""
        return list(self._members[job].values())

    def windows(self, job: str) -> list[Window]:
        """All windows of a job that is over, one for each partition and second, in the order of time."""
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
                try:
                    if message.topic() == TRACE.name:
                        at = message.timestamp()[1] / 1e3
                        self._hear(message.partition() or 0, at, decode(value))
                    else:
                        announced = decode_members(value)
                        self._members[announced.job][announced.key] = announced
                except Malformed:  # the sink reports it
                    continue

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
