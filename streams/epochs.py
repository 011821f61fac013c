"""Diagnose's memory of one partition of `nccl.waits`: which jobs can be judged, and with what.

Pure state, no I/O. An epoch is a whole second of broker time. A trace partition first sends its EPOCHs,
then, each second, a MARKER to say that it is watched and that they were all. A job is judged when every trace
partition that has to do with it has reported, or a time-out has passed; then the verdict says which are
missing, and which of them nobody watches. Judging earlier would take a victim, whose outgoing edge is still
on its way, for the culprit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from schemas.envelope import Envelope
from schemas.malformed import natural, reading
from schemas.records import WAIT, Records
from schemas.snapshots import SnapshotEnd, decode_end, encode_end
from streams.facts import Facts
from streams.facts import decode as decode_facts

Token = TypeVar("Token")


@dataclass
class Report:
    """What one trace partition says of a job: its complete set of waits, which replaces the former one."""

    epoch: int
    parts: dict[int, Records]
    expected: int

    def whole(self) -> bool:
        """Whether all parts are here."""
        return len(self.parts) == self.expected


@dataclass
class Case(Generic[Token]):
    """One attempt of a job on its way to a verdict."""

    job: int
    attempt: int
    opened: float
    """When its first report came, in the caller's seconds."""
    end: SnapshotEnd | None = None
    reports: dict[int, Report] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    losses: dict[int, int] = field(default_factory=dict)
    """Messages lost on the way to each trace partition."""
    tokens: list[Token] = field(default_factory=list)

    def missing(self) -> tuple[int, ...]:
        """Trace partitions that have not reported in full."""
        wanted = range(self.end.partitions) if self.end else ()
        return tuple(
            partition
            for partition in wanted
            if partition not in self.reports or not self.reports[partition].whole()
        )

    def epoch(self) -> int:
        """The latest epoch of its reports."""
        return max((report.epoch for report in self.reports.values()), default=0)

    def waits(self) -> Records:
        """All waits of all partitions, shape (waits,)."""
        parts = [report.parts[part] for report in self.reports.values() for part in sorted(report.parts)]
        joined: Records = np.concatenate([WAIT.empty(0), *parts])
        return joined


def epoch_body(end: SnapshotEnd, facts: dict[str, Any], lost: int) -> dict[str, Any]:
    """JSON body of an EPOCH message of a snapshot."""
    return {"version": 1, "end": encode_end(end), "facts": facts, "lost": lost}


class EpochBoard(Generic[Token]):
    """All cases of one partition of `nccl.waits`, and the markers of all trace partitions."""

    def __init__(self, *, snapshot_timeout_s: float, epoch_timeout_s: float) -> None:
        self._snapshot_timeout_s = snapshot_timeout_s
        self._epoch_timeout_s = epoch_timeout_s
        self._cases: dict[tuple[int, int], Case[Token]] = {}
        self._marked: dict[int, float] = {}

    def report(self, message: Envelope, token: Token, now: float) -> None:
        """Take in an EPOCH; raises Malformed, and changes nothing, where its body cannot be read."""
        said = None if message.body is None else _read_body(message.body)
        case = self._cases.setdefault((message.job, message.attempt), Case(message.job, message.attempt, now))
        case.tokens.append(token)
        report = case.reports.get(message.partition)
        if report is not None and message.epoch < report.epoch:
            return
        if report is None or (message.epoch, message.parts) != (report.epoch, report.expected):
            report = case.reports[message.partition] = Report(message.epoch, {}, message.parts)
        report.parts[message.part] = message.sections.get(WAIT.name, WAIT.empty(0))
        if said is not None:
            case.end, facts, case.losses[message.partition] = said
            case.facts.merge(facts)

    def mark(self, partition: int, now: float) -> None:
        """Take in a MARKER: somebody watches this trace partition."""
        self._marked[partition] = now

    def unread(self, partitions: Iterable[int], now: float) -> tuple[int, ...]:
        """Of the given trace partitions those that nobody has marked for `epoch_timeout_s`."""
        oldest = now - self._epoch_timeout_s
        return tuple(partition for partition in partitions if self._marked.get(partition, -math.inf) < oldest)

    def ready(self, now: float) -> list[Case[Token]]:
        """Cases to be judged now; they stay until `drop`.

        One whose end is not known when its time is up can only be given up.
        """
        return [case for case in self._cases.values() if self._is_ready(case, now)]

    def drop(self, case: Case[Token]) -> None:
        """Forget a case whose verdict has been sent."""
        self._cases.pop((case.job, case.attempt), None)

    def _is_ready(self, case: Case[Token], now: float) -> bool:
        if now - case.opened >= self._snapshot_timeout_s:
            return True
        return case.end is not None and not case.missing()


def _read_body(body: Mapping[str, Any]) -> tuple[SnapshotEnd, Facts, int]:
    with reading("the body of an epoch"):
        return decode_end(body["end"]), decode_facts(body["facts"]), natural(dict(body), "lost")
