"""`mycroft tier`: what the processes of this host trace, and other tiers for those of a running job."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from collectors.agent.layout import TIERS, NotOurs, State, Tier
from collectors.tiers import request_tier
from mycroft.connections import settings
from mycroft.doctor.traced import NAMELESS, Process, find_processes, tier_name
from mycroft.errors import FAILED, UsageError
from mycroft.render import console

_FOLLOWS_S = 2.0
"""So long the command looks whether processes follow; one that launches nothing will not yet have."""


def tier(
    wanted: Annotated[
        str | None,
        typer.Argument(metavar="[TIER]", help="ops, flows, kernel or idle. Without it: what each has now."),
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only the processes of this job.")] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Folder of the plugin's files. Default: MYCROFT_DIR, else /dev/shm/mycroft."
        ),
    ] = None,
) -> None:
    """Show what traced processes of this host trace, or change it while they run.

    Run it on every host of the job, as its user or root. A process follows at its next launch.

    Examples: mycroft tier; mycroft tier kernel --job train-7b; mycroft tier idle
    """
    if wanted is not None and wanted not in TIERS:
        raise UsageError(f"unknown tier {wanted!r}: one of {', '.join(TIERS)}")
    usual = settings()
    folder = directory or usual.dir
    look = partial(find_processes, folder, host=usual.host)
    found = _of_job(look(), job, folder)
    if wanted is None:
        _show(found)
        return
    if len(jobs := sorted({process.job for process in found})) > 1:
        names = ", ".join(name or NAMELESS for name in jobs)
        raise UsageError(f"several jobs run on this host: {names}; choose one with --job")
    chosen = Tier(TIERS.index(wanted))
    asked, refused = _ask(folder, found, chosen)
    now = _followed(look, asked, chosen)
    _show(now)
    if waiting := sum(one.tier != chosen for one in now):
        typer.echo(f"{waiting} of {len(now)} will follow at the next launch.", err=True)
    for line in refused:
        typer.echo(line, err=True)
    if refused:
        raise typer.Exit(FAILED)


def _of_job(processes: list[Process], job: str | None, folder: Path) -> list[Process]:
    """Those that can be switched: read, alive or not known to be dead, and tracing."""
    traced = [
        one for one in processes if not one.refused and one.alive is not False and one.state != State.OFF
    ]
    if not traced:
        raise UsageError(f"no process is traced in {folder}; mycroft doctor says why")
    if job is None:
        return traced
    if not (found := [one for one in traced if one.job == job]):
        names = ", ".join(sorted({one.job or NAMELESS for one in traced}))
        raise UsageError(f"no process of job {job} is traced on this host; there are: {names}")
    return found


def _ask(folder: Path, processes: list[Process], tier: Tier) -> tuple[list[Process], list[str]]:
    """The processes that were asked, and why others could not be."""
    asked, refused = [], []
    for process in processes:
        try:
            request_tier(folder, process.name, tier)
        except NotOurs as error:
            refused.append(f"pid {process.pid}: its file {error}")
        except OSError as error:
            refused.append(f"pid {process.pid}: {os.strerror(error.errno or 0)}; be its user, or root")
        else:
            asked.append(process)
    return asked, refused


def _followed(look: Callable[[], list[Process]], asked: list[Process], tier: Tier) -> list[Process]:
    """The processes as they are once all follow, or after a while."""
    names = {process.name for process in asked}
    until = time.monotonic() + _FOLLOWS_S
    while True:
        now = [process for process in look() if process.name in names]
        if all(one.tier == tier for one in now) or time.monotonic() > until:
            return now
        time.sleep(0.05)


def _show(processes: list[Process]) -> None:
    table = Table("pid", "job", "traces", box=None, pad_edge=False)
    for process in processes:
        table.add_row(str(process.pid), process.job or NAMELESS, tier_name(process))
    console().print(table)
