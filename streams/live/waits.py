"""Wait records of the operations looked at: who stands in each, and what holds it up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schemas.enums import NodeKind, Reason, Visibility
from schemas.records import UNKNOWN_US, WAIT, Records
from streams.live.attendance import Doing, Operation
from streams.live.moment import Moment
from streams.live.wires import QUIET_S, Holding
from streams.operations import operation_id

NOT_LAUNCHED = (Doing.ABSENT, Doing.LEFT, Doing.CALLED, Doing.UNKNOWN)


def waits_of(moment: Moment, found: Sequence[Operation], held: Sequence[Sequence[Holding]]) -> Records:
    """The records of all operations, one after another; `held`: what holds each of them up.

    Of each operation first member → operation for all who wait in it, then operation → holder.
    """
    if not found:
        return WAIT.empty(0)
    nodes = [_node(operation) for operation in found]
    standing, of_standing = _standing(moment, found, nodes)
    holding, of_holding = _holding(found, held, nodes)
    of = np.concatenate([of_standing, of_holding])
    order = np.argsort(of, kind="stable")
    out = WAIT.chosen(WAIT.joined([standing, holding]), order)
    _common(out, moment, found, nodes, of[order])
    return out


def _node(operation: Operation) -> int:
    space = 0 if operation.pair else operation.func
    return operation_id(operation.comm, space, *(operation.pair or (-1, -1)), operation.seq)


def _common(out: Records, moment: Moment, found: Sequence[Operation], nodes: Sequence[int], of: Any) -> None:
    """Fill what all records of an operation say alike; `of`: the operation of each record."""
    leads = moment.states.rows[[next(row for row in operation.row if row >= 0) for operation in found]]
    out["op"] = np.array(nodes, np.uint64)[of]
    for name in ("comm", "seq"):
        out[name] = np.array([getattr(operation, name) for operation in found], np.uint64)[of]
    out["func"] = out["holder_func"] = leads["func"][of]
    for name in ("datatype", "count"):
        out[name] = out["holder_" + name] = leads[name][of]
    pairs = np.array([operation.pair or (-1, -1) for operation in found], np.int32)
    out["sender"], out["receiver"] = pairs[of, 0], pairs[of, 1]
    size = np.array([len(operation.ranks) for operation in found])
    out["members"] = size[of]
    for name, doing in (
        ("finished", (Doing.PAST,)),
        ("silent", (Doing.UNKNOWN,)),
        ("launched", NOT_LAUNCHED),
    ):
        number = np.array([sum(map(operation.doing.count, doing)) for operation in found])
        out[name] = (size - number if name == "launched" else number)[of]


def _standing(moment: Moment, found: Sequence[Operation], nodes: Sequence[int]) -> tuple[Records, Any]:
    """Member → operation, of all who wait in one; and the operation of each."""
    waiting = [
        (number, operation.row[place], operation.ranks[place], operation.devs[place], operation.doing[place])
        for number, operation in enumerate(found)
        for place in range(len(operation.ranks))
        if operation.doing[place] in (Doing.STANDS, Doing.MAY_STAND)
    ]
    if not waiting:
        return WAIT.empty(0), np.zeros(0, np.int64)
    flat = [np.array(column, kind) for column, kind in zip(zip(*waiting, strict=True), "qqqQq", strict=True)]
    still = moment.quiet[flat[1]] >= QUIET_S
    of, row, rank, dev, doing = (column[still] for column in flat)
    state = moment.states.rows[row]
    out = WAIT.empty(len(row))
    seen = state["visibility"] == Visibility.FLOWS
    out["reason"] = np.where(seen, Reason.IN_OPERATION, Reason.IN_UNSEEN)
    out["sure"] = doing == Doing.STANDS
    out["waiter_kind"], out["holder_kind"] = NodeKind.DEVICE, NodeKind.OPERATION
    out["waiter"], out["holder"] = dev, np.array(nodes, np.uint64)[of]
    out["waiter_rank"], out["holder_rank"] = rank, -1
    out["since"], out["holder_order"] = state["launched"], state["order"]
    out["waited_us"] = moment.age[row] * 1e6
    out["quiet_us"] = moment.quiet[row] * 1e6
    out["step_us"] = moment.states.rows["step_us"][row]
    out["channel"] = -1
    return out, of


def _holding(
    found: Sequence[Operation], held: Sequence[Sequence[Holding]], nodes: Sequence[int]
) -> tuple[Records, Any]:
    """Operation → holder; and the operation of each."""
    of = np.repeat(np.arange(len(found)), [len(each) for each in held])
    out = WAIT.empty(len(of))
    out["waiter_kind"], out["waiter"], out["waiter_rank"] = (
        NodeKind.OPERATION,
        np.array(nodes, np.uint64)[of],
        -1,
    )
    out["waited_us"] = out["quiet_us"] = UNKNOWN_US
    at = 0
    for operation, holdings in zip(found, held, strict=True):
        member = {rank: place for place, rank in enumerate(operation.ranks)}
        for holding in holdings:
            _hold(out[at], operation, member, holding)
            at += 1
    return out, of


def _hold(record: Any, operation: Operation, members: dict[int, int], holding: Holding) -> None:
    member = members[holding.rank] if holding.rank >= 0 else -1
    record["reason"], record["sure"], record["channel"] = holding.reason, holding.sure, holding.channel
    record["holder_kind"], record["holder"] = NodeKind.DEVICE, holding.dev or operation.devs[member]
    record["holder_rank"], record["holder_peer_rank"] = holding.rank, -1
    if holding.peer >= 0:
        record["holder_kind"] = NodeKind.LINK
        record["holder_peer"] = operation.devs[members[holding.peer]]
        record["holder_peer_rank"] = holding.peer
    record["holder_seq"] = operation.launched[member] if member >= 0 else 0
    if holding.sender is not None:
        for name in ("total", "ready", "transmitted", "done"):
            record[name] = getattr(holding.sender, name)
    if holding.receiver is not None:
        for name in ("posted", "received", "consumed"):
            record[name] = getattr(holding.receiver, name)
        record["flushed"] = holding.receiver.received
        record["total"] = max(record["total"], holding.receiver.total)
