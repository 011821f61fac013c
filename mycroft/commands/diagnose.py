"""`mycroft diagnose`: from a folder of dumps, or a recorded run, to the answer, in one shot."""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from clickhouse_connect.driver.client import Client
from rich.text import Text

from collectors.flight_recorder.importer import send_snapshot
from collectors.flight_recorder.snapshot import Snapshot
from collectors.jobs import check_job_name
from collectors.replay.program import compile_run
from collectors.replay.runner import TIERS, Options
from collectors.replay.trace import read_run
from mycroft.commands.imports import read, tell
from mycroft.commands.options import Json, check_seconds
from mycroft.connections import collector_arguments, settings
from mycroft.errors import INCIDENTS_FOUND, UsageError
from mycroft.local.alerts import Alerts, latest, wait_watching
from mycroft.local.observed import all_closed, hold_s, observe
from mycroft.local.pulse import LAGGED_S, longest_pause
from mycroft.local.slowness import Heard, slow_incidents
from mycroft.local.stack import Stack
from mycroft.plugin import plugin_path
from mycroft.progress import sending
from mycroft.render import console, incident
from queries import answers
from queries.client import connect, store_errors
from schemas.incidents import Incident
from schemas.shown import shown

POLL_S = 0.1
_VERSION = 6
"""Of the profiler interface: the latest that runs were recorded with."""


def diagnose(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DIR|RUN.jsonl.zst",
            help="Folder with one dump a rank, or a recorded run (mycroft record).",
        ),
    ],
    job: Annotated[str | None, typer.Option(help="Name of the job. Default: the folder's or run's.")] = None,
    tier: Annotated[
        str | None,
        typer.Option(help="Of a run, what the plugin traces: ops, flows or kernel. Default: flows."),
    ] = None,
    slow: Annotated[
        bool, typer.Option("--slow", help="Of a run, say who makes the job slow instead, without a trigger.")
    ] = False,
    as_json: Json = False,
    timeout: Annotated[
        float, typer.Option(min=1, help="Of dumps: give up after so many seconds without an answer.")
    ] = 300,
) -> None:
    """Say which rank hangs a job, from its Flight Recorder dumps or from a recorded run.

    Starts a local stack in a temporary folder, brings in the dumps, or replays the run with a collector on
    each of its hosts; prints the answer and stops it. A run takes as long as it took (see mycroft replay,
    mycroft record), and what was told while it ran counts, whether it is over or not. With --slow it is
    judged when it is over: who made the others wait, in which stage, and what that cost.
    Exit status: 0 nothing found, 3 incidents found, 2 bad input, 1 anything else.
    """
    if tier is not None and tier not in TIERS:
        raise UsageError(f"unknown tier {tier!r}: one of {', '.join(TIERS)}")
    check_seconds("timeout", timeout)
    if not source.exists():
        raise UsageError(f"there is no {source}: name a folder of dumps or a recorded run")
    # A scheduler's time-out must not leave the stack and its folder behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if source.is_dir():
        for option, given in (("--tier", tier is not None), ("--slow", slow)):
            if given:
                raise UsageError(f"{option} is for recorded runs, and {source} is a folder")
        answer = _of_dumps(source, job, timeout)
    else:
        answer = _of_run(source, job, tier or "flows", slow)
    _tell(answer, as_json)


@dataclass(frozen=True)
class _Answer:
    """What is said: incidents; without any, the line `healthy`; a closing line; and what to be wary of."""

    found: list[Incident]
    what: str
    healthy: str
    more: str
    caveats: list[str]


def _tell(answer: _Answer, as_json: bool) -> None:
    out = console()
    if as_json:
        print(json.dumps({"incidents": [one.to_json() for one in answer.found]}))
    elif answer.found:
        for one in answer.found:
            out.print(incident(one))
        count = f"{len(answer.found)} incident{'s' if len(answer.found) != 1 else ''}"
        out.print(f"{count} in {answer.what}. The same as JSON: --json. {answer.more}")
    else:
        out.print(answer.healthy, style="green")
    for line in answer.caveats:
        console(stderr=True).print(f"mycroft: {line}", style="yellow")
    if answer.found:
        raise typer.Exit(INCIDENTS_FOUND)


def _of_dumps(folder: Path, job: str | None, timeout_s: float) -> _Answer:
    snapshot = read(folder, job or _job_name(folder.resolve().name, "dumps"), None)
    tell(snapshot)
    with (
        tempfile.TemporaryDirectory(prefix="mycroft-") as temporary,
        console(stderr=True).status("asking the local stack"),
        Stack(Path(temporary)) as stack,
    ):
        found, caveats = _answer(stack, snapshot, timeout_s)
    ranks = f"{len(snapshot.ranks)} ranks"
    return _Answer(
        found,
        f"{snapshot.job} ({ranks})",
        f"{snapshot.job}: nothing found. Of {ranks} none waits for another.",
        "To keep and query it: mycroft up, then mycroft import flight-recorder.",
        caveats,
    )


def _of_run(path: Path, job: str | None, tier: str, slow: bool) -> _Answer:
    run = read_run(path)
    compile_run(run, _VERSION, 1.0)  # what cannot be replayed is told before anything is started
    try:
        plugin = plugin_path()
        name = check_job_name(job) if job is not None else _job_name(run.name, "run")
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(str(error)) from error
    out = console(stderr=True)
    seconds = run.lines[-1]["t"] / 1e9 + hold_s(run)
    out.print(
        f"{run.name}: {run.ranks} ranks on {len(set(run.nodes))} hosts, {len(run.lines):,} callbacks, "
        f"{seconds:.0f} s; tier {tier}."
    )
    with (
        tempfile.TemporaryDirectory(prefix="mycroft-") as temporary,
        out.status("starting the local stack") as status,
        Stack(Path(temporary)) as stack,
    ):
        assert stack.addresses is not None
        kafka = stack.addresses.kafka
        wait_watching(kafka)
        options = Options(
            plugin, Path(temporary) / "run", name, tier, _VERSION, hold_s=hold_s(run), log_level=2
        )
        with Alerts(kafka) as alerts, Heard(kafka) if slow else nullcontext() as heard:
            outcome = observe(
                run,
                options,
                collector_arguments(settings(kafka, stack.addresses.clickhouse)),
                lambda: slow or all_closed(alerts.of(name)),
                lambda: status.update(Text(f"replaying {seconds:.0f} s of {shown(run.name)}")),
            )
            stack.check()
            if heard is None:
                found = latest(alerts.of(name))
            else:
                found = slow_incidents(heard.windows(name), heard.announcements(name))
        began = outcome.wall / 1e9
        pause = longest_pause(kafka, began, began + outcome.seconds)
    return _Answer(
        found,
        f"{run.name} ({run.ranks} ranks, tier {tier})",
        f"{run.name}: nothing found in {seconds:.0f} s of {run.ranks} ranks. No one kept the others waiting.",
        "To watch a job like this as it runs: mycroft up, then mycroft collect on each host.",
        [
            *(f"not as recorded: {line}" for line in ([] if outcome.complete else outcome.faults())),
            *starved(outcome.lateness_max / 1e9, pause),
        ],
    )


LATE_S = 0.5
"""What does not move for so long stands still, in the eyes of the rules: a call so late may look like it."""


def starved(late_s: float, pause_s: float) -> list[str]:
    """What a machine too busy for a run does to the answer; nothing where it kept up.

    `late_s`: the latest call after its time. `pause_s`: the longest that nobody looked at the job.
    """
    lines = []
    if late_s > LATE_S:
        lines.append(
            f"this machine was too busy for the run: calls came up to {late_s:.1f} s late, so a stall may be "
            "missing, or told that was none"
        )
    if pause_s > LAGGED_S:
        lines.append(
            f"this machine was too busy for the worker: for {pause_s:.1f} s it looked at nothing, so a stall "
            "may be missing"
        )
    return lines


def _job_name(name: str, otherwise: str) -> str:
    """The name of a folder or run, unless it would be refused as the name of a job."""
    try:
        return check_job_name(name)
    except ValueError:
        return otherwise


def _answer(stack: Stack, snapshot: Snapshot, timeout_s: float) -> tuple[list[Incident], list[str]]:
    assert stack.addresses is not None
    chosen = settings(stack.addresses.kafka, stack.addresses.clickhouse)
    with sending(snapshot.records) as progress:
        send_snapshot(snapshot, chosen, progress)
    url = stack.addresses.clickhouse
    with store_errors(url):
        client = connect(url)
        verdict = _verdict(stack, client, snapshot, time.monotonic() + timeout_s)
        found = answers.incidents(client, job=snapshot.job, attempt=snapshot.attempt)
    caveats = []
    if verdict.missing:
        caveats.append(f"incomplete: trace partitions {verdict.missing} did not report in time")
    if verdict.lost:
        caveats.append(f"incomplete: {verdict.lost} messages were lost on the way")
    order = {identity: place for place, identity in enumerate(verdict.incidents)}
    return sorted(found, key=lambda one: order.get(one.id, len(order))), caveats


def _verdict(stack: Stack, client: Client, snapshot: Snapshot, deadline: float) -> answers.StoredVerdict:
    """Wait until the store has the verdict and every incident that it names."""
    while time.monotonic() < deadline:
        stack.check()
        verdict = answers.verdict(client, snapshot.job, snapshot.attempt)
        if verdict is not None:
            stored = answers.incidents(
                client, job=snapshot.job, attempt=snapshot.attempt, limit=len(verdict.incidents) + 1
            )
            if {one.id for one in stored} >= set(verdict.incidents):
                return verdict
        time.sleep(POLL_S)
    raise UsageError("no verdict came in time: raise --timeout, or run 'mycroft up' and look at its logs")
