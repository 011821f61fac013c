"""The rules by which answers to recorded runs are judged: each of them can fail."""

from __future__ import annotations

from typing import Any

import pytest

from collectors.replay.trace import Line
from schemas.incidents import Incident, Node
from tests.recorded_answers import fault_of, happened, read_truth

HANG = {"bad": [2], "category": "gpu-hang", "kind": "stall", "may_also_name_without_kernelch": [3]}
LINK = {"bad": [4, 7], "category": ["link", "nic-send"], "kind": "stall", "may_also_name": [0, 3]}


def incident(category: str, culprits: tuple[int, ...] = (), candidates: tuple[int, ...] = ()) -> Incident:
    def nodes(ranks: tuple[int, ...]) -> tuple[Node, ...]:
        return tuple(Node("gpu", rank) for rank in ranks)

    return Incident(
        "1", "job", "a", "stall", category, "notice", "likely", "", nodes(culprits), nodes(candidates), 1,
        (), (), (), (), None, "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "tier", "category", "culprits", "candidates", "right"),
    [
        (HANG, "flows", "gpu-hang", (2,), (), True),
        (HANG, "flows", "gpu-hang", (3,), (), False),
        (HANG, "flows", "gpu-hang", (2, 3), (), False),
        (HANG, "flows", "gpu-hang", (), (2, 3), True),
        (HANG, "flows", "gpu-hang", (), (1, 2), False),
        (HANG, "flows", "gpu-hang", (), (3,), False),
        (HANG, "kernel", "gpu-hang", (), (2, 3), False),
        (HANG, "kernel", "gpu-hang", (2,), (), True),
        (HANG, "flows", "late-launch", (2,), (), False),
        (LINK, "flows", "link", (4,), (), True),
        (LINK, "flows", "nic-send", (0, 7), (), True),
        (LINK, "flows", "link", (0, 3), (), False),
        (LINK, "flows", "link", (4, 5), (), False),
        (LINK, "flows", "link", (), (0, 4, 7), True),
        (LINK, "flows", "link", (), (0, 4), False),
    ],
)
def test_right_and_wrong_answers(
    entry: dict[str, Any], tier: str, category: str, culprits: tuple[int, ...], candidates: tuple[int, ...],
    right: bool,
) -> None:  # fmt: skip
    wrong = fault_of(read_truth(entry, tier), incident(category, culprits, candidates))
    assert (wrong is None) == right, wrong


def test_when_it_happened_is_the_first_note_of_who_is_bad() -> None:
    lines: list[Line] = [
        {"t": 5, "p": 1, "cb": "note", "what": "remote process exited"},
        {"t": 7, "p": 2, "cb": "startEvent"},
        {"t": 8, "p": 2, "cb": "note", "what": "link down"},
        {"t": 9, "p": 2, "cb": "note", "what": "link up"},
    ]
    assert happened(lines, frozenset({2})) == 8
    assert happened(lines, frozenset({1})) is None
