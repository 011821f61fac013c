"""The joiner: records of all ranks meet, operation by operation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import Flag, Func, Kind, Visibility
from schemas.members import MAX_RANKS
from schemas.records import COLL, Records
from streams.membership import membership
from streams.operations import Operations, join, pair_of, position_key, seq_space
from tests.records import Told, announcement, comm_of

Key = tuple[int, int, int, int, int]


def keys(operations: Operations) -> list[Key]:
    """Communicator, space, sender, receiver and seq of each operation."""
    columns = (
        operations.comm,
        operations.space,
        operations.sender,
        operations.receiver,
        operations.seq,
    )
    return [tuple(map(int, key)) for key in zip(*columns, strict=True)]  # type: ignore[misc]


def ranks(operations: Operations) -> list[list[int]]:
    """Ranks of the rows of each operation."""
    bounds = zip(operations.first[:-1], operations.first[1:], strict=True)
    return [operations.records[operations.order]["rank"][begin:end].tolist() for begin, end in bounds]


def at(told: Told, name: str) -> int:
    """Index of a communicator in the membership."""
    return sorted(comm_of(other) for other in told.comms).index(comm_of(name))


def test_operations_are_grouped_by_communicator_and_seq() -> None:
    told = Told({"a": (0, 1), "b": (1, 0, 2)})
    told.state(1, "b", 7)
    told.done(0, "a", 7)
    told.state(1, "a", 8)
    told.done(1, "a", 7)
    told.state(2, "b", 7)
    told.state(0, "b", 7)
    _, operations, _ = told.joined()
    found = dict(zip(keys(operations), ranks(operations), strict=True))
    assert found == {
        (at(told, "a"), 0, -1, -1, 7): [0, 1],
        (at(told, "a"), 0, -1, -1, 8): [1],
        (at(told, "b"), 0, -1, -1, 7): [0, 1, 2],  # of world ranks 1, 0 and 2
    }


def test_funcs_have_seq_spaces_of_their_own_unless_the_source_counts_together() -> None:
    told = Told({"a": (0, 1)}, per_func=True)
    told.state(0, "a", 3, func=Func.ALL_REDUCE)
    told.state(1, "a", 3, func=Func.ALL_GATHER)
    _, operations, _ = told.joined()
    assert keys(operations) == [(0, 1, -1, -1, 3), (0, 2, -1, -1, 3)]

    together = Told({"a": (0, 1)})
    together.state(0, "a", 3, func=Func.ALL_REDUCE)
    together.state(1, "a", 3, func=Func.ALL_GATHER)
    _, operations, _ = together.joined()
    assert keys(operations) == [(0, 0, -1, -1, 3)]


def test_a_send_meets_its_receive() -> None:
    told = Told({"a": (4, 5, 6)})
    told.half(6, Func.SEND, 4, "a", 2)
    told.half(4, Func.RECV, 6, "a", 2)
    told.half(4, Func.SEND, 6, "a", 2)
    told.half(6, Func.RECV, 5, "a", 2)
    told.state(5, "a", 2)
    _, operations, _ = told.joined()
    found = dict(zip(keys(operations), ranks(operations), strict=True))
    assert found == {
        (0, 0, -1, -1, 2): [1],
        (0, 0, 2, 0, 2): [0, 2],
        (0, 0, 0, 2, 2): [0],
        (0, 0, 1, 2, 2): [2],
    }


def test_only_states_and_finished_operations_are_joined() -> None:
    told = Told({"a": (0, 1)})
    told.row(Kind.SUM, 0, "a", Func.ALL_REDUCE, 1)
    told.row(Kind.ORPHAN, 0, "a", Func.ALL_REDUCE, 2)
    told.at(0, "a", 3, 3)
    _, operations, positions = told.joined()
    assert keys(operations) == []
    assert positions.launched.tolist() == [3]


def test_the_latest_position_wins() -> None:
    told = Told({"a": (0, 1)})
    told.at(0, "a", 9, 8, order=30)
    told.at(1, "a", 4, 4, order=5)
    told.at(0, "a", 3, 2, order=10)
    told.at(0, "a", 7, 6, order=20)
    _, _, positions = told.joined()
    found = zip(positions.launched, positions.ended, positions.order, strict=True)
    assert [tuple(map(int, each)) for each in found] == [(7, 6, 20), (4, 4, 5)]


def test_positions_of_funcs_and_pairs_are_apart() -> None:
    told = Told({"a": (0, 1, 2)}, per_func=True)
    told.at(0, "a", 1, 1, func=Func.ALL_REDUCE)
    told.at(0, "a", 2, 2, func=Func.ALL_GATHER)
    told.half_at(0, Func.SEND, 1, "a", 3, 3)
    told.half_at(0, Func.RECV, 1, "a", 4, 4)
    told.half_at(0, Func.SEND, 2, "a", 5, 5)
    _, _, positions = told.joined()
    assert len(set(positions.key.tolist())) == 5
    assert positions.key.tolist() == sorted(positions.key.tolist())
    assert sorted(positions.launched.tolist()) == [1, 2, 3, 4, 5]


def test_order_of_rows_of_equal_rank_is_kept() -> None:
    told = Told({"a": (0, 1)})
    told.state(1, "a", 5)
    told.state(0, "a", 5)["bytes"] = 1
    told.done(0, "a", 5)["bytes"] = 2
    _, operations, _ = told.joined()
    assert ranks(operations) == [[0, 0, 1]]
    assert operations.records[operations.order]["bytes"].tolist() == [1, 2, 0]


def one(**fields: int) -> Records:
    row = COLL.empty(1)
    row["comm"], row["kind"], row["func"], row["peer"], row["seq"] = (
        comm_of("a"),
        Kind.STATE,
        Func.ALL_REDUCE,
        -1,
        1,
    )
    row["visibility"] = Visibility.COMPLETE
    for name, value in fields.items():
        row[name] = value
    return row


PAIR = {"func": int(Func.SEND), "flags": int(Flag.P2P)}


@pytest.mark.parametrize(
    "row",
    [
        one(comm=5),
        one(rank=3),
        one(rank=2**32 - 1),
        one(rank=0, peer=3, **PAIR),
        one(rank=0, peer=-1, **PAIR),
        one(rank=0, peer=-5, **PAIR),
        one(rank=0, peer=2**31 - 1, **PAIR),
        one(rank=1, peer=1, **PAIR),
        one(rank=3, kind=int(Kind.POSITION)),
        one(rank=0, peer=3, kind=int(Kind.POSITION), **PAIR),
        one(rank=0, peer=1_000_000, func=int(Func.SEND)),
        one(rank=0, peer=-1, func=int(Func.RECV)),
        one(rank=0, func=99),
        one(rank=0, func=200),
        one(rank=0, kind=0),
        one(rank=0, datatype=99),
    ],
)
def test_strays_are_counted_and_left_out(row: Records) -> None:
    members = membership([announcement("a", (0, 1, 2))])
    rows = np.concatenate([row, one(rank=2), row])
    operations, positions, stray = join(members, rows)
    assert stray == 2
    assert operations.records[operations.order]["rank"].tolist() == [2]
    assert len(positions.key) == 0


def test_without_members_all_are_strays() -> None:
    operations, positions, stray = join(membership([]), np.concatenate([one(), one(rank=1)]))
    assert stray == 2
    assert operations.first.tolist() == [0]
    assert len(positions.key) == 0


def test_no_rows() -> None:
    operations, positions, stray = join(membership([announcement("a", (0, 1))]), COLL.empty(0))
    assert stray == 0
    assert operations.first.tolist() == [0]
    assert keys(operations) == []
    assert len(positions.key) == 0


def test_pairs_and_spaces() -> None:
    rows = np.concatenate(
        [
            one(rank=1),
            one(rank=1, peer=2, **PAIR),
            one(rank=1, peer=2, func=int(Func.RECV), flags=int(Flag.P2P)),
            one(flags=int(Flag.SEQ_PER_COMM)),
        ]
    )
    sender, receiver = pair_of(rows)
    assert sender.tolist() == [-1, 1, 2, -1]
    assert receiver.tolist() == [-1, 2, 1, -1]
    assert seq_space(rows).tolist() == [int(Func.ALL_REDUCE), 0, 0, 0]


cells = st.tuples(st.integers(0, 2**35), st.integers(0, 127), st.integers(-1, MAX_RANKS - 1))


@given(st.lists(cells, min_size=1, max_size=20))
def test_position_keys_are_those_of_different_cells(several: list[tuple[int, int, int]]) -> None:
    slot, func, peer = (np.array(column) for column in zip(*several, strict=True))
    key = position_key(slot.astype(np.int64), func.astype(np.uint8), peer.astype(np.int32))
    assert len(set(key.tolist())) == len(set(several))


records = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([1, 2, 9, 10]), st.integers(0, 2), st.integers(1, 3), st.booleans()
    ),
    max_size=25,
)


@settings(deadline=None)
@given(records)
def test_every_row_lies_in_exactly_its_operation(several: list[tuple[int, int, int, int, bool]]) -> None:
    members = membership([announcement("a", (0, 1, 2))])
    rows = COLL.empty(0)
    for number, (rank, func, peer, seq, together) in enumerate(several):
        row = one(rank=rank, func=func, seq=seq, bytes=number)
        if func in (Func.SEND, Func.RECV):
            row["peer"], row["flags"] = peer if peer != rank else (peer + 1) % 3, Flag.P2P
        elif together:
            row["flags"] = Flag.SEQ_PER_COMM
        rows = np.concatenate([rows, row])
    operations, _, stray = join(members, rows)
    assert stray == 0
    assert sorted(operations.records[operations.order]["bytes"].tolist()) == list(range(len(several)))
    found = keys(operations)
    assert len(set(found)) == len(found)
    for (_, space, sender, receiver, seq), begin, end in zip(
        found, operations.first[:-1], operations.first[1:], strict=True
    ):
        assert end > begin
        for row in operations.records[operations.order][begin:end]:
            assert row["seq"] == seq
            ends = {Func.SEND: (row["rank"], row["peer"]), Func.RECV: (row["peer"], row["rank"])}
            assert ends.get(Func(int(row["func"])), (-1, -1)) == (sender, receiver)
            if sender < 0:
                assert space == (0 if row["flags"] & Flag.SEQ_PER_COMM else row["func"])
        assert operations.records[operations.order]["rank"][begin:end].tolist() == sorted(
            operations.records[operations.order]["rank"][begin:end]
        )
