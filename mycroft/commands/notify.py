"""`mycroft notify`: incidents to Alertmanager."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from mycroft.commands.options import Kafka
from mycroft.connections import settings
from mycroft.render import console
from schemas.shown import log_lines
from streams.notify.loop import run_notify
from streams.process import stop_event


def notify(
    kafka: Kafka = None,
    alertmanager: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Alertmanager's address. Default: MYCROFT_ALERTMANAGER."),
    ] = None,
) -> None:
    """Send incidents to Alertmanager, which routes to everything else, until SIGTERM or Ctrl-C.

    Each revision is sent until it is taken; what is open is told again every minute. Several share the work.
    """
    log_lines(logging.WARNING, "%(asctime)s %(levelname)s %(message)s")
    chosen = settings(kafka=kafka)
    if alertmanager is not None:
        chosen = chosen.model_copy(update={"alertmanager": alertmanager})
    out = console(stderr=True)
    run_notify(chosen, stop_event(None), out.print)
