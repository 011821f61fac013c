"""Recordings of single processes become one run: the same that they were taken from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.replay.merge import merge
from collectors.replay.trace import BadRun, Line, Run, read_run, write_run
from tests.oracle import Oracle
from tests.oracle_runs import recorded_run

EPOCH = 1_700_000_000_000_000_000
BOOTED = 1_699_000_000_000_000_000  # one host's monotonic clock began here, each next one's a second later
PID = 5000
HEAD = '{"t":1,"cb":"process","pid":1,"wall":5}\n'


def value(p: int, number: int) -> str:
    return hex((p + 1) << 48 | number << 8 | 5)


def as_recorded(run: Run, folder: Path, ranks: bool = True) -> None:
    """Write a run the way the plugin records it: its own clock, other processes' values, a file a process."""
    files: list[list[Line]] = []
    for p, node in enumerate(run.nodes):
        environment = {"MYCROFT_HOST": f"h{node}", **({"RANK": str(p)} if ranks else {})}
        head = {"t": 7, "cb": "process", "pid": PID + p, "host": "same", "wall": BOOTED + node * 10**9 + 7}
        files.append([{**head, "environment": environment}])
    for line in run.lines:
        p = line["p"]
        if p < 0:
            continue
        raw: dict[str, Any] = {key: item for key, item in line.items() if key not in ("p", "fp")}
        raw["t"] += EPOCH - BOOTED - run.nodes[p] * 10**9
        if "pTimer" in line:
            raw["pTimer"] += EPOCH
        if "opPid" in line:
            raw["opPid"] = PID + line["opPid"]
        if line["cb"] == "init":
            raw["raw"] = value(p, line["ctx"])
        elif line.get("ty") in ("Coll", "P2p") and line["cb"] == "startEvent":
            raw["raw"] = value(p, line["h"])
        if "fp" in line:
            raw["ctxRaw"] = value(line["fp"], raw.pop("ctx"))
            if line["ty"] == "ProxyOp":
                raw["parentRaw"] = value(line["fp"], raw.pop("parent"))
        files[p].append(raw)
    for p, lines in enumerate(files):
        (folder / f"{PID + p}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("name", ["n2_pxn8_gpuhang2", "m_initfail4", "a_nonblock4", "m_dyn4"])
def test_a_recording_says_what_the_run_said(tmp_path: Path, name: str) -> None:
    run = recorded_run(name)
    as_recorded(run, tmp_path)
    lines = merge(tmp_path)
    assert len(lines) == len(run.lines)
    for tier in ("flows", "kernel"):
        assert Oracle(lines, tier).at() == Oracle(run.lines, tier).at()
    relayed = [(line["p"], line["fp"], line["opPid"]) for line in lines if "fp" in line and "opPid" in line]
    assert relayed == [(li["p"], li["fp"], li["opPid"]) for li in run.lines if "fp" in li and "opPid" in li]
    with (tmp_path / "again.jsonl.zst").open("wb") as file:
        write_run(file, lines)
    again = read_run(tmp_path / "again.jsonl.zst")
    assert again.nodes == run.nodes, "hosts are in the recording: no manifest is needed"


def test_ranks_that_are_not_known_go_by_host_and_pid(tmp_path: Path) -> None:
    run = recorded_run("n_netprof2")
    as_recorded(run, tmp_path, ranks=False)
    assert Oracle(merge(tmp_path)).at() == Oracle(run.lines).at()


def test_a_killed_process_leaves_half_a_line(tmp_path: Path) -> None:
    run = recorded_run("n_netprof2")
    as_recorded(run, tmp_path)
    path = tmp_path / f"{PID}.jsonl"
    whole = len(merge(tmp_path))
    path.write_text(path.read_text() + '{"t":17000')
    assert len(merge(tmp_path)) == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "does not begin with its process"),
        ('{"t":1,"cb":"process","pid":1}\n', "does not begin with its process"),
        (HEAD + '{\n{"cb":"note","what":"x","t":1}\n', "line 2 is no JSON"),
        (HEAD + '{"cb":"note","what":"x"}\n', "line 2: t is no integer"),
        (HEAD + '{"cb":"finalize","t":1}\n', "finalize without ctx, th"),
        ("[]\n", "line 1: t is no integer"),
        (HEAD, "holds no callback"),
    ],
)
def test_bad_recordings_are_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "1.jsonl").write_text(text)
    with pytest.raises(BadRun, match=said):
        merge(tmp_path)


def test_values_that_nobody_gave_out_are_null(tmp_path: Path) -> None:
    start = '"th":0,"cb":"startEvent","ty":"ProxyOp","h":3,"ctxRaw":"0x77","parentRaw":"0x78"'
    (tmp_path / "1.jsonl").write_text(HEAD + '{"t":9,' + start + ',"opPid":99}\n')
    (line, _) = merge(tmp_path)
    assert (line["ctx"], line["parent"], line["opPid"], "fp" in line) == (-1, 0, 0, False)


def test_states_of_handles_that_nobody_gave_out_are_kept(tmp_path: Path) -> None:
    """NCCL may set the state of NULL or of a handle that is long over: that is no broken recording."""
    state = '{"t":2,"cb":"recordEventState","th":0,"h":0,"hRaw":"0x5","args":0,"state":9}\n'
    (tmp_path / "1-2.jsonl").write_text(HEAD + state)
    first, last = merge(tmp_path)
    assert (first["cb"], first["h"], "hRaw" in first) == ("recordEventState", 0, False)
    assert last["cb"] == "end"
    with (tmp_path / "run.jsonl.zst").open("wb") as file:
        write_run(file, [first, last])
    assert read_run(tmp_path / "run.jsonl.zst").lines == [first, last]


def test_v3_learns_the_communicator_from_its_operations(tmp_path: Path) -> None:
    lines = (
        '{"t":2,"th":0,"cb":"init","ctx":1,"raw":"0x11","commId":"0x0","commName":"","nNodes":0,"nranks":0,"rank":-1}',
        '{"t":3,"th":0,"cb":"startEvent","ty":"Coll","h":2,"ctx":1,"parent":0,"rank":1,"commHash":"0xab","commName":"tp"}',
    )
    (tmp_path / "1.jsonl").write_text(HEAD + "\n".join(lines) + "\n")
    init = merge(tmp_path)[0]
    assert (init["commId"], init["commName"], init["rank"]) == ("0xab", "tp", 1)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match="holds no recording"):
        merge(tmp_path)
    with pytest.raises(BadRun, match="holds no recording"):
        merge(tmp_path / "none")
