"""`mycroft sql`: a question to the store, in SQL."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mycroft.commands.options import ClickHouse, Json
from mycroft.connections import settings
from mycroft.errors import UsageError
from queries.client import connect, store_errors


def sql(
    query: Annotated[str, typer.Argument(help="A statement; tables are in the database nccl.")],
    as_json: Json = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Any of ClickHouse's formats, such as TSVWithNames; the statement's own FORMAT wins.",
        ),
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
    if not query.strip(" \t\r\n;"):
        raise UsageError("the statement is empty; for example: mycroft sql 'SHOW TABLES FROM nccl'")
    with store_errors(url):
        # Beside the statement, whose own FORMAT counts.
        answer = connect(url).raw_query(query, transport_settings={"X-ClickHouse-Format": chosen})
    sys.stdout.buffer.write(answer)
    sys.stdout.flush()
