"""Ticks of traced processes as times of this host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectors.agent.layout import Raw

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Clocks:
    """Of each process the same instant by three clocks, and ticks per ns; arrays of shape (processes,)."""

    ticks: I64
    monotonic_ns: I64
    wall_ns: I64
    rate: npt.NDArray[np.float64]

    @classmethod
    def of(cls, rows: Raw) -> Clocks:
        """Rows of native.CLOCK."""
        ticks, monotonic_ns, wall_ns, rate = (
            rows[name].copy() for name in ("ticks", "monotonic_ns", "wall_ns", "rate")
        )
        return cls(ticks, monotonic_ns, wall_ns, rate)

    def monotonic(self, process: int, ticks: int) -> int:
        """Ticks of one process on this host's monotonic clock, ns."""
        since = (ticks - int(self.ticks[process])) / float(self.rate[process])
        return int(self.monotonic_ns[process]) + int(since)


def ticks_array(values: npt.NDArray[np.uint64]) -> I64:
    """Ticks as signed numbers; what cannot be a tick becomes 0, "not known"."""
    return np.where(values < np.uint64(1 << 62), values, np.uint64(0)).astype(np.int64)
