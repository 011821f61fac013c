"""A fake /proc: what can be read, what may not, and what lies."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from collectors.agent import procfs
from collectors.agent.discovery import Identity, Lives

_REST = (
    "1 1 1 0 -1 {flags} 100 0 0 0 {utime} {stime} 0 0 20 0 5 0 {start} 1000 10 9 0 0 0 0 0 {pending} 0 0 0"
)
_RUNS, _EXITS = 0x400000, 0x400004
_SIGKILL, _SIGTERM = 256, 16384


def stat(
    pid: int, name: str = "python", state: str = "S", flags: int = _RUNS, pending: int = 0, start: int = 777
) -> str:
    rest = _REST.format(utime=150, stime=50, start=start, flags=flags, pending=pending)
    return f"{pid} ({name}) {state} {rest}\n"


def process(root: Path, pid: int, name: str = "python", start: int = 777, inner: int | None = None) -> None:
    folder = root / str(pid)
    (folder / "ns").mkdir(parents=True)
    (folder / "stat").write_text(stat(pid, name, start=start))
    (folder / "ns" / "pid").symlink_to("pid:[4026531836]" if inner is None else "pid:[4026532999]")
    (folder / "status").write_text(f"Name:\t{name}\nNSpid:\t{pid}" + (f"\t{inner}\n" if inner else "\n"))


def test_a_process(tmp_path: Path) -> None:
    process(tmp_path, 5, name="a) R 1 (b")
    found = procfs.status(5, tmp_path)
    assert found == procfs.Status("S", 200 * 1_000_000 // os.sysconf("SC_CLK_TCK"), 777, ending=False)
    assert procfs.pid_namespace(5, tmp_path) == 4026531836


@pytest.mark.parametrize("text", ["", "5 (python", "5 (python) S 1 2", "5 (python) S " + "x " * 30, "\xff"])
def test_nonsense_is_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "stat").write_text(text, encoding="latin-1")
    assert procfs.status(5, tmp_path) is None
    assert procfs.status(6, tmp_path) is None
    assert procfs.pid_namespace(5, tmp_path) is None


@pytest.mark.parametrize(
    ("threads", "ended"),
    [
        ([("R", _RUNS, _SIGKILL), ("D", _RUNS, _SIGKILL)], True),  # killed, waits for a processor
        ([("D", _EXITS, 0), ("R", _RUNS, _SIGKILL), ("X", _EXITS, 0)], True),  # gives its memory back
        ([("Z", _EXITS, 0)], True),
        ([("Z", _EXITS, 0), ("S", _RUNS, 0)], False),  # its main thread has ended, another one trains
        ([("R", _RUNS, _SIGTERM)], False),
        ([("T", _RUNS, 0)], False),
    ],
)
def test_when_a_process_has_ended(tmp_path: Path, threads: list[tuple[str, int, int]], ended: bool) -> None:
    process(tmp_path, 5)
    for number, (state, flags, pending) in enumerate(threads, 5):
        folder = tmp_path / "5" / "task" / str(number)
        folder.mkdir(parents=True)
        (folder / "stat").write_text(stat(number, state=state, flags=flags, pending=pending))
    (tmp_path / "5" / "stat").write_text((tmp_path / "5" / "task" / "5" / "stat").read_text())
    found = Lives(tmp_path).of(Identity(5, 777, 0, 1, 0, "", 0))
    assert found.alive is not ended


def test_a_killed_process_has_ended_before_it_is_gone() -> None:
    with subprocess.Popen(["sleep", "60"]) as made:
        found = procfs.status(made.pid)
        assert found is not None
        assert not found.ending
        made.kill()
        # Between taking the signal and exiting neither shows, and it may lose the processor just then.
        deadline = time.monotonic() + 10.0
        while not procfs.ended(made.pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        found = procfs.status(made.pid)
        assert found is not None
        assert found.ending


def test_a_process_of_another_namespace_is_found_by_its_inner_pid_and_start(tmp_path: Path) -> None:
    process(tmp_path, 5, inner=1, start=700)
    process(tmp_path, 6, inner=1, start=701)
    process(tmp_path, 7)
    (tmp_path / "self").mkdir()
    assert procfs.find_pid(1, 4026532999, 701, tmp_path) == 6
    assert procfs.find_pid(1, 4026532999, 999, tmp_path) is None
    assert procfs.find_pid(1, 12345, 701, tmp_path) is None
    assert procfs.find_pid(1, 4026532999, 701, tmp_path / "none") is None


def test_the_machine(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1760000000\n")
    assert procfs.boot_time_ns(tmp_path) == 1_760_000_000_000_000_000
    assert procfs.boot_time_ns(tmp_path / "none") is None
    assert procfs.boot_id(tmp_path) == ""


def test_this_process_is_seen() -> None:
    found = procfs.status(os.getpid())
    assert found is not None
    assert found.state == "R"
    assert procfs.pid_namespace() == procfs.pid_namespace(os.getpid())
