"""Sums of hosts become sums of devices: the part that sees every record.

One pass over the records as they lie in the messages, one hash table. What comes out has a row for each
(communicator, device, func, size class, algorithm, protocol): some ten thousand times less than one a record
of single operations, however many ranks there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from schemas.records import LAG, UNKNOWN_US, Records

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Folded:
    """L devices' sums; arrays of shape (L,).

    `launched` is the last launch by the host's clock, ns, 0 where unknown; the quantiles are those of the
    largest of a device's sums, UNKNOWN_US where no end is known.
    """

    lags: Records
    launched: I64
    p50: npt.NDArray[np.uint32]
    p90: npt.NDArray[np.uint32]
    p99: npt.NDArray[np.uint32]


def folded(sums: Records) -> Folded:
    """COLL records of kind SUM, shape (N,), by device; a row for each key, in order of appearance."""
    lags = LAG.empty(len(sums))
    table = np.full(1 << max(4, (2 * len(sums)).bit_length()), -1, np.int64)
    launched = np.zeros(len(sums), np.int64)
    quantiles = np.full((len(sums), 3), UNKNOWN_US, np.uint32)
    largest = np.zeros(len(sums), np.uint32)
    found = _fold(sums, table, lags, launched, quantiles, largest)
    p50, p90, p99 = (np.ascontiguousarray(quantiles[:found, at]) for at in range(3))
    return Folded(lags[:found], launched[:found], p50, p90, p99)


@njit(cache=True, nogil=True)
def _size_class(total: np.uint64, n: np.uint64) -> int:
    """Size class of the mean, which is that of each: the mean rounded up stays within the class."""
    size = (total + n - np.uint64(1)) // n if n else total
    found = 0
    while found < 64 and (np.uint64(1) << np.uint64(found)) < size:
        found += 1
    return found


@njit(cache=True, nogil=True)
def _fold(
    sums: Records,
    table: I64,
    lags: Records,
    launched: I64,
    quantiles: npt.NDArray[np.uint32],
    largest: npt.NDArray[np.uint32],
) -> int:
    found = 0
    mask = np.uint64(len(table) - 1)
    prime = np.uint64(0x9E3779B97F4A7C15)
    for index in range(len(sums)):
        row = sums[index]
        n = np.uint64(row.n)
        size = _size_class(row.bytes, n)
        small = (
            (np.uint64(row.func) << np.uint64(24))
            | (np.uint64(row.algo) << np.uint64(16))
            | (np.uint64(row.proto) << np.uint64(8))
            | np.uint64(size)
        )
        mixed = (row.comm ^ small * prime) * prime
        mixed = (mixed ^ (mixed >> np.uint64(29)) ^ row.dev) * prime
        at = (mixed ^ (mixed >> np.uint64(32))) & mask
        while True:
            slot = table[at]
            if slot < 0:
                slot = found
                table[at] = slot
                found += 1
                own = lags[slot]
                own.job, own.attempt, own.comm, own.dev = row.job, row.attempt, row.comm, row.dev
                own.rank, own.nranks, own.nnodes = row.rank, row.nranks, row.nnodes
                own.func, own.algo, own.proto = row.func, row.algo, row.proto
                own.visibility, own.size_class = row.visibility, np.uint8(size)
                own.duration_max_us = np.uint32(UNKNOWN_US)
                own.clock_bound_ns = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
                break
            own = lags[slot]
            if (
                own.comm == row.comm
                and own.dev == row.dev
                and own.func == row.func
                and own.size_class == size
                and own.algo == row.algo
                and own.proto == row.proto
            ):
                break
            at = (at + np.uint64(1)) & mask
        own = lags[slot]
        own.n = min(np.uint64(own.n) + n, np.uint64(0xFFFF_FFFF))
        own.bytes += row.bytes
        own.visibility = max(own.visibility, row.visibility)
        launched[slot] = max(launched[slot], row.launched)
        if row.duration_p50_us == np.uint32(UNKNOWN_US):
            continue
        own.timed = min(np.uint64(own.timed) + n, np.uint64(0xFFFF_FFFF))
        own.duration_sum_us += row.duration_sum_us
        if own.duration_max_us == np.uint32(UNKNOWN_US) or row.duration_max_us > own.duration_max_us:
            own.duration_max_us = row.duration_max_us
        if row.n >= largest[slot]:
            largest[slot] = row.n
            quantiles[slot, 0] = row.duration_p50_us
            quantiles[slot, 1] = row.duration_p90_us
            quantiles[slot, 2] = row.duration_p99_us
    return found
