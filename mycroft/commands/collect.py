"""`mycroft collect`: the host's collector, in the foreground."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from mycroft.commands.options import Kafka
from mycroft.connections import settings
from mycroft.errors import UsageError


def collect(
    kafka: Kafka = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Folder of the plugin's files. Default: MYCROFT_DIR, else /dev/shm/mycroft."
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Name of this host in records. Default: its own.")] = None,
    budget: Annotated[
        int | None,
        typer.Option(min=0, metavar="BYTES", help="Bytes a second when nothing stalls; 0: no limit."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Loopback port of the metrics, 0 for none.")
    ] = None,
    nccl_log: Annotated[
        str | None,
        typer.Option(
            "--nccl-log",
            metavar="PATH",
            help="Logs of NCCL at INFO, * for %h and %p: the order of its rings.",
        ),
    ] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Ship what the profiler plugin sees on this host, until SIGTERM or Ctrl-C. One a host.

    Needs no privileges but to read the plugin's files. Kafka may be away: what is seen waits, within bounds.
    """
    level = _level(log_level)
    chosen = settings(kafka=kafka)
    values = {
        "--kafka": chosen.kafka,
        "--dir": directory or chosen.dir,
        "--host": host or chosen.host,
        "--budget": chosen.collector_budget_bytes if budget is None else budget,
        "--comm-records": chosen.collector_comm_records,
        "--backlog": chosen.collector_backlog_bytes,
        "--linger": chosen.collector_linger_s,
        "--metrics-port": chosen.collector_metrics_port if metrics_port is None else metrics_port,
        "--nccl-log": chosen.nccl_log if nccl_log is None else nccl_log,
        "--log-level": level,
    }
    # This process has loaded all of Mycroft; the collector stays on the host for ever and needs little of it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.execv(
        sys.executable,
        [sys.executable, "-m", "collectors.agent", *(f"{name}={value}" for name, value in values.items())],
    )


def _level(name: str) -> str:
    if not isinstance(logging.getLevelName(name.upper()), int):
        raise UsageError(f"{name!r} is no log level: DEBUG, INFO, WARNING or ERROR")
    return name.upper()
