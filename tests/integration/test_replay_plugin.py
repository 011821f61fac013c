"""Recorded runs through the real plugin: what lies in shared memory afterwards is what the oracle says."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from collectors.agent.layout import Tier
from collectors.replay.merge import merge
from collectors.replay.runner import Options, host_directory, replay
from collectors.replay.trace import Run
from collectors.tiers import request_tier
from tests.oracle import Operation, Oracle
from tests.oracle_memory import DATA_TYPES, FUNCS, Found, OperationKey, read_memory
from tests.oracle_runs import all_runs, recorded_run

ROOT = Path(__file__).parents[2]
SPEED = 6
BYTES_ON_THE_OP = 4  # before it sizes come with the proxy op's states


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin: the one that MYCROFT_TEST_PLUGIN names, or built here."""
    if given := os.environ.get("MYCROFT_TEST_PLUGIN"):
        return Path(given)
    if not shutil.which("cmake"):
        pytest.skip("cmake is missing: the plugin cannot be built")
    build = tmp_path_factory.mktemp("plugin")
    for command in (
        ["-S", str(ROOT / "native"), "-B", str(build)],
        ["--build", str(build), "--target", "nccl-profiler-mycroft"],
    ):
        subprocess.run(["cmake", *command], check=True, capture_output=True)
    return next(build.rglob("libnccl-profiler-mycroft.so"))


@dataclass
class Case:
    run: str
    version: int = 6
    tier: str = "flows"

    def __str__(self) -> str:
        return f"{self.run}-v{self.version}-{self.tier}"


def played(run: Run, case: Case, plugin: Path, folder: Path, **environment: str) -> list[Path]:
    """Replay, and return the folder of each host."""
    options = Options(
        plugin, folder, "replay", case.tier, case.version, SPEED, hold_s=0.0, environment=environment
    )
    outcome = replay(run, options)
    assert outcome.complete
    assert outcome.unwritten == 0
    return [host_directory(folder, host) for host in sorted(set(run.nodes))]


def expected_key(op: Operation) -> OperationKey:
    return op.p, op.comm.id, FUNCS[op.func], op.seq, op.peer


def expected(op: Operation, version: int) -> Found:
    def bits(channels: list[int]) -> int:
        return sum(1 << channel for channel in channels)

    sizes = version >= BYTES_ON_THE_OP
    flows = {place: flow for place, flow in op.flows.items() if flow.carrier == op.p}
    own = replace(
        op, flows=flows
    )  # what a relay carries (PXN) lies in its file: the owner's knows nothing of it
    return Found(
        bytes=op.bytes,
        count=op.count,
        datatype=DATA_TYPES[op.datatype],
        channels=op.channels if version > 3 or op.peer < 0 else 0,
        visibility=own.visibility,
        done=bool(own.done),
        kernels_started=bits([kernel.channel for kernel in op.kernels.values()]),
        kernels_stopped=bits([kernel.channel for kernel in op.kernels.values() if not kernel.open]),
        flows={
            place: (*flow.counters, flow.bytes if sizes else 0, flow.no_credit)
            for place, flow in op.flows.items()
        },
    )


def compare(case: Case, plugin: Path, folder: Path, moment: float = 1) -> None:
    """Replay up to a moment (share of the run's length) and compare all that is there with the oracle."""
    run = recorded_run(case.run)
    until = run.lines[-1]["t"] * moment
    run = replace(run, lines=[line for line in run.lines if line["t"] <= until])
    memory = read_memory(played(run, case, plugin, folder))
    picture = Oracle(run.lines, case.tier, case.version).at()
    wanted = {expected_key(op): expected(op, case.version) for op in picture.operations}
    if case.version < BYTES_ON_THE_OP:
        for found in memory.operations.values():
            found.flows = {place: (*flow[:-2], 0, flow[-1]) for place, flow in found.flows.items()}
    assert set(memory.operations) == set(wanted)
    different = {
        key: (memory.operations[key], wanted[key]) for key in wanted if memory.operations[key] != wanted[key]
    }
    assert not different, f"{len(different)} of {len(wanted)} differ, first: {next(iter(different.items()))}"
    last: dict[tuple[int, int, int], int] = {}
    for op in picture.operations:
        if op.peer < 0:
            key = (op.p, op.comm.id, int(FUNCS[op.func]))
            last[key] = max(last.get(key, 0), op.seq)
    assert memory.launched == last


@pytest.mark.parametrize(
    "case",
    [
        Case("g0_nshealthy4"), Case("e2_computehang4", tier="kernel"), Case("n2_pxn8_gpuhang2"),
        Case("n2_pxn8_gpuhang2", 7, "kernel"), Case("c_hang4", 5), Case("e_gpuhang4", 4, "kernel"),
        Case("e_gpuhang4", 3, "kernel"), Case("x1_cts_hang4", 6), Case("i1_kill4", 7),
        Case("a_nonblock4", 5, "ops"), Case("m_dyn4", 6, "kernel"), Case("m_initfail4", 6, "kernel"),
        Case("n_netprof2", 4),
    ],
    ids=str,
)  # fmt: skip
def test_shared_memory_holds_what_the_run_says(case: Case, plugin: Path, tmp_path: Path) -> None:
    compare(case, plugin, tmp_path)


@pytest.mark.parametrize("moment", [0.4, 0.55, 0.7, 0.85])
@pytest.mark.parametrize("name", ["a_nonblock4", "n2_pxn8_gpuhang2", "n2_ring8_sigstop2"])
def test_shared_memory_at_a_moment(name: str, moment: float, plugin: Path, tmp_path: Path) -> None:
    compare(Case(name, 6, "kernel"), plugin, tmp_path, moment)


def test_a_tier_switched_in_the_running_job(plugin: Path, tmp_path: Path) -> None:
    run = recorded_run("a_nonblock4")
    picture = Oracle(run.lines).at()
    launches = sorted(op.launched for op in picture.operations)
    middle = launches[len(launches) // 2] / 1e9

    def switch() -> None:
        for path in tmp_path.rglob("*.mycroft"):
            request_tier(path.parent, path.name, Tier.FLOWS)

    timers: list[threading.Timer] = []

    def started(_: tuple[int, ...]) -> None:
        timers.append(threading.Timer(middle + 0.2, switch))  # calls begin 0.2 s from here
        timers[0].start()

    outcome = replay(run, Options(plugin, tmp_path, "replay", "ops", 6, 1.0, hold_s=0.0), started)
    timers[0].join()
    assert outcome.complete
    memory = read_memory(tmp_path.iterdir())
    wanted = {expected_key(op): expected(op, 6) for op in picture.operations}
    traced = {key for key, found in memory.operations.items() if found.flows}
    assert set(memory.operations) == set(wanted)
    assert 0 < len(traced) < len(wanted)
    whole = {key for key in traced if memory.operations[key].flows == wanted[key].flows}
    assert len(traced - whole) <= run.ranks, "at most one operation of each rank was under way"


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.parametrize("name", all_runs())
def test_every_recorded_run(name: str, plugin: Path, tmp_path: Path) -> None:
    compare(Case(name), plugin, tmp_path)


def test_a_recording_of_a_replay_is_the_run_again(plugin: Path, tmp_path: Path) -> None:
    run = recorded_run("n2_pxn8_gpuhang2")
    played(
        run, Case(run.name, 6, "kernel"), plugin, tmp_path / "dir", MYCROFT_RECORD=str(tmp_path / "record")
    )
    again = Oracle(merge(tmp_path / "record"), "kernel").at()
    first = Oracle(run.lines, "kernel").at()
    assert {expected_key(op): expected(op, 6) for op in again.operations} == {
        expected_key(op): expected(op, 6) for op in first.operations
    }
