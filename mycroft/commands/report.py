"""`mycroft report`: an incident as one page, or as text for a ticket."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from mycroft.commands.incidents import the_incident
from mycroft.commands.options import ClickHouse
from mycroft.connections import settings
from mycroft.output import writing
from mycroft.render import console
from queries.client import connect, store_errors
from queries.report.evidence import gather
from queries.report.page import html, markdown


def report(
    identity: Annotated[str, typer.Argument(metavar="ID", help="An incident's id, or its first digits.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Text for a ticket instead of a page of HTML.")
    ] = False,
    clickhouse: ClickHouse = None,
) -> None:
    """Write an incident as one page that needs nothing else: it opens offline, prints, and can be mailed.

    Example: mycroft report 0c255f62 -o incident.html
    """
    url = settings(clickhouse=clickhouse).clickhouse
    found = the_incident(url, identity)
    with store_errors(url):
        evidence = gather(connect(url), found)
    text = (markdown if as_markdown else html)(found, evidence)
    if output is None and as_markdown:
        sys.stdout.write(text)
    elif output is None:
        sys.stdout.buffer.write(_page(text))  # a page says that it is UTF-8, whatever the terminal is
    else:
        with writing(output) as file:
            file.write(_page(text))
        console(stderr=True).print(f"{output}: {found.category}, {found.summary}")


def _page(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
