"""`mycroft notify` between a broker and the real Alertmanager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mycroft.settings import Settings
from streams.notify.alertmanager import Alertmanager
from streams.notify.loop import Notifier
from streams.topics import ensure_topics
from tests.alerts import an_incident, tell
from tests.integration.alertmanager import RealAlertmanager
from tests.integration.kafka_fixtures import Broker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NOTIFY = [sys.executable, "-m", "mycroft.cli", "notify"]
PATIENCE_S = 60
SETTLE_S = 3
"""What is told twice is told within Alertmanager's group interval of a second."""


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "no answer in time"
        time.sleep(0.05)


def _ids(*numbers: int) -> list[str]:
    return [f"{number:016x}" for number in numbers]


@contextmanager
def _notify(broker: Broker, url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The command, as a user starts it."""
    with (folder / "notify.log").open("ab") as log:
        process = subprocess.Popen(
            [*NOTIFY, "--kafka", broker.bootstrap, "--alertmanager", url],
            stdout=log, stderr=log, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0, (folder / "notify.log").read_text()


def test_an_alertmanager_that_was_away_gets_every_incident_once_and_in_order(
    broker: Broker, alertmanager: RealAlertmanager, tmp_path: Path
) -> None:
    """Ten minutes are simulated in tests/unit/test_notify.py; here it is away until a try has failed."""
    ensure_topics(Settings(kafka=broker.bootstrap))
    tell(broker.bootstrap, [an_incident(number) for number in range(1, 6)])
    with _notify(broker, alertmanager.url, tmp_path):
        log = tmp_path / "notify.log"
        _until(lambda: "no Alertmanager answers" in log.read_text())
        alertmanager.start()
        _until(lambda: len(alertmanager.told()) >= 5)
    known = sorted(alertmanager.alerts(), key=lambda alert: str(alert["labels"]["incident"]))
    taken = [alert["updatedAt"] for alert in known]  # of a millisecond, which two may share
    assert taken == sorted(taken)
    assert [alert["labels"]["incident"] for alert in known] == _ids(1, 2, 3, 4, 5)
    assert known[0]["labels"] == {
        "alertname": "TrainingJobStalls", "category": "link", "incident": _ids(1)[0], "job": "llama-7b",
        "severity": "warning",
    }  # fmt: skip
    assert known[0]["annotations"]["summary"] == "Incident 1."
    # Killed and back, it sends what has come since and nothing again.
    with _notify(broker, alertmanager.url, tmp_path) as process:
        tell(broker.bootstrap, [an_incident(6)])
        _until(lambda: len(alertmanager.told()) >= 6)
        process.kill()
        process.wait()
    with _notify(broker, alertmanager.url, tmp_path):
        closed = {"revision": 2, "state": "closed", "closed": "2026-03-01T03:59:00.000000Z"}
        tell(broker.bootstrap, [an_incident(1, **closed), an_incident(2, revision=2, severity="critical")])
        _until(lambda: ("firing", _ids(2)[0], "critical") in alertmanager.told())
        _until(lambda: ("resolved", _ids(1)[0], "warning") in alertmanager.told())
        time.sleep(SETTLE_S)
    told = alertmanager.told()
    assert sorted(told) == sorted(
        [
            *(("firing", each, "warning") for each in _ids(1, 2, 3, 4, 5, 6)),
            ("firing", _ids(2)[0], "critical"),
            ("resolved", _ids(2)[0], "warning"),
            ("resolved", _ids(1)[0], "warning"),
        ]
    )
    assert "Traceback" not in log.read_text()


def test_an_alertmanager_that_restarts_is_told_again_of_what_is_open(
    embedded_broker: Broker, alertmanager: RealAlertmanager
) -> None:
    ensure_topics(Settings(kafka=embedded_broker.bootstrap))
    alertmanager.start()
    stop = threading.Event()
    notifier = Notifier(embedded_broker.bootstrap, Alertmanager(alertmanager.url), stop, refresh_s=0.5)
    thread = threading.Thread(target=notifier.run)
    thread.start()
    try:
        closed = {"revision": 2, "state": "closed", "closed": "2026-03-01T03:59:00.000000Z"}
        tell(embedded_broker.bootstrap, [an_incident(1), an_incident(2), an_incident(1, **closed)])
        _until(lambda: len(alertmanager.told()) >= 1 and len(alertmanager.alerts()) == 1)
        alertmanager.stop()
        alertmanager.start()
        _until(lambda: len(alertmanager.alerts()) == 1)
        (alert,) = alertmanager.alerts()
        assert alert["labels"]["incident"] == _ids(2)[0]
        time.sleep(SETTLE_S)
        assert alertmanager.told().count(("firing", _ids(2)[0], "warning")) == 1
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("--alertmanager", "localhost:9093"),
            "'localhost:9093' is not an http or https URL of an Alertmanager",
        ),
        (("--alertmanager", "http://h:port"), "'http://h:port' is not a URL"),
    ],
)
def test_wrong_settings_are_one_line(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*NOTIFY, *arguments], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert told in line
