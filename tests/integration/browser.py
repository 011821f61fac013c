"""Headless Chromium for tests, over the WebDriver protocol: what a page shows, says and fetches.

Debian's packages chromium and chromium-driver (make operator-tools); where they are missing it is a failure
in CI and a loud skip elsewhere.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka_harness import in_ci

_START_TIMEOUT_S = 60
_ANSWER_TIMEOUT_S = 60


class Browser:
    """A session of a started chromedriver."""

    def __init__(self, address: str) -> None:
        self._address = address
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                     "--hide-scrollbars", "--window-size=1050,1500", "--disable-background-networking"],
        }  # fmt: skip
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._session = ""
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + self._session + path, data, method=method)
        with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_S) as answer:
            return json.load(answer)["value"]

    def emulate(self, *, scheme: str = "light", media: str = "screen") -> None:
        """Prefer a colour scheme, and stand for a screen or for print, from now on."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._devtools("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def width(self, pixels: int) -> None:
        """The width of the window's contents."""
        size = {"width": pixels, "height": 1500, "deviceScaleFactor": 1, "mobile": False}
        self._devtools("Emulation.setDeviceMetricsOverride", size)

    def _devtools(self, command: str, parameters: object) -> None:
        self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, page: Path) -> None:
        """Load a file and wait until it has been loaded."""
        self._ask("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        """What a function with this body returns in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": []})

    def console(self) -> list[str]:
        """What the console has got since the last call."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The addresses that have been asked for since the last call, but those within the page."""
        found = []
        for entry in self._ask("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                if not url.startswith("data:"):
                    found.append(url)
        return found

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self._ask("POST", "/print", {}))

    def screenshot(self) -> bytes:
        """The window as PNG."""
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def close(self) -> None:
        """End the session and its browser."""
        self._ask("DELETE", "")


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser; raises FileNotFoundError where none is installed."""
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        raise FileNotFoundError("chromium or chromedriver is missing: install chromium and chromium-driver")
    process = subprocess.Popen(
        [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        browser = Browser(f"http://127.0.0.1:{_port(process)}")
        yield browser
        browser.close()
    finally:
        process.terminate()
        process.wait()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    deadline = time.monotonic() + _START_TIMEOUT_S
    for line in process.stdout:
        if "started successfully on port" in line:
            return int(line.rpartition(" ")[2].rstrip(".\n"))
        assert time.monotonic() < deadline, "chromedriver does not start"
    raise AssertionError("chromedriver ended at its start")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One browser for the whole run."""
    try:
        with browsing() as made:
            yield made
    except FileNotFoundError as error:
        if in_ci():
            pytest.fail(str(error))
        pytest.skip(f"NO BROWSER, these tests did not run: {error}")
