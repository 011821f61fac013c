"""The incident of a job of a thousand ranks, as `python -m benchmarks.store` asks for it, with few flows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.store import Filled
from mycroft.local.store_process import start_store

pytestmark = pytest.mark.slow

FLOWS_A_SECOND = 115_200
TOLD_S = 10
"""Seconds of the hang."""
DATA_GROUP = 8
"""Ranks of a data parallel group: 128 hosts in 16 stages."""


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Filled]:
    """A store of its own: the tables of the others are for one job each."""
    store = start_store(tmp_path)
    yield Filled(store.url)
    store.stop()


def test_a_late_rank_without_flows_is_shown_by_those_that_wait_for_it(filled: Filled) -> None:
    (trained,) = filled.trained(1)
    assert trained % FLOWS_A_SECOND == 0
    asked = {where: rows for where, rows, _ in filled.panels(filled.hung())}
    # Of its data parallel group all others stand: of one channel three counters a second at each end.
    right = (DATA_GROUP - 1) * 3 * TOLD_S
    assert asked["panel Counters of the senders A"] == right
    assert asked["panel Counters of the receivers A"] == right
    assert asked["mycroft report, all its queries"] > 0
