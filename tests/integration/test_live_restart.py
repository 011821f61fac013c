"""Workers that come and go in the middle of a live stall: it is found, once, and stays the same incident."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from collectors.testbed.faults import parse_fault
from collectors.testbed.plan import Plan
from collectors.testbed.testbed import Options, Testbed
from mycroft.connections import collector_arguments
from mycroft.local.alerts import Alerts, wait_watching
from mycroft.local.processes import Child
from mycroft.local.pulse import looks
from mycroft.plugin import plugin_path, program_path
from schemas.incidents import Incident
from schemas.topics import WORKER_GROUP
from tests.figures import Figure
from tests.integration.pipeline import PATIENCE_S, Pipeline

FOUND_S = 20.0
"""Within this after the fault the incident has to be told, though the worker dies at that moment."""
WATCHED_S = 5.0
"""So long after a change an incident that the new owner did not find again would have closed, after 3 s."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@contextmanager
def training(pipeline: Pipeline, job: str) -> Iterator[Testbed]:
    """A job of four ranks on two hosts at its usual pace."""
    plan = Plan(ranks=4, ranks_per_host=2)
    arguments = collector_arguments(pipeline.settings)
    with Testbed(plan, Options(program_path(), plugin_path(), job, collector=arguments)) as testbed:
        testbed.warm_up()
        yield testbed


def restarted(pipeline: Pipeline, former: int) -> None:
    """Return when the stack's worker is another process than `former`."""
    Pipeline.until(lambda: pipeline.stack.children()["worker"] not in (None, former) or None)


def looked_at(kafka: str, since: float) -> None:
    """Return when every trace partition has been looked at after this moment of broker time."""
    Pipeline.until(lambda: all(max(times) > since for times in looks(kafka).values()) or None)


def told_once(kafka: str, job: str, act: Callable[[], None], alerts: Alerts) -> Incident:
    """The one incident of a job, which is open before `act` and stays so after it."""
    (before,) = {alert.incident.id: alert.incident for alert in alerts.of(job)}.values()
    assert before.state == "open"
    act()
    looked_at(kafka, time.time())
    time.sleep(WATCHED_S)
    told = [alert.incident for alert in alerts.of(job)]
    assert {incident.id for incident in told} == {before.id}, "a second incident"
    assert {incident.state for incident in told} == {"open"}, "it closed while it lasted"
    return told[-1]


def within(alerts: Alerts, job: str, since: float) -> float:
    """Seconds from `since` (broker time) to the first alert of a job."""
    first = Pipeline.until(lambda: next(iter(alerts.of(job)), None), PATIENCE_S)
    return first.at - since


@pytest.mark.parametrize("pipeline", ["embedded"], indirect=True)
def test_the_worker_is_killed(pipeline: Pipeline, figure: Figure) -> None:
    """At the moment of the fault, so that its successor has to find it; and again while it is open."""
    job, kafka = "killed", pipeline.addresses.kafka
    wait_watching(kafka)
    with Alerts(kafka) as alerts, training(pipeline, job) as testbed:
        _, happened = testbed.strike(parse_fault("late-launch@1"))
        worker = kill(pipeline)
        took = within(alerts, job, happened)
        figure(f"a stall whose worker is killed is told {took:.1f} s after the fault")
        assert took <= FOUND_S
        restarted(pipeline, worker)

        def again() -> None:
            restarted(pipeline, kill(pipeline))

        incident = told_once(kafka, job, again, alerts)
    assert (incident.category, [node.rank for node in incident.culprits]) == ("late-launch", [1])


@pytest.mark.kafka
@pytest.mark.parametrize("pipeline", ["kafka"], indirect=True)
def test_two_workers_and_a_rebalance(pipeline: Pipeline, tmp_path: Path, figure: Figure) -> None:
    """One of two is killed at the moment of the fault, and the other one ends while the incident is open."""
    job, kafka = "shared", pipeline.addresses.kafka
    wait_watching(kafka)
    second = Child("second", ["streams.worker"], tmp_path / "second.log", {"MYCROFT_KAFKA": kafka})
    second.start()
    try:
        Pipeline.until(lambda: members(kafka) == 2 or None)
        with Alerts(kafka) as alerts, training(pipeline, job) as testbed:
            _, happened = testbed.strike(parse_fault("late-launch@1"))
            worker = kill(pipeline)
            took = within(alerts, job, happened)
            figure(f"a stall during a rebalance of two workers is told {took:.1f} s after the fault")
            assert took <= FOUND_S
            restarted(pipeline, worker)
            Pipeline.until(lambda: members(kafka) == 2 or None)

            def leave() -> None:
                second.ask_to_stop()
                second.stop()

            incident = told_once(kafka, job, leave, alerts)
    finally:
        second.ask_to_stop()
        second.stop()
    assert (incident.category, [node.rank for node in incident.culprits]) == ("late-launch", [1])


def kill(pipeline: Pipeline) -> int:
    """Kill the stack's worker, which its supervisor starts again; returns its pid."""
    worker = pipeline.stack.children()["worker"]
    assert worker is not None
    os.kill(worker, signal.SIGKILL)
    return worker


def members(kafka: str) -> int:
    """Workers that share the partitions, once they are settled; −1 before."""
    client = AdminClient({"bootstrap.servers": kafka})
    group = client.describe_consumer_groups([WORKER_GROUP])[WORKER_GROUP].result()
    return len(group.members) if group.state.name == "STABLE" else -1
