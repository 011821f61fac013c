"""`mycroft sql`: a question to the store, in SQL."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mycroft.commands.options import ClickHouse, Json
from mycroft.connections import settings
from queries.client import connect, store_errors


def sql(
    query: Annotated[str, typer.Argument(help="A statement; tables are in the database nccl.")],
    as_json: Json = False,
    output: Annotated[
        str | None,
        typer.Option("--format", help="Any of ClickHouse's formats, such as TSVWithNames or Vertical."),
    ] = None,
    clickhouse: ClickHouse = None,
) -> None:
    """Run a SQL statement on the store and print what it answers.

    Example: mycroft sql 'SELECT reason, count() FROM nccl.waits GROUP BY reason'
    """
    url = settings(clickhouse=clickhouse).clickhouse
    chosen = output or (
        "JSONEachRow" if as_json else "PrettyCompact" if sys.stdout.isatty() else "TSVWithNames"
    )
    with store_errors(url):
        answer = connect(url).raw_query(
            query.rstrip() + "\n", fmt=chosen
        )  # the format must not end up in a comment
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()
