"""A fixed sample of the fault matrix: real processes broken under the whole pipeline (see make matrix)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.matrix.cells import Cell
from benchmarks.matrix.trial import run
from mycroft.local.alerts import Alerts, wait_watching
from mycroft.local.stack import Stack
from tests.figures import Figure

SAMPLE = (
    Cell("kill", "dp8", "sockets", 0, 1),
    Cell("gpu-hang", "dp8", "sockets", 0, 1),
    Cell("nic-down", "dp8", "credits", 0, 1),
    Cell("late-launch", "dp8", "sockets", 0, 1),
    Cell("stop", "tp2-pp2-dp2", "sockets", 0, 1),
    Cell("stream-blocked", "tp4-dp2", "sockets", 0, 1),
)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        assert stack.addresses is not None
        wait_watching(stack.addresses.kafka)
        yield stack.addresses.kafka


@pytest.mark.slow
@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: f"{cell.fault}-{cell.topology}-{cell.network}")
def test_a_cell_of_the_matrix(cell: Cell, kafka: str, figure: Figure) -> None:
    with Alerts(kafka) as alerts:
        found, told = run(cell, kafka, alerts)
    said = [each.incident.summary for each in told]
    when = "never" if found.seconds is None else f"{found.seconds:.1f} s after the fault"
    figure(f"{cell.injected()} in {cell.topology}: {found.category}, {when}")
    assert found.found, said
    assert found.right_category, said
    assert not found.wrong, said
    assert not found.early, said
