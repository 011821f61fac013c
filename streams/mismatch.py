"""Members of one operation that called it differently (diagnosis rule 1 of "tests for one collective").

Judged at the join, whether anything stalls or not: half the count in one call gives wrong data without an
error and hangs only at the end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from schemas.enums import Differs, Flag, Func, NodeKind, Reason
from schemas.records import UNKNOWN_US, WAIT, Records
from streams.judge import operation_ids
from streams.membership import I64, U64, Membership
from streams.operations import U8, Operations

U32 = npt.NDArray[np.uint32]

_COUNTS_AGREE = np.zeros(128, np.bool_)
# Of the others members may rightly pass different counts.
_COUNTS_AGREE[
    [Func.ALL_REDUCE, Func.ALL_GATHER, Func.REDUCE_SCATTER, Func.BROADCAST, Func.REDUCE, Func.SEND, Func.RECV]
] = True


_ROOTS_AGREE = np.zeros(128, np.bool_)
_ROOTS_AGREE[[Func.BROADCAST, Func.REDUCE, Func.GATHER, Func.SCATTER]] = True


def _signatures(rows: Records, pair: npt.NDArray[np.bool_]) -> U64:
    """What has to be equal within an operation, mixed into 64 bits, shape (rows,).

    Multiplication by odd constants keeps apart what small numbers would let coincide.
    """
    func = rows["func"]
    count = np.where(_COUNTS_AGREE[func], rows["count"], np.uint64(0))
    root = np.where(_ROOTS_AGREE[func], rows["peer"] + 1, 0).astype(np.uint64)
    kind = np.where(pair, np.uint64(0), func.astype(np.uint64))
    mixed: U64 = count * np.uint64(0x9E3779B97F4A7C15) ^ root * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed ^= (kind << np.uint64(8)) ^ rows["datatype"].astype(np.uint64)
    return mixed


@njit(cache=True, nogil=True)
def _minorities(first: I64, signature: U64, counted: npt.NDArray[np.bool_], odd: U8, model: I64) -> None:
    """Mark rows that differ: odd 1 = minority, 2 = no majority. `model` is a row of the majority.

    Only rows that are `counted` have a vote. Boyer and Moore's vote finds the majority in one pass, if
    there is one; then it is counted.
    """
    for op in range(len(first) - 1):
        begin, end = first[op], first[op + 1]
        votes, members, best = 0, 0, begin
        differ = False
        for row in range(begin, end):
            if not counted[row]:
                continue
            members += 1
            differ |= signature[row] != signature[begin]
            if votes == 0:
                votes, best = 1, row
            else:
                votes += 1 if signature[row] == signature[best] else -1
        model[op] = best
        if not differ:
            continue
        kept = 0
        for row in range(begin, end):
            kept += counted[row] and signature[row] == signature[best]
        for row in range(begin, end):
            if counted[row]:
                odd[row] = 2 if 2 * kept <= members else np.uint8(signature[row] != signature[best])


def mismatches(membership: Membership, operations: Operations) -> Records:
    """One wait record (MISMATCH, operation → device) per member that differs, shape (members that differ,).

    Of each communicator only the first such operation: what follows it is shifted, not wrong in itself.
    `sure` is 0 where there is no majority. Unknown funcs, barriers and operations whose seq is only
    aligned are not judged.
    """
    rows = _compared(operations)
    op = np.repeat(np.arange(len(operations.comm)), np.diff(operations.first))
    again = np.zeros(len(rows), np.bool_)  # one rank, one vote
    again[1:] = (op[1:] == op[:-1]) & (rows["rank"][1:] == rows["rank"][:-1])
    unjudged = (rows["func"] == Func.OTHER) | (rows["func"] == Func.BARRIER)
    unjudged |= (rows["flags"] & np.uint32(Flag.SEQ_RELATIVE)) != 0
    judged = np.bincount(op, unjudged, len(operations.comm)) == 0
    signature = _signatures(rows, operations.sender[op] >= 0)
    odd = np.zeros(len(rows), np.uint8)
    model = np.zeros(len(operations.comm), np.int64)
    _minorities(operations.first, signature, ~again & judged[op], odd, model)
    chosen = np.flatnonzero(odd)
    chosen = chosen[np.isin(op[chosen], _earliest(operations, op[chosen]))]
    found = operations.records[operations.order[chosen]]
    return _records(membership, operations, found, op[chosen], model, odd[chosen])


def _compared(operations: Operations) -> Records:
    """The fields that are compared, of every row in order, shape (R,)."""
    fields = ("rank", "func", "flags", "count", "peer", "datatype")
    rows = np.empty(len(operations.order), [(name, operations.records.dtype[name]) for name in fields])
    for name in fields:
        rows[name] = operations.column(name)
    return rows


def _earliest(operations: Operations, found: I64) -> I64:
    """Of the operations found, the first of each communicator: by launch order, else by seq."""
    order = operations.lead(found)["order"]
    by_time = np.lexsort((operations.seq[found], order, operations.comm[found]))
    _, at = np.unique(operations.comm[found[by_time]], return_index=True)
    earliest: I64 = found[by_time][at]
    return earliest


def _records(
    membership: Membership, operations: Operations, rows: Records, op: I64, model: I64, odd: U8
) -> Records:
    out = WAIT.empty(len(rows))
    majority = operations.records[operations.order[model[op]]]
    comm = operations.comm[op]
    for name in ("comm", "seq"):
        out[name] = rows[name]
    out["op"] = out["waiter"] = operation_ids(membership, operations, op)
    out["func"], out["datatype"], out["count"] = majority["func"], majority["datatype"], majority["count"]
    out["holder_func"], out["holder_datatype"] = rows["func"], rows["datatype"]
    out["holder_count"] = rows["count"]
    out["reason"] = Reason.MISMATCH
    out["waiter_kind"], out["holder_kind"] = NodeKind.OPERATION, NodeKind.DEVICE
    out["sure"] = odd == 1
    out["channel"] = out["waiter_rank"] = out["holder_peer_rank"] = -1
    out["holder"] = membership.dev[membership.first[comm] + rows["rank"]]
    out["holder_rank"] = rows["rank"]
    out["sender"], out["receiver"] = operations.sender[op], operations.receiver[op]
    out["since"], out["waited_us"] = rows["launched"], UNKNOWN_US
    out["members"] = np.diff(membership.first)[comm]
    out["launched"] = np.diff(operations.first)[op]
    pair = operations.sender[op] >= 0
    differs = {
        Differs.FUNC: ~pair & (rows["func"] != majority["func"]),
        Differs.COUNT: _COUNTS_AGREE[rows["func"]] & (rows["count"] != majority["count"]),
        Differs.DATATYPE: rows["datatype"] != majority["datatype"],
        Differs.ROOT: _ROOTS_AGREE[rows["func"]] & (rows["peer"] != majority["peer"]),
    }
    for bit, mask in differs.items():
        out["differs"] |= np.where(mask, np.uint32(bit), np.uint32(0))
    return out
