"""Windows of running jobs in a worker: flushes of one trace partition in, WINDOW messages for the judge out.

Each second has a message with its rates, empty ones too, so that the judge knows that it was told. Every
DETAIL_S-th has the details of the seconds since the last one: a row for each device, some ten thousand times
less than the hosts have told, which the localiser needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from schemas.envelope import Envelope, MessageKind, split
from schemas.ids import hex_id
from schemas.members import Announcement
from schemas.records import FLOW, LAG, RATE, Records
from streams import facts as facts_of
from streams.slow.window import Window, merged
from streams.slow.windows import Closed, Windows

DETAIL_S = 5
"""Hosts sum their flows over so long."""
FORGET_S = 120.0
"""A job of which nothing was heard for so long is over."""
MAX_NAMED = 500
"""Devices whose names ride on one message with details: half of them those who hold up others most, the rest
in turn."""


@dataclass
class _Job:
    windows: Windows
    heard: float
    announcements: dict[tuple[int, str], Announcement] = field(default_factory=dict)
    details: list[Window] = field(default_factory=list)
    named: int = 0
    """Where the next turn of names begins."""


class SlowBoard:
    """All running jobs of one trace partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._jobs: dict[tuple[int, int], _Job] = {}
        self._announced: dict[tuple[int, int], dict[tuple[int, str], Announcement]] = {}

    def announce(self, announcement: Announcement) -> None:
        """Hear the members that one host has in a communicator."""
        key = announcement.job_id, announcement.attempt_id
        self._announced.setdefault(key, {})[announcement.comm, announcement.source] = announcement

    def take(self, message: Envelope, at: float) -> None:
        """Hear a FLUSH that the broker appended `at`."""
        key = message.job, message.attempt
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _Job(Windows(*key, self._partition), at)
        job.heard = max(job.heard, at)
        job.windows.take(message, at)

    def messages(self, now: float) -> Iterator[Envelope]:
        """The WINDOW messages of all windows that are over; `now` in broker seconds."""
        for key, job in list(self._jobs.items()):
            if now - job.heard > FORGET_S:
                del self._jobs[key]
                self._announced.pop(key, None)
                continue
            for closed in job.windows.close(now):
                yield from self._told(key, job, closed)

    def _told(self, key: tuple[int, int], job: _Job, closed: Closed) -> Iterable[Envelope]:
        known = list(self._announced.get(key, {}).values())
        second = closed.window.start_ns // 1_000_000_000
        sections: dict[str, Records] = {RATE.name: closed.rates}
        job.details.append(closed.window)
        facts = facts_of.Facts()
        length_us, silent = closed.window.length_us, closed.window.silent
        if (second + 1) % DETAIL_S == 0:
            detail = merged(job.details)
            job.details.clear()
            sections |= {LAG.name: detail.lags, FLOW.name: detail.flows}
            length_us, silent = detail.length_us, detail.silent
            facts = facts_of.gather(known, self._turn(job, detail), np.unique(detail.lags["comm"]).tolist())
        body = window_body(
            known[0].job if known else hex_id(key[0]), known[0].attempt if known else hex_id(key[1]),
            length_us, silent, facts,
        )  # fmt: skip
        return split(
            Envelope(
                MessageKind.WINDOW,
                *key,
                epoch=second,
                partition=self._partition,
                sections=sections,
                body=body,
            )
        )

    @staticmethod
    def _turn(job: _Job, detail: Window) -> set[int]:
        """Devices to be named this time."""
        devices, at = np.unique(detail.lags["dev"], return_inverse=True)
        if len(devices) <= MAX_NAMED:
            return set(devices.tolist())
        held = np.bincount(at.reshape(-1), detail.lags["held_sum_us"], len(devices))
        first = devices[np.argsort(-held, kind="stable")[: MAX_NAMED // 2]]
        turn = devices[(job.named + np.arange(MAX_NAMED // 2)) % len(devices)]
        job.named = (job.named + MAX_NAMED // 2) % len(devices)
        return {*first.tolist(), *turn.tolist()}


def window_body(
    name: str, attempt: str, length_us: int, silent: tuple[str, ...], facts: facts_of.Facts
) -> dict[str, object]:
    """JSON body of a WINDOW; `length_us` and `silent` are of its details, where it has any."""
    return {
        "version": 1, "live": {"job": name, "attempt": attempt}, "length_us": length_us,
        "silent": list(silent), "facts": facts_of.encode(facts),
    }  # fmt: skip
