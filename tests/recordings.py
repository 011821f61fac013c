"""What was injected into the recorded hangs, as the answer that has to come out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import Answer
from tests.flight_recorder_sets import recorded as folder_of

_ANSWERS = {
    "gloo_hang": (Answer("late-launch", (5,), waiting=5),),
    "gloo_p2p_hang": (Answer("late-launch", candidates=(2, 6), waiting=6),),
    "gloo_healthy": (),
    "gpu_error_1st": (Answer("gpu-hang", (12,)), Answer("gpu-hang", (14,))),
    "lock_gil_2nd": (Answer("late-launch", (10,)), Answer("late-launch", (15,))),
}
RECORDED = [
    pytest.param(name, marks=() if name.startswith("gloo") else pytest.mark.shared) for name in _ANSWERS
]


def recorded(name: str) -> tuple[Path, tuple[Answer, ...]]:
    """Folder and answer of a set; skips the test where the set is absent."""
    return folder_of(name), _ANSWERS[name]
