"""A job that becomes slow, through the whole pipeline: from the plugin to the alert and the store."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from collectors.testbed.faults import parse_fault
from collectors.testbed.plan import Plan
from collectors.testbed.testbed import Options, Testbed
from mycroft.connections import collector_arguments, settings
from mycroft.local.alerts import Alerts, wait_watching
from mycroft.local.stack import Stack
from mycroft.plugin import plugin_path, program_path
from queries.client import connect
from schemas.ids import job_id
from tests.integration.pipeline import Pipeline

WARMUP_S = 15.0
"""Of minutes that a real job gets: the testbed connects in a second."""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYCROFT_SLOW_WARMUP_S", str(WARMUP_S))
        with Stack(tmp_path_factory.mktemp("stack")) as stack:
            assert stack.addresses is not None
            wait_watching(stack.addresses.kafka)
            client = connect(stack.addresses.clickhouse)
            yield Pipeline(stack, client)
            client.close()


@pytest.mark.slow
def test_a_slow_rank_is_told_and_its_windows_are_stored(pipeline: Pipeline) -> None:
    job, kafka = f"slow-{time.time_ns()}", pipeline.addresses.kafka
    options = Options(
        program_path(), plugin_path(), job, "flows", collector=collector_arguments(settings(kafka))
    )
    with Alerts(kafka) as alerts, Testbed(Plan(ranks=4, ranks_per_host=1), options) as testbed:
        testbed.warm_up()
        time.sleep(WARMUP_S + 10)
        early = [alert.incident for alert in alerts.of(job) if alert.incident.kind == "slow"]
        _, wall = testbed.strike(parse_fault("late-every@2:n=1,ms=400"))
        Pipeline.until(lambda: [alert for alert in alerts.of(job) if alert.incident.kind == "slow"] or None)
        time.sleep(10)  # what localises it comes every five seconds
        told = [alert for alert in alerts.of(job) if alert.incident.kind == "slow"]
    assert early == []
    print(f"slow {told[0].at - wall:.1f} s after the fault", [each.incident.summary for each in told])
    named = [(alert.incident.category, [node.rank for node in alert.incident.culprits]) for alert in told]
    assert ("late-launch", [2]) in named

    def stored() -> bool | None:
        return pipeline.count("rates", "job = {job:UInt64}", job=job_id(job)) > 10 or None

    Pipeline.until(stored)
    assert pipeline.count("rate_minutes", "job = {job:UInt64} AND n > 0", job=job_id(job)) > 0
    assert pipeline.count("flow_minutes", "job = {job:UInt64} AND bytes > 0", job=job_id(job)) > 0
    assert pipeline.count("lags", "job = {job:UInt64} AND clock_bound_ns < 1e9", job=job_id(job)) > 0
