"""Bring a ClickHouse's database `nccl` to the tables of `schemas/migrations`."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clickhouse_migrations.clickhouse_cluster import ClickhouseCluster

DATABASE = "nccl"
CONNECT_TIMEOUT_S = 5.0
_FOLDER = Path(__file__).parent / "migrations"


class MigrationError(Exception):
    """ClickHouse cannot be reached, or refuses a migration; the text is one line."""


def migrate(url: str) -> list[str]:
    """Apply the migrations that the database lacks, creating it if absent; returns their names in order.

    `url` is ClickHouse's HTTP interface, with user and password where it has users. A second call does
    nothing. Raises MigrationError, also where an applied migration was changed afterwards.
    """
    files = {_version(path): path.stem for path in sorted(_FOLDER.glob("[0-9]*_*.sql"))}
    try:
        # The package's client would try twice and warn in the log before it says so.
        socket.create_connection(_address(url), CONNECT_TIMEOUT_S).close()
        with _quiet_root_logger():
            cluster = ClickhouseCluster(
                db_url=url, db_name=DATABASE, driver="clickhouse-connect", connect_timeout=CONNECT_TIMEOUT_S
            )
            applied: list[Any] = cluster.migrate(DATABASE, _FOLDER)
    except Exception as error:  # the package lets its driver's errors through, whichever driver it is
        raise MigrationError(_one_line(url, error)) from error
    return [files[int(migration.version)] for migration in applied]


@contextmanager
def _quiet_root_logger() -> Iterator[None]:
    """The package tells its progress to the root logger, and gives it a handler where it has none."""
    root, silent = logging.getLogger(), logging.NullHandler()
    level = root.level
    root.addHandler(silent)
    root.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(silent)


def _version(path: Path) -> int:
    return int(path.name.split("_", 1)[0])


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http or https URL")
    return parts.hostname, parts.port or (8443 if parts.scheme == "https" else 8123)


def _one_line(url: str, error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error).split("Stack trace", 1)[0] or type(error).__name__
    parts = urlsplit(url)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return f"cannot migrate ClickHouse at {shown}: {' '.join(text.split())}"
