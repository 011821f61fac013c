"""`mycroft replay`: a recorded run of NCCL's callbacks into the real plugin, a process a rank."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from collectors.jobs import check_job_name
from collectors.replay.abi import VERSIONS
from collectors.replay.runner import TIERS, Options, Outcome, host_directory, replay
from collectors.replay.trace import Run, read_run
from mycroft.commands.options import check_seconds
from mycroft.errors import FAILED, UsageError
from mycroft.plugin import plugin_path
from mycroft.render import console

_NATIVE = Path(__file__).parents[2] / "native"


def replay_run(
    path: Annotated[Path, typer.Argument(metavar="RUN.jsonl.zst", help="Recorded run.")],
    speed: Annotated[float, typer.Option(help="2: in half the time.")] = 1.0,
    tier: Annotated[str, typer.Option(help="What the plugin traces: ops, flows or kernel.")] = "flows",
    api: Annotated[str, typer.Option(help="Version of the profiler interface: v3 to v7.")] = "v6",
    plugin: Annotated[
        Path | None, typer.Option(help="Profiler plugin to load. Default: the one that comes with mycroft.")
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Gets a folder of the plugin's files for each host. Default: a new one.",
        ),
    ] = None,
    hold: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Keep processes that did not end alive so long after it. Default: as recorded."
        ),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Name of the job. Default: the run's.")] = None,
) -> None:
    """Replay a recorded run: real processes make the recorded calls into the plugin at the recorded times.

    Only what the plugin's activation mask asks for is called. What happened to a process happens again: it is
    stopped, killed, exits. Start a collector on each host's folder to see the run in Kafka; see also: mycroft
    record.
    """
    version = _version(api)
    if tier not in TIERS:
        raise UsageError(f"unknown tier {tier!r}: one of {', '.join(TIERS)}")
    if not 0 < speed < float("inf"):
        raise UsageError(f"speed {speed} is none: a number above 0")
    if hold is not None:
        check_seconds("hold", hold)
    run = read_run(path)
    options = Options(
        plugin=_plugin(plugin),
        directory=directory or Path(tempfile.mkdtemp(prefix="mycroft-replay-")),
        job=_job(job or f"replay-{run.name}"),
        tier=tier,
        version=version,
        speed=speed,
        hold_s=hold,
    )
    out = console(stderr=True)
    _announce(run, options)
    outcome = replay(run, options, lambda pids: out.print(f"{len(pids)} processes, pids {_pids(pids)}."))
    _tell(outcome)
    if not outcome.complete:
        raise typer.Exit(FAILED)


def _version(api: str) -> int:
    names = {f"v{version}": version for version in VERSIONS}
    if api not in names:
        raise UsageError(f"unknown API {api!r}: one of {', '.join(names)}")
    return names[api]


def _plugin(given: Path | None) -> Path:
    if given is None:
        try:
            return plugin_path()
        except FileNotFoundError as error:
            raise UsageError(f"{error}, or name a plugin with --plugin") from error
    if not given.is_file():
        raise UsageError(f"{given} is no file: name the plugin's shared library with --plugin")
    return given.resolve()


def _job(name: str) -> str:
    try:
        return check_job_name(name)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _announce(run: Run, options: Options) -> None:
    out = console(stderr=True)
    seconds = run.lines[-1]["t"] / 1e9 / options.speed
    out.print(
        f"Replaying {run.name}: {run.ranks} ranks, {len(run.lines):,} callbacks in {seconds:.1f} s, "
        f"API v{options.version}, tier {options.tier}, as job {options.job}."
    )
    for host in sorted(set(run.nodes)):
        ranks = [str(rank) for rank, node in enumerate(run.nodes) if node == host]
        out.print(f"host{host}: ranks {', '.join(ranks)} in {host_directory(options.directory, host)}")


def _pids(pids: tuple[int, ...]) -> str:
    return " ".join(str(pid) for pid in pids)


def _tell(outcome: Outcome) -> None:
    out = console(stderr=True)
    out.print(
        f"{outcome.calls:,} calls made, {outcome.skipped:,} not asked for by the plugin's mask, in "
        f"{outcome.seconds:.1f} s; late by at most {outcome.lateness_max / 1e6:.1f} ms, 99 % by less than "
        f"{outcome.lateness_p99 / 1e6:.1f} ms."
    )
    for line in outcome.faults():
        out.print(line, style="yellow")
