"""Which Kafka and which ClickHouse a command talks to."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from mycroft.local.addresses import running
from mycroft.settings import Settings
from mycroft.variables import unknown
from schemas.shown import shown


def data_folder() -> Path:
    """Where the local stack keeps its store: MYCROFT_DATA, else `mycroft` below the user's data folder."""
    if folder := os.environ.get("MYCROFT_DATA"):
        return Path(folder)
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "mycroft"


def settings(kafka: str | None = None, clickhouse: str | None = None) -> Settings:
    """The settings, with the addresses of the running local stack where none are given.

    Order: command line, environment, file, running stack, defaults.
    """
    given = {name: value for name, value in (("kafka", kafka), ("clickhouse", clickhouse)) if value}
    _warn()
    found = Settings(**given)
    stack = running(data_folder())
    if stack is None:
        return found
    local = {"kafka": stack.kafka, "clickhouse": stack.clickhouse}
    missing = {name: value for name, value in local.items() if name not in found.model_fields_set}
    return found.model_copy(update=missing)


@cache
def _warn() -> None:
    for name, meant in unknown(os.environ):
        suggestion = f"; did you mean {meant}?" if meant else ""
        print(f"mycroft: nothing reads {shown(name)}, which is set{suggestion}", file=sys.stderr)


def collector_arguments(chosen: Settings) -> tuple[str, ...]:
    """Of `python -m collectors.agent`, but folder and host: what collectors beside a local job are given."""
    return (
        f"--kafka={chosen.kafka}",
        f"--budget={chosen.collector_budget_bytes}",
        f"--comm-records={chosen.collector_comm_records}",
        f"--backlog={chosen.collector_backlog_bytes}",
        f"--linger={chosen.collector_linger_s}",
        f"--nccl-log={chosen.nccl_log}",
        "--metrics-port=0",
    )
