"""One trial: a job on a running stack, warmed up, broken, and what the alerts topic says of it."""

from __future__ import annotations

import time
from dataclasses import replace

from benchmarks.matrix.cells import Cell
from benchmarks.matrix.score import Score, Told, score
from collectors.testbed.testbed import Options, Testbed
from mycroft.connections import collector_arguments, settings
from mycroft.local.alerts import Alerts
from mycroft.local.slowness import Heard, slow_incidents
from mycroft.plugin import plugin_path, program_path

WAIT_S = 25.0
"""How long after the fault an answer may come: connecting takes 10 s at most."""
SETTLE_S = 3.0
"""How long after the first answer others are waited for: accusations that come later count."""


GOING_S = 2.0
"""A job that makes no step for so long does not go on: it makes several a second."""
PACE_S = 4.0
"""Over so long the pace of a job is taken before it is broken."""
SLOW_S = 14.0
"""A job is slow for so long before it is judged: flows are summed over 5 s, and twice is better than once."""


def run_slow(cell: Cell, kafka: str, heard: Heard) -> tuple[Score, list[Told], float]:
    """Run a cell that makes its job slow: the score, the causes that its windows show without a trigger, and
    what part of its time the job lost. Raises TestbedError where the testbed does.
    """
    job = f"{cell.fault}-{cell.severity}-{cell.topology}-{cell.network}-{cell.seed}-{time.time_ns()}"
    options = Options(
        program_path(), plugin_path(), job, cell.tier, collector=collector_arguments(settings(kafka)),
    )  # fmt: skip
    with Testbed(cell.plan, options) as testbed:
        testbed.warm_up()
        before = _pace(testbed, PACE_S)
        injection, wall = testbed.strike(cell.injected())
        after = _pace(testbed, SLOW_S)
        windows = [each for each in heard.windows(job) if each.start_ns >= wall * 1e9]
    told = [Told(SLOW_S, found) for found in slow_incidents(windows, heard.announcements(job))]
    lost = 1 - after / before if before else 0.0
    return score(told, injection.truth, cell.plan), told, max(lost, 0.0)


def _pace(testbed: Testbed, seconds: float) -> float:
    """Training steps a second over so long."""
    first, began = min(state.step for state in testbed.states()), time.monotonic()
    time.sleep(seconds)
    return (min(state.step for state in testbed.states()) - first) / (time.monotonic() - began)


def run(cell: Cell, kafka: str, alerts: Alerts) -> tuple[Score, list[Told]]:
    """Run one cell. Raises TestbedError where the testbed does."""
    job = f"{cell.fault}-{cell.topology}-{cell.network}-{cell.repetition}-{cell.seed}-{time.time_ns()}"
    options = Options(
        program_path(), plugin_path(), job, cell.tier, collector=collector_arguments(settings(kafka)),
    )  # fmt: skip
    with Testbed(cell.plan, options) as testbed:
        testbed.warm_up()
        injection, wall = testbed.strike(cell.injected())
        deadline = time.time() + WAIT_S
        first = None
        while time.time() < deadline and (first is None or time.time() < first + SETTLE_S):
            if first is None and any(alert.at >= wall for alert in alerts.of(job)):
                first = time.time()
            time.sleep(0.1)
        went_on = first is None and _pace(testbed, GOING_S) > 0
        told = [Told(alert.at - wall, alert.incident) for alert in alerts.of(job)]
    return replace(score(told, injection.truth, cell.plan), went_on=went_on), told
