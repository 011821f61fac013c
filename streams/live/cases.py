"""Diagnose's memory of running jobs: what every trace partition said in the last round.

Each partition sends, twice a second, its complete set of waits of each job, then a marker. A round is over
when every partition has marked it, or a time-out has passed; then what was said in it is judged, and what was
not said does not hold any more. Judging earlier would take a victim, whose outgoing edge is still on its way,
for the culprit. Pure state, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.envelope import Envelope
from schemas.malformed import naturals, reading, text
from schemas.records import FACT, PROC, WAIT, Records
from streams.facts import Facts
from streams.facts import decode as decode_facts
from streams.live.hostfacts import HostFact
from streams.live.moment import Process, hear


@dataclass
class LiveCase:
    """One attempt of a running job. `processes` by their id; `fresh` is what this round has brought."""

    job: int
    attempt: int
    name: str = ""
    attempt_name: str = ""
    facts: Facts = field(default_factory=Facts)
    processes: dict[int, Process] = field(default_factory=dict)
    fresh: dict[int, list[Records]] = field(default_factory=dict)
    fresh_hosts: dict[int, list[HostFact]] = field(default_factory=dict)
    """What this round has brought of the hosts, by trace partition."""
    missing: tuple[int, ...] = ()
    """Trace partitions that did not speak in the round."""
    idle: int = 0
    """Rounds in which nobody spoke of the job."""

    def waits(self) -> Records:
        """All waits of the round, shape (waits,)."""
        return WAIT.joined(part for parts in self.fresh.values() for part in parts)

    def hosts(self) -> list[HostFact]:
        """All that is known to be wrong with the hosts of the job."""
        return [fact for facts in self.fresh_hosts.values() for fact in facts]


FORGET_ROUNDS = 240
"""A job of which nobody has spoken for so many rounds (two minutes) is over."""


def live_body(name: str, attempt: str, facts: Mapping[str, Any], ages_ms: list[int]) -> dict[str, Any]:
    """JSON body of a LIVE_EPOCH; `ages_ms`: how long ago each PROC row was told."""
    return {"version": 1, "live": {"job": name, "attempt": attempt}, "facts": facts, "ages_ms": ages_ms}


class LiveCases:
    """All running jobs that one partition of `nccl.waits` judges."""

    def __init__(self, partitions: int, timeout_s: float) -> None:
        self._partitions, self._timeout_s = partitions, timeout_s
        self._cases: dict[tuple[int, int], LiveCase] = {}
        self._marked: set[int] = set()
        self._began: float | None = None

    def take(self, message: Envelope, at: float) -> None:
        """Take in a part of a LIVE_EPOCH, appended `at`; a bad body raises Malformed and changes nothing."""
        said = None if message.body is None else _read(message.body)
        key = message.job, message.attempt
        case = self._cases.setdefault(key, LiveCase(*key))
        if message.part == 0:
            case.fresh[message.partition], case.fresh_hosts[message.partition] = [], []
        case.fresh.setdefault(message.partition, []).append(message.sections.get(WAIT.name, WAIT.empty(0)))
        told = message.sections.get(FACT.name, FACT.empty(0))
        case.fresh_hosts.setdefault(message.partition, []).extend(HostFact.of(row, at) for row in told)
        if said is None:
            return
        case.name, case.attempt_name, facts, ages = said
        case.facts.merge(facts)
        rows = message.sections.get(PROC.name, PROC.empty(0))
        # Of very many processes the last are in another part: they are told again in a second.
        hear(case.processes, rows, (at - age / 1e3 for age in ages))

    def mark(self, partition: int, now: float) -> None:
        """Take in a MARKER; `now` in the caller's seconds."""
        self._marked.add(partition)
        if self._began is None:
            self._began = now

    def over(self, now: float) -> bool:
        """Whether the round is over."""
        if self._began is None:
            return False
        return len(self._marked) >= self._partitions or now - self._began >= self._timeout_s

    def close(self) -> list[LiveCase]:
        """End the round and begin the next: the cases as they stand, to be judged."""
        missing = tuple(sorted(set(range(self._partitions)) - self._marked))
        self._marked, self._began = set(), None
        closed = []
        for key, case in list(self._cases.items()):
            # Judged in another thread, while the next round comes in.
            closed.append(
                replace(case, missing=missing, processes=dict(case.processes), facts=case.facts.copy())
            )
            case.idle = 0 if case.fresh else case.idle + 1
            case.fresh, case.fresh_hosts = {}, {}
            if case.idle > FORGET_ROUNDS:
                del self._cases[key]
        return closed


def _read(body: Mapping[str, Any]) -> tuple[str, str, Facts, tuple[int, ...]]:
    with reading("the body of an epoch"):
        live = body["live"]
        return (
            text(live, "job"), text(live, "attempt"), decode_facts(body["facts"]),
            naturals(dict(body), "ages_ms"),
        )  # fmt: skip
