"""Who does what in the operations in which somebody stalls, as far as their hosts have said."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.enums import Flag, Func, Kind, Visibility
from streams.grouping import groups_of
from streams.live.latest import F64, I64, U64, Bools
from streams.live.moment import Moment
from streams.operations import is_pair, pair_of

LATE_S = 1.0
"""A member has not launched what others wait in when its host has spoken so long after their launch."""


class Doing(IntEnum):
    """What a member does in an operation, as far as its host has said."""

    PAST = 0  # has ended it
    STANDS = 1  # stalls in it, surely
    MAY_STAND = 2  # may stand in it, or in an older one of which less is seen
    LAUNCHED = 3  # has launched it: moves, is queued, or has ended it unseen
    ABSENT = 4  # has not launched it, and its host has spoken since
    CALLED = 5  # has called it; NCCL has not launched it yet
    LEFT = 6  # has finalised its communicator without launching it
    UNKNOWN = 7  # nothing to go by


@dataclass(frozen=True)
class Operation:
    """One operation in which somebody stalls. Lists by member, in order of `ranks`.

    `row` is the member's row in `Moment.states`, −1 where it has none. `pair`: (sender, receiver) of a
    point-to-point operation. `doing` holds Doing.
    """

    comm: int
    func: int
    seq: int
    pair: tuple[int, int] | None
    ranks: list[int]
    doing: list[int]
    row: list[int]
    launched: list[int]
    """Last seq that each member has launched here."""
    silent: list[bool]
    """Whose host does not speak any more."""
    host: list[str]
    devs: list[int]
    nnodes: int


@dataclass(frozen=True)
class _Roll:
    """Members of G operations: those of operation i are rows first[i]:first[i + 1] of the others, (M,)."""

    first: I64
    op: I64
    comm: U64
    func: npt.NDArray[np.uint8]
    """0 where it is a pair."""
    seq: U64
    sender: I64
    receiver: I64
    rank: I64
    dev: U64
    row: I64
    launched_at: F64
    """Of its operation: when the first member launched it, broker seconds."""


def operations(moment: Moment, standing: I64) -> list[Operation]:
    """The operations of these states, each once, with what every member does there."""
    if not len(standing) or not len(moment.members.comm):
        return []
    roll = _roll(moment, standing)
    doing, launched = _doing(moment, roll)
    doing = _gone_on(moment, roll, doing)
    source = moment.sources_of(roll.dev).tolist()
    devs = roll.dev.tolist()
    names = [*moment.sources.names, ""]
    hosts = [names[at] if at >= 0 else f"?{dev}" for at, dev in zip(source, devs, strict=True)]
    silent = moment.silent(roll.dev)
    columns = [column.tolist() for column in (roll.rank, doing, roll.row, launched, silent)]
    heads = [getattr(roll, name)[roll.first[:-1]].tolist() for name in _HEAD]
    found = []
    for begin, end, comm, func, seq, sender, receiver in zip(
        roll.first[:-1].tolist(), roll.first[1:].tolist(), *heads, strict=True
    ):
        ranks, does, rows, last, mute = (column[begin:end] for column in columns)
        nnodes = moment.nnodes.get(comm, 0) or len(set(hosts[begin:end]))
        operation = Operation(
            comm, func or int(Func.SEND_RECV), seq, (sender, receiver) if sender >= 0 else None, ranks, does,
            rows, last, mute, hosts[begin:end], devs[begin:end], nnodes,
        )  # fmt: skip
        if max(rows, default=-1) >= 0 and not _over(moment, operation):
            found.append(operation)
    return found


_HEAD = ("comm", "func", "seq", "sender", "receiver")


def _over(moment: Moment, operation: Operation) -> bool:
    """Whether all flows of an operation over several hosts are complete: who has none has ended it too.

    Members that show no flow are the inner ranks of its rings and trees.
    """
    if operation.nnodes < 2 or Doing.PAST not in operation.doing:
        return False
    shown = [moment.states.rows["visibility"][row] for row in operation.row if row >= 0]
    return Doing.LAUNCHED not in operation.doing and all(each == Visibility.LAUNCH for each in shown)


def _roll(moment: Moment, standing: I64) -> _Roll:
    rows = moment.states.rows
    every = np.flatnonzero(np.isin(rows["comm"], rows["comm"][standing]))
    mine = rows[["comm", "func", "seq", "rank", "peer"]][every]
    sender, receiver = (rank.astype(np.int64) for rank in pair_of(mine))
    func = np.where(is_pair(mine), np.uint8(0), mine["func"])
    group, example = groups_of([mine["comm"], func, mine["seq"], sender, receiver])
    wanted = np.unique(group[np.searchsorted(every, standing)])
    example = example[wanted]
    comm, seq = mine["comm"][example], mine["seq"][example]
    pair = sender[example] >= 0
    at, known = moment.members.index(comm)
    begin = np.where(known, moment.members.first[at], 0)
    size = np.where(known, moment.members.first[at + 1] - begin, 0)
    count = np.where(pair, 2, size)
    op = np.repeat(np.arange(len(wanted)), count)
    first = np.concatenate([[0], np.cumsum(count)])
    place = np.arange(len(op)) - first[op]
    ends = np.where(place == 0, sender[example][op], receiver[example][op])
    rank = np.where(pair[op], ends, place)
    row = np.full(len(op), -1, np.int64)
    number = np.full(int(group.max()) + 1, -1, np.int64)
    number[wanted] = np.arange(len(wanted))
    of = number[group]
    told = (of >= 0) & (mine["rank"] < size[of])
    where = np.where(sender >= 0, mine["rank"] != sender, mine["rank"])
    row[first[of[told]] + where[told]] = every[told]
    to_oneself = first[:-1][pair & (sender[example] == receiver[example])]
    row[to_oneself + 1] = row[to_oneself]
    # A rank beyond its communicator is nobody's.
    there = rank < size[op]
    op, rank, row = op[there], rank[there], row[there]
    first = np.searchsorted(op, np.arange(len(wanted) + 1))
    age = np.zeros(len(wanted))
    np.maximum.at(age, op[row >= 0], moment.age[row[row >= 0]])
    return _Roll(
        first, op, comm[op], func[example][op], seq[op], sender[example][op], receiver[example][op], rank,
        moment.members.dev[begin[op] + rank], row, moment.now - age[op],
    )  # fmt: skip


def _doing(moment: Moment, roll: _Roll) -> tuple[I64, U64]:
    """What each member does, and the last seq that it has launched, shapes (M,)."""
    pair = roll.sender >= 0
    sends = roll.rank == roll.sender
    space = np.where(pair, np.where(sends, int(Func.SEND), int(Func.RECV)), roll.func)
    peer = np.where(pair, np.where(sends, roll.receiver, roll.sender), -1)
    at = moment.positions_at(roll.comm, roll.dev, space, peer)
    any_peer = moment.positions_at(roll.comm, roll.dev, space, np.full(len(peer), -1))
    known = at >= 0
    launched, ended, called, flags = (
        _of(moment.positions.rows[name], at) for name in ("seq", "ended", "n", "flags")
    )
    spoken = moment.spoken(roll.comm, roll.dev)
    told = np.where(known, _of(moment.positions.at, at), spoken)
    stands = roll.row >= 0
    state = moment.states.rows
    lost = _of(state["kind"], roll.row) == Kind.ORPHAN
    lost &= (_of(state["flags"], roll.row) & np.uint32(Flag.DIED)) == 0
    silent = moment.silent(roll.dev)
    heard = moment.heard(roll.dev)
    tests: list[tuple[Bools, Doing]] = [
        ((ended >= roll.seq) & (roll.seq > 0), Doing.PAST),
        # Its host has nothing more to say here.
        (known & (flags & np.uint32(Flag.FINALISED) != 0) & (launched < roll.seq), Doing.LEFT),
        (silent | (stands & lost), Doing.UNKNOWN),
        (stands & (_of(state["current"], roll.row) == 1), Doing.STANDS),
        (stands, Doing.MAY_STAND),
        (launched >= roll.seq, Doing.LAUNCHED),
        # It has sends or receives; of this pair nothing is told yet.
        (~known & pair & (_of(moment.positions.rows["seq"], any_peer) > 0), Doing.UNKNOWN),
        (~np.isfinite(spoken) | (roll.seq == 0) | (flags & np.uint32(Flag.ABORTED) != 0), Doing.UNKNOWN),
        ((heard < roll.launched_at + LATE_S) | (told < moment.lost_at(roll.dev)), Doing.UNKNOWN),
        ((launched + called >= roll.seq) & (called > 0), Doing.CALLED),
    ]
    doing = np.select([test for test, _ in tests], [int(what) for _, what in tests], int(Doing.ABSENT))
    standing = np.isin(doing, (Doing.STANDS, Doing.MAY_STAND))
    return doing, np.where(standing, np.maximum(launched, roll.seq), launched)


def _of(column: npt.NDArray[Any], at: I64) -> npt.NDArray[Any]:
    """The values of a column at some rows, 0 for row −1."""
    values: npt.NDArray[Any] = np.append(column, np.zeros(1, column.dtype))[at]
    return values


def _gone_on(moment: Moment, roll: _Roll, doing: I64) -> I64:
    """PAST for who surely stands in an operation of this communicator that those who wait have not launched.

    Members launch a communicator's operations in one order, and it runs them in that order: the device has
    ended what these wait in, although its host has not told of it yet.
    """
    rows = moment.states.rows
    ahead = rows[(rows["current"] == 1) & (rows["flags"] & np.uint32(Flag.P2P) == 0)]
    candidates = np.flatnonzero((doing == Doing.LAUNCHED) & (roll.sender < 0))
    if not len(candidates) or not len(ahead):
        return doing
    in_front: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for comm, dev, func, seq in zip(
        *(ahead[name].tolist() for name in ("comm", "dev", "func", "seq")), strict=True
    ):
        in_front[comm, dev].append((func, seq))
    whose = zip(*(column[candidates].tolist() for column in (roll.comm, roll.dev, roll.op)), strict=True)
    standing = [
        (member, op, func, seq)
        for member, (comm, dev, op) in zip(candidates.tolist(), whose, strict=True)
        for func, seq in in_front.get((comm, dev), ())
    ]
    least = _least_launched(moment, roll, sorted({(op, func) for _, op, func, _ in standing}))
    doing = doing.copy()
    doing[[member for member, op, func, seq in standing if least[op, func] < seq]] = Doing.PAST
    return doing


def _least_launched(
    moment: Moment, roll: _Roll, asked: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], float]:
    """By operation and func, the last seq that all who wait there have launched of it; inf where unknown."""
    waiters = [np.arange(roll.first[op], roll.first[op + 1]) for op, _ in asked]
    waiters = [members[roll.row[members] >= 0] for members in waiters]
    if not waiters:
        return {}
    of = np.repeat(np.arange(len(asked)), [len(members) for members in waiters])
    flat = np.concatenate(waiters)
    comm, dev = roll.comm[flat], roll.dev[flat]
    at = moment.positions_at(comm, dev, np.array([func for _, func in asked])[of], np.full(len(of), -1))
    launched = np.where(np.isfinite(moment.spoken(comm, dev)), _of(moment.positions.rows["seq"], at), np.inf)
    least = np.full(len(asked), np.inf)
    np.minimum.at(least, of, launched)
    return dict(zip(asked, least.tolist(), strict=True))
