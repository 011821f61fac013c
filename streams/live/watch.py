"""Running jobs in a worker: flushes in, twice a second the waits of each job out, judged, told.

Thin: what is decided stands in `stalls`, `causes` and `suspects`. Nothing is held unacknowledged, since what
hosts say replaces what they said before: a worker that starts knows all of it again within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from schemas.envelope import Envelope, MessageKind, split
from schemas.ids import hex_id
from schemas.incidents import Incident
from schemas.members import Announcement
from schemas.records import FACT, PROC, WAIT, Records
from streams import facts as facts_of
from streams.live.board import LiveBoard
from streams.live.cases import LiveCase, live_body
from streams.live.causes import World
from streams.live.diagnosis import diagnose
from streams.live.moment import Moment
from streams.live.stalls import judge
from streams.report import Occasion, incidents
from streams.severity import Rules

MAX_WAITERS = 1000
"""Devices that only wait and are still sent with their names, the lowest ranks first."""


def epochs(board: LiveBoard, partition: int, epoch: int, now: float) -> Iterable[Envelope]:
    """The LIVE_EPOCH messages of one partition: for each running job its complete set of waits."""
    for job, attempt in board.jobs(now):
        moment = board.moment(job, attempt, now)
        waits = judge(moment)
        board.remember(job, attempt, waits)
        waits["epoch"], waits["partition"] = epoch, partition
        rows, ages = board.news(job, attempt, now)
        wrong = board.facts(job, attempt, now) if len(waits) else FACT.empty(0)
        first = next(iter(moment.announcements.values()), None)
        body = live_body(
            first.job if first else hex_id(job), first.attempt if first else hex_id(attempt),
            facts_of.encode(_facts(moment, waits)), ages,
        )  # fmt: skip
        message = Envelope(
            MessageKind.LIVE_EPOCH, job, attempt, epoch=epoch, partition=partition,
            sections={FACT.name: wrong, PROC.name: rows, WAIT.name: waits}, body=body,
        )  # fmt: skip
        yield from split(message)


def _facts(moment: Moment, waits: Records) -> facts_of.Facts:
    if not len(waits):
        return facts_of.Facts()
    members: list[Announcement] = list(moment.announcements.values())
    devices = {*waits["holder"].tolist(), *waits["holder_peer"].tolist()}
    # Who waits needs a name only at the beginning of a chain; many would not fit into a message.
    devices |= set(waits["waiter"][np.argsort(waits["waiter_rank"], kind="stable")][:MAX_WAITERS].tolist())
    return facts_of.gather(members, devices, set(waits["comm"].tolist()))


def found_in(case: LiveCase, now: float, rules: Rules) -> list[Incident]:
    """The incidents of one job in the round that is over; `now` in broker seconds."""
    waits = case.waits()
    if not len(waits):
        return []
    by_dev = {process.dev: process for process in case.processes.values()}
    hosts = {dev: member.host for dev, member in case.facts.devices.items() if member.host}
    occasion = Occasion(
        case.name, case.attempt_name, case.job, case.attempt, time.time_ns(), missing=case.missing,
        rules=rules,
    )  # fmt: skip
    world = World(now, by_dev, hosts, tuple(case.hosts()))
    findings = diagnose(waits, world, case.facts.precedence, incomplete=occasion.incomplete)
    return incidents(occasion, case.facts, findings)
