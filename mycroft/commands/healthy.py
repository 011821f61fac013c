"""`mycroft healthy`: whether a part that runs on this host does its work, for health checks of containers."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from mycroft.commands.options import Kafka
from mycroft.connections import settings
from mycroft.errors import FAILED
from mycroft.health import of_collector, of_member
from schemas.topics import SINK_GROUP, WORKER_GROUP


class Part(str, Enum):
    """What can be asked for."""

    WORKER = "worker"
    SINK = "sink"
    COLLECTOR = "collector"


_GROUPS = {Part.WORKER: WORKER_GROUP, Part.SINK: SINK_GROUP}


def healthy(
    part: Annotated[Part, typer.Argument(help="What runs here.", case_sensitive=False)],
    kafka: Kafka = None,
) -> None:
    """Tell by the exit status whether the worker, sink or collector of this host works: 0, or 1 and why not.

    A worker and a sink work when Kafka has a member of this host in their group, which it drops 6 s after
    the last sign of life. A collector works when it answers on its metrics' port.
    """
    chosen = settings(kafka=kafka)
    if part is Part.COLLECTOR:
        why = of_collector(chosen.collector_metrics_port)
    else:
        why = of_member(chosen.kafka, part.value, _GROUPS[part])
    if why:
        typer.echo(f"mycroft: {why}", err=True)
        raise typer.Exit(FAILED)
