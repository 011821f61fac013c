"""From the waits of a running job to findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from schemas.enums import Reason
from schemas.records import UNKNOWN_US, Records
from streams.chains import with_waiters
from streams.diagnosis import mismatched, ranked
from streams.findings import Finding, Findings
from streams.live.causes import World, trace
from streams.live.suspects import judge

TO_ONESELF_S = 5.0
"""What a rank sends to itself counts after so long, and if nothing else tells who holds the others."""

_ABSENCE = ("late-launch", "in-nccl-call", "host-silent", "outside-nccl")


def diagnose(
    waits: Records, world: World, precedence: Callable[[int], int], *, incomplete: bool = False
) -> Findings:
    """Judge all waits of one job at one moment.

    `incomplete`: some partition did not speak, so who looks idle may wait in what is not here. `precedence`
    of a device (its world rank) decides between ways of equal length, so that answers repeat.
    """
    if world.ended():
        return Findings(waits[:0], ())
    # It is copied by the kernel of a whole exchange: that it stands says no more than that the exchange does.
    to_oneself = (waits["sender"] >= 0) & (waits["sender"] == waits["receiver"])
    findings = _diagnosed(waits[~to_oneself], world, precedence, incomplete)
    if findings.found or not to_oneself.any():
        return findings
    waited = np.where(waits["waited_us"] == UNKNOWN_US, 0, waits["waited_us"])
    old = np.isin(waits["op"], waits["op"][waited >= TO_ONESELF_S * 1e6])
    return _diagnosed(waits[~to_oneself | old], world, precedence, incomplete)


def _diagnosed(waits: Records, world: World, precedence: Callable[[int], int], incomplete: bool) -> Findings:
    if not len(waits):
        return Findings(waits, ())
    web, sinks = trace(waits, world)
    ordered = np.concatenate([web.waits, waits[waits["reason"] == Reason.MISMATCH]])
    wrong = set(ordered["comm"][len(web.waits) :].tolist())
    found = [finding for finding in judge(web, sinks, world) if not _follows(web.waits, finding, wrong)]
    turning = world.turning()
    if turning and not any(turning & set(finding.culprits) for finding in found):
        found = []
    found = [*mismatched(ordered, len(web.waits)), *found]
    if incomplete:
        found = [_doubted(finding) for finding in found]
    found = [with_waiters(web, ordered, finding, precedence) for finding in found]
    return Findings(ordered, tuple(ranked(found, precedence)))


def _follows(waits: Records, finding: Finding, wrong: set[int]) -> bool:
    """Whether a finding is about nothing but communicators in which an operation was called differently."""
    return bool(finding.proof) and {int(waits["comm"][index]) for index in finding.proof} <= wrong


def _doubted(finding: Finding) -> Finding:
    if finding.category not in _ABSENCE:
        return finding
    return replace(finding, culprits=(), candidates=finding.named, confidence="candidates")
