"""`mycroft incidents` and `mycroft explain`: what was found, from the store."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mycroft.commands.options import ClickHouse, Json
from mycroft.connections import settings
from mycroft.errors import UsageError
from mycroft.render import console, incident, listing
from queries import answers
from queries.client import connect, store_errors, without_secret
from schemas.incidents import Incident


def incidents(
    job: Annotated[str | None, typer.Option(help="Only of this job.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Closed ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many, the newest first.")] = 100,
    as_json: Json = False,
    clickhouse: ClickHouse = None,
) -> None:
    """List the incidents that are open, the newest first."""
    url = settings(clickhouse=clickhouse).clickhouse
    with store_errors(url):
        found = answers.incidents(connect(url), job=job, open_only=not everything, limit=limit)
    if as_json:
        print(json.dumps({"incidents": [one.to_json() for one in found]}))
    elif found:
        console().print(listing(found))
        console(stderr=True).print("\nThe whole story of one: mycroft explain ID", style="dim")
    else:
        which = "" if everything else "open "
        console(stderr=True).print(f"No {which}incidents{f' of job {job}' if job else ''}.")


def explain(
    identity: Annotated[str, typer.Argument(metavar="ID", help="An incident's id, or its first digits.")],
    as_json: Json = False,
    clickhouse: ClickHouse = None,
) -> None:
    """Tell one incident: the chain in words, with its evidence."""
    found = the_incident(settings(clickhouse=clickhouse).clickhouse, identity)
    if as_json:
        print(json.dumps(found.to_json()))
    else:
        console().print(incident(found))


def the_incident(url: str, identity: str) -> Incident:
    """The one incident whose id begins so; raises UsageError where there is none, or more than one."""
    if not identity or any(digit not in "0123456789abcdefABCDEF" for digit in identity):
        raise UsageError(f"{identity!r} is no incident id (hex digits); 'mycroft incidents --all' lists them")
    with store_errors(url):
        found = answers.by_prefix(connect(url), identity)
    if not found:
        where = f"in the store at {without_secret(url)}"
        raise UsageError(f"no incident {identity} {where}; 'mycroft incidents --all' lists them")
    if len(found) > 1:
        raise UsageError(f"{identity} fits {len(found)} incidents: " + ", ".join(one.id for one in found))
    return found[0]
