"""Bring recordings into a running stack."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from collectors.flight_recorder.importer import send_snapshot
from collectors.flight_recorder.snapshot import Snapshot, read_snapshot
from collectors.jobs import check_job_name
from mycroft.commands.options import Kafka
from mycroft.connections import settings
from mycroft.errors import UsageError
from mycroft.progress import sending, told
from mycroft.render import console

app = typer.Typer(help=__doc__, no_args_is_help=True)


@app.callback()
def _imports() -> None:
    pass


@app.command("flight-recorder")
def flight_recorder(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder with one dump a rank (pickle or JSON).")
    ],
    job: Annotated[str, typer.Option(help="Name of the job; incidents are listed by it.")],
    attempt: Annotated[
        str | None,
        typer.Option(help="Name of this start of the job. Default: import-TIME, a new one each time."),
    ] = None,
    kafka: Kafka = None,
) -> None:
    """Import PyTorch Flight Recorder dumps of a job that hangs.

    Ranks whose dump is missing or unreadable are taken as members of which nothing is known.
    """
    chosen = settings(kafka=kafka)
    snapshot = read(folder, job, attempt)
    tell(snapshot)
    with sending(snapshot.records) as progress:
        sent = send_snapshot(snapshot, chosen, progress)
    out = console(stderr=True)
    out.print(
        f"Sent {sent.records:,} records of {len(snapshot.ranks)} ranks in {sent.messages:,} messages "
        f"as job {snapshot.job}, attempt {snapshot.attempt}."
    )
    out.print(f"The answer in a moment: mycroft incidents --job {shlex.quote(snapshot.job)}")


def read(folder: Path, job: str, attempt: str | None) -> Snapshot:
    """The snapshot in a folder; raises UsageError and BadInput."""
    try:
        name = check_job_name(job)
        attempt = None if attempt is None else check_job_name(attempt, "attempt")
    except ValueError as error:
        raise UsageError(str(error)) from error
    return read_snapshot(folder, name, attempt)


def tell(snapshot: Snapshot) -> None:
    """Say on stderr what was passed over, and which ranks are silent."""
    out = console(stderr=True)
    for line in told(snapshot):
        out.print(line, style="yellow")
