"""How far each device is in each of its communicators, whatever has been recycled, dropped or left out.

A row per func, since NCCL numbers collectives per communicator and func: `seq` the last launched, `ended` the
last known to be finished, `launched`, `age_us` when the communicator's last operation was launched, `order`
the last launch order of the process that its GPU has moved, `n` how many calls the host has made beyond `seq`
that NCCL has not launched yet. Sends and receives have a row with their totals, and one for each peer, whose
`seq` is the number that joins them. A communicator without any launch says so with func `any` and seq 0.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collectors.agent.groups import mixed
from collectors.agent.layout import FUNCS, CommunicatorState, Raw
from collectors.agent.stall import micros
from collectors.agent.translate import World
from schemas.enums import Direction, Flag, Func, Kind, Visibility
from schemas.records import COLL, UNKNOWN_US, Records

U64 = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.intp]

MANY_PAIRS = 64
"""A communicator with more peers tells each of them only when it has come to rest."""
PAIRWISE = [int(Func.SEND), int(Func.RECV)]
"""Where Communicator.launched counts sends and receives."""
_FUNC = np.array([each if each in set(Func) else Func.OTHER for each in range(FUNCS)], np.uint8)
"""The func of each of Communicator.launched; a corrupt file may have some that do not exist."""


class Highest:
    """The largest number seen for each key; bounded by forgetting all when there are too many."""

    def __init__(self, limit: int = 1 << 17) -> None:
        self._limit = limit
        self._keys, self._values = np.empty(0, np.uint64), np.empty(0, np.uint64)

    def add(self, keys: U64, values: U64) -> None:
        """Take numbers into account; arrays of one length."""
        if not len(keys):
            return
        every, where = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        highest = np.zeros(len(every), np.uint64)
        np.maximum.at(highest, where.reshape(-1), np.concatenate([self._values, values]))
        if len(every) > self._limit:
            every, highest = np.unique(keys), highest[np.searchsorted(every, np.unique(keys))]
        self._keys, self._values = every, highest

    def of(self, keys: U64) -> U64:
        """The largest number of each key, 0 where none is known."""
        if not len(self._keys):
            return np.zeros(len(keys), np.uint64)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[at] == keys, self._values[at], np.uint64(0))


def pair_key(dev: U64, comm: U64, direction: npt.NDArray[np.integer], peer: npt.NDArray[np.integer]) -> U64:
    """What names a pair's numbers on this host."""
    return mixed(dev, comm, direction, peer.astype(np.int64).view(np.uint64))


def positions(
    raw: Raw, where: Indices, world: World, moved_order: U64, ended: npt.NDArray[np.uint64], now: int
) -> Records:
    """Positions of all known communicators.

    `raw` are the communicator slots of all processes in the order of `world.comms`, `where` the process of
    each; `moved_order` has one number a process, `ended` shape (slots, FUNCS).
    """
    known = world.comms["known"]
    used = (raw["launched"] > 0) & known[:, None]
    slot, func = np.nonzero(used)
    silent = np.flatnonzero(known & ~used.any(axis=1))
    slots, funcs = np.concatenate([slot, silent]), np.concatenate([func, np.zeros(len(silent), np.intp)])
    rows = _rows(raw, where, world, moved_order, slots, now)
    rows["func"] = _FUNC[funcs]
    rows["seq"] = np.where(funcs > 0, raw["launched"][slots, funcs], 0)
    rows["ended"] = np.maximum(raw["ended"][slots, funcs], ended[slots, funcs])
    # The host may have called more than was launched: group calls, non-blocking communicators.
    called, launched = raw["called"][slots, funcs], raw["launched"][slots, funcs]
    queued = np.where((called > launched) & (raw["captured"][slots, funcs] == 0), called - launched, 0)
    rows["n"] = np.minimum(queued, UNKNOWN_US)
    return rows


def pair_positions(
    pairs: Raw, process: Indices, raw: Raw, where: Indices, world: World, moved_order: U64, highest: Highest,
    now: int, rest_ns: int,
) -> Records:  # fmt: skip
    """Positions of sends and receives by peer, where they are few or their communicator is at rest.

    `pairs` are the used pair slots of all processes, `process` the process of each; the rest as in positions.
    A communicator is at rest when it has launched nothing for `rest_ns`.
    """
    key = pairs["key"]
    slot = ((key >> np.uint64(36)) & np.uint64(0xFFF)).astype(np.intp)
    direction = ((key >> np.uint64(32)) & np.uint64(0xF)).astype(np.int64)
    inside = (key != 0) & (slot < world.comm_count[process]) & np.isin(direction, (1, 2))
    slots = world.comm_first[process[inside]] + slot[inside]
    direction, peer = direction[inside], (key[inside] & np.uint64(0xFFFF_FFFF)).astype(np.int64)
    generation, count = (key[inside] >> np.uint64(48)).astype(np.uint32), pairs["count"][inside]
    facts = world.comms[slots]
    # As the plugin marks the pair's communicator: generations in use are even, and 0 is an unused pair.
    mark = ((facts["generation"].astype(np.uint32) >> 1) & 0x7FFF) + 1
    good = facts["known"] & (mark == generation) & (peer < 1 << 31)
    slots, direction, peer, count = slots[good], direction[good], peer[good], count[good]
    few = np.bincount(slots, minlength=len(raw))[slots] <= MANY_PAIRS
    last = raw["last_launch_tick"][slots]
    few |= now - world.monotonic(where[slots], last) >= rest_ns
    slots, direction, peer, count = slots[few], direction[few], peer[few], count[few]
    rows = _rows(raw, where, world, moved_order, slots, now)
    rows["func"] = np.where(direction == Direction.SEND, int(Func.SEND), int(Func.RECV))
    rows["flags"] |= np.uint32(Flag.P2P)
    rows["peer"], rows["seq"] = peer, count
    rows["ended"] = highest.of(pair_key(rows["dev"], rows["comm"], direction, peer))
    return rows


def _rows(raw: Raw, where: Indices, world: World, moved_order: U64, slots: Indices, now: int) -> Records:
    rows = COLL.empty(len(slots))
    facts, process, last = world.comms[slots], where[slots], raw["last_launch_tick"][slots]
    for name in ("job", "attempt", "comm", "dev", "rank", "nranks", "nnodes"):
        rows[name] = facts[name]
    rows["kind"], rows["visibility"], rows["peer"] = Kind.POSITION, Visibility.LAUNCH, -1
    rows["order"] = moved_order[process]
    rows["launched"] = world.wall(process, last)
    rows["age_us"] = np.where(last == 0, UNKNOWN_US, micros(now - world.monotonic(process, last)))
    state = facts["state"]
    rows["flags"] = np.where(
        state == CommunicatorState.ABORTED, int(Flag.ABORTED),
        np.where(state == CommunicatorState.FINALISED, int(Flag.FINALISED), 0),
    )  # fmt: skip
    for name in ("api_us", "first_us", "end_us", "kernel_start_us", "kernel_end_us", "quiet_us"):
        rows[name] = UNKNOWN_US
    for name in ("duration_max_us", "duration_p50_us", "duration_p90_us", "duration_p99_us"):
        rows[name] = UNKNOWN_US
    return rows


def position_keys(rows: Records) -> tuple[U64, U64]:
    """What names a position, and a number that changes with what it says."""
    return (
        mixed(rows["dev"], rows["comm"], rows["func"], rows["peer"].astype(np.int64).view(np.uint64)),
        mixed(rows["seq"], rows["ended"], rows["flags"], rows["n"]),
    )
