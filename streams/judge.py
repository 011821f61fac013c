"""Who waits for whom inside an operation, from launches and ends alone (design: "Inside an operation").

A device stands in its current operation. What it waits for there follows from what the other members did:
have they launched it, do they stand in it, are they held by something older, have they finished it, or is
nothing known of them. Only evidence is stated here; weighing it is diagnose's work.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from schemas.enums import Flag, Func, Kind, NodeKind, Reason
from schemas.records import UNKNOWN_US, WAIT, Records
from streams.membership import I64, U64, Membership
from streams.operations import I32, U8, Operations, Positions, operation_id

_ROOTED = np.zeros(128, np.bool_)
# A member of these can finish before another has launched: the root of a broadcast has only to send.
_ROOTED[[Func.BROADCAST, Func.REDUCE, Func.GATHER, Func.SCATTER, Func.SEND, Func.RECV, Func.SEND_RECV]] = True
_ROOTED[Func.OTHER] = True  # it may be one of them

_STATE = int(Kind.STATE)
_SEND, _RECV = int(Func.SEND), int(Func.RECV)
_RELATIVE = np.uint32(Flag.SEQ_RELATIVE)
_IN_OPERATION, _NOT_LAUNCHED, _QUEUED = int(Reason.IN_OPERATION), int(Reason.NOT_LAUNCHED), int(Reason.QUEUED)
_PEERS_FINISHED, _SILENT, _UNSEEN = int(Reason.PEERS_FINISHED), int(Reason.SILENT), int(Reason.UNSEEN)

# What a member does in an operation.
_FINISHED, _STANDS, _MAY_STAND, _HELD, _ABSENT, _UNKNOWN, _LOST = 0, 1, 2, 3, 4, 5, 6

_ELSEWHERE = 3
"""A value of coll.current: rather held by an older operation, but this may be where the device is."""


@njit(cache=True, nogil=True)
def _position(key: np.uint64, keys: U64) -> int:
    """Index of a key, -1 where it is absent."""
    at = int(np.searchsorted(keys, key))
    return at if at < len(keys) and keys[at] == key else -1


@njit(cache=True, nogil=True)
def _member_state(
    slot: int, func: int, peer: int, seq: np.uint64, row: int, kind: U8, current: U8,
    silent: npt.NDArray[np.bool_], keys: U64, launched: U64, ended: U64,
) -> int:  # fmt: skip
    """What one member does in the operation; `row` is its row there or -1."""
    if row >= 0:
        if kind[row] != _STATE:
            return _FINISHED
        if current[row] == 1:
            return _STANDS
        return _MAY_STAND if current[row] == 2 else _HELD
    key = (((np.uint64(slot) << np.uint64(7)) | np.uint64(func)) << np.uint64(21)) | np.uint64(peer + 1)
    at = _position(key, keys)
    if silent[slot] or at < 0:
        return _UNKNOWN
    if launched[at] < seq:
        return _ABSENT
    return _FINISHED if ended[at] >= seq else _LOST


@njit(cache=True, nogil=True)
def _sends_first(sender: int, receiver: int, index: int) -> bool:
    """Whether the index-th end of a pair, by rank, is the sender."""
    return (index == 0) == (sender < receiver)


@njit(cache=True, nogil=True)
def _survey(
    op: int, first: I64, space: U8, sender: I32, receiver: I32, seq: U64,
    rank: npt.NDArray[np.uint32], kind: U8, current: U8,
    base: int, members: int, silent: npt.NDArray[np.bool_], keys: U64, launched: U64, ended: U64,
    state: I64, own: I64,
) -> I64:  # fmt: skip
    """Fill what each member does and its row; returns how many do what, shape (7,)."""
    seen = np.zeros(7, np.int64)
    row, end = first[op], first[op + 1]
    for index in range(members):
        member, func, peer = index, int(space[op]), -1
        if sender[op] >= 0:
            sends = _sends_first(sender[op], receiver[op], index)
            member, peer = (sender[op], receiver[op]) if sends else (receiver[op], sender[op])
            func = _SEND if sends else _RECV
        while row < end and rank[row] < member:
            row += 1
        own[index] = -1
        while row < end and rank[row] == member:
            # A finished row of the same operation outranks one in flight.
            if own[index] < 0 or kind[row] != _STATE:
                own[index] = row
            row += 1
        state[index] = _member_state(
            base + member, func, peer, seq[op], own[index], kind, current, silent, keys, launched, ended
        )
        seen[state[index]] += 1
    return seen


@njit(cache=True, nogil=True)
def _holding(
    state: int, finished_tells: bool, others: bool, unclear: bool, relative: bool
) -> tuple[int, int]:
    """Why the operation waits for a member that does `state` (0: it does not), and whether that is sure.

    `finished_tells`: that some have finished says who is stuck. `others`: some member is elsewhere.
    `unclear`: of some member it is not known what it does here. `relative`: seq is only aligned, so a member
    without a record may as well have finished it.
    """
    if finished_tells:
        if state == _STANDS:
            # Where another member may hold up the end of the operation, this one may be its victim.
            return _PEERS_FINISHED, 0 if others or unclear or relative else 1
        return (_SILENT, 0) if state in (_UNKNOWN, _LOST) else (0, 1)
    if state == _ABSENT:
        return _NOT_LAUNCHED, 0 if relative else 1
    if state == _HELD:
        return _QUEUED, 1
    if state == _MAY_STAND:
        return _QUEUED, 0
    if state == _UNKNOWN:
        return _SILENT, 0 if others else 1
    return (0, 1) if others or unclear or state == _FINISHED else (_UNSEEN, 1)


@njit(cache=True, nogil=True)
def _occupied(begin: int, end: int, kind: U8, current: U8) -> bool:
    """Whether somebody stands in the operation of these rows."""
    for row in range(begin, end):  # noqa: SIM110 - numba has no any() over a generator
        if kind[row] == _STATE and current[row] != 0:
            return True
    return False


@njit(cache=True, nogil=True)
def _judge(
    first: I64, comm: I64, space: U8, sender: I32, receiver: I32, seq: U64,
    rank: npt.NDArray[np.uint32], kind: U8, func: U8, current: U8, flags: npt.NDArray[np.uint32],
    comm_first: I64, silent: npt.NDArray[np.bool_], keys: U64, launched: U64, ended: U64,
    rooted: npt.NDArray[np.bool_],
    edge_op: I64, edge_slot: I64, edge_row: I64, edge_reason: U8, edge_sure: U8, counts: I64,
) -> int:  # fmt: skip
    """Fill the edges of every operation in which somebody stands; returns how many there are."""
    edges = 0
    largest = np.int64(2)
    for index in range(len(comm_first) - 1):
        largest = max(largest, comm_first[index + 1] - comm_first[index])
    state, own = np.empty(largest, np.int64), np.empty(largest, np.int64)
    for op in range(len(comm)):
        if not _occupied(first[op], first[op + 1], kind, current):
            continue
        base = comm_first[comm[op]]
        members = 2 if sender[op] >= 0 else comm_first[comm[op] + 1] - base
        seen = _survey(
            op, first, space, sender, receiver, seq, rank, kind, current,
            base, members, silent, keys, launched, ended, state, own,
        )  # fmt: skip
        counts[op, 0] = members
        counts[op, 1] = members - seen[_ABSENT] - seen[_UNKNOWN]
        counts[op, 2] = seen[_FINISHED]
        counts[op, 3] = seen[_UNKNOWN]
        others = seen[_ABSENT] + seen[_HELD] + seen[_MAY_STAND] > 0
        finished_tells = seen[_FINISHED] > 0 and not (rooted[func[first[op]]] and others)
        for index in range(members):
            member = index
            if sender[op] >= 0:
                member = sender[op] if _sends_first(sender[op], receiver[op], index) else receiver[op]
            unclear = seen[_UNKNOWN] > 0 or (finished_tells and seen[_LOST] > 0)
            relative = (flags[first[op]] & _RELATIVE) != 0
            reason, sure = _holding(state[index], finished_tells, others, unclear, relative)
            stands = state[index] in (_STANDS, _MAY_STAND, _LOST)
            stands |= state[index] == _HELD and current[own[index]] == _ELSEWHERE
            for what, certain in (
                (_IN_OPERATION if stands else 0, int(state[index] == _STANDS)),
                (reason, sure),
            ):
                if what != 0:
                    edge_op[edges], edge_slot[edges], edge_row[edges] = op, base + member, own[index]
                    edge_reason[edges], edge_sure[edges] = what, certain
                    edges += 1
    return edges


def waits(membership: Membership, operations: Operations, positions: Positions) -> Records:
    """The wait records of every operation in which a device stands, shape (edges,).

    Two per waiting device at most, one per holder: device → operation (IN_OPERATION) and
    operation → device (the reason). `job`, `attempt`, `epoch` and `partition` are left to the caller.
    """
    columns = [operations.column(name) for name in ("rank", "kind", "func", "current", "flags")]
    standing = (columns[1] == Kind.STATE) & (columns[3] != 0)
    occupied = np.zeros(len(operations.comm), np.bool_)
    occupied[np.searchsorted(operations.first, np.flatnonzero(standing), side="right") - 1] = True
    size = np.where(
        operations.sender >= 0, 2, np.diff(membership.first)[operations.comm] if len(membership.comm) else 0
    )
    room = int(2 * size[occupied].sum())
    edge_op, edge_slot, edge_row = (np.zeros(room, np.int64) for _ in range(3))
    edge_reason, edge_sure = np.zeros(room, np.uint8), np.zeros(room, np.uint8)
    counts = np.zeros((len(operations.comm), 4), np.int64)
    edges = _judge(
        operations.first, operations.comm, operations.space, operations.sender, operations.receiver,
        operations.seq, *columns, membership.first, membership.silent,
        positions.key, positions.launched, positions.ended, _ROOTED,
        edge_op, edge_slot, edge_row, edge_reason, edge_sure, counts,
    )  # fmt: skip
    return _records(
        membership, operations, positions, counts,
        edge_op[:edges], edge_slot[:edges], edge_row[:edges], edge_reason[:edges], edge_sure[:edges],
    )  # fmt: skip


def operation_ids(membership: Membership, operations: Operations, chosen: I64) -> U64:
    """Node ids of the chosen operations, shape as `chosen`."""
    return np.array(
        [
            operation_id(
                int(membership.comm[operations.comm[op]]), int(operations.space[op]),
                int(operations.sender[op]), int(operations.receiver[op]), int(operations.seq[op]),
            )
            for op in chosen
        ],
        np.uint64,
    )  # fmt: skip


def _records(
    membership: Membership, operations: Operations, positions: Positions, counts: I64,
    edge_op: I64, edge_slot: I64, edge_row: I64, edge_reason: U8, edge_sure: U8,
) -> Records:  # fmt: skip
    out = WAIT.empty(len(edge_op))
    if not len(out):
        return out
    chosen, inverse = np.unique(edge_op, return_inverse=True)
    ids = operation_ids(membership, operations, chosen)[inverse]
    lead = operations.lead(chosen)[inverse]
    comm = operations.comm[edge_op]
    rank = (edge_slot - membership.first[comm]).astype(np.int32)
    standing = edge_reason == Reason.IN_OPERATION
    out["comm"] = membership.comm[comm]
    out["seq"] = operations.seq[edge_op]
    out["op"] = ids
    out["func"] = lead["func"]
    out["holder_func"] = lead["func"]
    out["datatype"] = out["holder_datatype"] = lead["datatype"]
    out["count"] = out["holder_count"] = lead["count"]
    out["reason"] = edge_reason
    out["sure"] = edge_sure
    out["channel"] = -1
    out["sender"], out["receiver"] = operations.sender[edge_op], operations.receiver[edge_op]
    device = membership.dev[edge_slot]
    out["waiter_kind"] = np.where(standing, NodeKind.DEVICE, NodeKind.OPERATION)
    out["holder_kind"] = np.where(standing, NodeKind.OPERATION, NodeKind.DEVICE)
    out["waiter"], out["holder"] = np.where(standing, device, ids), np.where(standing, ids, device)
    out["waiter_rank"] = np.where(standing, rank, -1)
    out["holder_rank"] = np.where(standing, -1, rank)
    out["holder_peer_rank"] = -1
    for column, name in enumerate(("members", "launched", "finished", "silent")):
        out[name] = counts[edge_op, column]
    row = operations.records[operations.order[np.maximum(edge_row, 0)]]
    out["since"] = np.where(edge_row >= 0, row["launched"], 0)
    out["waited_us"] = np.where(edge_row >= 0, row["age_us"], UNKNOWN_US)
    _holder_position(out, positions, operations, edge_op, edge_slot, rank)
    return out


def _holder_position(
    out: Records, positions: Positions, operations: Operations, edge_op: I64, edge_slot: I64, rank: I32
) -> None:
    sender, receiver = operations.sender[edge_op], operations.receiver[edge_op]
    pair, sends = sender >= 0, sender == rank
    func = np.where(pair, np.where(sends, _SEND, _RECV), operations.space[edge_op]).astype(np.uint64)
    peer = np.where(pair, np.where(sends, receiver, sender), -1)
    key = (((edge_slot.astype(np.uint64) << np.uint64(7)) | func) << np.uint64(21)) | (peer + 1).astype(
        np.uint64
    )
    if not len(positions.key):
        return
    at = np.minimum(np.searchsorted(positions.key, key), len(positions.key) - 1)
    known = (positions.key[at] == key) & (out["holder_kind"] == NodeKind.DEVICE)
    out["holder_seq"] = np.where(known, positions.launched[at], 0)
    out["holder_order"] = np.where(known, positions.order[at], 0)
