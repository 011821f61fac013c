"""Which finished operations are sent one by one.

Every operation has a level, drawn from its communicator and number alone: all have level ≥ 0, half of them
≥ 1, a quarter ≥ 2, … A host that can afford every 2^k-th sends those of level ≥ k. So what one host sends
is a subset or a superset of what another sends of the same communicator, without a word between them, and
joins over all ranks hold for whatever the most sparing one sends. Levels are a mixing hash of seq, not its
low bits: programs repeat their operations in powers of two, and a plain stride would always see the same one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

NOTHING = 64
"""Level that no operation has: send none."""


@dataclass(frozen=True)
class Limits:
    """What may be sent: bytes a second of this host, records a second of one communicator; 0 = no limit."""

    host_bytes: int = 128 * 1024
    comm_records: int = 100_000


@dataclass(frozen=True)
class Demand:
    """What one communicator would send of single operations in this period, were there no limit.

    `records` and `bytes` have shape (NOTHING + 1,): what it is when only operations of that level and above
    are sent. `share` is the part of the communicator's ranks that are on this host.
    """

    comm: int
    records: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    share: float


def demand(comm: int, level: npt.NDArray[np.uint8], size: npt.NDArray[np.int64], share: float) -> Demand:
    """The demand of records with these levels and sizes in bytes; arrays of one length."""
    counted = np.bincount(level, minlength=NOTHING + 1)
    weighed = np.bincount(level, weights=size, minlength=NOTHING + 1).astype(np.int64)
    return Demand(comm, np.cumsum(counted[::-1])[::-1], np.cumsum(weighed[::-1])[::-1], share)


def levels(comm: U64, seq: U64) -> npt.NDArray[np.uint8]:
    """Level of each operation, the same on every rank; arrays of one length.

    Sends and receives of a pair carry one seq, so both ends are kept or neither.
    """
    mixed = seq * np.uint64(0x9E3779B97F4A7C15) ^ comm
    for multiplier, shift in ((0xBF58476D1CE4E5B9, 30), (0x94D049BB133111EB, 27), (1, 31)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(multiplier)
    # Trailing zeros of x are the bits below its lowest one, x & −x.
    lowest = mixed & (~mixed + np.uint64(1))
    _, exponent = np.frexp(lowest.astype(np.float64))
    return np.where(mixed == 0, 63, exponent - 1).astype(np.uint8)


def choose(demands: list[Demand], spent: int, limits: Limits, seconds: float = 1.0) -> dict[int, int]:
    """The least level to send for each communicator, in a period of so many seconds.

    `spent` are the bytes that go out in any case. First each communicator keeps to its own limit, then the
    one that takes most goes up a level until the host's budget holds. What results never exceeds a limit.
    """
    level = {each.comm: _within(each, limits, seconds) for each in demands}
    if not limits.host_bytes:
        return level
    left = max(0.0, limits.host_bytes * seconds - spent)
    size = {each.comm: each.bytes for each in demands}
    while level and sum(int(size[comm][level[comm]]) for comm in level) > left:
        level[max(level, key=lambda comm: (int(size[comm][level[comm]]), comm))] += 1
    return level


def _within(each: Demand, limits: Limits, seconds: float) -> int:
    if not limits.comm_records:
        return 0
    return int(np.argmax(each.records <= limits.comm_records * each.share * seconds))
