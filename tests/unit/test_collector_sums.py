"""Sums and the budget: totals hold, choices nest and agree on all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.agent.budget import NOTHING, Demand, Limits, choose, demand, levels
from collectors.agent.summarise import coll_sums, flow_sums
from schemas.enums import Algo, Direction, Func, Kind, Proto, Visibility
from schemas.records import COLL, FLOW, UNKNOWN_US, Records
from schemas.sizes import size_class


def operations(*rows: dict[str, Any]) -> Records:
    found = COLL.empty(len(rows))
    found["kind"], found["n"], found["nranks"] = Kind.DONE, 1, 4
    found["visibility"], found["algo"], found["proto"] = Visibility.FLOWS, Algo.RING, Proto.SIMPLE
    found["func"] = Func.ALL_REDUCE
    for at, row in enumerate(rows):
        for name, value in row.items():
            found[name][at] = value
    return found


def flows(*rows: dict[str, Any]) -> Records:
    found = FLOW.empty(len(rows))
    found["kind"], found["n"], found["direction"] = Kind.DONE, 1, Direction.SEND
    found["func"] = Func.ALL_REDUCE
    for at, row in enumerate(rows):
        for name, value in row.items():
            found[name][at] = value
    return found


def test_size_classes_at_every_power_of_two() -> None:
    sizes = np.array([size for power in range(1, 63) for size in (1 << power, (1 << power) + 1)], np.uint64)
    expected = [each for power in range(1, 63) for each in (power, power + 1)]
    assert size_class(sizes).tolist() == expected


def test_a_sum_by_hand() -> None:
    found = coll_sums(
        operations(
            {"bytes": 1000, "count": 250, "end_us": 10, "seq": 1},
            {"bytes": 1024, "count": 256, "end_us": 30, "seq": 2},
            {"bytes": 1020, "count": 255, "end_us": 20, "seq": 3},
            {"bytes": 1020, "count": 255, "end_us": UNKNOWN_US, "seq": 4},
            {"bytes": 2048, "count": 512, "end_us": 99, "seq": 5},
        )
    )
    assert len(found) == 2
    first, second = found
    assert (first["n"], first["bytes"], first["count"]) == (4, 4064, 1016)
    assert (first["duration_sum_us"], first["duration_max_us"]) == (60, 30)
    assert (first["duration_p50_us"], first["duration_p90_us"], first["duration_p99_us"]) == (20, 30, 30)
    assert (first["kind"], first["seq"], first["peer"]) == (Kind.SUM, 4, -1)
    assert (second["n"], second["duration_p50_us"]) == (1, 99)


def test_a_sum_of_operations_without_known_end_has_no_durations() -> None:
    (found,) = coll_sums(operations({"end_us": UNKNOWN_US}, {"end_us": UNKNOWN_US}))
    assert (found["n"], found["duration_sum_us"]) == (2, 0)
    assert found["duration_p50_us"] == found["duration_max_us"] == UNKNOWN_US


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 1), st.sampled_from([1, 2]), st.integers(0, 5000),
            st.one_of(st.just(UNKNOWN_US), st.integers(0, 10_000)),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_sums_of_operations_are_the_sums_of_their_parts(rows: list[tuple[int, int, int, int, int]]) -> None:
    done = operations(
        *({"comm": comm, "dev": dev, "func": func, "bytes": size, "end_us": end}
          for comm, dev, func, size, end in rows)
    )  # fmt: skip
    found = coll_sums(done)
    assert found["n"].sum() == len(rows)
    assert found["bytes"].sum() == done["bytes"].sum()
    known = done["end_us"] != UNKNOWN_US
    assert found["duration_sum_us"].sum() == done["end_us"][known].astype(np.uint64).sum()
    keys = {
        (comm, dev, func, int(size_class(np.array([size], np.uint64))[0]))
        for comm, dev, func, size, _ in rows
    }
    assert len(found) == len(keys)


def test_channels_are_told_apart_only_where_one_differs() -> None:
    alike = [
        {"peer": 1, "channel": channel, "bytes": 100, "net_us": 50_000, "seq": 1} for channel in range(4)
    ]
    (common,) = flow_sums(flows(*alike))
    assert (common["channel"], common["n"], common["bytes"], common["net_us"]) == (-1, 1, 400, 200_000)
    slow = [*alike[:3], alike[3] | {"net_us": 150_000}]
    common, apart = flow_sums(flows(*slow))
    assert (common["channel"], common["bytes"], common["net_us"]) == (-1, 300, 150_000)
    assert (apart["channel"], apart["bytes"], apart["net_us"]) == (3, 100, 150_000)


def test_of_two_channels_that_differ_both_are_told() -> None:
    two = flows({"channel": 0, "gpu_us": 100_000}, {"channel": 1, "gpu_us": 1000})
    assert flow_sums(two)["channel"].tolist() == [0, 1]


def test_noise_on_an_idle_peer_tells_no_channel_apart() -> None:
    quiet = flows(*({"channel": channel, "net_us": 100 * 3**channel} for channel in range(4)))
    assert flow_sums(quiet)["channel"].tolist() == [-1]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 4), st.sampled_from(list(Direction)), st.integers(0, 5000),
            st.integers(0, 200_000),
        ),
        max_size=60,
    )
)  # fmt: skip
def test_sums_of_flows_are_the_sums_of_their_parts(rows: list[tuple[int, int, Direction, int, int]]) -> None:
    done = flows(
        *({"peer": peer, "channel": channel, "direction": direction, "bytes": size, "net_us": net, "done": 3}
          for peer, channel, direction, size, net in rows)
    )  # fmt: skip
    found = flow_sums(done)
    for name in ("bytes", "net_us", "done"):
        assert found[name].sum() == done[name].astype(np.uint64).sum()
    ends = {(peer, direction) for peer, _, direction, _, _ in rows}
    assert {(int(row["peer"]), Direction(row["direction"])) for row in found} == ends
    place = [tuple(row) for row in found[["peer", "direction", "channel"]].tolist()]
    assert len(set(place)) == len(place)


def level_of(comm: int, seqs: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    return levels(np.full(len(seqs), comm, np.uint64), seqs)


def test_half_of_all_operations_are_on_each_next_level() -> None:
    found = level_of(0x1234, np.arange(1, 1 << 16, dtype=np.uint64))
    for level in range(8):
        assert (found >= level).mean() == pytest.approx(0.5**level, rel=0.1)


@pytest.mark.parametrize("period", [2, 64, 1024])
def test_programs_that_repeat_in_powers_of_two_are_not_seen_at_one_place_only(period: int) -> None:
    seqs = np.arange(1, 1 << 18, dtype=np.uint64)
    kept = seqs[level_of(7, seqs) >= 4]
    assert len(np.unique(kept % period)) == period


@given(st.integers(0, (1 << 64) - 1), st.lists(st.integers(0, (1 << 64) - 1), max_size=50), st.randoms())
def test_levels_do_not_depend_on_who_asks_or_in_what_company(comm: int, seqs: list[int], random: Any) -> None:
    alone = {seq: int(level_of(comm, np.array([seq], np.uint64))[0]) for seq in seqs}
    random.shuffle(seqs)
    together = level_of(comm, np.array(seqs, np.uint64))
    assert together.tolist() == [alone[seq] for seq in seqs]
    assert all(0 <= level < NOTHING for level in alone.values())


def demands(counts: list[int], size: int, share: float) -> list[Demand]:
    return [
        demand(comm, level_of(comm, np.arange(count, dtype=np.uint64)), np.full(count, size), share)
        for comm, count in enumerate(counts)
    ]


def test_within_the_budget_everything_is_sent() -> None:
    assert choose(demands([100, 100], 256, 1), 0, Limits(128 * 1024)) == {0: 0, 1: 0}
    assert choose(demands([10_000], 256, 1), 1 << 20, Limits(0, 0)) == {0: 0}
    assert choose([], 5, Limits()) == {}


def test_a_communicator_keeps_to_its_own_limit_by_its_share() -> None:
    # 1000 records allowed to a quarter of the ranks: 250 a second of 1000, the second level.
    (found,) = choose(demands([1000], 1, 0.25), 0, Limits(0, 1000)).values()
    kept = int((level_of(0, np.arange(1000, dtype=np.uint64)) >= found).sum())
    assert kept <= 250 < int((level_of(0, np.arange(1000, dtype=np.uint64)) >= found - 1).sum())


def test_without_room_nothing_single_is_sent() -> None:
    found = choose(demands([50, 3], 100, 1), 1000, Limits(1000))
    asked = {each.comm: each for each in demands([50, 3], 100, 1)}
    assert all(asked[comm].bytes[level] == 0 for comm, level in found.items())


@given(
    st.lists(st.integers(0, 2000), max_size=5), st.integers(0, 200_000), st.integers(1, 100_000),
    st.integers(1, 1000), st.sampled_from([0.001, 0.25, 1.0]),
)  # fmt: skip
def test_no_limit_is_ever_exceeded_and_a_smaller_budget_sends_a_subset(
    counts: list[int], host: int, comm_limit: int, size: int, share: float
) -> None:
    asked = demands(counts, size, share)
    found = choose(asked, 0, Limits(host or 1, comm_limit))
    assert sum(int(each.bytes[found[each.comm]]) for each in asked) <= (host or 1)
    for each in asked:
        assert each.records[found[each.comm]] <= comm_limit * share
    fewer = choose(asked, 0, Limits((host or 1) // 2 or 1, comm_limit))
    assert all(fewer[comm] >= level for comm, level in found.items())
