"""Child processes of the local stack: started, awaited, watched, restarted, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_GRACE_S = 10.0
"""A child that has not ended by then is killed: longer than the sink needs for its last range."""

RESTART_PAUSE_S = (0.5, 1.0, 2.0, 5.0)
"""Pauses before the first and later restarts, the last one from then on: no busy loop on a lasting fault."""

STEADY_S = 60.0
"""A child that has run this long starts again from the shortest pause."""


class ChildError(RuntimeError):
    """A part of the local stack did not start; one line with its own last words."""


class Child:
    """One part of the stack as a process of its own, its output in a log file."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._arguments = [sys.executable, "-m", *arguments]
        self._log = log
        self._environment = {**os.environ, **environment}
        self._failures = 0
        self._started = 0.0
        self._due = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._read = log.stat().st_size if log.exists() else 0

    def start(self) -> None:
        """Start the process; it gets a process group of its own, so that Ctrl-C reaches only the stack."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
            )
        self._started = time.monotonic()

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self.alive() and self._process else None

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def status(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode if self._process else None
        if code is None:
            return "running"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def revive(self) -> bool:
        """Restart a dead process once its pause is over; returns whether it was started now."""
        if self.alive():
            return False
        now = time.monotonic()
        if not self._due:
            if now - self._started > STEADY_S:
                self._failures = 0
            self._due = now + RESTART_PAUSE_S[min(self._failures, len(RESTART_PAUSE_S) - 1)]
            self._failures += 1
        if now < self._due:
            return False
        self._due = 0.0
        self.start()
        return True

    def wait_ready(self, ready: Path, timeout_s: float) -> str:
        """The text of its ready file; raises ChildError where the process ends or the time-out passes."""
        deadline = time.monotonic() + timeout_s
        while not ready.exists():
            if not self.alive():
                raise ChildError(f"{self.name} did not start ({self.status()}): {self.last_words()}")
            if time.monotonic() > deadline:
                raise ChildError(f"{self.name} was not ready within {timeout_s:.0f} s; see {self._log}")
            time.sleep(0.02)
        return ready.read_text().strip()

    def news(self) -> list[str]:
        """Whole lines of its log since the last call, or since this object was made."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._read)
                whole, _, _ = log.read().rpartition(b"\n")
        except OSError:
            return []
        if not whole:
            return []
        self._read += len(whole) + 1
        return whole.decode(errors="replace").split("\n")

    def last_words(self) -> str:
        """The last line of its log."""
        try:
            lines = self._log.read_text(errors="replace").split("\n")
        except OSError:
            return f"see {self._log}"
        return next((line.strip() for line in reversed(lines) if line.strip()), f"see {self._log}")

    def ask_to_stop(self) -> None:
        """Send SIGTERM."""
        if self.alive() and self._process:
            self._process.terminate()

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Wait for its end, kill it when the grace is over."""
        if self._process is None:
            return
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
