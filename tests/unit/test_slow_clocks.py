"""Offsets of clocks that are known: hosts half a second apart, drifting, and how wrong the estimates are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from schemas.records import UNKNOWN_NS
from streams.slow.clocks import FORGET_S, MAX_DRIFT, Clocks, Seen

COMM = np.uint64(7)
HOSTS = 8
I64 = npt.NDArray[np.int64]


class Skewed:
    """AllReduces of hosts whose clocks are off by up to 500 ms and drift by up to 50 ppm; one rank a host."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.offset = self.rng.uniform(-0.5, 0.5, HOSTS)
        self.drift = self.rng.uniform(-50e-6, 50e-6, HOSTS)

    def clock_ns(self, host: I64, at: npt.NDArray[np.float64]) -> I64:
        """What the clocks show at a true time (s)."""
        found: I64 = np.rint((at * (1 + self.drift[host]) + self.offset[host]) * 1e9).astype(np.int64)
        return found

    def truth_ns(self, at: float) -> I64:
        """By how much each host's clock is ahead of host 0's."""
        every = self.clock_ns(np.arange(HOSTS), np.full(HOSTS, at))
        found: I64 = every - every[0]
        return found

    def second(self, at: int, operations: int) -> Seen:
        """Operations of one second: launched within 5 ms, ended within 0.2 ms, 1 to 10 ms after the last."""
        host = np.tile(np.arange(HOSTS), operations)
        begin = np.repeat(at + np.sort(self.rng.uniform(0, 0.9, operations)), HOSTS)
        start = begin + self.rng.uniform(0, 5e-3, len(begin))
        last = np.repeat(start.reshape(operations, HOSTS).max(axis=1), HOSTS)
        took = np.repeat(self.rng.uniform(1e-3, 10e-3, operations), HOSTS)
        end = last + took + self.rng.uniform(0, 2e-4, len(begin))
        return Seen(
            np.arange(operations + 1, dtype=np.int64) * HOSTS, np.full(operations, COMM), host, host,
            self.clock_ns(host, start), self.clock_ns(host, end),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_within_a_millisecond_and_within_the_bound(seed: int) -> None:
    job, clocks = Skewed(seed), Clocks()
    wrong, bounds = [], []
    for second in range(120):
        clocks.take(job.second(second, 20), second)
        offset, bound = clocks.of(np.full(HOSTS, COMM), np.arange(HOSTS), second)
        wrong.append(np.abs(offset - job.truth_ns(second + 0.5)))
        bounds.append(bound.astype(np.int64))
    error, told = np.concatenate(wrong), np.concatenate(bounds)
    assert (error <= told).mean() >= 0.99
    assert error.max() < 1_000_000
    # A bound is at most as wide as the shortest operation allows, and never nothing but for the reference.
    assert told[told > 0].max() < 20_000_000


def test_a_bound_widens_while_nothing_is_seen_and_is_forgotten_at_last() -> None:
    job, clocks = Skewed(1), Clocks()
    clocks.take(job.second(0, 50), 0)
    host, comm = np.array([3]), np.array([COMM])
    (before,), (after,) = (clocks.of(comm, host, second)[1] for second in (0, 100))
    assert int(after) - int(before) == round(100 * MAX_DRIFT * 1e9)
    nothing = np.zeros(0, np.int64)
    clocks.take(Seen(np.zeros(1, np.int64), np.zeros(0, np.uint64), *[nothing] * 4), FORGET_S + 1)
    assert clocks.of(comm, host, FORGET_S + 1)[1].tolist() == [UNKNOWN_NS]


def test_a_clock_that_is_set_is_followed_at_once() -> None:
    job, clocks = Skewed(2), Clocks()
    for second in range(5):
        clocks.take(job.second(second, 20), second)
    job.offset[4] += 2.0
    clocks.take(job.second(5, 20), 5)
    offset, bound = clocks.of(np.full(HOSTS, COMM), np.arange(HOSTS), 5)
    assert (np.abs(offset - job.truth_ns(5.5)) <= bound.astype(np.int64)).all()


def test_of_a_host_that_was_never_seen_nothing_is_known() -> None:
    assert Clocks().of(np.array([COMM]), np.array([1]), 0)[1].tolist() == [UNKNOWN_NS]
