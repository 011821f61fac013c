"""Recorded runs of NCCL's callbacks: some in the tree, the others beside it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from collectors.replay.trace import SUFFIX, Run, read_run

_ROOT = Path(__file__).parents[1]
_SHARED = Path(os.environ.get("MYCROFT_SHARED", _ROOT.parent / "shared"))
IN_TREE = _ROOT / "tests" / "data" / "nccl-callbacks"
_FOLDERS = (IN_TREE, _SHARED / "data" / "nccl-callbacks")


def run_path(name: str) -> Path:
    """The file of a run; skips the test, saying so, where it is absent."""
    for folder in _FOLDERS:
        path = folder / f"{name}{SUFFIX}"
        if path.is_file():
            return path
    pytest.skip(f"the recorded run {name} is not here: MYCROFT_SHARED names the folder that holds data/")


@cache
def recorded_run(name: str) -> Run:
    """A run, read once; not to be changed."""
    return read_run(run_path(name))


def all_runs() -> list[str]:
    """Names of every run that is here."""
    return sorted(
        {path.name.removesuffix(SUFFIX) for folder in _FOLDERS for path in folder.glob(f"*{SUFFIX}")}
    )
