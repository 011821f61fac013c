"""What each user of deploy/clickhouse/users.xml may do, asked of the engine that enforces it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mycroft.commands.incidents import explain
from mycroft.errors import UsageError
from queries.client import StoreError, connect, store_errors
from schemas.migrate import MigrationError, migrate
from streams.sink.rows import Rows
from streams.sink.store import RowsRefused, Store, StoreAway
from tests.integration.kafka_harness import free_ports

_ROOT = Path(__file__).parents[2]
_USERS = _ROOT / "deploy" / "clickhouse" / "users.xml"
_PASSWORDS = {f"CLICKHOUSE_{name}_PASSWORD": f"of{name.lower()}" for name in ("MIGRATIONS", "SINK", "READER")}
_LOSS = Rows("losses", (), "JSONEachRow", b'{"topic": "nccl.trace", "partition": 1, "missing": 3}\n')


@contextmanager
def engine_as(user: str, data: Path) -> Iterator[str]:
    """The engine over a folder with one user, as the URL that this user has."""
    (port,) = free_ports(1)
    command = [
        sys.executable, "-m", "tests.integration.stand_ins.clickhouse", f"--data={data}", f"--users={_USERS}",
        f"--only={user}", f"--port={port}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=_ROOT, env={**os.environ, **_PASSWORDS}, stdout=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"serving\n"
            yield f"http://{user}:of{user}@127.0.0.1:{port}"
        finally:
            process.terminate()


def ask(url: str, sql: str) -> str:
    with store_errors(url):
        return bytes(connect(url).raw_query(sql, fmt="TSV")).decode().strip()


@pytest.mark.slow
def test_each_user_may_do_its_work_and_no_more(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with engine_as("migrations", data) as url:
        assert migrate(url)
        assert migrate(url) == []
        with pytest.raises(StoreError, match="CREATE DATABASE ON other"):
            ask(url, "CREATE DATABASE other")
        with pytest.raises(StoreError, match=r"(?i)authentication failed"):
            ask(url.replace("ofmigrations", "guessed"), "SELECT 1")
    with engine_as("sink", data) as url:
        Store(url).insert(_LOSS, "first")
        with pytest.raises(StoreError, match="grant SELECT"):
            ask(url, "SELECT missing FROM nccl.losses")
        with pytest.raises(MigrationError, match="privileges"):
            migrate(url)
        with pytest.raises(StoreError, match="privileges"):
            ask(url, "TRUNCATE TABLE nccl.losses")
    with engine_as("reader", data) as url:
        assert ask(url, "SELECT missing FROM nccl.losses SETTINGS max_threads = 1") == "3"
        assert "losses" in ask(url, "SELECT name FROM system.tables WHERE database = 'nccl'").split()
        with pytest.raises((StoreAway, RowsRefused), match=r"(?i)privileges|readonly"):
            Store(url).insert(_LOSS, "second")
        with pytest.raises(StoreError, match=r"(?i)privileges|readonly"):
            ask(url, "DROP TABLE nccl.losses")
        with pytest.raises(UsageError, match="no incident abc in the store at http://127") as refused:
            explain("abc", clickhouse=url)
        assert "ofreader" not in str(refused.value)
