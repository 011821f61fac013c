"""The file of a recorded run: read, written, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from collectors.replay import notes
from collectors.replay.trace import BadRun, Line, hosts, read_run, write_run
from mycroft.errors import BAD_INPUT, explain
from tests.oracle_runs import recorded_run


def init(p: int, nnodes: int = 2, nranks: int = 4, **fields: Any) -> Line:
    return {
        "t": 0, "p": p, "cb": "init", "th": 0, "ctx": 1, "commId": "0x1", "commName": "world",
        "nNodes": nnodes, "nranks": nranks, "rank": p, **fields,
    }  # fmt: skip


def packed(path: Path, text: bytes) -> Path:
    path.write_bytes(zstandard.ZstdCompressor().compress(text))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    lines: list[Line] = [init(p, nranks=2) for p in range(2)]
    with (tmp_path / "x.jsonl.zst").open("wb") as file:
        assert write_run(file, lines) == 2
    run = read_run(tmp_path / "x.jsonl.zst")
    assert (run.name, run.lines, run.ranks, run.hold_s) == ("x", lines, 2, 0.0)


def test_several_frames_are_one_file(tmp_path: Path) -> None:
    frames = [zstandard.ZstdCompressor().compress(json.dumps(init(p)).encode() + b"\n") for p in range(4)]
    (tmp_path / "x.jsonl.zst").write_bytes(b"".join(frames))
    assert read_run(tmp_path / "x.jsonl.zst").ranks == 4


def test_a_file_that_was_cut_off_is_called_so(tmp_path: Path) -> None:
    text = json.dumps(init(0)).encode() + b"\n" + json.dumps(init(1)).encode()[:40]
    with pytest.raises(BadRun, match=r"line 2 is no JSON: .*; the file seems to be cut off there"):
        read_run(packed(tmp_path / "x.jsonl.zst", text))


def test_the_manifest_says_hosts_and_hold() -> None:
    run = recorded_run("n2_ring8_gpuhang1")
    assert run.nodes == (0, 0, 0, 0, 1, 1, 1, 1)
    assert run.hold_s == 4
    assert recorded_run("g0_nshealthy4").nodes == (0, 1, 2, 3)


def test_hosts_of_a_run_without_manifest() -> None:
    assert hosts([init(p) for p in range(4)], 4) == [0, 0, 1, 1]
    assert hosts([init(p, nnodes=1) for p in range(4)], 4) == [0, 0, 0, 0]
    assert hosts([init(p, host=name) for p, name in enumerate("abab")], 4) == [0, 1, 0, 1]
    assert hosts([], 2) == [0, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "line 1 is no JSON"),
        (b"[]", "line 1: no JSON object"),
        (b'{"p":0,"cb":"end"}', "line 1: t is no integer"),
        (b'{"t":0,"p":0.5,"cb":"end"}', "line 1: p is no integer"),
        (b'{"t":0,"p":0}', "line 1: cb is no text"),
        (b'{"t":0,"p":0,"cb":"end"}\n{"t":0,"p":0,"cb":"finalize"}', "line 2: finalize without ctx, th"),
        (
            b'{"t":0,"p":0,"cb":"startEvent","ty":"New","h":1,"ctx":1,"parent":0,"th":0}',
            "unknown event type 'New'",
        ),
        (b'{"t":0,"p":-1,"cb":"end"}', "holds no process"),
        (b"\n", "holds no callback"),
        (b'{"t":0,"p":7,"cb":"end"}', "names rank 7"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: bytes, said: str) -> None:
    with pytest.raises(BadRun, match=said) as caught:
        read_run(packed(tmp_path / "x.jsonl.zst", text))
    line, status = explain(caught.value) or ("", 0)
    assert status == BAD_INPUT
    assert "\n" not in line


def test_no_file_no_zstd_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match="cannot be read: No such file"):
        read_run(tmp_path / "x.jsonl.zst")
    (tmp_path / "x.jsonl.zst").write_bytes(b"not zstd at all")
    with pytest.raises(BadRun, match="no zstd file"):
        read_run(tmp_path / "x.jsonl.zst")
    packed(tmp_path / "x.jsonl.zst", json.dumps(init(0)).encode())
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(BadRun, match="no manifest of recorded runs"):
        read_run(tmp_path / "x.jsonl.zst")
    (tmp_path / "manifest.json").write_text('{"runs": {"x": {"nodes": []}}}')
    with pytest.raises(BadRun, match="hosts of 0 ranks, x has 1"):
        read_run(tmp_path / "x.jsonl.zst")


MS = 1_000_000


def note(t: int, what: str, p: int = 2) -> Line:
    return {"t": t * MS, "p": p, "cb": "note", "what": what}


def call(t: int, p: int = 2) -> Line:
    return {"t": t * MS, "p": p, "cb": "MASK", "v": 0, "th": 0}


def signals(*lines: Line) -> list[tuple[float, int, str]]:
    names = {9: "KILL", 18: "CONT", 19: "STOP"}
    return [(found.t / MS, found.p, names[found.signal]) for found in notes.signals(list(lines))]


def test_notes_become_signals() -> None:
    lines = note(5, "SIGSTOP"), note(90, "SIGCONT"), note(95, "SIGKILL", 1), note(99, "link down")
    assert signals(*lines) == [(5, 2, "STOP"), (90, 2, "CONT"), (95, 1, "KILL")]


def test_a_process_runs_again_by_its_first_callback() -> None:
    lines = note(5, "SIGSTOP"), call(7), call(60), call(70, p=1), note(90, "SIGCONT")
    assert signals(*lines) == [(5, 2, "STOP"), (60, 2, "CONT")]


def test_mostly_stopped_follows_the_silences() -> None:
    lines = note(0, "stopped 80 % of the time from here"), call(84), call(90), call(180), note(200, "x")
    assert signals(*lines) == [(0, 2, "STOP"), (84, 2, "CONT"), (90, 2, "STOP"), (180, 2, "CONT")]


def test_mostly_stopped_without_silences_takes_the_share() -> None:
    calls = [call(t) for t in range(0, 210, 10)]
    found = signals(note(0, "stopped 80 % of the time"), *calls, note(210, "process ends normally"))
    assert found == [(0, 2, "STOP"), (83, 2, "CONT"), (105, 2, "STOP"), (188, 2, "CONT")]
