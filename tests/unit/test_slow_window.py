"""Spans of time as the localiser gets them: sums that add up, however they are cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.enums import Direction, Func, Kind
from schemas.records import FLOW, LAG, UNKNOWN_US, Records
from streams.slow.window import Window, merged

SECOND_NS = 1_000_000_000


def lags(*rows: dict[str, int]) -> Records:
    found = LAG.empty(len(rows))
    found["func"], found["duration_max_us"] = Func.ALL_REDUCE, UNKNOWN_US
    for at, row in enumerate(rows):
        for name, value in row.items():
            found[name][at] = value
    return found


def flows(*rows: dict[str, int]) -> Records:
    found = FLOW.empty(len(rows))
    found["kind"], found["direction"], found["channel"] = Kind.SUM, Direction.SEND, -1
    for at, row in enumerate(rows):
        for name, value in row.items():
            found[name][at] = value
    return found


def window(second: int, lag: Records, flow: Records, silent: tuple[str, ...] = ()) -> Window:
    return Window(1, 2, second * SECOND_NS, 1_000_000, lag, flow, silent)


def test_two_windows_by_hand() -> None:
    first = window(
        10,
        lags(
            {"comm": 1, "dev": 5, "n": 3, "timed": 2, "duration_sum_us": 40, "duration_max_us": 30},
            {"comm": 1, "dev": 6, "n": 1},
        ),
        flows({"comm": 1, "dev": 5, "peer": 1, "gpu_us": 10, "bytes": 100}),
        ("h1",),
    )
    second = window(
        12,
        lags({"comm": 1, "dev": 5, "n": 2, "timed": 2, "duration_sum_us": 9, "duration_max_us": 8}),
        flows(
            {"comm": 1, "dev": 5, "peer": 1, "gpu_us": 1, "bytes": 10},
            {"comm": 1, "dev": 5, "peer": 1, "channel": 2, "gpu_us": 7, "bytes": 1},
        ),
    )
    both = merged([first, second])
    assert (both.start_ns, both.length_us, both.silent) == (10 * SECOND_NS, 3_000_000, ("h1",))
    told = {int(row["dev"]): row for row in both.lags}
    assert [int(told[5][name]) for name in ("n", "timed", "duration_sum_us", "duration_max_us")] == [
        5,
        4,
        49,
        30,
    ]
    assert (int(told[6]["n"]), int(told[6]["duration_max_us"])) == (1, UNKNOWN_US)
    assert {int(row["channel"]): (int(row["gpu_us"]), int(row["bytes"])) for row in both.flows} == {
        -1: (11, 110),
        2: (7, 1),
    }


def test_what_does_not_fit_saturates() -> None:
    parts = [window(second, lags({"n": 0xFFFF_FFFF}), flows()) for second in range(2)]
    assert merged(parts).lags["n"].tolist() == [0xFFFF_FFFF]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1000)), max_size=30),
    st.integers(1, 4),
)
def test_totals_do_not_depend_on_how_time_is_cut(rows: list[tuple[int, int, int]], parts: int) -> None:
    windows = [
        window(
            part,
            lags(*({"comm": comm, "dev": dev, "n": n} for comm, dev, n in rows[part::parts])),
            flows(*({"comm": comm, "dev": dev, "net_us": n} for comm, dev, n in rows[part::parts])),
        )
        for part in range(parts)
    ]
    expected: dict[tuple[int, int], int] = {}
    for comm, dev, n in rows:
        expected[comm, dev] = expected.get((comm, dev), 0) + n
    both = merged(windows)
    assert {(int(row["comm"]), int(row["dev"])): int(row["n"]) for row in both.lags} == expected
    assert {(int(row["comm"]), int(row["dev"])): int(row["net_us"]) for row in both.flows} == expected
    assert len(np.unique(both.lags[["comm", "dev"]])) == len(both.lags)
