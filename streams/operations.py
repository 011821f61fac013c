"""The joiner: coll records of all ranks of a communicator meet, operation by operation.

Operations are joined by (communicator, seq space, pair, seq). The seq space is 0 where the source counts
all collectives of a communicator together (Flight Recorder), else the func (NCCL's seqNumber counts per
func). The pair is (sender rank, receiver rank) for point-to-point and (-1, -1) for collectives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from schemas.enums import Flag, Func, Kind
from schemas.ids import hash64
from schemas.members import MAX_RANKS
from schemas.records import COLL, Records, unknown_codes
from streams.grouping import groups_of
from streams.membership import I64, U64, Membership

I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Operations:
    """G operations over R rows of N records; the rows of operation g are order[first[g]:first[g + 1]].

    They are indices into the records, by rank: the records themselves stay where they are, since moving
    them would take longer than everything else.
    """

    records: Records
    """As given to `join`, shape (N,)."""
    order: I64
    """State and done records by operation, then rank; shape (R,)."""
    first: I64
    """Shape (G + 1,)."""
    comm: I64
    """Communicator of each operation as index into the membership, shape (G,)."""
    space: U8
    """Seq space, shape (G,)."""
    sender: I32
    """Sending rank of a point-to-point operation or -1, shape (G,)."""
    receiver: I32
    """Receiving rank or -1, shape (G,)."""
    seq: U64
    """Shape (G,)."""

    def column(self, name: str) -> npt.NDArray[Any]:
        """One field of every row, in order, shape (R,)."""
        column: npt.NDArray[Any] = self.records[name][self.order]
        return column

    def lead(self, chosen: I64) -> Records:
        """The first record of each chosen operation, shape as the argument."""
        rows: Records = self.records[self.order[self.first[chosen]]]
        return rows


@dataclass(frozen=True)
class Positions:
    """How far each device is, by key; P positions.

    A later record of the same key replaces an earlier one.
    """

    key: U64
    """position_key, ascending, shape (P,)."""
    launched: U64
    ended: U64
    order: U64


def operation_id(comm: int, space: int, sender: int, receiver: int, seq: int) -> int:
    """Node of the wait-for graph: a hash of what joins the rows of an operation."""
    return hash64("op", comm, space, sender, receiver, seq)


def is_pair(rows: Records) -> npt.NDArray[np.bool_]:
    """Which rows are sends or receives, shape (rows,)."""
    mask: npt.NDArray[np.bool_] = (rows["func"] == Func.SEND) | (rows["func"] == Func.RECV)
    return mask


def pair_of(rows: Records) -> tuple[I32, I32]:
    """Sender and receiver rank of each row, -1 and -1 for collectives; shapes (rows,)."""
    sends = rows["func"] == Func.SEND
    receives = rows["func"] == Func.RECV
    rank, peer = rows["rank"].astype(np.int32), rows["peer"].astype(np.int32)
    none = np.int32(-1)
    sender = np.where(sends, rank, np.where(receives, peer, none)).astype(np.int32)
    receiver = np.where(sends, peer, np.where(receives, rank, none)).astype(np.int32)
    return sender, receiver


def seq_space(rows: Records) -> U8:
    """Seq space of each row, shape (rows,); point-to-point operations share one per pair."""
    shared = ((rows["flags"] & np.uint32(Flag.SEQ_PER_COMM)) != 0) | is_pair(rows)
    return np.where(shared, np.uint8(0), rows["func"]).astype(np.uint8)


def position_key(slot: I64, func: U8, peer: I32) -> U64:
    """Key of a position: slot × func × peer; `func` is the seq space of a collective, else SEND or RECV."""
    high = (slot.astype(np.uint64) << np.uint64(7)) | func.astype(np.uint64)
    key: U64 = (high << np.uint64(21)) | (peer + 1).astype(np.uint64)
    return key


def join(membership: Membership, records: Records) -> tuple[Operations, Positions, int]:
    """Group coll records by operation.

    Returns operations, positions and how many records belong to no known communicator, rank or peer, have
    an unknown code or are a send to oneself; those are left out.
    """
    at, known = membership.index(records["comm"])
    known &= ~unknown_codes(COLL, records)
    if len(records):
        size = membership.first[at + 1] - membership.first[at] if len(membership.comm) else at
        ranks = np.minimum(size, MAX_RANKS)
        pair, peer = is_pair(records), records["peer"]
        known &= (records["rank"] < ranks) & (
            ~pair | ((peer >= 0) & (peer < ranks) & (peer != records["rank"]))
        )
    kind = records["kind"]
    position = np.flatnonzero(known & (kind == Kind.POSITION))
    operation = np.flatnonzero(known & ((kind == Kind.STATE) | (kind == Kind.DONE)))
    stray = int(np.count_nonzero(~known))
    return (
        _operations(records, operation, at[operation]),
        _positions(membership, records[position], at[position]),
        stray,
    )


def _positions(membership: Membership, rows: Records, at: I64) -> Positions:
    pair = is_pair(rows)
    func = np.where(pair, rows["func"], seq_space(rows)).astype(np.uint8)
    peer = np.where(pair, rows["peer"], np.int32(-1)).astype(np.int32)
    key = position_key(membership.first[at] + rows["rank"], func, peer)
    order = np.argsort(key, kind="stable")
    key, rows = key[order], rows[order]
    last = np.ones(len(key), np.bool_)
    last[:-1] = key[1:] != key[:-1]
    rows = rows[last]
    return Positions(key[last], rows["seq"].copy(), rows["ended"].copy(), rows["order"].copy())


@njit(cache=True, nogil=True)
def _counting_order(key: I64, keys: int, order: I64) -> tuple[I64, I64]:
    """`order` stably sorted by key, and where each key begins; shapes (R,) and (keys + 1,)."""
    first = np.zeros(keys + 1, np.int64)
    for row in order:
        first[key[row] + 1] += 1
    for index in range(keys):
        first[index + 1] += first[index]
    cursor = first[:-1].copy()
    result = np.empty_like(order)
    for row in order:
        result[cursor[key[row]]] = row
        cursor[key[row]] += 1
    return result, first


def _operations(records: Records, chosen: I64, comm: I64) -> Operations:
    fields = ("func", "rank", "peer", "flags", "seq")
    rows = np.empty(len(chosen), [(name, records.dtype[name]) for name in fields])
    for name in fields:
        rows[name] = records[name][chosen]
    sender, receiver = pair_of(rows)
    space, seq = seq_space(rows), np.ascontiguousarray(rows["seq"])
    operation, example = groups_of([comm, space, sender, receiver, seq])
    rank = rows["rank"].astype(np.int64)
    by_rank, _ = _counting_order(rank, int(rank.max(initial=0)) + 1, np.arange(len(chosen)))
    order, first = _counting_order(operation, len(example), by_rank)
    return Operations(
        records, chosen[order], first, comm[example], space[example], sender[example], receiver[example],
        seq[example],
    )  # fmt: skip
