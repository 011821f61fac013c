"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

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
