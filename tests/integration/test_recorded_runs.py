"""Recorded runs judged live, through the whole pipeline: a process a rank with the real plugin, a collector a
host, the broker, the worker, the alerts topic. Several jobs at a time on one stack, as on a cluster.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from collectors.replay.runner import Options, Outcome
from collectors.replay.trace import Run
from mycroft.connections import collector_arguments
from mycroft.local.alerts import Alert, Alerts
from mycroft.local.observed import observe
from mycroft.local.slowness import Heard, slow_incidents
from mycroft.plugin import plugin_path
from mycroft.settings import Settings
from schemas.incidents import Incident
from tests.figures import Figure
from tests.integration.judging import judging
from tests.oracle_runs import IN_TREE, all_runs, recorded_run, run_path
from tests.recorded_answers import Truth, fault_of, happened, named, truth

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

AT_ONCE = 3
"""Jobs at a time: mostly they wait."""
SAME_S = 0.25
"""What is told within half a round of the first verdict is part of it."""


@dataclass(frozen=True)
class Case:
    """A run at a tier."""

    name: str
    tier: str

    def __str__(self) -> str:
        return f"{self.name}-{self.tier}"


def _kernel_too(name: str) -> bool:
    """Runs in the tree, and slow ones: kernels tell more of those."""
    return run_path(name).parent == IN_TREE or truth(name, "kernel").kind == "slow"


CASES = [Case(name, "flows") for name in all_runs()] + [
    Case(name, "kernel") for name in all_runs() if _kernel_too(name)
]
GOING = [case for case in CASES if truth(case.name, case.tier).kind != "stall"]
"""Slow runs and healthy ones."""


@dataclass(frozen=True)
class Lived:
    """A run that is over."""

    run: Run
    outcome: Outcome
    told: list[Alert]
    slow: list[Incident]
    """Of what makes it slow."""


@pytest.fixture(scope="module")
def lived(request: pytest.FixtureRequest) -> Iterator[Callable[[Case], Lived]]:
    """Starts all selected runs, a few at a time, and gives what was told of one, waiting for it."""
    chosen = [
        cast(Case, item.callspec.params["case"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.getparent(pytest.Module) is request.node
    ]
    with (
        tempfile.TemporaryDirectory(prefix="mycroft-") as folder,
        judging(Path(folder)) as kafka,
        ThreadPoolExecutor(AT_ONCE) as pool,
        Alerts(kafka) as alerts,
        Heard(kafka) as heard,
    ):
        futures: dict[Case, Future[Lived]] = {
            case: pool.submit(_live, case, Path(folder) / str(case), kafka, alerts, heard)
            for case in dict.fromkeys(chosen)  # those that go on are asked for twice
        }
        yield lambda case: futures[case].result()
        pool.shutdown(cancel_futures=True)


def _live(case: Case, folder: Path, kafka: str, alerts: Alerts, heard: Heard) -> Lived:
    run, job = recorded_run(case.name), str(case)
    options = Options(plugin_path(), folder, job, case.tier, log_level=2)
    stalls = truth(case.name, case.tier).kind == "stall"
    outcome = observe(
        run, options, collector_arguments(Settings(kafka=kafka)), lambda: not stalls or bool(alerts.of(job))
    )
    slow = slow_incidents(heard.windows(job), heard.announcements(job))
    return Lived(run, outcome, alerts.of(job), slow)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_recorded_run(case: Case, lived: Callable[[Case], Lived], figure: Figure) -> None:
    expected, life = truth(case.name, case.tier), lived(case)
    assert life.outcome.complete, life.outcome.faults()
    figure(f"{case}: {_summary(expected, life)}")
    if expected.kind == "stall":
        assert life.told, "nothing was told"
        first = life.told[0]
        assert fault_of(expected, first.incident) is None
        others = {alert.incident.id for alert in life.told[1:] if alert.at - first.at < SAME_S}
        assert others <= {first.incident.id}, "one fault is one incident"
    elif expected.kind == "slow":
        accused = set().union(*(named(alert.incident.culprits) for alert in life.told))
        assert accused <= expected.bad | expected.alike
    else:
        assert [a.incident.summary for a in life.told if a.incident.severity != "notice"] == []


@pytest.mark.parametrize("case", GOING, ids=str)
def test_who_makes_a_recorded_run_slow(case: Case, lived: Callable[[Case], Lived], figure: Figure) -> None:
    """Judged without a trigger, as by `mycroft diagnose --slow`."""
    expected, life = truth(case.name, case.tier), lived(case)
    if expected.kind == "healthy":
        assert [incident.summary for incident in life.slow] == []
        return
    assert life.slow, "nobody was found"
    figure(f"{case}: {life.slow[0].summary}")
    assert fault_of(expected, life.slow[0]) is None
    accused = set().union(*(named(incident.culprits) for incident in life.slow))
    assert accused <= expected.bad | expected.alike


def _summary(expected: Truth, life: Lived) -> str:
    if not life.told:
        return "nothing told"
    first = life.told[0]
    since = happened(life.run.lines, expected.bad)
    after = "" if since is None else f" after {first.at - (life.outcome.wall + since) / 1e9:.1f} s"
    return f"{first.incident.category}{after}: {first.incident.summary}"
