"""What every ClickHouse that Mycroft uses has to do over HTTP, the embedded one first of all.

Runs on a real server too: set MYCROFT_TEST_CLICKHOUSE to its URL.
"""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
import threading
import uuid
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast
from urllib.parse import urlencode, urlsplit

import clickhouse_connect
import numpy as np
import pytest
import urllib3
from clickhouse_connect.driver.client import Client
from typer.testing import CliRunner

from mycroft.cli import app
from mycroft.errors import FAILED, explain
from queries.client import StoreError, connect, store_errors

BLOCK_INFO = bytes.fromhex("01 00 02 ffffffff 00")
FRAMED = "54454"  # the first protocol revision with a serialization byte after each type
Ask = Callable[..., urllib3.BaseHTTPResponse]


@pytest.fixture
def ask(store_url: str) -> Ask:
    """One raw request: a statement or rows as the body, URL parameters by name."""
    parts = urlsplit(store_url)
    root = f"{parts.scheme}://{parts.hostname}:{parts.port}"
    login = f"{parts.username or 'default'}:{parts.password or ''}"
    authorization = {"Authorization": "Basic " + base64.b64encode(login.encode()).decode()}

    def request(
        body: bytes | str = b"",
        method: str = "POST",
        path: str = "/",
        headers: dict[str, str] | None = None,
        **parameters: str,
    ) -> urllib3.BaseHTTPResponse:
        url = f"{root}{path}" + (f"?{urlencode(parameters)}" if parameters else "")
        raw = body.encode() if isinstance(body, str) else body
        return urllib3.request(
            method, url, body=raw or None, headers=authorization | (headers or {}), decode_content=False
        )

    return request


def test_ping(ask: Ask) -> None:
    answer = ask(method="GET", path="/ping")
    assert (answer.status, answer.data) == (200, b"Ok.\n")
    assert ask(method="GET").data == b"Ok.\n"
    assert ask(method="HEAD", path="/ping").status == 200


def test_statement_in_url_and_in_body(ask: Ask) -> None:
    assert ask(method="GET", query="SELECT 2 + 3").data == b"5\n"
    assert ask("SELECT 2 + 3").data == b"5\n"
    assert ask(" + 3", query="SELECT 2").data == b"5\n"


def test_headers(ask: Ask) -> None:
    query_id = str(uuid.uuid4())
    answer = ask("SELECT 1 FORMAT JSONEachRow", query_id=query_id)
    assert answer.headers["X-ClickHouse-Query-Id"] == query_id
    assert answer.headers["X-ClickHouse-Format"] == "JSONEachRow"
    assert answer.headers["Content-Type"] == "application/x-ndjson; charset=UTF-8"
    assert answer.headers["X-ClickHouse-Timezone"]
    assert answer.headers["X-ClickHouse-Server-Display-Name"]
    assert ask("SELECT 1").headers["X-ClickHouse-Query-Id"] not in ("", query_id)


def test_summary_counts_written_rows(ask: Ask, scratch: str) -> None:
    ask(f"CREATE TABLE {scratch}.t (a UInt8) ENGINE = MergeTree ORDER BY a")
    answer = ask("1\n2\n3\n", query=f"INSERT INTO {scratch}.t FORMAT TSV", async_insert="0")
    assert json.loads(answer.headers["X-ClickHouse-Summary"])["written_rows"] == "3"


@pytest.mark.parametrize(
    ("fmt", "expected"),
    [
        ("TSV", b"258\tx\\ty\n"),
        ("CSV", b'258,"x\ty"\n'),
        ("JSONEachRow", b'{"a":258,"s":"x\\ty"}\n'),
        ("RowBinary", b"\x02\x01\x03x\ty"),
        ("Native", b"\x02\x01\x01a\x06UInt16\x02\x01\x01s\x06String\x03x\ty"),
    ],
)
def test_formats(ask: Ask, fmt: str, expected: bytes) -> None:
    sql = "SELECT toUInt16(258) AS a, 'x\\ty' AS s"
    assert ask(f"{sql} FORMAT {fmt}").data == expected
    assert ask(sql, default_format=fmt).data == expected
    assert ask(f"{sql} FORMAT {fmt}", default_format="Null").data == expected


def test_json_and_pretty(ask: Ask) -> None:
    answer = ask("SELECT toUInt16(258) AS a FORMAT JSON").json()
    assert answer["meta"] == [{"name": "a", "type": "UInt16"}]
    assert answer["data"] == [{"a": 258}]
    assert "258" in ask("SELECT 258 AS a FORMAT PrettyCompact").data.decode()


@pytest.mark.parametrize(
    ("expression", "kind", "data"),
    [
        ("258", "UInt16", b"\x02\x01"),
        ("[toLowCardinality('x'), 'y']", "Array(LowCardinality(String))",
         # prefix, offsets, index of 1 byte with own keys, keys, indexes
         (1).to_bytes(8, "little") + (2).to_bytes(8, "little") + bytes.fromhex("0006000000000000")
         + (3).to_bytes(8, "little") + b"\x00\x01x\x01y" + (2).to_bytes(8, "little") + b"\x01\x02"),
        ("map('k', toNullable(toUInt8(7)))", "Map(String, Nullable(UInt8))",
         (1).to_bytes(8, "little") + b"\x01k" + b"\x00\x07"),
        ("CAST((1, 'é'), 'Tuple(n UInt8, `a b` String)')", "Tuple(n UInt8, `a b` String)",
         b"\x01\x02\xc3\xa9"),
        ("repeat('z', 200)", "String", b"\xc8\x01" + b"z" * 200),
    ],
)  # fmt: skip
def test_native_for_clients_that_name_a_revision(ask: Ask, expression: str, kind: str, data: bytes) -> None:
    """clickhouse-go and Grafana read this; `m` after it shows that the end of the column was found."""
    sql = f"SELECT materialize(CAST({expression}, '{kind}')) AS c, toUInt8(9) AS m FORMAT Native"
    answer = ask(sql, client_protocol_version=FRAMED).data
    name = kind.encode()
    expected = b"\x02\x01\x01c" + bytes([len(name)]) + name + b"\x00" + data + b"\x01m\x05UInt8\x00\x09"
    assert answer == BLOCK_INFO + expected


def test_parameters(store: Client) -> None:
    text = "it's\t\\ \n ü {x:UInt8}"
    answer = store.query(
        "SELECT {n:UInt64}, {s:String}, {a:Array(String)}, {missing:Nullable(String)}",
        parameters={"n": 2**64 - 1, "s": text, "a": ["b'", "c"], "missing": None},
    )
    assert answer.result_rows == [(2**64 - 1, text, ["b'", "c"], None)]


def test_parameters_too_long_for_a_url(store: Client) -> None:
    assert store.query("SELECT length({s:String})", parameters={"s": "ü" * 50_000}).result_rows == [
        (100_000,)
    ]


def test_parameters_in_insert(ask: Ask, scratch: str) -> None:
    ask(f"CREATE TABLE {scratch}.t (a UInt8, s String) ENGINE = MergeTree ORDER BY a")
    answer = ask(f"INSERT INTO {scratch}.t VALUES ({{a:UInt8}}, {{s:String}})", param_a="7", param_s="it's")
    assert answer.status == 200, answer.data
    assert ask(f"SELECT * FROM {scratch}.t").data == b"7\tit\\'s\n"


def test_database_holds_for_one_request(ask: Ask, scratch: str) -> None:
    session = str(uuid.uuid4())
    assert (
        ask("SELECT currentDatabase()", database=scratch, session_id=session).data.decode() == f"{scratch}\n"
    )
    assert ask("SELECT currentDatabase()", session_id=session).data == b"default\n"


@pytest.mark.parametrize(
    ("sql", "code", "status"),
    [
        ("SELEC 1", 62, 400),
        ("SELECT nothing", 47, 404),
        ("SELECT * FROM nothing", 60, 404),
        ("SELECT 1 SETTINGS nothing = 1", 115, 404),
        ("SELECT throwIf(1)", 395, 500),
        ("SELECT 1; SELECT 2", 62, 400),
        ("", 62, 400),
    ],
)
def test_errors(ask: Ask, sql: str, code: int, status: int) -> None:
    answer = ask(sql)
    assert answer.status == status
    assert answer.headers["X-ClickHouse-Exception-Code"] == str(code)
    assert answer.data.decode().startswith(f"Code: {code}. DB::Exception: ")


def test_unknown_database_and_setting_in_url(ask: Ask) -> None:
    assert ask("SELECT 1", database="nothing").headers["X-ClickHouse-Exception-Code"] == "81"
    assert ask("SELECT 1", nothing="1").headers["X-ClickHouse-Exception-Code"] == "115"


def test_get_changes_nothing(ask: Ask, scratch: str) -> None:
    answer = ask(method="GET", query=f"CREATE TABLE {scratch}.t (a UInt8) ENGINE = Memory")
    assert answer.headers["X-ClickHouse-Exception-Code"] == "164"
    assert ask(f"EXISTS TABLE {scratch}.t").data == b"0\n"


def test_client_errors_are_one_line(store_url: str, store: Client) -> None:
    with pytest.raises(StoreError, match=r"^Code: 60\. .*\(UNKNOWN_TABLE\)$"), store_errors(store_url):
        store.query("SELECT * FROM nothing")
    with pytest.raises(StoreError, match=r"^Code: 62\. Syntax error") as caught, store_errors(store_url):
        store.command("SELEC 1")
    assert str(caught.value).endswith(" (SYNTAX_ERROR)")
    assert "Expected one of" not in str(caught.value)


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_statement(ask: Ask, encoding: str, compress: Callable[[bytes], bytes]) -> None:
    body = compress(b"SELECT 40 + 2")
    assert ask(body, headers={"Content-Encoding": encoding}).data == b"42\n"


def test_broken_compressed_body(ask: Ask) -> None:
    answer = ask(b"no gzip", headers={"Content-Encoding": "gzip"})
    assert answer.status >= 400
    assert answer.data.startswith(b"Code: ")


@pytest.mark.parametrize("method", ["lz4", "zstd", "gzip"])
def test_client_with_compression(store_url: str, scratch: str, method: str) -> None:
    """Inserts of several blocks, each its own frame, and answers that the client decompresses."""
    parts = urlsplit(store_url)
    client = clickhouse_connect.get_client(
        dsn=store_url, interface=parts.scheme, port=parts.port or 8123, compress=method
    )
    client.command(f"CREATE TABLE {scratch}.t (a UInt64, s String) ENGINE = MergeTree ORDER BY a")
    rows = 150_000
    client.insert(f"{scratch}.t", [[i, f"row {i}"] for i in range(rows)], column_names=["a", "s"])
    found = client.query(f"SELECT a, s FROM {scratch}.t ORDER BY a").result_rows
    assert len(found) == rows
    assert found[-1] == (rows - 1, f"row {rows - 1}")
    client.close()


def test_answers_are_compressed_only_when_asked(ask: Ask) -> None:
    accept = {"Accept-Encoding": "gzip"}
    plain = ask("SELECT 1", headers=accept, enable_http_compression="0")
    assert "Content-Encoding" not in plain.headers
    packed = ask("SELECT 1", headers=accept, enable_http_compression="1")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == b"1\n"


def test_set_stays_in_its_session(ask: Ask) -> None:
    ours, theirs = str(uuid.uuid4()), str(uuid.uuid4())
    value = "SELECT getSetting('max_block_size')"
    before = ask(value).data
    assert ask("SET max_block_size = 1234", session_id=ours).status == 200
    assert ask("SET max_block_size = 4321").status == 200  # without a session it holds for itself alone
    assert ask(value, session_id=ours).data == b"1234\n"
    assert ask(value, session_id=theirs).data == before
    assert ask(value).data == before


def test_settings_in_the_url_hold_for_one_statement(ask: Ask) -> None:
    session = str(uuid.uuid4())
    value = "SELECT getSetting('max_block_size')"
    default = ask(value, session_id=session).data
    assert ask(value, session_id=session, max_block_size="11").data == b"11\n"
    assert ask(value, session_id=session).data == default
    ask("SET max_block_size = 22", session_id=session)
    assert ask(value, session_id=session, max_block_size="11").data == b"11\n"
    assert ask(value, session_id=session).data == b"22\n"


def test_temporary_tables_live_in_a_session(ask: Ask) -> None:
    session = str(uuid.uuid4())
    ask("CREATE TEMPORARY TABLE kept (a UInt8)", session_id=session)
    ask("INSERT INTO kept VALUES (5)", session_id=session)
    assert ask("SELECT a FROM kept", session_id=session).data == b"5\n"
    assert ask("SELECT a FROM kept").headers["X-ClickHouse-Exception-Code"] == "60"


def test_session_check(ask: Ask) -> None:
    answer = ask("SELECT 1", session_id=str(uuid.uuid4()), session_check="1")
    assert answer.headers["X-ClickHouse-Exception-Code"] == "372"


def test_session_takes_one_statement_at_a_time(ask: Ask) -> None:
    session = str(uuid.uuid4())
    codes: set[str | None] = set()

    def wait() -> None:
        codes.add(ask("SELECT sleep(2)", session_id=session).headers.get("X-ClickHouse-Exception-Code"))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while waiting.is_alive():
        codes.add(ask("SELECT 1", session_id=session).headers.get("X-ClickHouse-Exception-Code"))
    assert "373" in codes


def test_token_inserts_once(store: Client, scratch: str) -> None:
    store.command(
        f"CREATE TABLE {scratch}.t (a UInt64) ENGINE = MergeTree ORDER BY a "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    rows = np.arange(10, dtype="<u8").tobytes()

    def insert(token: str) -> None:
        store.raw_insert(
            f"{scratch}.t", ["a"], rows, fmt="RowBinary",
            settings={"insert_deduplication_token": token, "async_insert": 0},
        )  # fmt: skip

    insert("first")
    insert("first")
    assert store.query(f"SELECT count() FROM {scratch}.t").result_rows == [(10,)]
    insert("second")
    assert store.query(f"SELECT count() FROM {scratch}.t").result_rows == [(20,)]


@pytest.mark.parametrize("place", ["url", "body"])
def test_rows_may_hold_any_bytes(ask: Ask, scratch: str, place: str) -> None:
    """Empty lines, semicolons, quotes and comments in binary rows end nothing."""
    ask(f"CREATE TABLE {scratch}.t (s String) ENGINE = MergeTree ORDER BY s")
    values = [bytes(range(256)), b"\n\n", b";\n\n;", b"'); -- /*", b"", b"FORMAT CSV\n1"]
    rows = b"".join(_row_binary_string(value) for value in values)
    sql = f"INSERT INTO {scratch}.t (s) FORMAT RowBinary"
    if place == "url":
        answer = ask(rows, query=sql, async_insert="0")
    else:
        answer = ask(sql.encode() + b"\n" + rows, async_insert="0")
    assert answer.status == 200, answer.data
    found = ask(f"SELECT s FROM {scratch}.t ORDER BY s FORMAT RowBinary").data
    assert found == b"".join(_row_binary_string(value) for value in sorted(values))


def _row_binary_string(value: bytes) -> bytes:
    size = len(value)
    return (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + value


@pytest.mark.parametrize(
    ("sql", "body"),
    [
        ("INSERT INTO {t} VALUES (1, 'a;\\n\\nb'), (2, 'c')", ""),
        ("INSERT INTO {t} (a, s)", "VALUES (1, 'a;\\n\\nb'), (2, 'c')"),
        ("INSERT INTO {t} FORMAT Values", "(1, 'a;\\n\\nb'), (2, 'c')"),
        ("INSERT INTO {t} SETTINGS async_insert = 0 FORMAT TSV", "1\ta;\\n\\nb\n2\tc\n"),
        ("/* FORMAT */ insert into {t} format JSONEachRow", '{"a":1,"s":"a;\\n\\nb"}{"a":2,"s":"c"}'),
        ("INSERT INTO {t} SELECT 1, 'a;\\n\\nb' UNION ALL SELECT 2, 'c'", ""),
    ],
)
def test_ways_to_insert(ask: Ask, scratch: str, sql: str, body: str) -> None:
    ask(f"CREATE TABLE {scratch}.t (a UInt8, s String) ENGINE = MergeTree ORDER BY a")
    text = sql.replace("{t}", f"{scratch}.t")
    answer = ask(body, query=text) if body else ask(text)
    assert answer.status == 200, answer.data
    assert ask(f"SELECT * FROM {scratch}.t ORDER BY a").data == b"1\ta;\\n\\nb\n2\tc\n"


def test_bad_rows_insert_nothing(ask: Ask, scratch: str) -> None:
    ask(f"CREATE TABLE {scratch}.t (a UInt64) ENGINE = MergeTree ORDER BY a")
    answer = ask(bytes(8 * 3 + 1), query=f"INSERT INTO {scratch}.t FORMAT RowBinary", async_insert="0")
    assert answer.headers["X-ClickHouse-Exception-Code"] == "33"
    assert ask(f"SELECT count() FROM {scratch}.t").data == b"0\n"


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ("(a UInt64, CONSTRAINT small CHECK a < 100) ENGINE = MergeTree ORDER BY a", 469),
        ("(a UInt64) ENGINE = MergeTree ORDER BY a PARTITION BY a", 252),
    ],
)
def test_refused_write_is_an_error(ask: Ask, scratch: str, table: str, code: int) -> None:
    """Found while writing, not while parsing: chDB's streaming insert answers this with success."""
    ask(f"CREATE TABLE {scratch}.t {table}")
    rows = np.arange(1000, dtype="<u8").tobytes()
    answer = ask(rows, query=f"INSERT INTO {scratch}.t FORMAT RowBinary", async_insert="0")
    assert answer.headers["X-ClickHouse-Exception-Code"] == str(code)
    assert ask(f"SELECT count() FROM {scratch}.t").data == b"0\n"


def test_million_rows_of_a_structured_array(store: Client, scratch: str) -> None:
    store.command(f"CREATE TABLE {scratch}.t (n UInt64, w UInt32, i Int16) ENGINE = MergeTree ORDER BY n")
    rows = np.zeros(1_000_000, [("n", "<u8"), ("w", "<u4"), ("i", "<i2")])
    rows["n"] = np.arange(len(rows))
    rows["w"] = rows["n"] % 1000
    rows["i"] = -1
    # Annotated too narrowly by the client: it sends any buffer of bytes as it is, without a copy.
    body = cast(bytes, rows.view(np.uint8).data)
    store.raw_insert(f"{scratch}.t", ["n", "w", "i"], body, fmt="RowBinary")
    sums = store.query(f"SELECT count(), sum(n), sum(w), sum(i) FROM {scratch}.t").result_rows
    assert sums == [(1_000_000, 499_999_500_000, 499_500_000, -1_000_000)]
    assert store.raw_query(f"SELECT * FROM {scratch}.t ORDER BY n", fmt="RowBinary") == rows.tobytes()


def test_concurrent_clients(store_url: str, scratch: str) -> None:
    """Reads, inserts and settings at once; each client sees its own answers."""
    first = connect(store_url)
    first.command(f"CREATE TABLE {scratch}.t (who UInt8, n UInt32) ENGINE = MergeTree ORDER BY n")

    def work(who: int) -> list[str]:
        client, wrong = connect(store_url), []
        for n in range(15):
            client.raw_insert(
                f"{scratch}.t", ["who", "n"], f"{who}\t{n}\n", fmt="TSV", settings={"async_insert": 0}
            )
            found = client.query(
                f"SELECT {who} * 1000 + {n}, sum(number), getSetting('max_block_size') FROM numbers(1000)",
                settings={"max_block_size": 100 + who},
            ).result_rows
            if found != [(who * 1000 + n, 499_500, 100 + who)]:
                wrong.append(f"{who} {n}: {found}")
        client.close()
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert [line for lines in pool.map(work, range(8)) for line in lines] == []
    counts = first.query(
        f"SELECT who, count(), sum(n) FROM {scratch}.t GROUP BY who ORDER BY who"
    ).result_rows
    assert counts == [(who, 15, 105) for who in range(8)]
    first.close()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl(store_url: str, scratch: str) -> None:
    def curl(*arguments: str, given: bytes = b"") -> bytes:
        return subprocess.run(
            ["curl", "-sS", *arguments], input=given, capture_output=True, check=True
        ).stdout

    url = store_url.rstrip("/")
    assert curl(f"{url}/ping") == b"Ok.\n"
    assert curl(f"{url}/", "-d", "SELECT 1 FORMAT JSONEachRow") == b'{"1":1}\n'
    curl(f"{url}/", "-d", f"CREATE TABLE {scratch}.t (a UInt32) ENGINE = MergeTree ORDER BY a")
    query = urlencode({"query": f"INSERT INTO {scratch}.t FORMAT RowBinary"})
    curl(f"{url}/?{query}", "--data-binary", "@-", given=bytes([7, 0, 0, 0, 10, 10, 10, 10]))
    assert curl(f"{url}/", "-d", f"SELECT a FROM {scratch}.t ORDER BY a") == b"7\n168430090\n"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("SELECT 1 AS a", "a\n1\n"),
        ("SELECT 1 AS a;", "a\n1\n"),
        ("SELECT 1 AS a -- FORMAT JSON", "a\n1\n"),
        ("SELECT 1 AS a FORMAT CSV", "1\n"),
        ("SELECT 1 AS a format Vertical", "Row 1:\n──────\na: 1\n"),
    ],
)
def test_a_statement_may_name_its_format(store_url: str, statement: str, told: str) -> None:
    done = CliRunner().invoke(app, ["sql", statement, "--clickhouse", store_url])
    assert (done.exit_code, done.stdout) == (0, told)


def test_a_format_that_does_not_exist_is_one_line(store_url: str) -> None:
    done = CliRunner().invoke(app, ["sql", "SELECT 1", "--format", "Nonsense", "--clickhouse", store_url])
    line, status = explain(done.exception or Exception()) or ("", 0)
    assert status == FAILED
    assert "Nonsense" in line
