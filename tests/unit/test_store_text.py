"""Where the store cuts an INSERT, and how it reads type names."""

from __future__ import annotations

import pytest

from mycroft.local.store_native import split_type
from mycroft.local.store_sql import output_format, split_insert


@pytest.mark.parametrize(
    ("text", "head", "fmt", "rows"),
    [
        (b"INSERT INTO t FORMAT CSV\n1,2", b"INSERT INTO t", "CSV", b"1,2"),
        (b"INSERT INTO t FORMAT CSV \t\r\n\n1", b"INSERT INTO t", "CSV", b"\n1"),
        (b"INSERT INTO t FORMAT RowBinary\n\n\n", b"INSERT INTO t", "RowBinary", b"\n\n"),
        (b"insert into t (a, `format`) values (1)", b"insert into t (a, `format`)", "Values", b" (1)"),
        (b"INSERT INTO format FORMAT CSV\n1", b"INSERT INTO format", "CSV", b"1"),
        (b"INSERT INTO db.values VALUES (1)", b"INSERT INTO db.values", "Values", b" (1)"),
        (b"INSERT INTO t (values) VALUES (1)", b"INSERT INTO t (values)", "Values", b" (1)"),
        (b"-- FORMAT x\nINSERT INTO t FORMAT TSV\n1", b"-- FORMAT x\nINSERT INTO t", "TSV", b"1"),
        (
            b"INSERT INTO t SETTINGS a = 'FORMAT b' FORMAT CSV\n1",
            b"INSERT INTO t SETTINGS a = 'FORMAT b'",
            "CSV",
            b"1",
        ),
    ],
)
def test_insert_is_divided(text: bytes, head: bytes, fmt: str, rows: bytes) -> None:
    found = split_insert(text)
    assert found is not None
    assert b" ".join(filter(None, (found.sql, found.settings))) == head
    assert (found.format, text[found.data_at :]) == (fmt, rows)


def test_settings_are_apart() -> None:
    found = split_insert(b"INSERT INTO t (settings) SETTINGS a = 1, b = 'x' VALUES (1)")
    assert found is not None
    assert (found.sql, found.settings) == (b"INSERT INTO t (settings)", b"SETTINGS a = 1, b = 'x'")


@pytest.mark.parametrize(
    "text",
    [
        b"SELECT 'INSERT INTO t FORMAT CSV'",
        b"INSERT INTO t SELECT * FROM u FORMAT Null",
        b"INSERT INTO t WITH 1 AS x SELECT x",
        b"",
        b"INSERT",
        b"INSERT INTO t FORMAT",
    ],
)
def test_no_rows_in_the_request(text: bytes) -> None:
    assert split_insert(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"SELECT 1", "TSV"),
        (b"SELECT 1 FORMAT JSON", "JSON"),
        (b"SELECT 1 format JSON ;\n", "JSON"),
        (b"SELECT 1 FORMAT JSON SETTINGS max_threads = 1", "JSON"),
        (b"SELECT 1 /* FORMAT CSV */", "TSV"),
        (b"SELECT 'FORMAT CSV'", "TSV"),
    ],
)
def test_output_format(text: bytes, expected: str) -> None:
    assert output_format(text, "TSV") == expected


def test_type_arguments_with_brackets_and_commas_in_quotes() -> None:
    assert split_type("Tuple(a Enum8('x,)' = 1, 'y\\'(' = 2), `b,(` Array(String))") == (
        "Tuple", ["a Enum8('x,)' = 1, 'y\\'(' = 2)", "`b,(` Array(String)"],
    )  # fmt: skip
