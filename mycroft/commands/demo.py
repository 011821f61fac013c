"""`mycroft demo`: a job that trains, breaks, and is judged, all on this machine."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from collectors.testbed.faults import KINDS, Fault, check_fault, parse_fault
from collectors.testbed.plan import Plan
from collectors.testbed.testbed import Injection, Options, Testbed, host_name
from collectors.testbed.truth import is_right
from mycroft.connections import collector_arguments, settings
from mycroft.errors import FAILED, UsageError
from mycroft.local.alerts import Alert, Alerts, latest, wait_watching
from mycroft.local.stack import Stack
from mycroft.plugin import plugin_path, program_path
from mycroft.render import console, incident
from schemas.incidents import Node

PLAN: Final = Plan(ranks=8, ranks_per_host=2, tp=2)
"""Four hosts: legs inside a host that NCCL does not show, and a ring over all of them that it does."""
JOB: Final = "demo"
ANSWER_S: Final = 20.0
"""How long after the fault an answer is waited for."""
SETTLE_S: Final = 1.5
"""After the first alert: more may become known."""
_POLL_S: Final = 0.1
_FURTHER: Final = """\
Other faults:     mycroft demo --fault gpu-hang@5     (kill@3, stop@3, late-launch@6, …)
To look further:  mycroft up, and in other terminals
                  mycroft testbed --ranks 8 --fault gpu-hang@5:t=8
                  mycroft alerts --follow
                  mycroft sql 'SELECT reason, count() FROM nccl.waits GROUP BY reason'"""


def demo(
    fault: Annotated[
        str, typer.Option(metavar="NAME@RANK", help="What happens; with a wrong name all are listed.")
    ] = "link-down@1-2",
) -> None:
    """Watch a job of 8 ranks break and be judged: real processes, the real plugin, the whole pipeline.

    Starts a local stack in a temporary folder and a testbed of 8 ranks on 4 hosts, each with its collector;
    lets them train, breaks something, and shows the incident. Exit status: 0 when it is what was broken, 1
    when it is not or nothing was told.
    """
    chosen = parse_fault(fault)
    if KINDS[chosen.name].kind != "stall":
        raise UsageError(f"{chosen.name} makes the job slow and no more: the demo shows stalls")
    check_fault(chosen, PLAN.ranks, PLAN.hosts, PLAN.network)
    try:
        executable, plugin = program_path(), plugin_path()
    except FileNotFoundError as error:
        raise UsageError(str(error)) from error
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    _say("starting broker, store, worker and sink on this machine")
    with tempfile.TemporaryDirectory(prefix="mycroft-") as temporary, Stack(Path(temporary)) as stack:
        assert stack.addresses is not None
        kafka = stack.addresses.kafka
        wait_watching(kafka)
        collector = collector_arguments(settings(kafka, stack.addresses.clickhouse))
        options = Options(executable, plugin, JOB, collector=collector)
        with Alerts(kafka) as alerts, Testbed(PLAN, options) as bed:
            right = _show(bed, chosen, alerts)
    if not right:
        raise typer.Exit(FAILED)


def _show(bed: Testbed, fault: Fault, alerts: Alerts) -> bool:
    plan = bed.plan
    _say(f"{plan.ranks} ranks train on {plan.hosts} hosts, tp {plan.tp} × dp {plan.dp}, a collector on each")
    bed.warm_up(lambda step: _say(f"step {step + 1} done by all ranks"))
    injection, wall = bed.strike(fault)
    _say(f"{fault}: {KINDS[fault.name].does}", style="bold red")
    told = _answers(alerts, wall)
    if not told:
        _say(f"no alert within {ANSWER_S:.0f} s", style="bold red")
        return False
    out = console()
    _say(f"alert on nccl.alerts {told[0].at - wall:.1f} s after the fault", style="bold")
    found = latest(told)
    for one in found:
        out.print(incident(one))
    right = all(_right(bed, injection, alert) for alert in told[-1:]) and len(found) == 1
    verdict = "That is what was found." if right else "That was missed."
    _say(f"what was broken: {_broken(injection)}. {verdict}", style="bold green" if right else "bold red")
    out.print(_FURTHER)
    return right


def _answers(alerts: Alerts, wall: float) -> list[Alert]:
    """What is told from a moment on, in wall clock seconds: until it has settled, or ANSWER_S."""
    until = time.time() + ANSWER_S
    settled = None
    while time.time() < (until if settled is None else settled):
        if settled is None and alerts.of(JOB):
            settled = time.time() + SETTLE_S
        time.sleep(_POLL_S)
    return [alert for alert in alerts.of(JOB) if alert.at >= wall]


def _right(bed: Testbed, injection: Injection, alert: Alert) -> bool:
    found = alert.incident
    return is_right(
        injection.truth, bed.plan, found.category, _ranks(found.culprits), _ranks(found.candidates)
    )


def _ranks(nodes: Sequence[Node]) -> set[int]:
    return {-1 if node.rank is None else node.rank for node in nodes}


def _broken(injection: Injection) -> str:
    truth = injection.truth
    where = [f"rank {rank}" for rank in truth.ranks] or [host_name(host) for host in truth.hosts]
    return f"{truth.categories[0]} at {' and '.join(where)}"


def _say(line: str, style: str | None = None) -> None:
    console().print(f"· {line}", style=style)
