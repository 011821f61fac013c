"""Replays into a plugin that writes down what it is called with (test_replay_plugin.c)."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.replay import abi
from collectors.replay.runner import Options, Outcome, ReplayError, replay
from collectors.replay.trace import Line, Run
from tests.oracle_runs import recorded_run

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is missing: no plugin to replay into")

TIER_BITS = {"ops": 0xF07, "flows": 0xF3F, "kernel": 0xF7F}


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("toy") / "libtoy.so"
    source = Path(__file__).with_name("test_replay_plugin.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-w", "-o", library, source], check=True)
    return library


class Log:
    """What the plugin wrote down, as one dict a call, by rank."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.calls: list[list[dict[str, str]]] = []
        for rank in range(ranks):
            path = folder / str(rank)
            lines = path.read_text().splitlines() if path.exists() else []
            self.calls.append([self._call(line) for line in lines])

    @staticmethod
    def _call(line: str) -> dict[str, str]:
        at, thread, name, *fields = line.split(" ")
        return {"call": name, **dict(field.split("=", 1) for field in (at, thread, *fields))}

    def of(self, rank: int, call: str, **fields: str) -> list[dict[str, str]]:
        return [
            one
            for one in self.calls[rank]
            if one["call"] == call and all(one.get(name) == value for name, value in fields.items())
        ]


Replayed = Callable[..., tuple[Outcome, Log]]


@pytest.fixture
def replayed(toy: Path, tmp_path: Path) -> Replayed:
    def run_it(run: Run, speed: float = 20, **options: Any) -> tuple[Outcome, Log]:
        folder = tmp_path / f"log{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        started = options.pop("started", lambda _: None)
        options = {"hold_s": 0.0, "job": "test", **options}
        environment = {"TOY_LOG": str(folder), **options.pop("environment", {})}
        chosen = Options(toy, tmp_path / "dir", speed=speed, environment=environment, **options)
        return replay(run, chosen, started), Log(folder, run.ranks)

    return run_it


def delivered(run: Run, version: int, tier: str) -> list[Line]:
    """Lines that the mask of a tier lets through, in a version that has no other states."""
    started: set[tuple[int, int]] = set()
    kept = []
    for line in run.lines:
        if line["cb"] == "startEvent":
            if not abi.exists(line["ty"], version) or not abi.wanted_by(line["ty"]) & TIER_BITS[tier]:
                continue
            started.add((line["p"], line["h"]))
        elif line["cb"] in ("stopEvent", "recordEventState"):
            if (line["p"], line["h"]) not in started:
                continue
        elif line["cb"] not in ("init", "finalize"):
            continue
        kept.append(line)
    return kept


def summary(line: Line) -> tuple[str, str]:
    """A recorded line as (callback, what), the way `seen` gives the plugin's."""
    names = {"startEvent": "start", "stopEvent": "stop", "recordEventState": "state"}
    what = {"startEvent": line.get("ty"), "recordEventState": line.get("state")}.get(line["cb"], "")
    return names.get(line["cb"], str(line["cb"])), str(what)


def seen(call: dict[str, str]) -> tuple[str, str]:
    what = {"start": call.get("ty", ""), "state": call.get("state", "")}.get(call["call"], "")
    return call["call"], what


def of_thread(calls: list[dict[str, str]]) -> list[list[tuple[str, str]]]:
    """The calls of each thread in order, threads by their first call."""
    threads: dict[str, list[tuple[str, str]]] = {}
    for call in calls:
        threads.setdefault(call["tid"], []).append(seen(call))
    return list(threads.values())


@pytest.mark.parametrize("tier", ["ops", "flows", "kernel"])
@pytest.mark.parametrize(("name", "version"), [("g0_nshealthy4", 6), ("a_nonblock4", 4), ("n_netprof2", 7)])
def test_every_thread_calls_in_order_what_the_mask_asks_for(
    replayed: Replayed, name: str, version: int, tier: str
) -> None:
    run = recorded_run(name)
    outcome, log = replayed(run, tier=tier, version=version)
    assert outcome.complete
    assert outcome.unwritten == 0
    expected = delivered(run, version, tier)
    assert outcome.calls == len(expected)
    for rank in range(run.ranks):
        recorded: dict[int, list[tuple[str, str]]] = {}
        for line in expected:
            if line["p"] == rank:
                recorded.setdefault(line["th"], []).append(summary(line))
        assert sorted(of_thread(log.calls[rank])) == sorted(recorded.values())


@pytest.mark.parametrize("version", abi.VERSIONS)
def test_fields_of_every_version_arrive(replayed: Replayed, version: int) -> None:
    run = recorded_run("n2_pxn8_kill4")
    outcome, log = replayed(run, tier="kernel", version=version)
    assert outcome.complete
    mine = {
        name: [line for line in run.lines if line["p"] == 0 and line.get("ty") == name] for name in abi.EVENTS
    }
    first = {
        name: next(line for line in lines if line["cb"] == "startEvent")
        for name, lines in mine.items()
        if lines
    }
    p2p, op = log.of(0, "start", ty="P2p")[0], log.of(0, "start", ty="ProxyOp")[0]
    assert (p2p["func"], p2p["peer"], p2p["count"], p2p["dt"]) == (
        first["P2p"]["func"], str(first["P2p"]["peer"]), str(first["P2p"]["count"]), first["P2p"]["dt"],
    )  # fmt: skip
    assert p2p["name"] == ("world" if version == 3 else "-")
    recorded = first["ProxyOp"]
    assert {name: int(op[name]) for name in ("ch", "peer", "nSteps", "chunkSize", "isSend")} == {
        name: recorded[name] for name in ("ch", "peer", "nSteps", "chunkSize", "isSend")
    }
    launch = log.of(0, "start", ty="KernelLaunch")
    assert bool(launch) == (version >= 5)
    init = log.of(0, "init")[0]
    assert init.get("comm") == (None if version == 3 else run.lines[0]["commId"])
    states = {call["state"] for call in log.of(0, "state")}
    assert ("20" in states, "22" in states, "2" in states) == (version > 3, version > 3, version == 3)


def test_handles_of_another_process_are_passed_on(replayed: Replayed) -> None:
    run = recorded_run("n2_pxn8_kill4")
    outcome, log = replayed(run, tier="flows")
    assert outcome.complete
    relayed = [op for op in log.of(0, "start", ty="ProxyOp") if op["opPid"] != str(outcome.pids[0])]
    assert relayed
    for op in relayed:
        owner = int(op["rank"])
        assert int(op["opPid"]) == outcome.pids[owner]
        assert op["ctx"] == log.of(owner, "init")[0]["ctx"]
        assert op["parent"] in {one["h"] for one in log.of(owner, "start", ty="P2p")}


def test_mask_toggled_by_the_recording_and_stale_handles(replayed: Replayed) -> None:
    run = recorded_run("m_dyn4")
    outcome, log = replayed(run, tier="flows", speed=5)
    assert outcome.complete
    assert outcome.calls == len(delivered(run, 6, "flows")) + sum(line["cb"] == "MASK" for line in run.lines)
    for rank in range(run.ranks):
        stops = [call["h"] for call in log.of(rank, "stop")]
        assert len(stops) > len(set(stops)), "handles are stopped again"
        starts = log.of(rank, "start", ty="CollApi")
        assert [one["hIn"] for one in starts[1:3]] != ["0", "0"]


def test_contexts_that_were_never_made_are_null(replayed: Replayed) -> None:
    run = recorded_run("m_initfail4")
    outcome, log = replayed(run, tier="kernel")
    assert outcome.complete
    null = [call for call in log.of(1, "start") if call["ctx"] == "0"]
    assert {call["ty"] for call in null} >= {"Coll", "ProxyOp", "ProxyStep", "KernelCh"}


def test_hosts_have_their_folders_and_ranks_their_environment(replayed: Replayed, tmp_path: Path) -> None:
    run = recorded_run("n2_ring8_gpuhang1")
    _, log = replayed(run, tier="ops", job="my-job")
    for rank, node in enumerate(run.nodes):
        init = log.of(rank, "init")[0]
        assert init["dir"] == str(tmp_path / "dir" / f"host{node}")
        assert (init["host"], init["job"], init["rank"]) == (f"host{node}", "my-job", str(rank))


def test_times_are_kept_and_gpu_times_are_wall_clock(replayed: Replayed) -> None:
    run = recorded_run("g0_nshealthy4")
    began = time.time_ns()
    outcome, log = replayed(run, tier="kernel", speed=1)
    assert outcome.complete
    kernels = log.of(0, "start", ty="KernelCh")
    for call in kernels:
        assert began < int(call["pTimer"]) < int(call["at"])
    times = [int(call["at"]) for call in log.of(0, "start", ty="Coll")]
    recorded = [
        line["t"] for line in run.lines if line["p"] == 0 and line.get("ty") == "Coll" and "seq" in line
    ]
    assert times[-1] - times[0] == pytest.approx(recorded[-1] - recorded[0], rel=0.5)


def proc_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


def watched(run: Run, replayed: Replayed, rank: int, speed: float) -> tuple[Outcome, Log, list[str]]:
    """A replay with the states that one of its processes went through."""
    states: list[str] = []
    over = threading.Event()

    def watch(pid: int) -> None:
        while not over.is_set():
            state = proc_state(pid).replace("R", "S").replace("D", "S")
            if not states or states[-1] != state:
                states.append(state)
            time.sleep(0.005)

    threads: list[threading.Thread] = []

    def started(pids: tuple[int, ...]) -> None:
        threads.append(threading.Thread(target=watch, args=(pids[rank],)))
        threads[0].start()

    try:
        outcome, log = replayed(run, speed=speed, tier="flows", started=started)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    return outcome, log, states


def test_a_stopped_process_stands_and_goes_on(replayed: Replayed) -> None:
    run = recorded_run("n2_ring8_sigstop2")
    outcome, log, states = watched(run, replayed, rank=2, speed=10)
    assert outcome.complete
    assert states[:3] == ["S", "T", "S"]
    assert [seen(call) for call in log.calls[2]][-1] == ("finalize", "")


def test_a_killed_process_has_made_its_calls_and_no_more(replayed: Replayed) -> None:
    run = recorded_run("i1_kill4")
    outcome, log, states = watched(run, replayed, rank=2, speed=5)
    assert outcome.complete
    assert "Z" in states or "gone" in states
    assert len(log.calls[2]) == sum(line["p"] == 2 for line in delivered(run, 6, "flows"))
    assert not log.of(2, "finalize")


def test_a_plugin_that_does_not_load_is_named(tmp_path: Path) -> None:
    run = recorded_run("n_netprof2")
    with pytest.raises(ReplayError, match="does not load"):
        replay(run, Options(tmp_path / "none.so", tmp_path, "job"))
    empty = tmp_path / "empty.so"
    (tmp_path / "empty.c").write_text("int nothing;")
    subprocess.run(["gcc", "-shared", "-o", empty, tmp_path / "empty.c"], check=True)
    with pytest.raises(ReplayError, match="ncclProfiler_v6"):
        replay(run, Options(empty, tmp_path, "job"))


def test_a_process_that_dies_is_told(replayed: Replayed, tmp_path: Path) -> None:
    run = recorded_run("n_netprof2")
    with pytest.raises(ReplayError, match="died before it had loaded"):
        replayed(run, environment={"LD_PRELOAD": "", "PYTHONHOME": str(tmp_path)})
