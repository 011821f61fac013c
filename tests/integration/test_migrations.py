"""The migrated tables are what schemas.records declares, and records go in and come out byte by byte."""

from __future__ import annotations

import socket

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client

from schemas.migrate import MigrationError, migrate
from schemas.records import RATE, RECORD_TYPES, UNKNOWN_US, Records, RecordType, enum_values

_ROWS = 5_000
by_name = pytest.mark.parametrize("record", RECORD_TYPES, ids=lambda record: record.name)


def test_second_migration_does_nothing(store_url: str, store: Client) -> None:
    tables = "SELECT name, create_table_query FROM system.tables WHERE database = 'nccl' ORDER BY name"
    migrate(store_url)
    before = store.query(tables).result_rows
    assert migrate(store_url) == []
    assert store.query(tables).result_rows == before
    assert {name for name, _ in before} >= {record.table for record in RECORD_TYPES}


def test_names_of_the_applied_migrations(embedded_store_url: str) -> None:
    client_names = migrate(embedded_store_url)
    assert client_names in ([], ["001_records", "002_answers", "003_health"])


def test_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(MigrationError) as caught:
        migrate(f"http://me:secret@127.0.0.1:{port}")
    assert str(caught.value) == f"cannot migrate ClickHouse at http://127.0.0.1:{port}: Connection refused"


@by_name
@pytest.mark.usefixtures("migrated_store_url")
def test_columns_are_the_declared_fields(store: Client, record: RecordType) -> None:
    columns = store.query(
        "SELECT name, type FROM system.columns WHERE database = 'nccl' AND table = {table:String} "
        "ORDER BY position",
        parameters={"table": record.table},
    ).result_rows
    declared = [(field.name, field.column) for field in record.fields]
    assert columns == [*declared, ("ingested", "DateTime")]


@pytest.mark.usefixtures("migrated_store_url")
def test_every_table_deduplicates_by_token(store: Client) -> None:
    missing = store.query(
        "SELECT name FROM system.tables WHERE database = 'nccl' AND name != 'schema_versions' "
        "AND engine != 'MaterializedView' "
        "AND NOT match(create_table_query, 'non_replicated_deduplication_window = [1-9]')"
    ).result_rows
    assert missing == []


@pytest.mark.usefixtures("migrated_store_url")
def test_the_tables_that_grow_are_stored_small(store: Client) -> None:
    """Without a codec a flow takes 32 bytes on disk, with one 11 (python -m benchmarks.store)."""
    plain = store.query(
        "SELECT table, name FROM system.columns "
        "WHERE database = 'nccl' AND table IN ('flows', 'coll') AND compression_codec = ''"
    ).result_rows
    assert plain == []


@by_name
@pytest.mark.usefixtures("migrated_store_url")
def test_bytes_survive_the_table(store: Client, record: RecordType) -> None:
    rows = _random(record, np.random.default_rng(record.code))
    names = [field.name for field in record.fields]
    store.raw_insert(f"nccl.{record.table}", names, rows.tobytes(), fmt="RowBinary")
    back = store.raw_query(
        f"SELECT {', '.join(f'`{name}`' for name in names)} FROM nccl.{record.table} "
        f"WHERE job = {{job:UInt64}} ORDER BY {_order(record)}",
        parameters={"job": int(rows["job"][0])},
        fmt="RowBinary",
    )
    assert back == rows.tobytes()
    store.command(f"DELETE FROM nccl.{record.table} WHERE job = {int(rows['job'][0])}")


@pytest.mark.usefixtures("migrated_store_url")
def test_rates_of_seconds_become_minutes_once(store: Client) -> None:
    """Three windows of one minute, one without a known end; the same insert again adds nothing."""
    rows = RATE.empty(3)
    rows["job"], rows["func"], rows["start"] = 5, 1, 1_700_000_000 * 10**9
    rows["n"], rows["bytes"], rows["busbw"] = [2, 3, 4], 100, [10, 0, 30]
    rows["transfer_us"], rows["duration_max_us"] = [5, UNKNOWN_US, 7], [9, UNKNOWN_US, 8]
    rows["interval_sum_us"], rows["interval_n"] = 10, 1
    names = [field.name for field in RATE.fields]
    for _ in range(2):
        store.raw_insert(
            "nccl.rates", names, rows.tobytes(), fmt="RowBinary",
            settings={
                "insert_deduplication_token": "once", "deduplicate_blocks_in_dependent_materialized_views": 1
            },
        )  # fmt: skip
    (minute,) = store.query(
        "SELECT windows, n, bytes, timed, busbw_sum, transfer_sum_us, duration_max_us, interval_sum_us, "
        "interval_n FROM nccl.rate_minutes WHERE job = 5 AND minute = '2023-11-14 22:13:00'"
    ).result_rows
    assert minute == (3, 9, 900, 2, 40, 12, 9, 30, 3)


def _random(record: RecordType, random: np.random.Generator) -> Records:
    """Records of one job with random bytes in every field, valid codes in enums, sorted by a unique seq."""
    rows = record.empty(_ROWS)
    rows.view(np.uint8)[:] = random.integers(0, 256, rows.nbytes, np.uint8)
    for name, codes in enum_values(record).items():
        rows[name] = random.choice(sorted(codes), _ROWS)
    rows["job"] = random.integers(1, 2**63)
    rows[_order(record)] = np.arange(_ROWS)
    return rows


def _order(record: RecordType) -> str:
    """A field that can be unique; not all have a seq."""
    names = {"proc": "proc", "lag": "start", "fact": "dev", "rate": "start", "baseline": "comm"}
    return names.get(record.name, "seq")
