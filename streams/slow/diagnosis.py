"""From a job that is slow to the incidents that tell of it."""

from __future__ import annotations

import time

from schemas.enums import Func
from schemas.ids import hash64, hex_id
from schemas.incidents import Incident, iso_time
from streams.report import Occasion
from streams.slow.blame import localise
from streams.slow.cases import SlowCase
from streams.slow.patterns import pattern
from streams.slow.report import CRITICAL_SHARE, WARNING_SHARE, slow_incident
from streams.slow.triggers import Slow
from streams.slow.window import merged
from streams.words import FUNC_NAMES

_TRIGGERS = {
    "interval": "its operations come at {factor:.2f} times their usual interval",
    "drift": "its operations come at {factor:.2f} times their usual interval, window after window",
    "throughput": "operations take {factor:.2f} times as long as usual on the rank that waits for nobody",
}
_MAX_KINDS = 5
"""Kinds of operation that are told as evidence."""


def found_in(case: SlowCase, slow: Slow | None) -> list[Incident]:
    """What is slow in a job and, where that shows, because of whom; empty where nothing is."""
    if slow is None:
        case.blamed = False
        return []
    occasion = Occasion(case.name, case.attempt_name, case.job, case.attempt, time.time_ns())
    # What was before it became slow says nothing of who makes it so.
    windows = [
        window for window in case.windows()
        if window.start_ns + window.length_us * 1000 > slow.since * 1_000_000_000
    ]  # fmt: skip
    findings = localise(merged(windows), case.hosts()) if windows else []
    case.blamed = bool(findings)
    if not findings:
        return [_even(case, occasion, slow)]
    opened_ns = slow.since * 1_000_000_000
    told: dict[str, Incident] = {}
    for finding in findings:
        incident = slow_incident(occasion, case.facts, finding, opened_ns, pattern(windows, finding))
        # One of a kind at a time: the largest comes first, and the next when that is over.
        told.setdefault(incident.id, incident)
    return list(told.values())


def _even(case: SlowCase, occasion: Occasion, slow: Slow) -> Incident:
    """All are slower and nobody makes the others wait: nobody is accused."""
    share = 1 - 1 / max(slow.factor, 1.0)
    severity = "critical" if share >= CRITICAL_SHARE else "warning" if share >= WARNING_SHARE else "notice"
    what = _TRIGGERS[slow.trigger].format(factor=slow.factor)
    devices = {dev for window in case.windows() for dev in window.lags["dev"].tolist()}
    return Incident(
        id=hex_id(hash64("slow", case.job, case.attempt, slow.since)),
        job=case.name,
        attempt=case.attempt_name,
        kind="slow",
        category="unknown",
        severity=severity,
        confidence="candidates",
        summary=f"The job is slower: {what}, and no rank is seen to make the others wait.",
        culprits=(),
        candidates=(),
        waiting=len(devices),
        chain=(),
        evidence=_evidence(case, slow),
        ruled_out=("no device's launches, kernels, flows or proxy are slower than those of its like",),
        would_decide=(
            "what all ranks do more of (longer inputs, a larger batch, a code change) and what they share "
            "(storage, a power limit)",
        ),
        since=iso_time(slow.since * 1_000_000_000),
        detected=iso_time(occasion.detected),
    )


def _evidence(case: SlowCase, slow: Slow) -> tuple[str, ...]:
    lines = []
    for row, usual in zip(slow.rows[:_MAX_KINDS], slow.usual_us[:_MAX_KINDS].tolist(), strict=True):
        if slow.trigger == "throughput":
            now_us, what = float(row["transfer_us"]), "takes"
        else:
            now_us, what = float(row["interval_sum_us"]) / max(int(row["interval_n"]), 1), "comes every"
        known = case.facts.comms.get(int(row["comm"]))
        lines.append(
            f"{FUNC_NAMES[Func(int(row['func']))]} of {int(row['bytes'])} bytes in "
            f"{known.name if known else hex_id(int(row['comm']))} {what} {now_us / 1e3:.3g} ms, "
            f"usually {usual / 1e3:.3g} ms"
        )
    return tuple(lines)
