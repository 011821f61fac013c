"""Start the embedded store as a child process and stop it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mycroft.local.store_errors import StoreStartError

_POLL_S = 0.02


@dataclass(frozen=True)
class StoreProcess:
    """A running store: its URL and its process."""

    url: str
    process: subprocess.Popen[bytes]

    def stop(self, timeout_s: float = 15.0) -> int:
        """Ask it to end and wait, then kill it; returns its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def start_store(path: Path, *, port: int = 0, timeout_s: float = 60.0) -> StoreProcess:
    """Start a store over a folder and wait until it answers; port 0 chooses a free one.

    It ends with this process, however this one ends. Raises StoreStartError with the store's own line.
    """
    with tempfile.TemporaryDirectory(prefix="mycroft-store-") as folder:
        ready, log = Path(folder, "ready"), Path(folder, "log")
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [
                    sys.executable, "-m", "mycroft.local.store", "--path", str(path), "--port", str(port),
                    "--ready-file", str(ready), "--parent", str(os.getpid()),
                ],
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the supervisor, who stops its parts in order
            )  # fmt: skip
        deadline = time.monotonic() + timeout_s
        while not ready.exists():
            if process.poll() is not None:
                lines = log.read_text(errors="replace").strip().splitlines() or ["ended without a word"]
                raise StoreStartError(lines[-1].removeprefix("store: "))
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise StoreStartError(f"the store over {path} did not start within {timeout_s:g} s")
            time.sleep(_POLL_S)
        return StoreProcess(ready.read_text().strip(), process)
