"""How fast a communicator's operations are: what is stored of each window, and what triggers look at.

A row is one communicator, func, size class, algorithm and protocol in one window, over all members.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from schemas.enums import Func
from schemas.records import MAX_US, RATE, UNKNOWN_US, Records
from streams.grouping import groups_of
from streams.slow.fold import Folded

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

RATE_KEY = ("comm", "func", "size_class", "algo", "proto")

_SIZES_OF_ALL = (Func.ALL_GATHER, Func.REDUCE_SCATTER, Func.ALL_TO_ALL, Func.GATHER, Func.SCATTER)
"""Operations whose call gives one rank's part; nccl-tests count the parts of all."""


def bus_factor(func: npt.NDArray[np.uint8], nranks: npt.NDArray[np.uint32]) -> F64:
    """Bus bandwidth = factor × payload of the call ÷ time, as nccl-tests define it (PERFORMANCE.md there).

    AllReduce 2(n−1)/n; AllGather, ReduceScatter, all-to-all, gather and scatter (n−1)/n of the data of all
    n ranks, so n−1 times the part of one; everything else 1. Shapes as the arguments.
    """
    ranks = np.maximum(nranks.astype(np.float64), 1.0)
    found = np.where(func == Func.ALL_REDUCE, 2 * (ranks - 1) / ranks, 1.0)
    return np.where(np.isin(func, _SIZES_OF_ALL), ranks - 1, found)


def rates(folded: Folded) -> Records:
    """RATE rows of the devices' sums of one window, unique by RATE_KEY.

    `interval_*` of the devices must be filled in. What joined operations tell is added by the caller.
    """
    lags = folded.lags
    group, first = groups_of([lags[name] for name in RATE_KEY])
    size = len(first)
    found = RATE.empty(size)
    for name in ("job", "attempt", "start", "length_us", *RATE_KEY):
        found[name] = lags[name][first]
    for name in ("nranks", "nnodes", "n"):
        np.maximum.at(found[name], group, lags[name])
    found["ranks"] = np.bincount(group, minlength=size)
    operations = np.bincount(group, lags["n"], size)
    found["bytes"] = np.bincount(group, lags["bytes"], size) / np.maximum(operations, 1)
    timed = lags["timed"] > 0
    mean = np.where(timed, lags["duration_sum_us"] / np.maximum(lags["timed"], 1), np.inf)
    shortest = np.full(size, np.inf)
    np.minimum.at(shortest, group, mean)
    found["transfer_us"] = _whole(shortest)
    moved = bus_factor(found["func"], found["nranks"]) * found["bytes"]
    found["busbw"] = np.where(
        np.isfinite(shortest), moved / np.maximum(np.where(np.isfinite(shortest), shortest, 1), 1) * 1e6, 0
    )
    found["duration_p50_us"] = _whole(_quantile(group, folded.p50, timed, size, 0.5))
    found["duration_p90_us"] = _whole(_quantile(group, folded.p90, timed, size, 0.5))
    found["duration_p99_us"] = _whole(_quantile(group, folded.p99, timed, size, 1.0))
    found["duration_max_us"] = _whole(_quantile(group, lags["duration_max_us"], timed, size, 1.0))
    paced = lags["interval_n"] > 0
    interval = lags["interval_sum_us"] / np.maximum(lags["interval_n"], 1)
    found["interval_sum_us"] = np.bincount(group, lags["interval_sum_us"], size)
    found["interval_n"] = np.bincount(group, lags["interval_n"], size)
    found["interval_p50_us"] = _whole(_quantile(group, interval, paced, size, 0.5))
    found["interval_p90_us"] = _whole(_quantile(group, interval, paced, size, 0.9))
    for name in ("start_skew_p50_us", "start_skew_max_us", "end_skew_p50_us", "end_skew_max_us"):
        found[name] = UNKNOWN_US
    return found


def add_skews(found: Records, row: I64, start_skew_us: I64, end_skew_us: I64) -> None:
    """Skews of joined operations, each with the number of its row."""
    every = np.ones(len(row), np.bool_)
    for name, values in (("start_skew", start_skew_us), ("end_skew", end_skew_us)):
        found[f"{name}_p50_us"] = _whole(_quantile(row, values, every, len(found), 0.5))
        found[f"{name}_max_us"] = _whole(_quantile(row, values, every, len(found), 1.0))


def _quantile(
    group: I64, values: npt.NDArray[np.generic], known: npt.NDArray[np.bool_], size: int, part: float
) -> F64:
    """Nearest-rank quantile of the known values of each group, shape (size,); inf where there is none."""
    found = np.full(size, np.inf)
    group, plain = group[known], np.asarray(values)[known].astype(np.float64)
    if len(group):
        order = np.lexsort((plain, group))
        ordered = group[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        sizes = np.diff(np.append(starts, len(ordered)))
        place = np.maximum(np.ceil(sizes * part).astype(np.int64) - 1, 0)
        found[ordered[starts]] = plain[order][starts + place]
    return found


def _whole(microseconds: F64) -> npt.NDArray[np.uint32]:
    known = np.isfinite(microseconds)
    return np.where(known, np.minimum(np.rint(np.where(known, microseconds, 0)), MAX_US), UNKNOWN_US).astype(
        np.uint32
    )
