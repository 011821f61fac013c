"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from mycroft.errors import UsageError

Kafka = Annotated[
    str | None,
    typer.Option(
        "--kafka", metavar="HOST:PORT", help="Bootstrap servers. Default: the running local stack's."
    ),
]
ClickHouse = Annotated[
    str | None,
    typer.Option(
        "--clickhouse", metavar="URL", help="ClickHouse's HTTP address. Default: the local stack's."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]


def check_seconds(name: str, given: float) -> None:
    """Raises UsageError for what is no length of time: below 0, endless or not a number."""
    if not 0 <= given < float("inf"):
        raise UsageError(f"{name} {given} is none: a number of seconds from 0")
