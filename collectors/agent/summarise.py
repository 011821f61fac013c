"""Sums: what a host says of finished operations however many there are.

Coll sums cover a second, flow sums five. Each finished row goes into exactly one sum, whether or not it is
also sent by itself, so totals hold under any budget.

Two limits. An operation of which more shows up after its end is finished twice: its sum keeps what was
known first; its own row, where sent, comes again with the whole truth. And of a collector that is killed the
next one knows what Kafka had of its sums about a second before (cursor.py): what was delivered since is
summed again. One that is stopped leaves nothing unsaid, and nothing is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collectors.agent.groups import Groups, columns, divide, mixed, picked, stacked
from schemas.enums import Func, Kind
from schemas.records import COLL, FLOW, UNKNOWN_US, Records
from schemas.sizes import size_class

_COLL_KEY = ("job", "attempt", "comm", "dev", "rank", "func", "visibility", "algo", "proto", "datatype")
_COLL_SAME = (*_COLL_KEY, "nranks", "nnodes")
_FLOW_KEY = ("job", "attempt", "comm", "dev", "carrier", "rank", "peer", "direction")
_FLOW_COUNTS = (
    "total", "ready", "transmitted", "done", "posted", "received", "flushed", "consumed", "no_credit",
)  # fmt: skip
_FLOW_WIDE = ("bytes", "gpu_us", "credit_us", "net_us", "flush_us")
_HEAD_TIMES = ("gpu_us", "credit_us", "net_us", "flush_us")

DIFFERS_BY = 2
"""A channel is told apart where its time or bytes are over so many times those of its usual sibling."""
DIFFERS_FLOOR_US = 10_000
"""… and by more than this in the period, so that noise on an idle peer tells no channel apart."""

U32_MAX = 0xFFFF_FFFF


def coll_sums(done: Records) -> Records:
    """One row for each communicator, device, func, size class, algo, proto, datatype, visibility of `done`.

    `n`, `bytes`, `count` are totals. Durations are launch to end, of the operations whose end is known;
    quantiles are nearest-rank, and UNKNOWN_US where no end is known.
    """
    found = COLL.empty(0)
    if not len(done):
        return found
    groups = divide([*columns(done, _COLL_KEY), size_class(np.ascontiguousarray(done["bytes"]))])
    first = picked(done, groups.firsts)
    found = COLL.empty(len(groups))
    for name in _COLL_SAME:
        found[name] = first[name]
    found["kind"] = Kind.SUM
    found["flags"] = np.bitwise_or.reduceat(done["flags"][groups.order], groups.starts)
    found["peer"] = -1
    found["n"] = np.minimum(groups.sum(done["n"]), U32_MAX)
    found["bytes"], found["count"] = groups.sum(done["bytes"]), groups.sum(done["count"])
    found["seq"] = np.maximum.reduceat(done["seq"][groups.order], groups.starts)
    found["launched"] = np.maximum.reduceat(done["launched"][groups.order], groups.starts)
    for name in ("api_us", "first_us", "end_us", "kernel_start_us", "kernel_end_us", "age_us", "quiet_us"):
        found[name] = UNKNOWN_US
    _durations(found, groups, np.ascontiguousarray(done["end_us"]))
    return found


def _durations(found: Records, groups: Groups, end_us: npt.NDArray[np.uint32]) -> None:
    known = end_us != UNKNOWN_US
    found["duration_sum_us"] = groups.sum(np.where(known, end_us, 0).astype(np.uint64))
    # Unknown is the largest number, so within a sorted group the known durations come first.
    ranked = end_us[np.lexsort((end_us, groups.group))]
    count = groups.sum(known.astype(np.uint64)).astype(np.int64)
    for name, part in (
        ("duration_p50_us", 0.5),
        ("duration_p90_us", 0.9),
        ("duration_p99_us", 0.99),
        ("duration_max_us", 1.0),
    ):
        place = groups.starts + np.maximum(np.ceil(count * part).astype(np.int64) - 1, 0)
        found[name] = np.where(count > 0, ranked[place], UNKNOWN_US)


class FlowPeriod:
    """The flows of a period, summed as they come, so that memory does not grow with them."""

    def __init__(self) -> None:
        self._sums = FLOW.empty(0)
        self._operations = np.empty(0, np.uint64)

    def add(self, done: Records) -> None:
        """Take finished flows into account."""
        if not len(done):
            return
        ends = _ends(done)
        fresh = _summed(done, np.ascontiguousarray(done["channel"]), ends)
        self._sums = _summed(stacked([self._sums, fresh], FLOW.dtype))
        # An operation counts once for a peer, on however many channels: remember which were seen.
        mine = mixed(ends, done["func"], done["seq"])
        self._operations = np.union1d(self._operations, mine ^ ((mine ^ ends) & _END_BITS))

    def take(self) -> Records:
        """One row for each device, peer and direction, with channel −1; a new period begins.

        A channel that differs from its siblings gets a row of its own and is left out of the common one, so
        all rows together still are the total. `n` counts operations of all channels in the common row.
        """
        rows, seen = self._sums, self._operations
        self._sums, self._operations = FLOW.empty(0), np.empty(0, np.uint64)
        if not len(rows):
            return rows
        label = np.where(_apart(rows), rows["channel"], -1).astype(np.int16)
        found = _summed(rows, label)
        common = found["channel"] == -1
        ends, counts = np.unique(seen & _END_BITS, return_counts=True)
        at = np.minimum(np.searchsorted(ends, _ends(found) & _END_BITS), len(ends) - 1)
        found["n"] = np.where(common, counts[at], found["n"])
        return found


def flow_sums(done: Records) -> Records:
    """Sums of finished flows, as FlowPeriod.take."""
    period = FlowPeriod()
    period.add(done)
    return period.take()


_END_BITS = np.uint64(0xFFFF_FFFF)
"""Half of the hash of a flow's ends, half of its operation's: enough for one period of one host."""


def _ends(rows: Records) -> npt.NDArray[np.uint64]:
    return mixed(*(rows[name] for name in _FLOW_KEY))


def _summed(
    rows: Records,
    label: npt.NDArray[np.int16] | None = None,
    ends: npt.NDArray[np.uint64] | None = None,
) -> Records:
    """Rows by their `ends` (device, peer, direction) and `label` (default: their channel), added up."""
    label = np.ascontiguousarray(rows["channel"]) if label is None else label
    groups = divide([_ends(rows) if ends is None else ends, label])
    first, done = picked(rows, groups.firsts), rows
    found = FLOW.empty(len(groups))
    for name in _FLOW_KEY:
        found[name] = first[name]
    found["kind"], found["func"] = Kind.SUM, Func.ANY
    found["channel"] = label[groups.firsts]
    found["flags"] = np.bitwise_or.reduceat(done["flags"][groups.order], groups.starts)
    found["n"] = np.minimum(groups.sum(done["n"]), U32_MAX)
    names = (*_FLOW_COUNTS, *_FLOW_WIDE)
    values = np.empty((len(names), len(done)), np.uint64)
    for each, name in zip(values, names, strict=True):
        each[:] = done[name]
    for total, name in zip(groups.sums(values), names, strict=True):
        found[name] = total if name in _FLOW_WIDE else np.minimum(total, U32_MAX)
    found["launched"] = np.maximum.reduceat(done["launched"][groups.order], groups.starts)
    for name in ("first_us", "age_us", "quiet_us"):
        found[name] = UNKNOWN_US
    return found


def _apart(rows: Records) -> npt.NDArray[np.bool_]:
    """Which channels (a row each) differ from the median of their siblings (same peer and direction)."""
    peers = divide([_ends(rows)])
    differs = np.zeros(len(rows), np.bool_)
    busy = np.maximum.reduce([rows[name] for name in _HEAD_TIMES])
    for floor, values in ((DIFFERS_FLOOR_US, busy), (0, rows["bytes"])):
        ordered = values[np.lexsort((values, peers.group))].astype(np.float64)
        usual = ordered[peers.starts + (peers.sizes - 1) // 2][peers.group]
        value = values.astype(np.float64)
        far = (value > DIFFERS_BY * usual) | (usual > DIFFERS_BY * value)
        differs |= far & (np.abs(value - usual) > floor)
    # Two channels alone cannot say which of them differs: both are told.
    found: npt.NDArray[np.bool_] = differs | ((peers.sizes == 2)[peers.group] & _any(differs, peers))
    return found


def _any(values: npt.NDArray[np.bool_], groups: Groups) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (groups.sum(values.astype(np.uint64)) > 0)[groups.group]
    return found
