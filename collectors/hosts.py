"""A collector for each host of a job whose hosts are folders on one machine: testbeds, replays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

START_S: Final = 60.0
_STOP_S: Final = 15.0
_ROOT: Final = Path(__file__).parents[1]


class CollectorFailed(RuntimeError):
    """A collector did not start; the text says which and what it said last."""


class HostCollectors:
    """Collectors as a cluster has them, each a process. `start` and `stop`, or a `with` block.

    `folders`: by host, the folder of its processes' files, which exists. `arguments`: of
    `python -m collectors.agent`, but folder and host. `logs`: the folder that gets what they say.
    """

    def __init__(self, folders: Mapping[str, Path], arguments: Sequence[str], logs: Path) -> None:
        self._folders, self._arguments, self._logs = dict(folders), tuple(arguments), logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> HostCollectors:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start those that do not run; returns when all of them collect. Raises CollectorFailed."""
        for host, folder in self._folders.items():
            if host not in self._processes:
                self._processes[host] = self._started(host, folder)
        until = time.monotonic() + START_S
        for host, process in self._processes.items():
            while b"collecting from" not in self._log(host).read_bytes():
                if process.poll() is not None or time.monotonic() > until:
                    raise CollectorFailed(
                        f"the collector of {host} did not start: {_last_line(self._log(host))}"
                    )
                time.sleep(0.05)

    def kill(self, host: str) -> None:
        """End one without a word, as when its host is gone; it is not started again."""
        if self._folders.pop(host, None) is not None and (process := self._processes.pop(host, None)):
            process.kill()
            process.wait()

    def restart(self, host: str) -> None:
        """End one in good order and start it again, as an update does. Raises CollectorFailed."""
        _end(self._processes.pop(host))
        self._log(host).unlink()  # what the new one says tells that it collects
        self.start()

    def stop(self) -> None:
        """End all of them; each sends what it still has."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            _end(process)
        self._processes.clear()

    def _log(self, host: str) -> Path:
        return self._logs / f"collector-{host}.log"

    def _started(self, host: str, folder: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "collectors.agent", f"--dir={folder}", f"--host={host}"]
        command.append(f"--parent={os.getpid()}")  # who is killed cannot stop it
        with self._log(host).open("ab") as output:
            return subprocess.Popen(
                [*command, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(_ROOT), "OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"see {log}"
