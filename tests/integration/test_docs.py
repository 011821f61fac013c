"""What the pages in docs/ tell a reader to type does what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from mycroft.local.addresses import running
from mycroft.settings import Settings
from queries.catalogue import catalogue
from streams.topics import ensure_topics
from tests.alerts import an_incident, tell
from tests.integration.kafka_fixtures import Broker
from tests.integration.kafka_harness import in_ci
from tests.integration.lived_store import Lived

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


def _blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / page).read_text(), re.M | re.S)


def _commands(page: str) -> list[str]:
    lines = [line.split("  #")[0].strip() for block in _blocks(page, "sh") for line in block.splitlines()]
    return [line for line in lines if line]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With a `mycroft` that is this tree's, first on the path."""
    script = tmp_path / "bin" / "mycroft"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m mycroft.cli "$@"\n')
    script.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MYCROFT_")}
    path = f"{script.parent}:{clean['PATH']}"
    return {**clean, "PATH": path, "PYTHONPATH": str(ROOT), "MYCROFT_DATA": str(tmp_path / "data")}


def _sh(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, cwd=folder, env=environment, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("line", _commands("incidents.md"))
def test_commands_of_the_page_on_incidents(
    line: str, lived: Lived, tmp_path: Path, environment: dict[str, str]
) -> None:
    given = {"MYCROFT_CLICKHOUSE": lived.url, "ID": lived.hang[:8], "HOST": "host0"}
    done = _sh(line, tmp_path, {**environment, **given})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if "-o incident.html" in line:
        assert lived.hang in (tmp_path / "incident.html").read_text()
    elif not line.startswith("mycroft query"):
        assert done.stdout.strip()


def test_every_question_of_the_page_exists() -> None:
    names = re.findall(r"mycroft query ([a-z-]+)", "\n".join(_commands("incidents.md")))
    assert len(names) >= 4
    assert set(names) <= set(catalogue())


@pytest.mark.timeout(240)
def test_the_quick_start_from_its_first_line_to_its_last(tmp_path: Path, environment: dict[str, str]) -> None:
    """In the page's order, as typed, while the stack stays up."""
    up, *lines = _commands("quick-start.md")
    assert up == "mycroft up"
    log = tmp_path / "log"
    with log.open("w") as out:
        stack = subprocess.Popen(
            ["sh", "-c", f"exec {up} --port 0"], cwd=tmp_path, env=environment, stdout=out, stderr=out
        )
    said = {}
    try:
        deadline = time.monotonic() + PATIENCE_S
        while running(Path(environment["MYCROFT_DATA"])) is None:
            assert stack.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for line in lines:
            sets = re.match(r"(?:export )?([A-Z_]+)=", line)
            done = _sh(f'{line} && echo "${sets[1]}"' if sets else line, tmp_path, environment)
            # doctor's status says whether this machine is ready, which is not the page's matter.
            assert done.returncode == 0 or line == "mycroft doctor", f"{line}: {done.stderr}"
            assert "Traceback" not in done.stderr
            said[sets[1] if sets else " ".join(line.split()[:2])] = done.stdout.strip()
            if sets:
                environment[sets[1]] = done.stdout.strip()
    finally:
        stack.terminate()
        assert stack.wait(PATIENCE_S) == 0
    assert "process-stopped" in said["mycroft alerts"]
    # At the job's end its processes are killed: the last revision may say that it is dead.
    for command in ("incidents", "alerts", "explain", "sql"):
        assert "rank 5" in said[f"mycroft {command}"].lower()
    assert said["ID"] in (tmp_path / "incident.html").read_text()
    assert Path(said["NCCL_PROFILER_PLUGIN"]).is_file()


@pytest.fixture
def alerts(embedded_broker: Broker) -> str:
    """A broker with two revisions of an incident and one of another."""
    ensure_topics(Settings(kafka=embedded_broker.bootstrap))
    tell(
        embedded_broker.bootstrap,
        [an_incident(1), an_incident(1, revision=2, severity="critical"), an_incident(2)],
    )
    return embedded_broker.bootstrap


@pytest.mark.parametrize("program", ["kcat", "mycroft alerts"])
def test_consumers_on_the_command_line(
    program: str, alerts: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    if shutil.which(program.split(maxsplit=1)[0], path=environment["PATH"]) is None:
        if in_ci():
            pytest.fail(f"{program} is missing")
        pytest.skip(f"NO {program}, its example did not run: make operator-tools")
    (line,) = [each for each in _commands("alerts.md") if each.startswith(program)]
    done = _sh(line, tmp_path, {**environment, "MYCROFT_KAFKA": alerts})
    assert done.returncode == 0, done.stderr
    found = [json.loads(each) for each in done.stdout.splitlines()]
    assert [(one["id"], one["revision"]) for one in found] == [
        (f"{1:016x}", 1), (f"{1:016x}", 2), (f"{2:016x}", 1),
    ]  # fmt: skip


def test_the_consumer_in_python(alerts: str, tmp_path: Path, environment: dict[str, str]) -> None:
    (block,) = _blocks("alerts.md", "python")
    (tmp_path / "pager.py").write_text(block)
    process = subprocess.Popen(
        [sys.executable, "pager.py"], cwd=tmp_path, env={**environment, "MYCROFT_KAFKA": alerts},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(3)]
    finally:
        process.terminate()
        process.wait()
    assert lines == [
        "open warning Incident 1. ['node-3']",
        "open critical Incident 1. ['node-3']",
        "open warning Incident 2. ['node-3']",
    ]


def test_the_notifier_starts_as_the_page_says(
    alerts: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    (line,) = [each for each in _commands("alerts.md") if "notify" in each]
    log = tmp_path / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            cwd=tmp_path,
            env={**environment, "MYCROFT_KAFKA": alerts},
            stderr=out,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while "go to http://127.0.0.1:9093" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


def test_the_route_is_one_that_alertmanager_takes(tmp_path: Path) -> None:
    (block,) = _blocks("alerts.md", "yaml")
    assert set(yaml.safe_load(block)) == {"route", "receivers"}
    tool = shutil.which("amtool")
    if tool is None:
        if in_ci():
            pytest.fail("amtool is missing")
        pytest.skip("NO amtool, the route was not checked: make operator-tools")
    (tmp_path / "alertmanager.yml").write_text(block)
    done = subprocess.run(
        [tool, "check-config", "alertmanager.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("line", "told", "status"),
    [
        ("mycroft report ffffffff", "no incident ffffffff in the store", 2),
        (
            "mycroft query losses --clickhouse http://127.0.0.1:9",
            "ClickHouse at http://127.0.0.1:9 does not answer",
            1,
        ),
        ("mycroft alerts --kafka 127.0.0.1:9", "no Kafka answers at 127.0.0.1:9", 1),
        ("MYCROFT_PARTITIONS=many mycroft query losses", "setting partitions: ", 2),
        ("mycroft report $ID -o absent/incident.html", "cannot write absent/incident.html: ", 2),
        ("mycroft sql 'SELECT 1 FROM nccl.nothing'", "Code: 60. Unknown table", 1),
    ],
)
def test_refusals_are_the_lines_of_the_page(
    line: str, told: str, status: int, lived: Lived, tmp_path: Path, environment: dict[str, str]
) -> None:
    done = _sh(line, tmp_path, {**environment, "MYCROFT_CLICKHOUSE": lived.url, "ID": lived.hang})
    assert (done.returncode, done.stdout) == (status, "")
    (said,) = [each for each in done.stderr.splitlines() if each.strip()]
    assert told in said
    first = told.split(" ", 1)[0]
    assert f"| `{first}" in (ROOT / "docs" / "incidents.md").read_text()
