"""What only the embedded store does: its life as a process, its folder, and who may talk to it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import urllib3

from mycroft.local import store as store_module
from mycroft.local.store_errors import StoreStartError
from mycroft.local.store_process import start_store
from queries.client import StoreError, connect

_GIVE_UP_S = 60


def test_restart_keeps_the_rows_and_takes_more(tmp_path: Path) -> None:
    store = start_store(tmp_path)
    client = connect(store.url)
    client.command("CREATE TABLE kept (a UInt64) ENGINE = MergeTree ORDER BY a")
    client.raw_insert("kept", ["a"], (5).to_bytes(8, "little"), fmt="RowBinary")
    client.close()
    assert store.stop() == 0

    store = start_store(tmp_path)
    client = connect(store.url)
    client.raw_insert("kept", ["a"], (6).to_bytes(8, "little"), fmt="RowBinary")
    assert client.query("SELECT a FROM kept ORDER BY a").result_rows == [(5,), (6,)]
    client.close()
    assert store.stop() == 0


def test_killed_store_keeps_what_it_confirmed(tmp_path: Path) -> None:
    store = start_store(tmp_path)
    client = connect(store.url)
    client.command("CREATE TABLE kept (a UInt64) ENGINE = MergeTree ORDER BY a")
    client.raw_insert("kept", ["a"], (5).to_bytes(8, "little"), fmt="RowBinary")
    client.close()
    store.process.kill()
    store.process.wait()

    store = start_store(tmp_path)
    client = connect(store.url)
    assert client.query("SELECT a FROM kept").result_rows == [(5,)]
    client.close()
    store.stop()


def test_folder_in_use(tmp_path: Path) -> None:
    store = start_store(tmp_path)
    with pytest.raises(StoreStartError, match=rf"is in use by another store \(process {store.process.pid}\)"):
        start_store(tmp_path)
    store.stop()


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreStartError, match=r"^cannot write to .*/file/below: Not a directory"):
        start_store(tmp_path / "file" / "below")


def test_folder_that_the_engine_would_misread(tmp_path: Path) -> None:
    with pytest.raises(StoreStartError, match="question mark"):
        start_store(tmp_path / "a?readonly=1")


def test_port_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StoreStartError, match=rf"^port {port} on 127.0.0.1 is taken"):
            start_store(tmp_path, port=port)


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=10 * 1024**2))
    with pytest.raises(StoreStartError, match="has 10 MiB free, at least 256 MiB are needed"):
        store_module.lock_folder(tmp_path)


def test_ends_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed without a chance to stop it; then its folder becomes free."""
    program = (
        "import os, pathlib, signal, sys\n"
        "from mycroft.local.store_process import start_store\n"
        "print(start_store(pathlib.Path(sys.argv[1])).url, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=False)
    assert ended.stdout.startswith(b"http://127.0.0.1:")
    deadline = time.monotonic() + _GIVE_UP_S
    while True:
        try:
            lock = store_module.lock_folder(tmp_path)
            break
        except StoreStartError:
            assert time.monotonic() < deadline, "the store outlived its parent"
            time.sleep(0.05)
    lock.close()


def test_stop_does_not_wait_for_a_long_statement(tmp_path: Path) -> None:
    store = start_store(tmp_path)
    pool = urllib3.PoolManager(retries=False)
    slow = "SELECT sleepEachRow(3) FROM numbers(1000) SETTINGS max_block_size = 1"
    with pytest.raises(urllib3.exceptions.TimeoutError):
        pool.request("POST", store.url, body=slow.encode(), timeout=1.0)
    assert store.stop(timeout_s=_GIVE_UP_S) == 0


def test_web_pages_are_kept_out(embedded_store_url: str) -> None:
    url = f"{embedded_store_url}/?query=SELECT%201"
    assert urllib3.request("GET", url).data == b"1\n"
    assert urllib3.request("GET", url, headers={"Origin": "http://example.org"}).status == 403
    assert urllib3.request("GET", url, headers={"Host": "rebound.example.org"}).status == 403


def test_block_compression_is_refused_in_words(embedded_store_url: str) -> None:
    answer = urllib3.request("POST", f"{embedded_store_url}/?compress=1", body=b"SELECT 1")
    assert answer.status == 501
    assert b"use enable_http_compression" in answer.data


def test_store_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(StoreError) as caught:
        connect(f"http://me:secret@127.0.0.1:{port}")
    assert str(caught.value) == (
        f"ClickHouse at http://127.0.0.1:{port} does not answer (Connection refused): "
        "start the local stack with 'mycroft up', or point --clickhouse (MYCROFT_CLICKHOUSE) at one"
    )
