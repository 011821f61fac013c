"""`mycroft record`: what MYCROFT_RECORD wrote, as one recorded run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collectors.replay.merge import merge
from collectors.replay.trace import SUFFIX, write_run
from mycroft.errors import UsageError
from mycroft.output import writing
from mycroft.render import console


def record(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder that MYCROFT_RECORD named.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar=f"RUN{SUFFIX}", help="The run's file.")],
) -> None:
    """Merge what the plugin recorded of each process into one run that mycroft replay takes.

    Record by starting the job with MYCROFT_RECORD=DIR; on several hosts gather their files in one folder.
    The run holds names, sizes and times of operations and addresses as numbers, never data.
    """
    lines = merge(folder)
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent} is no folder")
    with writing(output) as file:
        written = write_run(file, lines)
    ranks = 1 + max(line["p"] for line in lines)
    seconds = lines[-1]["t"] / 1e9
    console(stderr=True).print(f"{output}: {written:,} lines of {ranks} processes over {seconds:.1f} s.")
