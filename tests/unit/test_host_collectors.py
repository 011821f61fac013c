"""Collectors beside a job on one machine end with whoever started them, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from collectors.agent.procfs import ended

PATIENCE_S = 60.0
STARTER = """
import sys
from pathlib import Path
from collectors.hosts import HostCollectors
from mycroft.connections import collector_arguments
from mycroft.settings import Settings
folder = Path(sys.argv[1])
arguments = collector_arguments(Settings(kafka="127.0.0.1:1"))
collectors = HostCollectors({"a": folder, "b": folder / "b"}, arguments, folder)
collectors.start()
print(*(process.pid for process in collectors._processes.values()), flush=True)
sys.stdin.read()
"""


def test_killed_it_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert starter.stdin is not None
    assert starter.stdout is not None
    with starter.stdin, starter.stdout:
        pids = [int(pid) for pid in starter.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(ended(pid) for pid in pids)
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    deadline = time.monotonic() + PATIENCE_S
    while not all(ended(pid) for pid in pids):
        assert time.monotonic() < deadline, "they outlive who started them"
        time.sleep(0.05)
