"""Windows by hand: what two hosts tell of a few operations, and what their windows say of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collectors.agent.summarise import coll_sums
from schemas.enums import Algo, DataType, Func, Kind, Proto, Visibility
from schemas.envelope import Envelope, MessageKind
from schemas.records import COLL, UNKNOWN_NS, UNKNOWN_US, Records
from streams.slow.rates import bus_factor
from streams.slow.window import CONNECTING
from streams.slow.windows import Closed, Windows

EPOCH_NS = 1_700_000_000 * 10**9
AHEAD = 500_000_000
T = 1_700_000_000.0
"""Broker time at which the tests begin, s; every host's clock is told as `skew` ns ahead of it."""


def done(rank: int, seq: int, launch: float, took: float, told: float, **other: Any) -> Records:
    """One finished operation: launched and told so many s after T, `took` ms."""
    row = COLL.empty(1)
    row["job"], row["attempt"], row["comm"], row["dev"] = 1, 2, 7, 100 + rank
    row["rank"], row["nranks"], row["nnodes"], row["kind"], row["n"] = rank, 2, 2, Kind.DONE, 1
    row["func"], row["algo"], row["proto"] = Func.ALL_REDUCE, Algo.RING, Proto.SIMPLE
    row["visibility"], row["datatype"], row["peer"] = Visibility.FLOWS, DataType.FLOAT32, -1
    row["seq"], row["bytes"], row["count"] = CONNECTING + seq, 4000, 1000
    for name in ("api_us", "first_us", "kernel_start_us", "kernel_end_us"):
        row[name] = UNKNOWN_US
    row["launched"] = EPOCH_NS + round(launch * 1e9) + other.pop("skew", 0)
    row["end_us"], row["age_us"] = round(took * 1000), round((told - launch) * 1e6)
    for name, value in other.items():
        row[name] = value
    return row


def flush(host: str, *rows: Records, at: float = 0.0, skew: int = 0, sums: bool = True) -> Envelope:
    every = COLL.joined(rows)
    every = COLL.joined([every, coll_sums(every)]) if sums else every
    return Envelope(
        MessageKind.FLUSH, 1, 2, host,
        through=EPOCH_NS + round(at * 1e9) + skew, sections={COLL.name: every},
    )  # fmt: skip


def told(*flushes: tuple[float, Envelope], until: float) -> list[Closed]:
    """Windows with anything in them `until` s after T, with an empty flush of every host in between."""
    windows = Windows(1, 2, 3)
    for at, message in flushes:
        windows.take(message, T + at)
    for host in sorted({message.source for _, message in flushes}):
        windows.take(flush(host), T + until)
    return filled(windows, until)


def filled(windows: Windows, until: float) -> list[Closed]:
    return [closed for closed in windows.close(T + until) if len(closed.window.lags)]


def test_an_allreduce_of_two_ranks() -> None:
    """Rank 1 launches 30 ms after rank 0 and ends with it: rank 0 waited 30 ms for rank 1."""
    (window,) = told(
        (1.4, flush("a", done(0, 5, 1.000, 50, 1.4), at=1.4)),
        (1.4, flush("b", done(1, 5, 1.030, 20, 1.4), at=1.4)),
        until=4,
    )
    assert window.window.start_ns == EPOCH_NS + 10**9
    lag = {int(row["rank"]): row for row in window.window.lags}
    assert [int(lag[rank]["duration_sum_us"]) for rank in (0, 1)] == [50_000, 20_000]
    assert [int(lag[rank]["waited_sum_us"]) for rank in (0, 1)] == [30_000, 0]
    assert [int(lag[rank]["held_sum_us"]) for rank in (0, 1)] == [0, 30_000]
    assert [int(lag[rank]["last"]) for rank in (0, 1)] == [0, 1]
    assert [int(lag[rank]["joined"]) for rank in (0, 1)] == [1, 1]
    (rate,) = window.rates
    assert (rate["ranks"], rate["n"], rate["bytes"], rate["joined"]) == (2, 1, 4000, 1)
    assert (rate["transfer_us"], rate["last"], rate["last_n"]) == (20_000, 101, 1)
    # AllReduce over two ranks: 2(n−1)/n = 1, so 4000 bytes in 20 ms.
    assert rate["busbw"] == 200_000
    assert (rate["duration_p50_us"], rate["duration_max_us"]) == (20_000, 50_000)
    assert (rate["start_skew_p50_us"], rate["end_skew_max_us"]) == (30_000, 0)
    assert rate["partition"] == 3


def test_a_clock_that_is_half_a_second_ahead_changes_nothing() -> None:
    flushes = [
        (second + 0.4, flush("a", done(0, second, second, 50, second + 0.4), at=second + 0.4))
        for second in range(1, 4)
    ]
    flushes += [
        (
            second + 0.4,
            flush(
                "b",
                done(1, second, second + 0.030, 20, second + 0.4, skew=AHEAD),
                at=second + 0.4,
                skew=AHEAD,
            ),
        )
        for second in range(1, 4)
    ]
    windows = told(*sorted(flushes, key=lambda each: each[0]), until=7)
    for window in windows:
        lag = {int(row["rank"]): row for row in window.window.lags}
        assert [int(lag[rank]["waited_sum_us"]) for rank in (0, 1)] == [30_000, 0]
        assert int(lag[1]["clock_ns"]) == AHEAD
        assert [int(lag[rank]["start_lag_sum_us"]) for rank in (0, 1)] == [0, 30_000]
        # S_b − E_a ≤ offset ≤ E_b − S_a: between −20 and +50 ms of the truth.
        assert int(lag[1]["clock_bound_ns"]) == 50_000_000
        assert int(lag[0]["clock_bound_ns"]) == 0


def test_intervals_are_from_the_last_launch_before_to_the_last_one_in_the_window() -> None:
    first, second = told(
        (1.9, flush("a", done(0, 1, 1.0, 5, 1.9), done(0, 2, 1.4, 5, 1.9), at=1.9)),
        (2.9, flush("a", done(0, 3, 2.0, 5, 2.9), done(0, 4, 2.5, 5, 2.9), at=2.9)),
        until=6,
    )
    assert [first.rates[name].tolist() for name in ("interval_n", "interval_p50_us")] == [[0], [UNKNOWN_US]]
    assert [second.rates[name].tolist() for name in ("interval_sum_us", "interval_n")] == [[1_100_000], [2]]
    assert second.rates["interval_p50_us"] == 550_000


def test_gaps_are_from_the_end_of_the_operation_before() -> None:
    rows = [done(0, 1, 1.0, 100, 1.9), done(0, 2, 1.4, 5, 1.9), done(0, 4, 1.6, 5, 1.9)]
    (window,) = told((1.9, flush("a", *rows, at=1.9)), until=5)
    (lag,) = window.window.lags
    # 1.1 to 1.4; of the fourth the one before was not told.
    assert (lag["gap_sum_us"], lag["gap_n"], lag["singles"]) == (300_000, 1, 3)


def test_a_window_waits_for_each_host_that_speaks_and_no_longer_for_one_that_does_not() -> None:
    windows = Windows(1, 2, 0)
    for host in "ab":
        windows.take(flush(host), T + 1.0)
    windows.take(flush("a", done(0, 1, 1.2, 5, 1.9), at=1.9), T + 1.9)
    windows.take(flush("a"), T + 3.9)
    assert filled(windows, 3.9) == []
    windows.take(flush("a"), T + 5.0)
    (window,) = filled(windows, 5.0)
    assert window.window.silent == ("b",)
    assert window.rates["silent"] == 1


def test_what_comes_after_its_window_was_closed_is_counted_and_in_no_window() -> None:
    windows = Windows(1, 2, 0)
    windows.take(flush("a", done(0, 1, 1.2, 5, 1.4), at=1.4), T + 1.4)
    windows.take(flush("a"), T + 4.0)
    (window,) = filled(windows, 4.0)
    assert window.rates["late"] == 0
    windows.take(flush("a", done(0, 2, 1.3, 5, 4.4), sums=False), T + 4.4)
    windows.take(flush("a", done(0, 3, 4.3, 5, 4.5), at=4.5), T + 4.5)
    windows.take(flush("a"), T + 8.0)
    (window,) = filled(windows, 8.0)
    assert [window.rates[name].tolist() for name in ("late", "n")] == [[1], [1]]


def test_an_operation_that_ends_around_a_windows_edge_is_joined_all_the_same() -> None:
    first, second = told(
        (2.0, flush("a", done(0, 5, 1.90, 95, 2.0), at=2.0)),
        (2.0, flush("b", at=2.0)),
        (2.1, flush("b", done(1, 5, 1.95, 60, 2.1), at=2.1)),
        until=5,
    )
    assert first.window.lags["joined"].tolist() == [0]
    lag = {int(row["rank"]): row for row in second.window.lags}
    assert lag[1]["held_sum_us"] == 35_000


def test_an_operation_told_twice_counts_as_told_last() -> None:
    (window,) = told(
        (1.3, flush("a", done(0, 5, 1.0, 50, 1.3), at=1.3)),
        (1.4, flush("a", done(0, 5, 1.0, 80, 1.4), sums=False, at=1.4)),
        (1.4, flush("b", done(1, 5, 1.03, 50, 1.4), at=1.4)),
        until=4,
    )
    lag = {int(row["rank"]): row for row in window.window.lags}
    assert lag[0]["waited_sum_us"] == 30_000


def test_a_send_ends_before_its_receive_so_their_launches_are_compared_where_clocks_are_known() -> None:
    pair = [
        done(0, 1, 1.0, 1, 1.4, func=Func.SEND, peer=1),
        done(1, 1, 1.1, 90, 1.4, func=Func.RECV, peer=0),
    ]
    (window,) = told((1.4, flush("a", pair[0])), (1.4, flush("b", pair[1])), until=4)
    assert window.window.lags["joined"].tolist() == [0, 0]
    assert window.window.lags["clock_bound_ns"].tolist() == [UNKNOWN_NS] * 2
    (window,) = told((1.4, flush("a", *pair)), until=4)
    lag = {int(row["rank"]): row for row in window.window.lags}
    assert (lag[0]["waited_sum_us"], lag[1]["held_sum_us"]) == (100_000, 100_000)


@pytest.mark.parametrize(
    ("func", "factor"),
    [
        (Func.ALL_REDUCE, 2 * 7 / 8), (Func.ALL_GATHER, 7), (Func.REDUCE_SCATTER, 7),
        (Func.ALL_TO_ALL, 7), (Func.BROADCAST, 1), (Func.REDUCE, 1), (Func.SEND, 1),
    ],
)  # fmt: skip
def test_factors_of_nccl_tests(func: Func, factor: float) -> None:
    """With n ranks: AllReduce 2(n−1)/n of the buffer; AllGather (n−1)/n of n parts; Broadcast all of it."""
    assert bus_factor(np.array([func], np.uint8), np.array([8], np.uint32)).tolist() == [factor]
