"""A healthy job with the waits that healthy jobs have: nothing louder than a notice, however long it trains.

Checkpoints on one rank while all others wait, evaluation, sequences of uneven length, first steps, a
communicator that is seldom used, collectors that are restarted. Three minutes; MYCROFT_HEALTHY_MINUTES=20 for
more.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from collectors.testbed.plan import Plan
from collectors.testbed.testbed import Options, Testbed
from mycroft.connections import collector_arguments, settings
from mycroft.local.alerts import Alerts, latest, wait_watching
from mycroft.local.stack import Stack
from mycroft.plugin import plugin_path, program_path
from schemas.incidents import Incident
from tests.figures import Figure

MINUTES = float(os.environ.get("MYCROFT_HEALTHY_MINUTES", "3"))
RESTART_S = 50.0
"""A collector is restarted so often, of each host in turn."""
PLAN = Plan(
    ranks=4, ranks_per_host=2, tp=2, micro_batches=1, forward_ms=100.0, backward_ms=150.0, uneven_ms=150.0,
    checkpoint_every=50, checkpoint_ms=8_000.0, evaluate_every=30, evaluate_ms=3_000.0, rare_every=70,
)  # fmt: skip
"""Steps of half a second: a checkpoint of 8 s comes every 30 s or so."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES + 400)]


def _all_slower(incident: Incident) -> bool:
    """The whole job is slower and nobody is accused: true where other tests compute on the same two cores."""
    return incident.kind == "slow" and not incident.culprits and not incident.candidates


def test_healthy_training(tmp_path: Path, figure: Figure) -> None:
    with Stack(tmp_path) as stack:
        assert stack.addresses is not None
        kafka = stack.addresses.kafka
        wait_watching(kafka)
        options = Options(
            program_path(), plugin_path(), "healthy", collector=collector_arguments(settings(kafka))
        )
        with Alerts(kafka) as alerts, Testbed(PLAN, options) as testbed:
            restarts = 0
            while testbed.running_s() < 60 * MINUTES:
                time.sleep(1.0)
                stack.check()
                if testbed.running_s() > RESTART_S * (restarts + 1):
                    testbed.restart_collector(restarts % PLAN.hosts)
                    restarts += 1
            # On a busy machine steps take longer: all that is seldom has to have come.
            testbed.wait_steps(PLAN.rare_every + PLAN.checkpoint_every, timeout_s=300.0)
            steps = min(state.step for state in testbed.states())
            assert not any(state.wrong for state in testbed.states())
            assert testbed.exits() == {}
            told = alerts.of("healthy")
    notices = len(latest(told))
    what = f"{steps} steps in {MINUTES:g} min, {restarts} collectors restarted"
    figure(f"healthy training: {what}, {notices} notices")
    loud = [
        alert.incident
        for alert in told
        if alert.incident.severity != "notice" and not _all_slower(alert.incident)
    ]
    assert [(incident.category, incident.summary) for incident in loud] == []
