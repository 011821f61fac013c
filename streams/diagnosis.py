"""From the waits of a job to findings: who holds it up, how sure that is, and who only might.

A device that waits is a victim, whatever else it looks like: only sinks of the wait-for graph are judged,
by the rules of suspects.py. What is found is then ordered, the surest and heaviest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from schemas.enums import Reason
from schemas.records import Records
from streams.chains import with_waiters
from streams.findings import Finding, Findings
from streams.suspects import Known, judge_sinks
from streams.waitgraph import build

EVERYTHING = Known()
"""A source that hides nothing, of a job of unknown size."""


def diagnose(
    waits: Records,
    *,
    known: Known = EVERYTHING,
    incomplete: bool = False,
    precedence: Callable[[int], int] = lambda device: device,
) -> Findings:
    """Judge the complete set of waits of one job.

    `known`: what else there is to know of the job and its source. `incomplete`: records are missing, so what
    looks idle or silent may wait in what is not here. `precedence` of a device (its world rank) decides
    between ways of equal length, so that answers repeat.
    """
    mismatch = waits["reason"] == Reason.MISMATCH
    ordered = np.concatenate([waits[~mismatch], waits[mismatch]])
    if not len(ordered):
        return Findings(ordered, ())
    web = build(ordered)
    found = [*mismatched(ordered, len(web.waits)), *judge_sinks(web, known)]
    if any(finding.category not in ("host-silent", "unknown") for finding in found):
        found = [_doubted(finding, "host-silent") for finding in found]
    if incomplete:
        found = [_doubted(finding, "host-silent", "late-launch") for finding in found]
    found = [with_waiters(web, ordered, finding, precedence) for finding in found]
    return Findings(ordered, tuple(ranked(found, precedence)))


def ranked(found: Iterable[Finding], precedence: Callable[[int], int]) -> list[Finding]:
    """Findings in order: the surest first, then those for which most wait."""
    return sorted(found, key=lambda finding: _rank(finding, precedence))


def _rank(finding: Finding, precedence: Callable[[int], int]) -> tuple[int, int, list[int]]:
    order = ("proven", "likely", "candidates").index(finding.confidence)
    return order, -finding.waiting, [precedence(device) for device in finding.named]


def _doubted(finding: Finding, *categories: str) -> Finding:
    """A finding of these categories with candidates only.

    Where something else explains stalls, a device without records is as likely one more victim; where records
    are missing, so is one that looks idle.
    """
    if finding.category not in categories:
        return finding
    return replace(finding, culprits=(), candidates=finding.named, confidence="candidates")


def mismatched(waits: Records, first: int) -> Iterable[Finding]:
    """A finding for each operation that was called differently; its records are those from `first` on."""
    by_operation: dict[int, list[int]] = {}
    for index in range(first, len(waits)):
        by_operation.setdefault(int(waits["op"][index]), []).append(index)
    for records in by_operation.values():
        devices = tuple(sorted({int(waits["holder"][index]) for index in records}))
        minority = bool(waits["sure"][records[0]])
        yield Finding(
            "mismatch",
            "likely" if minority else "candidates",
            devices if minority else (),
            () if minority else devices,
            (),
            tuple(records),
        )
