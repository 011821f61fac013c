"""The commands as a user runs them: exit status, what is printed where, what is left behind."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from jsonschema import Draft202012Validator

from mycroft.local.addresses import running
from schemas.incidents import alert_schema
from tests.cases import CASES
from tests.oracle_runs import run_path
from tests.recordings import recorded

MYCROFT = str(Path(sys.executable).with_name("mycroft"))
PATIENCE_S = 60


def _environment(folder: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MYCROFT_")}
    return {**clean, "MYCROFT_DATA": str(folder / "data"), "TMPDIR": str(folder), "COLUMNS": "200"}


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [MYCROFT, *arguments], capture_output=True, text=True, env=_environment(folder), cwd=folder,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def _one_line(done: subprocess.CompletedProcess[str], status: int) -> str:
    """The line on stderr of a command that refused its input."""
    assert (done.returncode, done.stdout) == (status, ""), done
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    return lines[0]


def test_diagnose_as_json(tmp_path: Path) -> None:
    folder, _ = recorded("gloo_hang")
    done = _run(tmp_path, "diagnose", str(folder), "--json")
    assert done.returncode == 3, done.stderr
    body = json.loads(done.stdout)
    assert set(body) == {"incidents"}
    (incident,) = body["incidents"]
    Draft202012Validator(alert_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
        incident
    )
    assert [node["rank"] for node in incident["culprits"]] == [5]
    assert incident["category"] == "late-launch"
    assert list(tmp_path.iterdir()) == [], "the temporary folder is left behind"


def test_diagnose_for_a_person(tmp_path: Path) -> None:
    folder, _ = recorded("gloo_p2p_hang")
    done = _run(tmp_path, "diagnose", str(folder))
    assert done.returncode == 3
    assert "candidates: rank 2, rank 6" in done.stdout
    assert "records no point-to-point operations" in done.stdout


def test_diagnose_of_a_healthy_job(tmp_path: Path) -> None:
    folder, _ = recorded("gloo_healthy")
    done = _run(tmp_path, "diagnose", str(folder))
    assert done.returncode == 0
    assert "nothing found" in done.stdout


@pytest.mark.slow
def test_diagnose_of_a_recorded_run_as_json(tmp_path: Path) -> None:
    done = _run(tmp_path, "diagnose", str(run_path("n2_pxn8_kill4")), "--tier", "ops", "--json")
    assert done.returncode == 3, done.stderr
    (incident,) = json.loads(done.stdout)["incidents"]
    assert incident["category"] == "process-dead"
    assert [(node["rank"], node["host"]) for node in incident["culprits"]] == [(4, "host1")]
    assert "8 ranks on 2 hosts" in done.stderr
    assert list(tmp_path.iterdir()) == [], "the temporary folder is left behind"


@pytest.mark.slow
def test_diagnose_of_a_healthy_recorded_run(tmp_path: Path) -> None:
    done = _run(tmp_path, "diagnose", str(run_path("n_netprof2")))
    assert done.returncode == 0, done.stderr
    assert "n_netprof2: nothing found" in done.stdout


class _Hostile:
    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.witness}",)


def test_a_hostile_pickle_is_refused_and_not_executed(tmp_path: Path) -> None:
    dumps, witness = tmp_path / "dumps", tmp_path / "witness"
    dumps.mkdir()
    (dumps / "_dump_0").write_bytes(pickle.dumps({"version": "2.9", "entries": [_Hostile(witness)]}))
    line = _one_line(_run(tmp_path, "diagnose", str(dumps)), 2)
    assert "_dump_0" in line
    assert "system" in line
    assert not witness.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("diagnose", "absent"), "absent"),
        (("diagnose", "."), "no Flight Recorder dump"),
        (("diagnose", ".", "--tier", "flow"), "unknown tier 'flow': one of ops, flows, kernel"),
        (("diagnose", ".", "--tier", "flows"), "--tier is for recorded runs"),
        (("diagnose", ".", "--slow"), "--slow is for recorded runs"),
        (("diagnose", str(run_path("n_netprof2")), "--job", "none"), "'none' is a placeholder"),
        (
            ("diagnose", str(run_path("n_netprof2").with_name("manifest.json"))),
            "manifest.json is no zstd file",
        ),
        (("import", "flight-recorder", ".", "--job", "none"), "'none' is a placeholder"),
        (("explain", "xyz"), "'xyz' is no incident id"),
    ],
)
def test_bad_input_is_one_line_and_status_2(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    assert told in _one_line(_run(tmp_path, *arguments), 2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b'{"version": "2.9", "entries": []}', "line 1: t is no integer"),
        (b"[]", "line 1: no JSON object"),
        (b"", "holds no callback"),
    ],
)
def test_json_that_is_no_run_is_refused(tmp_path: Path, text: bytes, told: str) -> None:
    path = tmp_path / "dump.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(text))
    line = _one_line(_run(tmp_path, "diagnose", str(path)), 2)
    assert str(path) in line
    assert told in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("incidents", "--clickhouse", "http://127.0.0.1:9"), "http://127.0.0.1:9"),
        (("sql", "SELECT 1", "--clickhouse", "http://127.0.0.1:9"), "http://127.0.0.1:9"),
        (("alerts", "--kafka", "127.0.0.1:9"), "127.0.0.1:9"),
        (("worker", "--kafka", "127.0.0.1:9"), "127.0.0.1:9"),
    ],
)
def test_what_does_not_answer_is_named(tmp_path: Path, arguments: tuple[str, ...], told: str) -> None:
    assert told in _one_line(_run(tmp_path, *arguments), 1)


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "mycroft.toml").write_text("partitions = 'many'\n")
    line = _one_line(_run(tmp_path, "incidents"), 2)
    assert "partitions" in line
    assert "many" in line


class _Up:
    """`mycroft up` in the foreground of nobody."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "up.log").open("w+")
        self.process = subprocess.Popen(
            [MYCROFT, "up", "--port", "0"],
            stdout=self._log,
            stderr=self._log,
            env=_environment(folder),
            cwd=folder,
        )
        deadline = time.monotonic() + PATIENCE_S
        while (found := running(folder / "data")) is None:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)
        self.addresses = found

    def said(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def end(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[_Up]:
    started = _Up(tmp_path)
    yield started
    if started.process.poll() is None:
        started.end(signal.SIGTERM)


def _children(pid: int) -> dict[str, int]:
    """Parts of the stack by module, from /proc."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if int(fields[1]) == pid and b"-m" in command:
            found[command[command.index(b"-m") + 1].decode()] = int(entry.name)
    return found


def _incidents(folder: Path) -> list[dict[str, Any]]:
    done = _run(folder, "incidents", "--all", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["incidents"]
    return found


def _bring(folder: Path, job: str, attempts: int = 1) -> None:
    """Import a hung job and wait for its incident, the last of as many attempts."""
    (case,) = [case for case in CASES if case.name == "late"]
    dumps = case.write(folder / f"dumps-{job}-{attempts}")
    done = _run(folder, "import", "flight-recorder", str(dumps), "--job", job)
    assert done.returncode == 0, done.stderr
    deadline = time.monotonic() + PATIENCE_S
    while [one["job"] for one in _incidents(folder)].count(job) < attempts:
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.slow
def test_a_stack_from_start_to_restart(up: _Up, tmp_path: Path) -> None:
    _bring(tmp_path, "first")
    assert "mycroft sql" in up.said()
    (incident,) = _incidents(tmp_path)
    explained = _run(tmp_path, "explain", incident["id"][:6])
    assert explained.returncode == 0
    assert "Rank 3 never launched" in explained.stdout
    alerts = _run(tmp_path, "alerts", "--json")
    assert [json.loads(line)["id"] for line in alerts.stdout.splitlines()] == [incident["id"]]
    counted = _run(tmp_path, "sql", "SELECT count() AS n FROM nccl.incidents FINAL", "--json")
    assert json.loads(counted.stdout) == {"n": 1}
    wrong = _run(tmp_path, "sql", "SELEC 1")
    assert "SYNTAX_ERROR" in _one_line(wrong, 1)
    again = _run(tmp_path, "up")
    assert "runs on" in _one_line(again, 2)
    children = _children(up.process.pid)
    assert len(children) == 4
    assert up.end() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())
    second = _Up(tmp_path)
    try:
        assert [one["job"] for one in _incidents(tmp_path)] == ["first"]
        _bring(tmp_path, "second")
        assert {one["job"] for one in _incidents(tmp_path)} == {"first", "second"}
        # The broker has forgotten the first attempt, the stack has not: a new one replaces it.
        _bring(tmp_path, "first", attempts=2)
        states = [one["state"] for one in _incidents(tmp_path) if one["job"] == "first"]
        assert sorted(states) == ["closed", "open"]
    finally:
        assert second.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_when_the_broker_dies_the_stack_ends_and_says_so(up: _Up, tmp_path: Path) -> None:
    children = _children(up.process.pid)
    os.kill(children["mycroft.local.broker"], signal.SIGKILL)
    assert up.process.wait(PATIENCE_S) == 1
    assert "the embedded broker ended" in up.said()
    assert "Traceback" not in up.said()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children.values())
    assert running(tmp_path / "data") is None


@pytest.mark.slow
def test_when_the_stack_is_killed_nothing_is_left_running(up: _Up) -> None:
    children = _children(up.process.pid)
    up.process.kill()
    up.process.wait()
    deadline = time.monotonic() + PATIENCE_S
    while any(Path(f"/proc/{pid}").exists() for pid in children.values()):
        assert time.monotonic() < deadline, "parts of the stack outlive it"
        time.sleep(0.1)
