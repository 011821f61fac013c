"""Stores for tests: `store_url` is the embedded one and, with MYCROFT_TEST_CLICKHOUSE, that server too.

Tests create databases and tables there, `nccl` among them, so it has to be a server for tests only.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from mycroft.local.store_process import start_store
from queries.client import connect
from schemas.migrate import migrate

_SERVER = os.environ.get("MYCROFT_TEST_CLICKHOUSE", "")


@pytest.fixture(scope="session")
def embedded_store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an embedded store that lasts for the test session."""
    store = start_store(Path(tmp_path_factory.mktemp("store")))
    yield store.url
    store.stop()


@pytest.fixture(scope="session", params=["embedded", *(["clickhouse"] if _SERVER else [])])
def store_url(request: pytest.FixtureRequest) -> str:
    """URL of a ClickHouse; tests that take it run once for each kind."""
    return str(request.getfixturevalue("embedded_store_url")) if request.param == "embedded" else _SERVER


@pytest.fixture(scope="session")
def migrated_store_url(store_url: str) -> str:
    """URL of a ClickHouse whose database `nccl` has all migrations; tables are shared by all tests."""
    migrate(store_url)
    return store_url


@pytest.fixture
def store(store_url: str) -> Iterator[Client]:
    """A client of a ClickHouse."""
    client = connect(store_url)
    yield client
    client.close()


@pytest.fixture
def scratch(store: Client) -> Iterator[str]:
    """A database for one test, dropped after it."""
    name = f"test_{uuid.uuid4().hex}"
    store.command(f"CREATE DATABASE {name}")
    yield name
    store.command(f"DROP DATABASE {name}")
