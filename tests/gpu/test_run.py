"""run.sh as far as it goes without a GPU: a stand-in for driver and NCCL, the real plugin, its arithmetic."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collectors.agent import layout
from collectors.replay.trace import read_run
from mycroft.plugin import plugin_path
from tests.gpu import bench, loss

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).parent / "run.sh"
RANKS = 3


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler for the stand-in")
    built = tmp_path_factory.mktemp("stand-in") / "stand-in.so"
    source = Path(__file__).parent / "stand_in.cpp"
    flags = ["-std=c++17", "-shared", "-fPIC", "-I", str(ROOT / "native" / "plugin")]
    subprocess.run([compiler, *flags, "-o", str(built), str(source), "-ldl"], check=True)
    return built


@pytest.fixture(scope="module")
def plugin() -> Path:
    given = os.environ.get("MYCROFT_TEST_PLUGIN")
    try:
        return Path(given) if given else plugin_path()
    except FileNotFoundError as error:
        pytest.skip(str(error))


def run(out: Path, stand_in: Path, plugin: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(SCRIPT), "--cuda", str(stand_in), "--nccl", str(stand_in), "--plugin", str(plugin),
        "--pairs", "1", "--ranks", str(RANKS), "--out", str(out),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def operations() -> int:
    """Of all ranks: for each size 5 to warm up, and a batch has 1 to begin together and the timed ones."""
    each = sum(5 + bench.BATCHES * (1 + repetitions) for repetitions in bench.SIZES.values())
    return RANKS * each


def test_a_whole_run(stand_in: Path, plugin: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "out", stand_in, plugin)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["operations"] == operations()
    assert report["kept"]["launched"] == report["kept"]["ended"] == operations()
    # Of each operation the ring got a record, and of its one flow another.
    assert report["kept"]["records"] == 2 * operations()
    assert [row["bytes"] for row in report["rows"]] == list(bench.SIZES)
    assert "0 events dropped" in done.stdout
    recorded = read_run(Path(report["recording"]))
    assert recorded.ranks == RANKS
    made = sum(5 + 1 + repetitions for repetitions in bench.RECORDED.values())
    starts = [line for line in recorded.lines if line["cb"] == "startEvent" and line["ty"] == "Coll"]
    assert len(starts) == RANKS * made
    assert tuple(recorded.nodes) == tuple(range(RANKS))


@pytest.mark.parametrize(
    ("fault", "told"), [("wrong", "wrong sums"), ("exit", "rank 1 failed"), ("unseen", "operations made")]
)
def test_what_goes_wrong_is_said(stand_in: Path, plugin: Path, tmp_path: Path, fault: str, told: str) -> None:
    done = run(tmp_path / "out", stand_in, plugin, STAND_IN_FAULT=fault)
    assert done.returncode == 1
    assert told in done.stdout + done.stderr
    assert not list(Path("/dev/shm").glob(f"mycroft-gpu-*/{os.getpid()}-*"))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing.so")
    command = [str(SCRIPT), "--cuda", nothing, "--nccl", nothing]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == bench.MISSING
    assert "no NVIDIA driver" in done.stderr
    assert "NCCL does not load" in done.stderr


def test_no_python() -> None:
    done = subprocess.run(
        [str(SCRIPT)],
        env={**os.environ, "PYTHON": "no-such-python"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == bench.MISSING
    assert "python3 is missing" in done.stderr


def test_an_output_folder_that_is_in_use(stand_in: Path, plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert run(tmp_path, stand_in, plugin).returncode == 2


def test_offsets_are_those_of_the_layout() -> None:
    header, comm = layout.HEADER, layout.COMMUNICATOR
    wanted = {
        "DROPS": offset(header, "drops"), "DROP_KINDS": layout.DROP_KINDS,
        "LAUNCHES": offset(header, "launches"),
        "RING_NEXT": offset(header, "ring_next"), "STATE": offset(header, "state"),
        "KERNEL_ALLOWED": offset(header, "kernel_allowed"), "TABLES": offset(header, "tables"),
        "TABLE_BYTES": layout.TABLE_INFO.itemsize, "COMM_LAUNCHES": offset(comm, "launches"),
        "COMM_ENDED": offset(comm, "ended_count"), "LOST": layout.DROPS_LOST, "RING": layout.Table.RING,
        "ON": layout.State.ON,
    }  # fmt: skip
    assert {name: getattr(loss, name) for name in wanted} == wanted


def offset(kind: Any, name: str) -> int:
    return int(kind.fields[name][1])


def test_bandwidth_and_ratio() -> None:
    # 1 GB in 1 s, 2 ranks: each sends and receives it once: 1 GB/s; at 4 ranks 1.5.
    assert bench.bus_bandwidth(10**9, 1.0, 2) == 1.0
    assert bench.bus_bandwidth(10**9, 1.0, 4) == 1.5

    def took(*seconds: float) -> dict[str, Any]:
        return {"seconds": {str(10**9): list(seconds)}}

    pairs = [(took(1.0, 9.0, 1.0), took(1.0, 1.0)), (took(1.0), took(2.0)), (took(1.0), took(1.25))]
    (row,) = bench.compare(pairs, 2)
    assert (row["ratio"], row["least"], row["most"]) == (0.8, 0.5, 1.0)
    assert (row["without"], row["with"]) == (1.0, 0.8)


def test_losses_in_words() -> None:
    good = {"files": 2, "on": 2, "launched": 10, "ended": 10, "dropped": 0}
    assert loss.complaints(good, 2, 10) == []
    bad = good | {"on": 1, "launched": 9, "ended": 8, "dropped": 3}
    assert len(loss.complaints(bad, 2, 10)) == 4
