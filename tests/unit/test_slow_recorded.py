"""Who is named for windows of recorded runs, slow and healthy: the whole table, fast."""

from __future__ import annotations

import pytest

from streams.slow.blame import localise
from streams.slow.findings import Finding
from tests import slow_windows
from tests.recorded_answers import Truth

NAMES = slow_windows.names()


def ranks(recorded: slow_windows.Recorded, devices: tuple[int, ...]) -> set[int]:
    return {recorded.ranks[dev] for dev in devices}


def right(truth: Truth, culprits: set[int], candidates: set[int]) -> bool:
    """As recorded_answers.fault_of, of a finding."""
    if culprits and truth.wire:
        return bool(culprits & truth.bad) and culprits <= truth.bad | truth.alike
    if culprits:
        return culprits == truth.bad
    return bool(truth.alike) and truth.bad <= candidates <= truth.bad | truth.alike


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_run(name: str) -> None:
    recorded = slow_windows.read(name)
    truth, found = recorded.truth, localise(recorded.window, recorded.hosts)
    if not truth.bad:
        assert found == []
        return
    first = found[0]
    assert first.category in truth.categories
    assert right(truth, ranks(recorded, first.culprits), ranks(recorded, first.candidates)), first
    accused = [rank for one in found for rank in ranks(recorded, one.culprits)]
    assert set(accused) <= truth.bad | truth.alike


def test_all_slow_runs_are_here() -> None:
    slow = {name for name in NAMES if slow_windows.read(name).truth.kind == "slow"}
    assert len(slow) == 16, "eight runs at two tiers"
    assert len(NAMES) - len(slow) >= 40, "healthy ones"


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("b2_gpustraggler4-flows", {2}),
        ("n2_ring8_gpustraggler2-kernel", {2}),
        ("n2_tpdp8_slowcopy3-flows", {3}),
        ("n2_tpdp8_slowcopy3-kernel", {3}),
    ],
)
def test_the_culprit_itself_is_named_where_candidates_would_do(name: str, named: set[int]) -> None:
    recorded = slow_windows.read(name)
    assert ranks(recorded, localise(recorded.window, recorded.hosts)[0].culprits) == named


def test_how_much_a_late_host_steals() -> None:
    """300 ms late at seven of eight steps after those in which NCCL connects, and three wait each time."""
    recorded = slow_windows.read("b3_straggler_default4-flows")
    finding: Finding = localise(recorded.window, recorded.hosts)[0]
    assert finding.lost_s == pytest.approx(7 * 0.3, rel=0.05)
    assert finding.stolen_s == pytest.approx(3 * finding.lost_s)
    assert (finding.waiting, finding.steps) == (3, 8)
