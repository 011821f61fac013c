"""Where the recorded sets of dumps lie: some in the tree, those of others beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_SHARED = Path(os.environ.get("MYCROFT_SHARED", _ROOT.parent / "shared"))


def recorded(name: str) -> Path:
    """The folder of a set; skips the test, saying so, where it is absent."""
    for folder in (
        _ROOT / "tests" / "data" / "flight-recorder" / name,
        _SHARED / "data" / "flight-recorder" / name,
    ):
        if folder.is_dir():
            return folder
    pytest.skip(f"the recorded dumps {name} are not here: MYCROFT_SHARED names the folder that holds data/")
