"""`mycroft alerts`: consumes the alerts topic, as any other consumer would."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from mycroft.commands.options import Json, Kafka
from mycroft.connections import settings
from mycroft.render import console, incident
from schemas.incidents import decode_incident
from schemas.malformed import Malformed
from schemas.topics import ALERTS
from streams.kafka import follow, read_all


def alerts(
    keep: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as new ones come, until Ctrl-C.")
    ] = False,
    as_json: Json = False,
    kafka: Kafka = None,
) -> None:
    """Print the alerts on the topic nccl.alerts, from the oldest that Kafka still has."""
    bootstrap = settings(kafka=kafka).kafka
    source = follow(bootstrap, ALERTS.name) if keep else read_all(bootstrap, ALERTS.name)
    out = console()
    for raw in source:
        try:
            alert = decode_incident(raw)
        except Malformed as error:
            console(stderr=True).print(f"mycroft: passed over {len(raw)} bytes: {error}")
            continue
        if as_json:
            print(json.dumps(alert.to_json()))
        else:
            out.print(incident(alert))
        sys.stdout.flush()
