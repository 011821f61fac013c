"""The real Alertmanager (Debian's prometheus-alertmanager) for tests, and a webhook that it tells.

A failure in CI and a loud skip elsewhere where it is missing (make operator-tools).
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka_harness import in_ci

_START_TIMEOUT_S = 30
_CONFIG = """
route:
  receiver: tests
  group_by: ['...']
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 4h
receivers:
  - name: tests
    webhook_configs:
      - url: {url}
        send_resolved: true
"""


class _Webhook(ThreadingHTTPServer):
    """Remembers (status, incident, severity) of each alert it is told of."""

    told: list[tuple[str, str, str]]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Webhook)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        for alert in body["alerts"]:
            self.server.told.append(
                (alert["status"], alert["labels"]["incident"], alert["labels"]["severity"])
            )
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class RealAlertmanager:
    """One on a port of its own, down at first; its data survives `stop`, as on a host that restarts."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("prometheus-alertmanager")
        if program is None:
            raise FileNotFoundError("prometheus-alertmanager is not installed")
        self._folder = folder
        self._webhook = _Webhook(("127.0.0.1", 0), _Handler)
        self._webhook.told = []
        threading.Thread(target=self._webhook.serve_forever, daemon=True).start()
        config = folder / "alertmanager.yml"
        config.write_text(_CONFIG.format(url=f"http://127.0.0.1:{self._webhook.server_port}/"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._command = [
            program, f"--config.file={config}", f"--storage.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        with (self._folder / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                self.alerts()
            except (urllib.error.URLError, ConnectionError):
                assert self._process.poll() is None, (self._folder / "alertmanager.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """Ends it; what it knew of alerts is gone, what it has told is not."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def close(self) -> None:
        """Ends it and its webhook."""
        self.stop()
        self._webhook.shutdown()
        self._webhook.server_close()

    def alerts(self) -> list[dict[str, Any]]:
        """What it knows now."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5) as answer:
            found: list[dict[str, Any]] = json.load(answer)
            return found

    def told(self) -> list[tuple[str, str, str]]:
        """(status, incident, severity) of each notification so far."""
        return list(self._webhook.told)


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[RealAlertmanager]:
    """One that has not been started."""
    try:
        made = RealAlertmanager(tmp_path)
    except FileNotFoundError as error:
        if in_ci():
            pytest.fail(str(error))
        pytest.skip(f"NO ALERTMANAGER, these tests did not run: {error}")
    yield made
    made.close()
