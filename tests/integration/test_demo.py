"""The demo names what it has broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MYCROFT = str(Path(sys.executable).with_name("mycroft"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "category", "named"),
    [("link-down@1-2", "link", ("host-1", "host-2")), ("kill@5", "process-dead", ("rank 5", "host-2"))],
)
def test_the_demo_names_what_it_broke(fault: str, category: str, named: tuple[str, ...]) -> None:
    done = subprocess.run(
        [MYCROFT, "demo", "--fault", fault], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "That is what was found." in done.stdout
    _, _, panel = done.stdout.partition("after the fault")
    answer = [line for line in panel.splitlines() if "culprit" in line or "candidates:" in line]
    assert category in panel
    assert any(any(name in line for name in named) for line in answer), done.stdout


def test_what_only_slows_a_job_is_refused() -> None:
    done = subprocess.run(
        [MYCROFT, "demo", "--fault", "slow-gpu@1"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "the demo shows stalls" in done.stderr
