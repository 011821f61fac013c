"""Members of one operation that called it differently."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import DataType, Differs, Flag, Func, NodeKind, Reason
from schemas.ids import hash64
from schemas.records import WAIT, unknown_codes
from tests.records import Told, comm_of, dev_of

AGREE = (
    Func.ALL_REDUCE, Func.ALL_GATHER, Func.REDUCE_SCATTER, Func.BROADCAST, Func.REDUCE,
)  # fmt: skip
FREE = (Func.ALL_TO_ALL, Func.GATHER, Func.SCATTER, Func.ALL_GATHER_V)
"""Of these members may rightly pass different counts."""


def called(
    counts: list[int], func: Func = Func.ALL_REDUCE, *, seq: int = 5, flags: int = 0, told: Told | None = None
) -> Told:
    """One operation, each rank with its count."""
    told = told or Told({"world": range(len(counts))})
    for rank, count in enumerate(counts):
        row = told.state(rank, "world", seq, func=func)
        row["count"] = count
        row["flags"] |= np.uint32(flags)
    return told


def odd(told: Told) -> dict[int, tuple[int, int]]:
    """By rank in the communicator: sure, and what differs."""
    return {int(row["holder_rank"]): (int(row["sure"]), int(row["differs"])) for row in told.mismatches()}


def test_all_alike() -> None:
    found = called([8, 8, 8]).mismatches()
    assert len(found) == 0
    assert found.dtype == WAIT.dtype


def test_no_operations() -> None:
    assert len(Told({"world": (0, 1)}).mismatches()) == 0


@pytest.mark.parametrize("func", AGREE)
def test_a_minority_by_count(func: Func) -> None:
    assert odd(called([8, 8, 4], func)) == {2: (1, Differs.COUNT)}


def test_the_first_in_the_minority() -> None:
    assert odd(called([4, 8, 8, 8])) == {0: (1, Differs.COUNT)}


def test_a_minority_of_several_that_differ_among_themselves() -> None:
    assert odd(called([8, 1, 8, 2, 8])) == {1: (1, Differs.COUNT), 3: (1, Differs.COUNT)}


def test_two_ranks_are_both_named() -> None:
    assert set(odd(called([8, 4]))) == {0, 1}
    assert {sure for sure, _ in odd(called([8, 4])).values()} == {0}


@pytest.mark.parametrize("counts", [[8, 8, 4, 4], [1, 2, 3], [8, 8, 1, 2]])
def test_without_a_majority_all_are_named(counts: list[int]) -> None:
    found = odd(called(counts))
    assert set(found) == set(range(len(counts)))
    assert {sure for sure, _ in found.values()} == {0}


@pytest.mark.parametrize("func", FREE)
def test_counts_that_may_differ(func: Func) -> None:
    assert odd(called([8, 4, 2], func)) == {}


@pytest.mark.parametrize("func", [*AGREE, *FREE])
def test_a_minority_by_datatype(func: Func) -> None:
    told = called([8, 8, 8], func)
    told.rows[1]["datatype"] = DataType.BFLOAT16
    assert odd(told) == {1: (1, Differs.DATATYPE)}


def test_a_minority_by_func() -> None:
    told = called([8, 8, 8])
    told.rows[0]["func"] = Func.ALL_GATHER
    assert odd(told) == {0: (1, Differs.FUNC)}


def test_a_minority_in_everything() -> None:
    told = called([8, 8, 8])
    row = told.rows[2]
    row["func"], row["count"], row["datatype"] = Func.REDUCE_SCATTER, 9, DataType.INT8
    assert odd(told) == {2: (1, Differs.FUNC | Differs.COUNT | Differs.DATATYPE)}


def test_funcs_with_spaces_of_their_own_are_different_operations() -> None:
    told = Told({"world": (0, 1)}, per_func=True)
    told.state(0, "world", 5, func=Func.ALL_REDUCE)
    told.state(1, "world", 5, func=Func.ALL_GATHER)
    assert odd(told) == {}


@pytest.mark.parametrize("func", [Func.BARRIER, Func.OTHER])
def test_not_judged(func: Func) -> None:
    assert odd(called([8, 8, 4], func)) == {}
    told = called([8, 8, 8])
    told.rows[1]["func"] = func
    assert odd(told) == {}


def test_an_operation_that_is_only_aligned_is_not_judged() -> None:
    assert odd(called([8, 8, 4], flags=Flag.SEQ_RELATIVE)) == {}
    told = called([8, 8, 4])
    told.rows[0]["flags"] |= np.uint32(Flag.SEQ_RELATIVE)
    assert odd(told) == {}


@pytest.mark.parametrize("func", FREE)
def test_counts_that_may_differ_are_not_said_to_differ(func: Func) -> None:
    told = called([8, 4, 2], func)
    told.rows[2]["datatype"] = DataType.INT8
    assert odd(told) == {2: (1, Differs.DATATYPE)}


def test_one_rank_has_one_vote() -> None:
    """Of rank 0 there are two records, in flight and finished: still there is no majority of two ranks."""
    told = called([8, 4])
    told.done(0, "world", 5)["count"] = 8
    assert {rank: sure for rank, (sure, _) in odd(told).items()} == {0: 0, 1: 0}


@pytest.mark.parametrize("func", [Func.BROADCAST, Func.REDUCE, Func.GATHER, Func.SCATTER])
def test_a_minority_by_root(func: Func) -> None:
    told = called([8, 8, 8], func)
    for rank, root in enumerate((0, 0, 1)):
        told.rows[rank]["peer"] = root
    assert odd(told) == {2: (1, Differs.ROOT)}


def test_the_earliest_is_the_one_launched_first() -> None:
    """Numbers of different funcs say nothing about time."""
    told = Told({"world": (0, 1, 2)}, per_func=True)
    for rank in told.ranks:
        late = told.state(rank, "world", 90, func=Func.ALL_REDUCE)
        late["count"], late["order"] = (7 if rank == 2 else 9), 500
        early = told.done(rank, "world", 300, func=Func.ALL_GATHER)
        early["count"], early["order"] = (7 if rank == 1 else 9), 10
    assert odd(told) == {1: (1, Differs.COUNT)}


def test_finished_operations_are_judged_too() -> None:
    told = Told({"world": (0, 1, 2)})
    for rank, count in enumerate((8, 4, 8)):
        told.done(rank, "world", 3)["count"] = count
    assert odd(told) == {1: (1, Differs.COUNT)}


def test_one_record_is_nothing_to_compare() -> None:
    told = Told({"world": (0, 1, 2)})
    told.state(1, "world", 5)["count"] = 3
    assert odd(told) == {}


def test_only_the_first_operation_of_a_communicator() -> None:
    told = called([8, 4, 8], seq=7)
    called([8, 8, 2], seq=6, told=told)
    called([1, 8, 8], seq=9, told=told)
    called([5, 5, 5], seq=5, told=told)
    found = told.mismatches()
    assert [(int(row["seq"]), int(row["holder_rank"])) for row in found] == [(6, 2)]


def test_each_communicator_has_a_first_one() -> None:
    told = Told({"a": (0, 1, 2), "b": (2, 1, 0)})
    for name, rank in (("a", 0), ("b", 0)):
        for other in (0, 1, 2):
            told.state(other, name, 4)["count"] = 3 if other == rank else 4
    found = {(int(row["comm"]), int(row["holder_rank"])) for row in told.mismatches()}
    assert found == {(comm_of("a"), 0), (comm_of("b"), 2)}


def sent(counts: tuple[int, int], *, flags: int = 0) -> Told:
    told = Told({"pipe": (0, 1)})
    for (rank, func, peer), count in zip(((1, Func.SEND, 0), (0, Func.RECV, 1)), counts, strict=True):
        row = told.half(rank, func, peer, "pipe", 4)
        row["count"] = count
        row["flags"] |= np.uint32(flags)
    return told


def test_a_send_and_its_receive() -> None:
    assert odd(sent((8, 8))) == {}
    # Which of the two rows stands for the majority is arbitrary: at least one differs from it by count.
    found = odd(sent((8, 4)))
    assert {rank: sure for rank, (sure, _) in found.items()} == {0: 0, 1: 0}
    assert Differs.COUNT in {differs for _, differs in found.values()}
    assert all(not differs & Differs.FUNC for _, differs in found.values())
    assert odd(sent((8, 4), flags=Flag.SEQ_RELATIVE)) == {}


def test_what_a_record_says() -> None:
    told = Told({"world": (7, 8, 9)})
    for rank in (7, 8, 9):
        told.state(rank, "world", 5)["count"] = 4 if rank == 9 else 8
    (row,) = found = told.mismatches()
    assert not unknown_codes(WAIT, found).any()
    assert row["op"] == row["waiter"] == hash64("op", comm_of("world"), 0, -1, -1, 5)
    assert (row["waiter_kind"], row["holder_kind"]) == (NodeKind.OPERATION, NodeKind.DEVICE)
    assert (row["holder"], row["holder_rank"], row["waiter_rank"]) == (dev_of(9), 2, -1)
    assert (row["count"], row["holder_count"], row["reason"]) == (8, 4, Reason.MISMATCH)
    assert (row["members"], row["launched"], row["seq"]) == (3, 3, 5)
    # The node is the same as in the waits: the two meet in one graph.
    assert set(told.waits()["op"].tolist()) == {int(row["op"])}


@settings(deadline=None)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=7))
def test_majority_by_counting(counts: list[int]) -> None:
    most = max(counts, key=counts.count)
    if len(set(counts)) == 1:
        expected = {}
    elif 2 * counts.count(most) > len(counts):
        expected = {rank: 1 for rank, count in enumerate(counts) if count != most}
    else:
        expected = dict.fromkeys(range(len(counts)), 0)
    assert {rank: sure for rank, (sure, _) in odd(called(counts)).items()} == expected


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_any_two_counts(one: int, other: int) -> None:
    assert bool(odd(called([one, one, other]))) == (one != other)
