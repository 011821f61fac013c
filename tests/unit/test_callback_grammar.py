"""The grammar of NCCL's callbacks: recorded runs obey it, and what breaks it is found."""

from __future__ import annotations

from typing import Any

import pytest

from collectors.replay.trace import Line
from tests.callback_grammar import LAUNCH_ORDER, grammar_faults, launch_orders
from tests.oracle_runs import all_runs, recorded_run

NON_BLOCKING = {"a_nonblock4", "m_initfail4", "a_grp2_tpdp4"}
"""Runs whose launches look different: another thread, or several communicators in one group."""


@pytest.mark.parametrize("name", all_runs())
def test_recorded_runs_obey(name: str) -> None:
    lines = recorded_run(name).lines
    assert grammar_faults(lines) == []
    if name not in NON_BLOCKING and not any(line["cb"] == "MASK" for line in lines):
        assert set(launch_orders(lines)) == {LAUNCH_ORDER}


def launched() -> list[Line]:
    """One AllReduce with a send of one step, on its launching thread 0 and its proxy thread 1."""
    calls: list[dict[str, Any]] = [
        {"cb": "init", "ctx": 1, "th": 0},
        {"cb": "startEvent", "ty": "GroupApi", "h": 1, "parent": 0, "th": 0},
        {"cb": "recordEventState", "ty": "GroupApi", "h": 1, "state": 23, "th": 0},
        {"cb": "startEvent", "ty": "CollApi", "h": 2, "parent": 1, "th": 0},
        {"cb": "stopEvent", "ty": "CollApi", "h": 2, "th": 0},
        {"cb": "recordEventState", "ty": "GroupApi", "h": 1, "state": 24, "th": 0},
        {"cb": "startEvent", "ty": "KernelLaunch", "h": 3, "parent": 1, "th": 0},
        {"cb": "stopEvent", "ty": "KernelLaunch", "h": 3, "th": 0},
        {"cb": "startEvent", "ty": "Group", "h": 4, "parent": 0, "th": 0},
        {"cb": "startEvent", "ty": "Coll", "h": 5, "parent": 2, "th": 0, "algo": "RING", "proto": "SIMPLE"},
        {"cb": "stopEvent", "ty": "Coll", "h": 5, "th": 0},
        {"cb": "stopEvent", "ty": "Group", "h": 4, "th": 0},
        {"cb": "stopEvent", "ty": "GroupApi", "h": 1, "th": 0},
        {"cb": "startEvent", "ty": "ProxyOp", "h": 6, "parent": 5, "th": 1, "isSend": 1, "nSteps": 1},
        {"cb": "recordEventState", "ty": "ProxyOp", "h": 6, "state": 19, "th": 1},
        {"cb": "startEvent", "ty": "ProxyStep", "h": 7, "parent": 6, "th": 1, "step": 0},
        {"cb": "recordEventState", "ty": "ProxyStep", "h": 7, "state": 8, "th": 1},
        {"cb": "recordEventState", "ty": "ProxyStep", "h": 7, "state": 20, "th": 1},
        {"cb": "recordEventState", "ty": "ProxyStep", "h": 7, "state": 20, "th": 1},
        {"cb": "recordEventState", "ty": "ProxyStep", "h": 7, "state": 9, "th": 1},
        {"cb": "stopEvent", "ty": "ProxyStep", "h": 7, "th": 1},
        {"cb": "stopEvent", "ty": "ProxyOp", "h": 6, "th": 1},
    ]
    return [{"t": t, "p": 0, "ctx": 1, **call} for t, call in enumerate(calls)]


def test_an_operation() -> None:
    assert grammar_faults(launched()) == []
    assert launch_orders(launched()) == {LAUNCH_ORDER: 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines[9].update(parent=1), "the parent of Coll is GroupApi"),
        (lambda lines: lines[3].update(parent=0), "the parent of CollApi is none"),
        (lambda lines: lines[15].update(parent=5), "the parent of ProxyStep is Coll"),
        (lambda lines: lines[15].update(step=1), "step 1 after"),
        (lambda lines: lines[19].update(state=12), "states [8, 20, 12] of ProxyStep"),
        (lambda lines: lines[13].update(isSend=0), "states [8] of ProxyStep"),
        (lambda lines: lines[13].update(nSteps=2), "1 steps missing"),
        (lambda lines: lines.pop(14), "not in progress"),
        (lambda lines: lines.pop(19), "stopped after states [8, 20]"),
        (lambda lines: lines.pop(20), "1 open"),
        (lambda lines: lines.append(lines[20]), "stopped twice"),
        (lambda lines: lines.append(lines[19]), "a state after the stop"),
        (lambda lines: lines.append(lines[9]), "given out twice"),
        (lambda lines: lines.pop(0), "a context that init has not made"),
        (lambda lines: lines[15].update(th=0), "launches and progresses"),
    ],
)
def test_what_breaks_it(change: Any, said: str) -> None:
    lines = launched()
    change(lines)
    assert any(said in fault for fault in grammar_faults(lines))


def test_slots_of_a_flow() -> None:
    def flow(algo: str, steps: int) -> list[str]:
        lines = launched()[:15]
        lines[9]["algo"] = algo
        lines[13]["nSteps"] = 20
        for step in range(steps):
            start = {
                "cb": "startEvent",
                "ty": "ProxyStep",
                "h": 10 + step,
                "parent": 6,
                "th": 1,
                "step": step,
            }
            lines.append({"t": 30 + step, "p": 0, "ctx": 1, **start})
        return grammar_faults(lines)

    assert flow("RING", 4) == []
    assert flow("TREE", 8) == []
    assert any("5 open steps" in fault for fault in flow("RING", 5))
    assert any("9 open steps" in fault for fault in flow("TREE", 9))
