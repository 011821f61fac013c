"""Entries → coll records: what finished, what is pending, and how far everybody is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.flight_recorder.coalesced import settle
from collectors.flight_recorder.dumps import Dump
from collectors.flight_recorder.entries import Entries
from collectors.flight_recorder.groups import Layout, dev_id
from collectors.flight_recorder.pairs import Ends, Traffic, align
from collectors.flight_recorder.positions import Position, goes_back_to_start, positions
from schemas.enums import Flag, Func, Kind, Visibility
from schemas.records import COLL, MAX_US, UNKNOWN_US, Records

I64 = npt.NDArray[np.int64]
_UNKNOWN_TIMES = ("api_us", "first_us", "end_us", "kernel_start_us", "kernel_end_us", "age_us", "quiet_us")


@dataclass(frozen=True)
class Converted:
    """Coll records of a set of dumps: `done` one array per rank, since they may be many."""

    done: tuple[Records, ...]
    pending: Records
    positions: Records
    through: int
    """Latest launch, ns by the clock of the host that took it; 0 where nothing was launched."""
    unpaired: Mapping[int, int]
    """By world rank how many sends and receives were left out, since their peer cannot be told."""


@dataclass(frozen=True)
class _Launches:
    """What one rank launched: R entries, and where each belongs. Arrays of shape (R,)."""

    rows: Entries
    calls: npt.NDArray[np.uint64]
    """Group call, 0 outside one."""
    comm: I64
    """Index of the communicator."""
    rank: I64
    """Rank within it."""
    unpaired: int


def convert(dumps: Mapping[int, Dump], where: Layout, job: str, job_id: int, attempt: int) -> Converted:
    """Records of all dumps. Identities as in groups.comm_id and groups.dev_id."""
    ranks = sorted(dumps)
    launches = {rank: _launches(dumps[rank], where) for rank in ranks}
    devs = {rank: dev_id(job, attempt, rank) for rank in ranks}
    blank = _blank(where, job_id, attempt)
    numbers, relative, ends = _number(dumps, launches, where)
    done, pending = [], []
    for rank in ranks:
        rows = _operations(launches[rank], numbers[rank], relative[rank], blank, devs[rank])
        done.append(rows[rows["kind"] == Kind.DONE])
        pending.append(rows[rows["kind"] == Kind.STATE])
    places, orders = positions(dumps, {rank: launches[rank].rows for rank in ranks}, where)
    told = [
        _collective_positions(places, orders, where, blank, devs),
        _pair_positions(ends, orders, where, blank, devs),
    ]
    return Converted(
        done=tuple(done),
        pending=np.concatenate(pending),
        positions=np.concatenate(told),
        through=max(int(each.rows["created"].max(initial=0)) for each in launches.values()),
        unpaired={rank: each.unpaired for rank, each in launches.items() if each.unpaired},
    )


def _blank(where: Layout, job_id: int, attempt: int) -> Records:
    """One record per communicator with what all its records have in common, shape (C,)."""
    blank = COLL.empty(len(where.communicators))
    blank["job"], blank["attempt"] = job_id, attempt
    blank["comm"] = [comm.id for comm in where.communicators]
    blank["nranks"] = [comm.nranks for comm in where.communicators]
    blank["visibility"], blank["peer"], blank["flags"] = Visibility.COMPLETE, -1, Flag.SEQ_PER_COMM
    for name in _UNKNOWN_TIMES:
        blank[name] = UNKNOWN_US
    return blank


def _launches(dump: Dump, where: Layout) -> _Launches:
    rows, calls = settle(dump.entries, dump.status)
    comms = [where.index[dump.rank, name] for name, _ in dump.names]
    ranks = [where.communicators[at].members.index(dump.rank) for at in comms]
    sizes = [where.communicators[at].nranks for at in comms]
    rank = np.array(ranks, np.int64)[rows["group"]]
    size = np.array(sizes, np.int64)[rows["group"]]
    # A send to oneself waits for nobody.
    pairs = (rows["func"] == Func.SEND) | (rows["func"] == Func.RECV)
    pairs &= (rows["peer"] >= 0) & (rows["peer"] < size) & (rows["peer"] != rank)
    keep = pairs == rows["is_p2p"]
    comm = np.array(comms, np.int64)[rows["group"]]
    return _Launches(rows[keep], calls[keep], comm[keep], rank[keep], int((~keep).sum()))


def _number(
    dumps: Mapping[int, Dump], launches: Mapping[int, _Launches], where: Layout
) -> tuple[dict[int, I64], dict[int, npt.NDArray[np.bool_]], Ends]:
    """By world rank the number of every entry and whether it is relative; the ends of all pairs."""
    first = np.zeros(len(where.communicators) + 1, np.int64)
    np.cumsum([comm.nranks for comm in where.communicators], out=first[1:])
    known = np.zeros(int(first[-1]), np.bool_)
    full = known.copy()
    whole = {rank: goes_back_to_start(dump) for rank, dump in dumps.items()}
    for at, comm in enumerate(where.communicators):
        slots = first[at] + np.arange(len(comm.members))
        known[slots] = [member in dumps for member in comm.members]
        full[slots] = [whole.get(member, False) for member in comm.members]

    pairs = [each.rows["is_p2p"] for each in launches.values()]
    numbers, relative, ends = align(
        Traffic(*(np.concatenate(column) for column in zip(*map(_traffic, launches.values()), strict=True))),
        first, known, full,
    )  # fmt: skip
    cuts = np.cumsum([mask.sum() for mask in pairs])[:-1]
    of_pairs = zip(np.split(numbers, cuts), np.split(relative, cuts), strict=True)
    by_rank, flags = {}, {}
    for (rank, each), mask, (number, aligned) in zip(launches.items(), pairs, of_pairs, strict=True):
        by_rank[rank] = each.rows["collective"].copy()
        flags[rank] = np.zeros(len(mask), np.bool_)
        by_rank[rank][mask], flags[rank][mask] = number, aligned
    return by_rank, flags, ends


def _traffic(each: _Launches) -> tuple[npt.NDArray[Any], ...]:
    """Columns of pairs.Traffic."""
    mask = each.rows["is_p2p"]
    rows, me = each.rows[mask], each.rank[mask]
    sends, peer = rows["func"] == Func.SEND, rows["peer"].astype(np.int64)
    sender, receiver = np.where(sends, me, peer), np.where(sends, peer, me)
    return each.comm[mask], sender, receiver, sends, ~rows["finished"]


def _operations(
    each: _Launches, number: I64, relative: npt.NDArray[np.bool_], blank: Records, dev: int
) -> Records:
    """One record per entry, shape (R,)."""
    rows, calls = each.rows, each.calls
    records: Records = blank[each.comm]
    records["dev"], records["rank"] = dev, each.rank
    records["kind"] = np.where(rows["finished"], np.uint8(Kind.DONE), np.uint8(Kind.STATE))
    records["func"], records["datatype"] = rows["func"], rows["datatype"]
    records["peer"] = np.where(rows["is_p2p"], rows["peer"], -1)
    flags = np.where(rows["is_p2p"], np.uint32(Flag.P2P), np.uint32(Flag.SEQ_PER_COMM))
    flags |= np.where(relative, np.uint32(Flag.SEQ_RELATIVE), np.uint32(0))
    records["flags"] = flags | np.where(calls > 0, np.uint32(Flag.GROUPED), np.uint32(0))
    records["seq"], records["group"] = number, calls
    records["order"] = rows["record_id"] + 1
    records["count"], records["bytes"] = rows["count"], rows["count"] * rows["itemsize"]
    records["n"], records["launched"] = 1, rows["created"]
    records["first_us"] = records["kernel_start_us"] = _since_launch(rows, "started")
    records["end_us"] = _since_launch(rows, "completed")
    pending = np.flatnonzero(~rows["finished"])
    records["current"][pending] = _current(rows["is_p2p"][pending], calls[pending], each.comm[pending])
    return records


def _current(
    is_p2p: npt.NDArray[np.bool_], calls: npt.NDArray[np.uint64], comm: I64
) -> npt.NDArray[np.uint8]:
    """Where a device stands, for its pending operations in order of launch, shape as the arguments.

    Surely (1) in the oldest and in what was launched by the same call. A send or receive runs on a stream
    of its own and need not hold up what was launched after it: behind one, the device may stand (2) in any
    of the following up to and with the first collective, which waits for all that came before. Each group
    has a stream of its own too: an asynchronous collective may pend while the device has long gone on (3) in
    the oldest operation of another group, though mostly that one waits for it.
    """
    current = np.zeros(len(calls), np.uint8)
    if len(calls):
        _, oldest = np.unique(comm, return_index=True)
        current[oldest] = 3
        collectives = np.flatnonzero(~is_p2p)
        last = collectives[0] if len(collectives) else len(calls) - 1
        current[: last + 1] = 2
        current[(calls == calls[0]) & (calls > 0)] = 1
        current[0] = 1
    return current


def _since_launch(rows: Entries, name: str) -> npt.NDArray[np.uint32]:
    """Microseconds from launch to a time of the same clock, UNKNOWN_US where it is not known."""
    known = (rows[name] > 0) & (rows["created"] > 0)
    spent = np.clip((rows[name] - rows["created"]) // 1000, 0, MAX_US)
    return np.where(known, spent, UNKNOWN_US).astype(np.uint32)


def _collective_positions(
    places: Mapping[tuple[int, int], Position],
    orders: Mapping[int, int],
    where: Layout,
    blank: Records,
    devs: Mapping[int, int],
) -> Records:
    records = blank[np.array([comm for _, comm in places], np.int64)]
    records["kind"], records["func"] = Kind.POSITION, Func.ANY
    for name, values in (
        ("dev", [devs[rank] for rank, _ in places]),
        ("rank", [where.communicators[comm].members.index(rank) for rank, comm in places]),
        ("seq", [place.launched for place in places.values()]),
        ("ended", [place.ended for place in places.values()]),
        ("order", [orders[rank] for rank, _ in places]),
    ):
        records[name] = np.array(values, records[name].dtype)
    return records


def _pair_positions(
    ends: Ends, orders: Mapping[int, int], where: Layout, blank: Records, devs: Mapping[int, int]
) -> Records:
    """Both ends of every pair, without those that have no dump."""
    told = []
    for side, (me, peer, func) in enumerate(
        ((ends.sender, ends.receiver, Func.SEND), (ends.receiver, ends.sender, Func.RECV))
    ):
        records = blank[ends.comm]
        records["kind"], records["func"] = Kind.POSITION, func
        records["rank"], records["peer"] = me, peer
        records["seq"], records["ended"] = ends.launched[:, side], ends.ended[:, side]
        records["flags"] = np.where(
            ends.relative, np.uint32(Flag.P2P | Flag.SEQ_RELATIVE), np.uint32(Flag.P2P)
        )
        world = [
            _world_rank(where, comm, rank) for comm, rank in zip(ends.comm.tolist(), me.tolist(), strict=True)
        ]
        records["dev"] = np.array([devs.get(rank, 0) for rank in world], np.uint64)
        records["order"] = np.array([orders.get(rank, 0) for rank in world], np.uint64)
        told.append(records[records["dev"] != 0])
    return np.concatenate(told)


def _world_rank(where: Layout, comm: int, rank: int) -> int:
    members = where.communicators[comm].members
    return members[rank] if rank < len(members) else -1
