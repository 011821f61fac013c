"""Whether a cause is there all the time, now and then, or once: windows of a second written by hand."""

from __future__ import annotations

import pytest

from schemas.records import FLOW, LAG
from streams.slow.blame import localise
from streams.slow.patterns import Pattern, pattern
from streams.slow.window import Window, merged
from tests.unit.test_slow_blame import WORLD, alone, dev, lag, ring


def second(number: int, lost: float) -> Window:
    """A window in which rank 2 was so many seconds late."""
    lags = [lag(WORLD, rank, dev(rank), 4, waited=0.0 if rank == 2 else lost) for rank in range(4)]
    return Window(1, 1, number * 10**9, 1_000_000, LAG.joined(lags), FLOW.empty(0))


@pytest.mark.parametrize(
    ("lost", "found"),
    [
        ((0.5,) * 8, Pattern.PERSISTENT),
        ((0.5, 0, 0.5, 0.5, 0.5, 0.5, 0, 0.5), Pattern.PERSISTENT),
        ((0.9, 0, 0, 0, 0.9, 0, 0, 0), Pattern.PERIODIC),
        ((0, 0, 0.9, 0.9, 0, 0, 0, 0), Pattern.ONCE),
    ],
)
def test_launches(lost: tuple[float, ...], found: Pattern) -> None:
    windows = [second(number, one) for number, one in enumerate(lost)]
    (finding,) = localise(merged(windows), alone(4))
    assert pattern(windows, finding) is found


@pytest.mark.parametrize(
    ("slow", "found"),
    [
        ((4.0, 4.0, 4.0, 4.0), Pattern.PERSISTENT),
        ((4.0, 0.2, 0.2, 4.0), Pattern.PERIODIC),
        ((0.2, 4.0, 0.2, 0.2), Pattern.ONCE),
        ((4.0, 4.0), Pattern.UNKNOWN),
    ],
)
def test_flows_are_summed_over_five_seconds_of_each_host(slow: tuple[float, ...], found: Pattern) -> None:
    lags = LAG.joined(lag(WORLD, rank, dev(rank), 4) for rank in range(4))
    windows = []
    for period, gpu in enumerate(slow):
        flows = ring(4, gpu={2: gpu})
        for number in range(5):
            mine = FLOW.joined(flow for flow in flows if flow["dev"][0] == dev(number))
            windows.append(Window(1, 1, (5 * period + number) * 10**9, 1_000_000, lags, mine))
    (finding,) = localise(merged(windows), alone(4))
    assert pattern(windows, finding) is found
