"""Tumbling windows over what the hosts of one job tell one trace partition.

Pure state, no I/O; times are broker seconds. A window is one second of broker time. A finished operation
belongs to the window in which it ended: the append time of its flush minus its age, plus its duration. A
host's sum covers the second before its flush and belongs to the window in which its last operation ended.

A window is closed when every host has sent a flush later than its end by CLOSE_S: hosts tell of what has
finished once a second, so by then all of it is there. A host that has not spoken for SILENT_S is not
waited for. What comes after that is late: counted, and in no window.

An operation is joined in the window in which its last member's row is; rows of an operation that is not
complete when their window closes wait for JOIN_S more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from schemas.enums import Kind
from schemas.envelope import Envelope
from schemas.records import COLL, FLOW, LAG, MAX_US, UNKNOWN_NS, UNKNOWN_US, Records, RecordType
from schemas.sizes import size_class
from streams.grouping import groups_of
from streams.slow.clocks import Clocks
from streams.slow.fold import Folded, folded
from streams.slow.joins import Joined, joined, seen, whole
from streams.slow.rates import RATE_KEY, add_skews, rates
from streams.slow.window import CONNECTING, LAG_KEY, Window, added_flows

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]

WINDOW_S = 1
"""Hosts sum over a second: a shorter window would hold the sums of some of them only."""
GRACE_S = 0.25
"""Flushes are not sent to the millisecond, and take some to arrive."""
CLOSE_S = WINDOW_S + GRACE_S
SILENT_S = 3.0
"""As for stalls: a host that speaks each second and has not for so long."""
JOIN_S = 2
"""Members tell of an operation in the same second or the next; two more wait for a slow one."""
FORGET_S = 600
"""When a device was last in a kind of operation is remembered for so long: intervals need it."""

_WINDOW_NS = WINDOW_S * 1_000_000_000


@dataclass(frozen=True)
class Closed:
    """One closed window of one job on one partition."""

    window: Window
    rates: Records
    """RATE records, shape (rows,)."""


@dataclass
class _Parts:
    """What has come of one window that is still open."""

    sums: list[Records] = field(default_factory=list)
    flows: list[Records] = field(default_factory=list)
    singles: list[tuple[Records, I64]] = field(default_factory=list)
    """COLL records of kind DONE, with the number of the host of each."""


class Windows:
    """The windows of one attempt of a job on one trace partition."""

    def __init__(self, job: int, attempt: int, partition: int) -> None:
        self._job, self._attempt, self._partition = job, attempt, partition
        self._open: defaultdict[int, _Parts] = defaultdict(_Parts)
        self._next: int | None = None
        self._numbers: dict[str, int] = {}
        self._spoke: dict[str, float] = {}
        self._late = 0
        self._waiting: list[tuple[int, Records, I64]] = []
        """Rows of operations that lack members: since which window, rows, hosts."""
        self._clocks = Clocks()
        self._launches = _Launches()
        self._heard: deque[tuple[Envelope, float]] = deque()

    def take(self, message: Envelope, at: float) -> None:
        """Hear a FLUSH that the broker appended `at`; may run beside `close` in another thread."""
        self._heard.append((message, at))

    def close(self, now: float) -> Iterator[Closed]:
        """The windows that are over, in order, empty ones too; `now` in broker seconds."""
        heard = []
        while self._heard:
            heard.append(self._heard.popleft())
        if heard:
            self._sort(heard)
        if self._next is None:
            return
        speaking = [at for at in self._spoke.values() if now - at <= SILENT_S]
        least = min(speaking, default=now - SILENT_S)
        last = int((least - CLOSE_S) // WINDOW_S)
        while self._next < last:
            number = self._next
            self._next += 1
            silent = [name for name, at in self._spoke.items() if now - at > SILENT_S]
            yield self._closed(number, self._open.pop(number, _Parts()), tuple(sorted(silent)))

    def _sort(self, heard: Sequence[tuple[Envelope, float]]) -> None:
        """Put what was heard into its windows; all at once, since a message costs more than its rows."""
        if self._next is None:
            self._next = int(heard[0][1] // WINDOW_S) - 1
        for message, at in heard:
            self._numbers.setdefault(message.source, len(self._numbers))
            # One at which something stalls tells of nothing finished; by CLOSE_S a whole one came too.
            if message.part == message.parts - 1:
                self._spoke[message.source] = at
        coll, place = _section(COLL, heard)
        ats = np.array([at for _, at in heard])
        through = np.array([message.through for message, _ in heard], np.int64)
        host = np.array([self._numbers[message.source] for message, _ in heard], np.int64)
        ended = _ended(coll, through[place], ats[place])
        sums = coll["kind"] == Kind.SUM
        for number, chosen in self._divided(sums, ended):
            self._open[number].sums.append(COLL.chosen(coll, chosen))
        singles = (coll["kind"] == Kind.DONE) & (coll["seq"] > CONNECTING)
        for number, chosen in self._divided(singles, ended):
            self._open[number].singles.append((COLL.chosen(coll, chosen), host[place[chosen]]))
        flow, place = _section(FLOW, heard)
        for number, chosen in self._divided(flow["kind"] == Kind.SUM, ats[place]):
            self._open[number].flows.append(FLOW.chosen(flow, chosen))

    def _divided(self, which: npt.NDArray[np.bool_], at: F64) -> Iterator[tuple[int, I64]]:
        """Places of the rows of a mask by the window that they belong to; late ones are counted."""
        places = np.flatnonzero(which)
        number = np.floor(at[places] / WINDOW_S).astype(np.int64)
        late = number < (self._next or 0)
        self._late += int(late.sum())
        for one in np.unique(number[~late]).tolist():
            yield one, places[number == one]

    def _closed(self, number: int, parts: _Parts, silent: tuple[str, ...]) -> Closed:
        start = number * _WINDOW_NS
        singles, host = self._together(parts)
        row, first = whole(singles, host)
        fresh = np.zeros(len(singles), np.bool_)
        fresh[len(singles) - sum(len(rows) for rows, _ in parts.singles) :] = True
        told = fresh.copy()
        told[row] = True
        found = _with_singles(folded(COLL.joined(parts.sums)), singles[told])
        found.lags["start"], found.lags["length_us"] = start, WINDOW_S * 1_000_000
        self._launches.intervals(found, number)
        self._clocks.take(seen(singles, host, row, first), number)
        who = joined(singles, host, row, first, self._clocks, number)
        self._keep(number, singles, host, row)
        rows = rates(found)
        rows["partition"], rows["silent"], rows["late"] = self._partition, len(silent), self._late
        _add_singles(found.lags, singles, host, fresh, who, self._clocks, number)
        _add_operations(rows, singles, who)
        return Closed(
            Window(
                self._job, self._attempt, start, WINDOW_S * 1_000_000, found.lags, added_flows(parts.flows),
                silent,
            ),
            rows,
        )  # fmt: skip

    def _together(self, parts: _Parts) -> tuple[Records, I64]:
        """Rows that waited for other members, then those of the window, and their hosts."""
        every = [*((rows, host) for _, rows, host in self._waiting), *parts.singles]
        host = np.concatenate([np.zeros(0, np.int64), *(host for _, host in every)])
        return COLL.joined(rows for rows, _ in every), host

    def _keep(self, number: int, singles: Records, host: I64, row: I64) -> None:
        """Let the rows that were not joined wait, but not for ever."""
        since = np.concatenate(
            [np.zeros(0, np.int64), *(np.full(len(rows), at) for at, rows, _ in self._waiting)]
        )
        since = np.append(since, np.full(len(singles) - len(since), number))
        left = np.ones(len(singles), np.bool_)
        left[row] = False
        left &= number - since < JOIN_S
        self._waiting = [
            (at, singles[left & (since == at)], host[left & (since == at)])
            for at in np.unique(since[left]).tolist()
        ]


class _Launches:
    """When each device last launched each kind of operation, by its host's clock."""

    def __init__(self) -> None:
        self._keys = [np.zeros(0, np.uint64) for _ in LAG_KEY]
        self._launched, self._number = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def intervals(self, found: Folded, number: int) -> None:
        """Fill in `interval_*`: the last launch before this window to the last one in it."""
        lags, known = found.lags, len(self._launched)
        keys = [
            np.concatenate([old, lags[name].astype(np.uint64)])
            for old, name in zip(self._keys, LAG_KEY, strict=True)
        ]
        group, example = groups_of(keys)
        before = np.zeros(len(example), np.int64)
        before[group[:known]] = self._launched
        now, former = found.launched, before[group[known:]]
        elapsed = np.where((former > 0) & (now > former), now - former, 0) // 1000
        lags["interval_sum_us"] = elapsed
        lags["interval_n"] = np.where(elapsed > 0, lags["n"], 0)
        launched, seen_in = before, np.zeros(len(example), np.int64)
        seen_in[group[:known]] = self._number
        launched[group[known:]] = np.maximum(former, now)
        seen_in[group[known:]] = number
        keep = number - seen_in <= FORGET_S
        self._keys = [key[example][keep] for key in keys]
        self._launched, self._number = launched[keep], seen_in[keep]


def _section(record: RecordType, heard: Sequence[tuple[Envelope, float]]) -> tuple[Records, I64]:
    """All rows of one type in messages, and the place of each one's message."""
    sections = [(message.sections.get(record.name), place) for place, (message, _) in enumerate(heard)]
    filled = [(rows, place) for rows, place in sections if rows is not None and len(rows)]
    places = np.repeat([place for _, place in filled], [len(rows) for rows, _ in filled]).astype(np.int64)
    return record.joined(rows for rows, _ in filled), places


def _ended(rows: Records, through: I64, at: F64) -> F64:
    """When operations, or the last of those of a sum, ended, in broker seconds; shape (rows,).

    `through` is when the host had looked, by its own clock, in ns, and `at` when the broker had each.
    """
    single = rows["kind"] == Kind.DONE
    mean = rows["duration_sum_us"] / np.maximum(rows["n"], 1)
    unknown = np.where(single, rows["end_us"], rows["duration_p50_us"]) == UNKNOWN_US
    took = np.where(unknown, 0.0, np.where(single, rows["end_us"], mean))
    told = np.where((rows["launched"] > 0) & (through > 0), (through - rows["launched"]) / 1e3, took)
    age = np.where(single & (rows["age_us"] != UNKNOWN_US), rows["age_us"], told)
    # Nothing that is told has ended later than it is told.
    found: F64 = at - np.maximum(age - took, 0.0) / 1e6
    return found


def _with_singles(found: Folded, singles: Records) -> Folded:
    """A row, though without operations, for each device of single ones whose sum is in another window."""
    _, known = _match(found.lags, singles, LAG_KEY)
    missing = singles[~known]
    if not len(missing):
        return found
    _, first = groups_of(_keys_of(missing, LAG_KEY))
    rows = LAG.empty(len(first))
    for name in ("job", "attempt", "comm", "dev", "rank", "nranks", "nnodes", "func", "algo", "proto"):
        rows[name] = missing[name][first]
    rows["visibility"] = missing["visibility"][first]
    rows["size_class"] = size_class(np.ascontiguousarray(missing["bytes"][first]))
    rows["duration_max_us"], rows["clock_bound_ns"] = UNKNOWN_US, UNKNOWN_NS
    unknown = np.full(len(first), UNKNOWN_US, np.uint32)
    p50, p90, p99 = (np.concatenate([part, unknown]) for part in (found.p50, found.p90, found.p99))
    launched = np.concatenate([found.launched, np.zeros(len(first), np.int64)])
    return Folded(LAG.joined([found.lags, rows]), launched, p50, p90, p99)


def _keys_of(singles: Records, names: tuple[str, ...]) -> list[npt.NDArray[np.generic]]:
    return [
        size_class(np.ascontiguousarray(singles["bytes"])) if name == "size_class" else singles[name]
        for name in names
    ]


def _match(rows: Records, singles: Records, names: tuple[str, ...]) -> tuple[I64, npt.NDArray[np.bool_]]:
    """The row of each single operation, and whether there is one; `rows` are unique by `names`."""
    both = [
        np.concatenate([rows[name].astype(np.uint64), key.astype(np.uint64)])
        for name, key in zip(names, _keys_of(singles, names), strict=True)
    ]
    group, example = groups_of(both)
    at = example[group[len(rows) :]]
    return at, at < len(rows)


def _add_singles(
    lags: Records, singles: Records, host: I64, fresh: npt.NDArray[np.bool_], who: Joined, clocks: Clocks,
    number: int,
) -> None:  # fmt: skip
    """What single operations tell of their devices; `fresh`: those of this window."""
    if not len(singles):
        return
    at, known = _match(lags, singles, LAG_KEY)
    fresh = fresh & known

    def add(name: str, which: npt.NDArray[np.bool_], values: npt.NDArray[np.generic] | int) -> None:
        weights = np.broadcast_to(np.asarray(values, np.float64), (len(which),))[which]
        lags[name] += np.bincount(at[which], weights, len(lags)).astype(lags.dtype[name])

    add("singles", fresh, 1)
    np.maximum.at(lags["channels"], at[known], singles["channels"][known])
    for field_name, total, count in (
        ("api_us", "api_sum_us", ""),
        ("first_us", "first_sum_us", "first_n"),
        ("kernel_start_us", "kernel_sum_us", "kernel_n"),
    ):
        told = fresh & (singles[field_name] != UNKNOWN_US)
        add(total, told, np.where(told, singles[field_name], 0))
        if count:
            add(count, told, 1)
    ran = fresh & (singles["kernel_start_us"] != UNKNOWN_US) & (singles["kernel_end_us"] != UNKNOWN_US)
    run = singles["kernel_end_us"].astype(np.int64) - singles["kernel_start_us"]
    add("run_sum_us", ran, np.maximum(run, 0))
    add("run_n", ran, 1)
    gap, has_gap = _gaps(singles)
    add("gap_sum_us", fresh & has_gap, gap)
    add("gap_n", fresh & has_gap, 1)
    certain = np.repeat(who.known, np.diff(who.first))
    place, joined_known = at[who.row], known[who.row]
    totals: tuple[tuple[str, I64], ...] = (
        ("joined", certain.astype(np.int64)), ("last", who.last.astype(np.int64)),
        ("waited_sum_us", who.waited_us), ("held_sum_us", who.held_us),
        ("start_lag_sum_us", who.start_lag_us), ("end_lag_sum_us", who.end_lag_us),
    )  # fmt: skip
    for name, values in totals:
        counted = np.bincount(place[joined_known], values[joined_known], len(lags))
        lags[name] = counted.astype(lags.dtype[name])
    hosts = np.full(len(lags), -1, np.int64)
    hosts[at[known]] = host[known]
    offset, bound = clocks.of(np.ascontiguousarray(lags["comm"]), hosts, number)
    lags["clock_ns"], lags["clock_bound_ns"] = offset, bound


def _gaps(singles: Records) -> tuple[I64, npt.NDArray[np.bool_]]:
    """End of the device's former operation of the same kind to the launch, µs, where both are known."""
    gap, known = np.zeros(len(singles), np.int64), np.zeros(len(singles), np.bool_)
    order = np.lexsort(tuple(singles[name] for name in ("seq", "peer", "func", "dev", "comm")))
    before, after = singles[order[:-1]], singles[order[1:]]
    next_one = after["seq"] == before["seq"] + np.uint64(1)
    for name in ("comm", "dev", "func", "peer"):
        next_one &= after[name] == before[name]
    next_one &= (before["end_us"] != UNKNOWN_US) & (before["launched"] > 0)
    ended = before["launched"].astype(np.int64) + before["end_us"].astype(np.int64) * 1000
    gap[order[1:]] = np.clip((after["launched"].astype(np.int64) - ended) // 1000, 0, MAX_US)
    known[order[1:]] = next_one
    return gap, known


def _add_operations(told: Records, singles: Records, who: Joined) -> None:
    """What joined operations tell of their communicator: skews, and who was most often the last to start."""
    if not len(who.known):
        return
    lead = singles[who.row[who.first[:-1]]]
    at, known = _match(told, lead, RATE_KEY)
    told["joined"] = np.bincount(at[known], minlength=len(told))[: len(told)]
    timed = known & who.timed
    start, end = (
        np.maximum.reduceat(lag, who.first[:-1])[timed] for lag in (who.start_lag_us, who.end_lag_us)
    )
    add_skews(told, at[timed], start, end)
    operation = np.repeat(np.arange(len(lead)), np.diff(who.first))
    late = np.flatnonzero(who.last & known[operation])
    row, dev = at[operation[late]], singles["dev"][who.row[late]]
    pair, example = groups_of([row, dev])
    count = np.bincount(pair, minlength=len(example))
    # Ascending, so that the largest is written last.
    for each in np.argsort(count, kind="stable").tolist():
        place = row[example[each]]
        told["last"][place], told["last_n"][place] = dev[example[each]], count[each]
