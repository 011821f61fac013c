"""How far each rank is in each of its communicators, and in all together.

`pg_status` says what was enqueued and completed last, but in a group with sends and receives it counts those,
not the collectives: there only `collective_seq_id` of the entries holds, which all entries of a group carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectors.flight_recorder.dumps import Dump
from collectors.flight_recorder.entries import Entries
from collectors.flight_recorder.groups import Layout


@dataclass(frozen=True)
class Position:
    """Numbers of the last collective launched and of the last finished one before the oldest pending."""

    launched: int
    ended: int


@dataclass(frozen=True)
class Seen:
    """What the entries of one group in one dump show; 0 where there is no such entry."""

    launched: int
    finished: int
    """Highest number of a collective that has finished."""
    oldest_pending: int


def positions(
    dumps: Mapping[int, Dump], settled: Mapping[int, Entries], where: Layout
) -> tuple[dict[tuple[int, int], Position], dict[int, int]]:
    """Positions by (world rank, communicator index) and launch order by world rank.

    `settled` are the entries without closing ones of coalesced calls, by world rank. A rank about which a
    communicator's position cannot be known has none there. The order is that of the last thing the process
    launched in any communicator, 0 where unknown.
    """
    seen = {rank: _seen(dumps[rank], rows) for rank, rows in settled.items()}
    pairwise = _pairwise(settled, dumps, where)
    agreed = _agreed(seen, where)
    found = _never_used(dumps, where)
    for (rank, name), comm in where.index.items():
        dump = dumps[rank]
        pg_id = next((pg_id for pg_id, known in where.group_of[rank].items() if known == name), None)
        status = dump.status.get(pg_id) if pg_id is not None else None
        own = seen[rank].get(name)
        if comm in pairwise:
            if own is not None:
                found[rank, comm] = _position(own, own.launched, own.launched)
            elif comm in agreed and not goes_back_to_start(dump):
                found[rank, comm] = Position(agreed[comm], agreed[comm])
            elif goes_back_to_start(dump):
                found[rank, comm] = Position(0, 0)
        elif status is not None:
            own = own or Seen(0, 0, 0)
            found[rank, comm] = _position(own, max(own.launched, status.enqueued), status.completed)
        elif own is not None:
            found[rank, comm] = _position(own, own.launched, own.finished)
        elif _all_groups_known(dump, where):
            found[rank, comm] = Position(0, 0)
    return found, _orders(dumps, found, pairwise, where)


def _never_used(dumps: Mapping[int, Dump], where: Layout) -> dict[tuple[int, int], Position]:
    """Members by the word of others only: NCCL lists a group with the rank's first operation in it."""
    return {
        (rank, at): Position(0, 0)
        for at, comm in enumerate(where.communicators)
        for rank in comm.members
        if rank in dumps and (rank, comm.group) not in where.index and _all_groups_known(dumps[rank], where)
    }


def _all_groups_known(dump: Dump, where: Layout) -> bool:
    """Whether a group without a trace here was never used: each gets a status with its first operation."""
    if not dump.status:
        return goes_back_to_start(dump)
    return set(dump.status) <= set(where.group_of[dump.rank])


def goes_back_to_start(dump: Dump) -> bool:
    """Whether the dump holds everything that the process has ever launched."""
    rows = dump.entries
    if len(rows) == 0:
        return all(status.enqueued == 0 for status in dump.status.values())
    if rows["record_id"][0] != 0 or rows["record_id"][-1] != len(rows) - 1:
        return False
    # The recorder can be reset, which numbers records anew, but not operations.
    numbers = np.where(rows["is_p2p"], rows["p2p"], rows["collective"])
    _, first = np.unique(rows["group"] * 2 + rows["is_p2p"], return_index=True)
    return bool((numbers[first] <= 1).all())


def _position(own: Seen, launched: int, completed: int) -> Position:
    # With several streams a later operation may complete before an older one.
    ended = min(max(completed, own.finished), launched)
    return Position(launched, min(ended, own.oldest_pending - 1) if own.oldest_pending else ended)


def _seen(dump: Dump, rows: Entries) -> dict[str, Seen]:
    seen = {}
    for at, (name, _) in enumerate(dump.names):
        mine = rows[rows["group"] == at]
        if len(mine) == 0:
            continue
        collective = mine["collective"][~mine["is_p2p"]]
        finished = mine["finished"][~mine["is_p2p"]]
        seen[name] = Seen(
            int(mine["collective"].max()),
            int(collective[finished].max(initial=0)),
            _least(collective[~finished]),
        )
    return seen


def _least(numbers: npt.NDArray[np.int64]) -> int:
    return int(numbers.min()) if len(numbers) else 0


def _pairwise(settled: Mapping[int, Entries], dumps: Mapping[int, Dump], where: Layout) -> set[int]:
    """Communicators in which somebody sends or receives."""
    found = set()
    for rank, rows in settled.items():
        groups = np.unique(rows["group"][rows["is_p2p"] | (rows["p2p"] > 0)])
        found |= {where.index[rank, dumps[rank].names[at][0]] for at in groups.tolist()}
    return found


def _agreed(seen: Mapping[int, Mapping[str, Seen]], where: Layout) -> dict[int, int]:
    """Per communicator the last collective that has finished, where all ranks with entries say the same."""
    said: dict[int, set[int]] = {}
    for rank, groups in seen.items():
        for name, own in groups.items():
            finished = own.oldest_pending - 1 if own.oldest_pending else own.launched
            said.setdefault(where.index[rank, name], set()).add(finished)
    return {comm: next(iter(numbers)) for comm, numbers in said.items() if len(numbers) == 1}


def _orders(
    dumps: Mapping[int, Dump], found: Mapping[tuple[int, int], Position], pairwise: set[int], where: Layout
) -> dict[int, int]:
    """Launch order of each process's last launch.

    Records count launches from 0. A dump without entries can still be counted from its status: collectives,
    and in groups with sends and receives these too. Believed only if it gives the right number wherever
    records show it.
    """
    orders = {
        rank: int(dump.entries["record_id"][-1]) + 1 for rank, dump in dumps.items() if len(dump.entries)
    }
    counted = {rank: _counted(rank, dump, found, pairwise, where) for rank, dump in dumps.items()}
    proven = bool(orders) and all(counted[rank] == order for rank, order in orders.items())
    return {rank: orders.get(rank) or (counted[rank] if proven else 0) for rank in dumps}


def _counted(
    rank: int, dump: Dump, found: Mapping[tuple[int, int], Position], pairwise: set[int], where: Layout
) -> int:
    total = 0
    for pg_id, status in dump.status.items():
        name = where.group_of[rank].get(pg_id)
        comm = where.index.get((rank, name)) if name is not None else None
        if comm is None:
            return 0
        if comm not in pairwise:
            total += status.enqueued
        elif (rank, comm) in found and found[rank, comm].launched != status.enqueued:
            total += status.enqueued + found[rank, comm].launched
        else:  # unknown, or the last operation may have been a collective: then sends are not counted
            return 0
    return total
