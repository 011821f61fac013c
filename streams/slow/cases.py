"""Diagnose's memory of the pace of running jobs: seconds in, as each trace partition has closed them.

Pure state, no I/O. A second of a job is looked at when every partition that tells of the job has told it, or
WAIT_S after the first one did: a partition that lags makes what it would say late, not the verdict.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.envelope import Envelope
from schemas.malformed import natural, reading, text, texts
from schemas.records import FLOW, LAG, RATE, Records
from streams.facts import Facts
from streams.facts import decode as decode_facts
from streams.slow.triggers import Kept, Limits, Slow, Triggers
from streams.slow.window import Window, merged

WAIT_S = 3.0
"""Partitions close a second within some tenths of one another; a worker that restarts takes longer."""
DETAILS = 3
"""Details kept of each partition: localised is over the last 15 s, of which the slow ones are most."""
FORGET_S = 120.0
"""A job of which nothing was told for so long is over."""


@dataclass
class _Second:
    """One second that is not looked at yet."""

    first: float
    rates: dict[int, list[Records]] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)
    """Partitions of which all parts are here."""


@dataclass
class SlowCase:
    """One attempt of a running job."""

    job: int
    attempt: int
    triggers: Triggers
    name: str = ""
    attempt_name: str = ""
    facts: Facts = field(default_factory=Facts)
    seconds: dict[int, _Second] = field(default_factory=dict)
    told: dict[int, int] = field(default_factory=dict)
    """The last whole second of each partition."""
    details: dict[int, deque[Window]] = field(default_factory=dict)
    looked: int = 0
    heard: float = 0.0
    blamed: bool = False
    """Somebody was found to be behind what is slow."""

    def windows(self) -> list[Window]:
        """The last details of all partitions, oldest first; those of one span are one."""
        spans: dict[int, list[Window]] = {}
        for kept in self.details.values():
            for window in kept:
                spans.setdefault(window.start_ns, []).append(window)
        return [merged(spans[start]) for start in sorted(spans)]

    def hosts(self) -> dict[int, str]:
        """Host of each device, where known."""
        return {dev: member.host for dev, member in self.facts.devices.items() if member.host}


class SlowCases:
    """All running jobs that one partition of `nccl.waits` judges."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._cases: dict[tuple[int, int], SlowCase] = {}
        self._kept: dict[tuple[int, int], Kept] = {}
        self.restored = False

    def restore(self, kept: Mapping[tuple[int, int], Kept]) -> None:
        """Take up jobs where another worker left them; before the first look."""
        self.restored, self._kept = True, dict(kept)

    def running(self) -> list[SlowCase]:
        """All jobs that were looked at."""
        return [case for case in self._cases.values() if case.looked]

    def take(self, message: Envelope, at: float) -> None:
        """Take in a part of a WINDOW, told `at`; a bad body raises Malformed and changes nothing."""
        said = None if message.body is None else _read(message.body)
        key = message.job, message.attempt
        case = self._cases.get(key)
        if case is None:
            case = self._cases[key] = SlowCase(*key, Triggers(self._limits))
        case.heard = max(case.heard, at)
        second, partition = message.epoch, message.partition
        length_us, silent = 0, tuple[str, ...]()
        if said is not None:
            case.name, case.attempt_name, length_us, silent, facts = said
            case.facts.merge(facts)
        self._details(case, message, length_us, silent)
        if second <= case.looked:
            return
        held = case.seconds.setdefault(second, _Second(at))
        held.rates.setdefault(partition, []).append(message.sections.get(RATE.name, RATE.empty(0)))
        if len(held.rates[partition]) >= message.parts:
            held.whole.add(partition)
            case.told[partition] = max(second, case.told.get(partition, 0))

    @staticmethod
    def _details(case: SlowCase, message: Envelope, length_us: int, silent: tuple[str, ...]) -> None:
        lags = message.sections.get(LAG.name)
        flows = message.sections.get(FLOW.name)
        if lags is None and flows is None:
            return
        kept = case.details.setdefault(message.partition, deque(maxlen=DETAILS))
        end_ns = (message.epoch + 1) * 1_000_000_000
        if message.part > 0 and kept and kept[-1].start_ns + kept[-1].length_us * 1000 == end_ns:
            former = kept.pop()
            length_us, silent = former.length_us, former.silent
            parts = [former]
        else:
            parts = []
        fresh = Window(
            message.job, message.attempt, end_ns - length_us * 1000, length_us,
            LAG.empty(0) if lags is None else lags, FLOW.empty(0) if flows is None else flows, silent,
        )  # fmt: skip
        kept.append(merged([*parts, fresh]))

    def looks(self, now: float) -> Iterator[tuple[SlowCase, int, Slow | None]]:
        """Each second that can be looked at, in order, and what is slow in it; `now` in broker seconds."""
        for key, case in list(self._cases.items()):
            if now - case.heard > FORGET_S:
                del self._cases[key]
                continue
            kept = self._kept.pop(key, None)
            if kept is not None and not case.looked:
                case.triggers = Triggers(self._limits, kept)
            for second in sorted(case.seconds):
                held = case.seconds[second]
                reached = all(told >= second or second - told > WAIT_S * 2 for told in case.told.values())
                if not reached and now - held.first < WAIT_S:
                    break
                del case.seconds[second]
                case.looked = second
                rates = RATE.joined(part for parts in held.rates.values() for part in parts)
                yield case, second, case.triggers.look(rates, second, blamed=case.blamed)


def _read(body: Mapping[str, Any]) -> tuple[str, str, int, tuple[str, ...], Facts]:
    with reading("the body of a window"):
        live = body["live"]
        return (
            text(live, "job"), text(live, "attempt"), natural(dict(body), "length_us"),
            texts(dict(body), "silent"), decode_facts(body["facts"]),
        )  # fmt: skip
