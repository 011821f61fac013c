"""What the flushes of one trace partition have said of each running job.

Pure state, no I/O; times are broker seconds. A flush is a watermark: what its host had launched in this
partition's communicators is in messages up to it, so who has flushed and not said so has not launched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from schemas.enums import FactKind, Kind, PortState, Reason, Visibility
from schemas.envelope import Envelope
from schemas.members import Announcement
from schemas.records import COLL, FACT, FLOW, MAX_US, PROC, UNKNOWN_US, Records
from streams.grouping import groups_of
from streams.live.latest import F64, I64, U64, Counts, Latest
from streams.live.moment import SILENT_S, Moment, Process, Sources, hear, homes
from streams.membership import Membership, membership

TOLD_S = 2.5
"""What stalls is told each second: what was not told for so long, by a host that speaks, has ended."""
UNSEEN_TOLD_S = 12.0
"""The same for operations of which only the launch is known: they are told every 5 s."""
FORGET_S = 120.0
"""A job of which nothing was heard for so long is over."""
RECENT_S = 3.0
"""Finished operations are compared for so long: all hosts tell the same ones, within a second or two."""

FACT_S = 600.0
"""What a host has told of itself counts for so long: what is wrong is told again while something stalls."""
_FACT_KEYS = ("host", "what", "name", "code", "dev")
_STATE_KEYS = ("comm", "dev", "func", "seq", "peer")


@dataclass
class Job:
    """What is known of one attempt of a job on this partition."""

    job: int
    attempt: int
    states: Latest = field(default_factory=lambda: Latest(COLL, _STATE_KEYS))
    positions: Latest = field(default_factory=lambda: Latest(COLL, ("comm", "dev", "func", "peer")))
    flows: Latest = field(
        default_factory=lambda: Latest(FLOW, ("comm", "dev", "seq", "func", "peer", "direction", "channel"))
    )
    announcements: dict[tuple[int, str], Announcement] = field(default_factory=dict)
    processes: dict[int, Process] = field(default_factory=dict)
    news: dict[int, tuple[float, Any]] = field(default_factory=dict)
    """PROC records that have not been passed on, and when they were told."""
    facts: dict[tuple[Any, ...], tuple[float, Records]] = field(default_factory=dict)
    """The last FACT record (shape (1,)) of each thing of each host, and when it was told."""
    sources: Sources = field(default_factory=Sources)
    ended: Counts = field(default_factory=lambda: Counts(("comm", "dev", "algo")))
    """Operations that have ended, by communicator, device and algorithm."""
    done: list[tuple[float, Records]] = field(default_factory=list)
    """Finished operations of the last RECENT_S, for what all must have called alike."""
    told: list[tuple[Records, float, int]] = field(default_factory=list)
    """COLL records that came since the last look: when, and from which source."""
    members: Membership | None = None
    """Of all announcements; None where one has come since."""
    homes: tuple[U64, I64] = (np.zeros(0, np.uint64), np.zeros(0, np.int64))
    """Of the same: each device, and the number of its host."""
    since: float = 0.0
    """When it was first heard of."""
    mismatched: dict[int, Records] = field(default_factory=dict)
    """By communicator, the first operation that was called differently: what follows is shifted by it."""
    heard: float = 0.0


class LiveBoard:
    """All running jobs of one trace partition.

    Looks may run in another thread than what hears: `announce` and `take` only note what came.
    """

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, int], Job] = {}
        self._heard: deque[Callable[[], None]] = deque()

    def announce(self, announcement: Announcement) -> None:
        """Hear the members that one host has in a communicator; one that it names no more has died."""
        self._heard.append(partial(self._announce, announcement))

    def recall(self, announcement: Announcement) -> None:
        """Hear what was said before this board began to listen: what it has heard itself since is newer."""
        self._heard.append(partial(self._recall, announcement))

    def take(self, message: Envelope, at: float) -> None:
        """Hear a FLUSH that the broker appended `at`."""
        self._heard.append(partial(self._take, message, at))

    def _catch_up(self) -> None:
        """Take in what was heard since the last look: only looks change what they rest on."""
        while self._heard:
            self._heard.popleft()()

    def _recall(self, announcement: Announcement) -> None:
        job = self._of(announcement.job_id, announcement.attempt_id)
        if (announcement.comm, announcement.source) not in job.announcements:
            self._announce(announcement)

    def _announce(self, announcement: Announcement) -> None:
        job = self._of(announcement.job_id, announcement.attempt_id)
        key = announcement.comm, announcement.source
        if key in job.announcements:
            named = {member.rank for member in announcement.members}
            gone = (member for member in job.announcements[key].members if member.rank not in named)
            announcement = replace(announcement, members=(*announcement.members, *gone))
        job.announcements[key] = announcement
        job.members = None

    def _take(self, message: Envelope, at: float) -> None:
        job = self._of(message.job, message.attempt)
        source = job.sources.number(message.source)
        job.since = job.since or at
        job.heard = max(job.heard, at)
        coll = message.sections.get(COLL.name)
        if coll is not None and len(coll):
            job.told.append((coll, at, source))
        flow = message.sections.get(FLOW.name)
        if flow is not None and (state := flow["kind"] == Kind.STATE).any():
            job.flows.add(FLOW.chosen(flow, state), *_said(int(state.sum()), at, source))
        proc = message.sections.get(PROC.name, PROC.empty(0))
        hear(job.processes, proc, repeat(at, len(proc)))
        for number, row in zip(proc["proc"].tolist(), proc, strict=True):
            job.news[number] = (at, row)
        fact = message.sections.get(FACT.name)
        if fact is not None:
            keys = zip(*(fact[name].tolist() for name in _FACT_KEYS), strict=True)
            job.facts.update({key: (at, fact[row : row + 1]) for row, key in enumerate(keys)})
        if message.part == message.parts - 1:
            job.sources.heard(source, at, message.sequence, message.drops)

    def jobs(self, now: float) -> list[tuple[int, int]]:
        """Jobs and attempts that are being traced; those long silent are forgotten."""
        self._catch_up()
        for key in [key for key, job in self._jobs.items() if job.heard and now - job.heard > FORGET_S]:
            del self._jobs[key]
        return [key for key, job in self._jobs.items() if job.heard]

    def moment(self, job: int, attempt: int, now: float) -> Moment:
        """One look at a job; what is no longer told has ended."""
        self._catch_up()
        held = self._jobs[job, attempt]
        fresh = _split(held)
        for store in (held.states, held.positions, held.flows):
            store.settle()
        if len(fresh):
            held.states.keep(~held.states.held(fresh))
        told = held.sources.last(held.states.source)
        limit = np.where(held.states.rows["visibility"] == Visibility.LAUNCH, UNSEEN_TOLD_S, TOLD_S)
        held.states.keep(told - held.states.at <= limit)
        spoke = held.sources.last(held.flows.source)
        held.flows.keep((spoke - held.flows.at <= TOLD_S) & (now - spoke <= SILENT_S))
        held.done = [(at, rows) for at, rows in held.done if now - at <= RECENT_S]
        done = [rows for _, rows in held.done]
        if held.members is None:
            held.members = membership(held.announcements.values())
            held.homes = homes(held.announcements.values(), held.sources)
        else:  # what was compared before need not be again where nothing new was said of it
            done = _touched(done, COLL.joined([fresh, held.states.rows]))
        return Moment(
            job, attempt, now, held.members, held.announcements, held.states,
            held.positions, held.flows, held.processes, held.sources, held.ended,
            COLL.joined(done), held.since, held.mismatched,
            held.homes,
        )  # fmt: skip

    def remember(self, job: int, attempt: int, waits: Records) -> None:
        """Keep the mismatches among the waits of a look: finished operations are compared only once."""
        held = self._jobs[job, attempt].mismatched
        found = waits[waits["reason"] == Reason.MISMATCH]
        for comm in np.unique(found["comm"]).tolist():
            held.setdefault(comm, found[found["comm"] == comm])

    def news(self, job: int, attempt: int, now: float) -> tuple[Records, list[int]]:
        """What was told of processes since the last call, and how long ago each, in ms."""
        self._catch_up()
        held = self._jobs[job, attempt]
        told = list(held.news.values())
        held.news = {}
        rows = PROC.empty(len(told))
        for index, (_, row) in enumerate(told):
            rows[index] = row
        return rows, [int(max(0.0, now - at) * 1e3) for at, _ in told]

    def facts(self, job: int, attempt: int, now: float) -> Records:
        """What is wrong with hosts, as last told: carriers lost, GPUs reported. Ages count to now."""
        self._catch_up()
        held = self._jobs[job, attempt]
        held.facts = {key: told for key, told in held.facts.items() if now - told[0] <= FACT_S}
        rows = FACT.joined(row for _, row in held.facts.values())
        at = np.array([at for at, _ in held.facts.values()], np.float64)
        later = np.minimum(rows["age_us"] + np.maximum(now - at, 0.0) * 1e6, MAX_US)
        rows["age_us"] = np.where(rows["age_us"] == UNKNOWN_US, UNKNOWN_US, later)
        wrong: Records = rows[(rows["state"] == PortState.DOWN) | (rows["what"] == FactKind.XID)]
        return wrong

    def _of(self, job: int, attempt: int) -> Job:
        held = self._jobs.get((job, attempt))
        if held is None:
            held = self._jobs[job, attempt] = Job(job, attempt)
        return held


def _split(job: Job) -> Records:
    """Put what was told since the last look where it belongs; returns the finished operations in it."""
    if not job.told:
        return COLL.empty(0)
    rows = COLL.joined(rows for rows, _, _ in job.told)
    said = [_said(len(rows), at, source) for rows, at, source in job.told]
    job.told = []
    at, source = (np.concatenate(column) for column in zip(*said, strict=True))
    kind = rows["kind"]
    for store, chosen in (
        (job.states, (kind == Kind.STATE) | (kind == Kind.ORPHAN)), (job.positions, kind == Kind.POSITION),
    ):  # fmt: skip
        store.add(COLL.chosen(rows, chosen), at[chosen], source[chosen])
    job.ended.add(rows, kind == Kind.SUM)
    done = kind == Kind.DONE
    if not done.any():
        return COLL.empty(0)
    fresh = COLL.chosen(rows, done)
    job.done.append((float(at[done].max()), fresh))
    return fresh


def _said(rows: int, at: float, source: int) -> tuple[F64, I64]:
    return np.full(rows, at), np.full(rows, source, np.int64)


def _touched(parts: list[Records], new: Records) -> list[Records]:
    """Those rows that are of an operation of which `new` speaks."""
    if not len(new):
        return []
    columns = [np.concatenate([*(part[name] for part in parts), new[name]]) for name in ("comm", "seq")]
    group, first = groups_of(columns)
    spoken = np.zeros(len(first), np.bool_)
    spoken[group[-len(new) :]] = True
    cuts = np.cumsum([len(part) for part in parts])
    masks = np.split(spoken[group[: -len(new)]], cuts[:-1]) if parts else []
    return [COLL.chosen(part, mask) for part, mask in zip(parts, masks, strict=True)]
