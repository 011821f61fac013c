"""The parts of a stack: `mycroft worker` and `mycroft sink`, and what they need before they start."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from mycroft.commands.options import ClickHouse, Kafka
from mycroft.connections import settings
from schemas import migrate as migrations
from streams.process import stop_event
from streams.sink.loop import run_sink
from streams.topics import ensure_topics
from streams.worker import run as run_worker


class Level(str, Enum):
    """How much a worker tells."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


LogLevel = Annotated[Level, typer.Option("--log-level", help="How much to tell.", case_sensitive=False)]


def worker(kafka: Kafka = None, log_level: LogLevel = Level.INFO) -> None:
    """Run a worker (watch and diagnose) until SIGTERM or Ctrl-C. Several share the partitions."""
    run_worker(settings(kafka=kafka), log_level.value)


def sink(kafka: Kafka = None, clickhouse: ClickHouse = None) -> None:
    """Run the sink, from Kafka into ClickHouse, until SIGTERM or Ctrl-C. Several share the partitions."""
    run_sink(settings(kafka=kafka, clickhouse=clickhouse), stop_event(None))


def topics(kafka: Kafka = None) -> None:
    """Create the topics that Kafka lacks, and list all of them; what is there is left as it is."""
    for name, count in ensure_topics(settings(kafka=kafka)).items():
        print(f"{name}: {count} partition{'s' if count > 1 else ''}")


def migrate(clickhouse: ClickHouse = None) -> None:
    """Create or update the tables in ClickHouse."""
    url = settings(clickhouse=clickhouse).clickhouse
    applied = migrations.migrate(url)
    for name in applied:
        print(f"applied {name}")
    if not applied:
        print("nothing to do: the tables are up to date")
