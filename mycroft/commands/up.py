"""`mycroft up`: the local stack in the foreground."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from mycroft.connections import data_folder
from mycroft.errors import UsageError
from mycroft.local.addresses import running
from mycroft.local.stack import DEFAULT_STORE_PORT, Stack
from mycroft.render import console


def up(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of the store, kept between starts. Default: ~/.local/share/mycroft."),
    ] = None,
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use this Kafka instead of the embedded broker.")
    ] = None,
    clickhouse: Annotated[
        str | None, typer.Option(metavar="URL", help="Use this ClickHouse instead of the embedded store.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the embedded store on loopback, 0 for a free one.")
    ] = DEFAULT_STORE_PORT,
) -> None:
    """Run the whole of Mycroft on this machine until Ctrl-C: broker, store, worker and sink.

    The store is kept in a folder; what is in the embedded broker lives as long as the stack.
    """
    folder = data or data_folder()
    if (other := running(folder)) is not None:
        raise UsageError(f"a stack runs on {folder} already (process {other.pid}); stop it or choose --data")
    out = console()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    made = Stack(folder, kafka=kafka, clickhouse=clickhouse, store_port=port, tell=out.print)
    waiting = out.status("starting")
    waiting.start()
    try:
        with made as stack:
            waiting.stop()
            for line in _greeting(stack, folder):
                out.print(line)
            stack.supervise(stop.is_set)
            out.print("stopping")
    finally:
        waiting.stop()


def _greeting(stack: Stack, folder: Path) -> list[str | Text]:
    assert stack.addresses is not None
    return [
        Text.assemble(("Mycroft is up.", "bold green"), " Ctrl-C stops it."),
        f"  Kafka       {stack.addresses.kafka}",
        f"  ClickHouse  {stack.addresses.clickhouse}",
        f"  store       {folder}",
        f"  logs        {folder / 'logs'}",
        "In another terminal:",
        "  mycroft import flight-recorder DIR --job NAME",
        "  mycroft incidents",
        "  mycroft sql 'SELECT category, summary FROM nccl.incidents FINAL ORDER BY detected DESC LIMIT 5'",
    ]
