"""`mycroft doctor`: is this host ready to be traced?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from mycroft.commands.options import ClickHouse, Json, Kafka
from mycroft.connections import settings
from mycroft.doctor.check import ready
from mycroft.doctor.gather import Asked, examine
from mycroft.doctor.screen import as_json, screen
from mycroft.errors import FAILED
from mycroft.plugin import plugin_path
from mycroft.render import console


def doctor(
    plugin: Annotated[
        Path | None,
        typer.Option(help="Profiler plugin to look at. Default: the one that comes with mycroft."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Folder of the plugin's files. Default: MYCROFT_DIR, else /dev/shm/mycroft."
        ),
    ] = None,
    venv: Annotated[
        Path | None,
        typer.Option(
            help="Python environment of the job, to see its NCCL. Default: VIRTUAL_ENV, CONDA_PREFIX."
        ),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Traced processes on this host. Default: GPUs, else 8.")
    ] = None,
    kafka: Kafka = None,
    clickhouse: ClickHouse = None,
    as_json_: Json = False,
) -> None:
    """Say in one screen whether this host is ready, with a remedy for each problem. Exit status 1: it is not.

    Run it where the job runs (same container, same environment), and once where the collector runs.
    """
    chosen = settings(kafka=kafka, clickhouse=clickhouse)
    given = venv or next(
        (Path(os.environ[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if os.environ.get(name)), None
    )
    asked = Asked(
        directory=(directory or chosen.dir).absolute(),
        kafka=chosen.kafka,
        clickhouse=chosen.clickhouse,
        plugin=plugin.absolute() if plugin is not None else _own(),
        venv=given,
        processes=processes,
    )
    checks = examine(asked, os.environ)
    if as_json_:
        print(as_json(checks))
    else:
        console().print(screen(checks))
    if not ready(checks):
        raise typer.Exit(FAILED)


def _own() -> Path | None:
    try:
        return plugin_path()
    except FileNotFoundError:
        return None
