"""What is current, stalled, due; right values derived by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.agent.flush import Said, due
from collectors.agent.stall import Medians, Movement, current, device_quiet, micros, stall_age, stalled, watch
from schemas.enums import Visibility
from schemas.records import MAX_US

MS = 1_000_000


def u64(*values: int) -> npt.NDArray[np.uint64]:
    return np.array(values, np.uint64)


def flags(*values: int) -> npt.NDArray[np.bool_]:
    return np.array(values, np.bool_)


def test_what_shows_the_same_is_quiet_since_it_was_seen_first() -> None:
    memory, quiet = watch(Movement(), u64(9, 3), u64(1, 1), 100)
    assert quiet.tolist() == [0, 0]
    memory, quiet = watch(memory, u64(3, 9, 5), u64(1, 2, 7), 300)
    assert quiet.tolist() == [200, 0, 0]  # 3 is the same, 9 moved, 5 is new
    memory, quiet = watch(memory, u64(5), u64(7), 450)
    assert quiet.tolist() == [150]
    assert memory.keys.tolist() == [5]
    # What was gone and comes back is new: a slot that is used again is another operation.
    assert watch(memory, u64(3), u64(1), 500)[1].tolist() == [0]


def test_a_clock_that_goes_back_makes_nothing_quiet_for_less_than_no_time() -> None:
    memory, _ = watch(Movement(), u64(1), u64(1), 100)
    assert watch(memory, u64(1), u64(1), 90)[1].tolist() == [0]


def now_current(rows: list[tuple[int, int, int, int, int, Visibility, int]]) -> list[int]:
    """Rows: order, stream, comm, group, device, visibility, progressed."""
    columns: list[Any] = list(zip(*rows, strict=True))
    order, stream, comm, group, device, visibility, progressed = columns
    found: list[int] = current(
        u64(*order), u64(*stream), u64(*comm), u64(*group), u64(*device),
        np.array(visibility, np.uint8), flags(*progressed),
    ).tolist()  # fmt: skip
    return found


FLOWS, LAUNCH = Visibility.FLOWS, Visibility.LAUNCH


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # One stream: the oldest, across communicators.
        ([(5, 1, 10, 0, 1, FLOWS, 0), (6, 1, 11, 0, 1, FLOWS, 0)], [1, 0]),
        # Two streams and two communicators: the younger may be running, or wait for shared resources.
        ([(5, 1, 10, 0, 1, FLOWS, 0), (6, 2, 11, 0, 1, FLOWS, 0)], [1, 2]),
        # The same, and it has shown progress: certain.
        ([(5, 1, 10, 0, 1, FLOWS, 0), (6, 2, 11, 0, 1, FLOWS, 1)], [1, 1]),
        # Two streams of one communicator: NCCL runs them one after the other.
        ([(5, 1, 10, 0, 1, FLOWS, 0), (6, 2, 10, 0, 1, FLOWS, 0)], [1, 0]),
        # A group call is one operation.
        ([(5, 1, 10, 7, 1, FLOWS, 0), (6, 1, 10, 7, 1, FLOWS, 0), (7, 1, 10, 8, 1, FLOWS, 0)], [1, 1, 0]),
        # Devices do not wait for each other's queue.
        ([(5, 1, 10, 0, 1, FLOWS, 0), (4, 1, 10, 0, 2, FLOWS, 0)], [1, 1]),
        # Only its launch is known: it may be where the device stands, and so may what is behind it.
        ([(5, 1, 10, 0, 1, LAUNCH, 0), (6, 1, 11, 0, 1, FLOWS, 0)], [2, 2]),
        # Behind a visible one an unseen one is queued.
        ([(5, 1, 10, 0, 1, FLOWS, 0), (6, 1, 11, 0, 1, LAUNCH, 0)], [1, 0]),
        ([(5, 1, 10, 0, 1, LAUNCH, 0), (6, 1, 10, 0, 1, LAUNCH, 0)], [2, 0]),
    ],
)
def test_current(rows: list[tuple[int, int, int, int, int, Visibility, int]], expected: list[int]) -> None:
    assert now_current(rows) == expected
    assert now_current(rows[::-1]) == expected[::-1]


def test_nothing_in_flight_is_current_of_nothing() -> None:
    empty = np.empty(0, np.uint64)
    assert not len(current(empty, empty, empty, empty, empty, np.empty(0, np.uint8), np.empty(0, np.bool_)))


operations = st.lists(
    st.tuples(
        st.integers(1, 50), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 2),
        st.sampled_from([Visibility.FLOWS, Visibility.LAUNCH]), st.integers(0, 1),
    ),
    min_size=1, max_size=20, unique_by=lambda row: row[0],
)  # fmt: skip


@given(operations)
def test_each_device_with_something_in_flight_works_on_something(
    rows: list[tuple[int, int, int, int, int, Visibility, int]],
) -> None:
    found = now_current(rows)
    for device in {row[4] for row in rows}:
        mine = [(row, value) for row, value in zip(rows, found, strict=True) if row[4] == device]
        assert any(value for _, value in mine)
        oldest = min(mine, key=lambda each: each[0][0])
        assert oldest[1] > 0


def test_stalled_needs_age_quiet_and_being_current() -> None:
    age = np.array([301, 300, 400, 400, 5000, 5000], np.int64) * MS
    quiet = np.array([300, 300, 299, 400, 400, 400], np.int64) * MS
    median = np.array([np.nan, np.nan, np.nan, 50_000.0, 50_000.0, np.nan])
    is_current = np.array([1, 1, 1, 1, 2, 0], np.uint8)
    # Too young; moved 299 ms ago; 400 ms are less than ten medians of 50 ms; 5 s are more; queued.
    found = stalled(age, quiet, stall_age(median), is_current)
    assert found.tolist() == [True, False, False, False, True, False]


def test_a_device_is_as_quiet_as_the_last_thing_of_it_that_moved() -> None:
    assert device_quiet(u64(1, 2, 1), np.array([50, 20, 30], np.int64)) == {1: 30, 2: 20}


def test_microseconds_saturate() -> None:
    assert micros(np.array([-5, 1999, 1 << 62], np.int64)).tolist() == [0, 1, MAX_US]


def test_medians_leave_the_first_operation_of_a_class_out() -> None:
    medians = Medians()
    medians.add(u64(1, 1, 2, 1), np.array([9000.0, 10, 5, 30]))
    assert medians.of(u64(1, 2, 3)).tolist()[0] == 20
    assert np.isnan(medians.of(u64(2, 3))).all()
    medians.add(u64(2), np.array([7.0]))
    assert medians.of(u64(2)).tolist() == [7]


def test_medians_remember_the_last_31() -> None:
    medians = Medians()
    medians.add(u64(*[1] * 101), np.arange(101.0))
    assert medians.of(u64(1)).tolist() == [85]  # of 70 … 100
    for name in range(5000):
        medians.add(u64(name + 10), np.array([1.0]))
    assert len(medians) == 4096


def test_due_new_changed_and_old() -> None:
    said, tell = due(Said(), u64(1, 2), u64(0, 0), 0, 10, 50)
    assert tell.tolist() == [True, True]
    said, tell = due(said, u64(2, 1), u64(0, 1), 9, 10, 50)
    assert tell.tolist() == [False, False]  # 1 changed, but was told 9 ago
    said, tell = due(said, u64(1, 2), u64(1, 0), 10, 10, 50)
    assert tell.tolist() == [True, False]
    said, tell = due(said, u64(1, 2), u64(1, 0), 50, 10, 50)
    assert tell.tolist() == [False, True]  # 1 was told at 10
    said, tell = due(said, u64(3), u64(1), 51, 10, 50)
    assert said.knows(u64(1, 3)).tolist() == [False, True]
    assert Said().knows(u64(1)).tolist() == [False]


@given(st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 3), max_size=6), max_size=30))
def test_whatever_happens_the_last_told_is_never_older_than_the_limits_allow(
    history: list[dict[int, int]],
) -> None:
    said, told = Said(), dict[int, tuple[int, int]]()
    for now, world in enumerate(history):
        keys, prints = u64(*world), u64(*world.values())
        said, tell = due(said, keys, prints, now, 2, 5)
        told = {key: value for key, value in told.items() if key in world}
        for key, mask in zip(world, tell.tolist(), strict=True):
            if key not in told:
                assert mask
            else:
                at, print_ = told[key]
                assert mask == (now - at >= 5 or (now - at >= 2 and print_ != world[key]))
            if mask:
                told[key] = (now, world[key])
