"""The order of a ring, which only NCCL's log tells, names the rank that the callbacks cannot tell apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.replay.runner import Options
from mycroft.connections import collector_arguments
from mycroft.local.alerts import Alerts
from mycroft.local.observed import observe
from mycroft.plugin import plugin_path
from mycroft.settings import Settings
from tests.integration.judging import judging
from tests.oracle_runs import recorded_run
from tests.recorded_answers import named

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def nccl_log(file: Path, comm: str) -> None:
    """What rank 0 of a ring8 run logs at INFO: 0-1-2-3 on one host, 4-5-6-7 on the other, both channels."""
    head = "host0:4242:4301 [0] NCCL INFO"
    file.write_text(
        f"{head} Channel 00/02 :    0   1   2   3   4   5   6   7\n"
        f"{head} Channel 01/02 :    0   1   2   3   4   5   6   7\n"
        f"{head} Connected all rings, use ring PXN 0 GDR 1\n"
        f"{head} ncclCommInitRank comm 0x5581 rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1c0 commId {comm} "
        "- Init COMPLETE\n"
    )


@pytest.mark.parametrize(("name", "rank"), [("n2_ring8_gpuhang1", 1), ("n2_ring8_computehang2", 2)])
def test_the_log_tells_two_inner_ranks_apart(name: str, rank: int, tmp_path: Path) -> None:
    """Without it the answer is one of ranks 1 and 2: test_recorded_runs."""
    run = recorded_run(name)
    (comm,) = {line["commId"] for line in run.lines if line.get("cb") == "init"}
    nccl_log(tmp_path / "nccl.host0.4242.log", comm)
    with judging(tmp_path) as kafka, Alerts(kafka) as alerts:
        arguments = collector_arguments(Settings(kafka=kafka, nccl_log=str(tmp_path / "nccl.*.log")))
        options = Options(plugin_path(), tmp_path / "run", name, "flows", log_level=2)
        observe(run, options, arguments, lambda: bool(alerts.of(name)))
        told = alerts.of(name)
    assert told, "nothing was told"
    (incident,) = {alert.incident.id: alert.incident for alert in told}.values()
    assert incident.category == "gpu-hang"
    assert named((*incident.culprits, *incident.candidates)) == {rank}
