"""`mycroft replay` and `mycroft record` at the command line: what they refuse, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.replay.trace import BadRun
from mycroft.commands.record import record
from mycroft.commands.replay import replay_run
from mycroft.errors import BAD_INPUT, UsageError, explain
from tests.oracle_runs import run_path


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"api": "v9"}, "unknown API 'v9': one of v3, v4, v5, v6, v7"),
        ({"tier": "all"}, "unknown tier 'all': one of ops, flows, kernel"),
        ({"speed": 0.0}, "speed 0.0 is none"),
        ({"speed": float("nan")}, "speed nan is none"),
        ({"hold": -3.0}, "hold -3.0 is none: a number of seconds from 0"),
        ({"hold": float("nan")}, "hold nan is none"),
        ({"hold": float("inf")}, "hold inf is none"),
        ({"plugin": Path("/nowhere.so")}, "/nowhere.so is no file"),
        ({"plugin": Path(__file__), "job": "none"}, "job"),
    ],
)
def test_options_that_mean_nothing(options: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        replay_run(run_path("n_netprof2"), **options)  # type: ignore[arg-type]
    assert (explain(caught.value) or ("", 0))[1] == BAD_INPUT


def test_a_plugin_that_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match="does not load") as caught:
        replay_run(run_path("n_netprof2"), plugin=Path(__file__), directory=tmp_path)
    assert (explain(caught.value) or ("", 0))[1] == BAD_INPUT


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match="cannot be read"):
        replay_run(tmp_path / "none.jsonl.zst")


def test_no_recording(tmp_path: Path) -> None:
    with pytest.raises(BadRun, match="holds no recording"):
        record(tmp_path, tmp_path / "run.jsonl.zst")
