"""From one look at a job to wait records: who stands in which operation, and what holds that up.

Pure; the order of the tests is that of diagnosis-rules, "Order of tests for one collective". What a process
that is dead or stopped changes, and what other communicators say, is weighed by causes.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from schemas.enums import Algo, Func, Kind, Reason
from schemas.records import COLL, FLOW, UNKNOWN_US, WAIT, Records
from streams.grouping import places_of
from streams.live import pairs, rings, trees
from streams.live.attendance import Doing, Operation, operations
from streams.live.moment import KERNEL_TIER, Moment
from streams.live.rings import Ring
from streams.live.waits import waits_of
from streams.live.wires import QUIET_S, End, Holding, ends
from streams.mismatch import mismatches
from streams.operations import join, pair_of

AGE_S = 1.0
"""An operation stalls when it is so old, and has been quiet for QUIET_S (its host adds: 10 medians)."""
CONNECTING_S = 10.0
"""NCCL connects at the first operation of a communicator and algorithm, and of each pair: so long at most."""

_ABSENT: dict[int, Reason] = {
    Doing.ABSENT: Reason.NOT_LAUNCHED, Doing.LEFT: Reason.LEFT, Doing.CALLED: Reason.CALLED,
}  # fmt: skip
_RING_FUNCS = (Func.ALL_REDUCE, Func.ALL_GATHER, Func.REDUCE_SCATTER, Func.BROADCAST, Func.REDUCE)


def judge(moment: Moment) -> Records:
    """The wait records of all that stalls, shape (waits,); `epoch` and `partition` are the caller's."""
    found = operations(moment, _standing(moment))
    told = _ends(moment, found)
    held = [_holdings(moment, operation, told.get(_flows_key(operation), [])) for operation in found]
    waits = WAIT.joined([waits_of(moment, found, held), _mismatches(moment)])
    waits["job"], waits["attempt"] = moment.job, moment.attempt
    return waits


def _standing(moment: Moment) -> npt.NDArray[np.int64]:
    """States that stall by now: old enough, quiet, and not about to connect."""
    rows = moment.states.rows
    if not len(rows):
        return np.zeros(0, np.int64)
    age, quiet = moment.age, moment.quiet
    # What is told without being current is the newest launch of a device at rest: it may be stuck before it.
    stalls = (age >= AGE_S) & (quiet >= QUIET_S)
    young = stalls & (age < CONNECTING_S)
    if young.any():  # the first operation of its kind may be connecting until steps are seen
        stalls &= ~young | moment.connected | moment.begun
    return np.flatnonzero(stalls)


def _mismatches(moment: Moment) -> Records:
    """Operations that their members called differently, finished or not: of each communicator the first.

    What was found before stands, since what was called wrongly once does not come right.
    """
    states = moment.states.rows[moment.states.rows["kind"] == Kind.STATE]
    joined, _, _ = join(moment.members, COLL.joined([moment.done, states]))
    found = mismatches(moment.members, joined)
    known = np.array(list(moment.mismatched), np.uint64)
    return WAIT.joined([*moment.mismatched.values(), found[~np.isin(found["comm"], known)]])


def _holdings(moment: Moment, operation: Operation, ends: list[End]) -> list[Holding]:
    """What holds an operation up, in the order in which it is to be asked."""
    leads = [row for row in operation.row if row >= 0]
    oldest = float(moment.age[leads].max())
    settled = oldest >= CONNECTING_S or moment.connected[leads[0]]
    absent = [
        Holding(_ABSENT[doing], rank, True)
        for rank, doing in zip(operation.ranks, operation.doing, strict=True)
        if doing in _ABSENT
    ]
    if absent and not settled:
        return []  # they may be connecting
    carriers = list(_carriers(moment, ends))
    if absent or carriers:
        links = [each for each in _flows(moment, operation, ends) if each.reason == Reason.NOT_DELIVERED]
        return absent + carriers + links
    found = _kernels(moment, operation) or _flows(moment, operation, ends)
    if any(doing in (Doing.UNKNOWN, Doing.LAUNCHED) for doing in operation.doing):
        # One of whom it is not known yet what it does may be it: what is only likely has to wait.
        found = [each for each in found if each.reason != Reason.UNSEEN]
    for rank, silent, doing in zip(operation.ranks, operation.silent, operation.doing, strict=True):
        if doing == Doing.UNKNOWN:
            found.append(Holding(Reason.SILENT, rank, silent))
        elif doing == Doing.LAUNCHED:
            found.append(Holding(Reason.QUEUED, rank, False))
    return found


_FlowsKey: TypeAlias = "tuple[int, ...]"
"""Communicator, seq and func of a collective; communicator, seq, sender and receiver of a pair."""


def _flows_key(operation: Operation) -> _FlowsKey:
    return (operation.comm, operation.seq, *(operation.pair or (operation.func,)))


def _ends(moment: Moment, found: Sequence[Operation]) -> dict[_FlowsKey, list[End]]:
    """The flows that the hosts of their members tell of, by operation."""
    rows = moment.flows.rows
    wanted = [np.array([getattr(each, name) for each in found], np.uint64) for name in ("comm", "seq")]
    chosen = np.flatnonzero(places_of(wanted, [rows["comm"], rows["seq"]]) >= 0)
    rows = FLOW.chosen(rows, chosen)
    sender, receiver = pair_of(rows)
    heads = zip(
        *(column.tolist() for column in (rows["comm"], rows["seq"], rows["func"], sender, receiver)),
        strict=True,
    )
    told: defaultdict[_FlowsKey, list[End]] = defaultdict(list)
    for end, (comm, seq, func, sends, receives) in zip(
        ends(rows, moment.flows_quiet[chosen]), heads, strict=True
    ):
        told[(comm, seq, func) if sends < 0 else (comm, seq, sends, receives)].append(end)
    return told


def _carriers(moment: Moment, ends: Iterable[End]) -> Iterable[Holding]:
    """Processes that carry flows of others (PXN) and are dead or stopped."""
    for carrier, dev in sorted({(end.carrier, end.dev) for end in ends}):
        process = moment.processes.get(carrier)
        if process is None or process.dev == dev:
            continue
        if not process.alive:
            yield Holding(Reason.DEAD, -1, True, dev=process.dev)
        elif process.stopped_at is not None:
            yield Holding(Reason.STOPPED, -1, True, dev=process.dev)


def _kernels(moment: Moment, operation: Operation) -> list[Holding]:
    """With kernel channels traced: members whose kernel has not started where another's has."""
    traced: defaultdict[bool, list[int]] = defaultdict(list)
    lead = next(row for row in operation.row if row >= 0)
    if not moment.kernels_traced or not moment.connected[lead]:
        return []  # kernel channels of a first operation are told late
    for rank, row in zip(operation.ranks, operation.row, strict=True):
        if row < 0:
            continue
        state = moment.states.rows[row]
        if state["kernel_end_us"] != UNKNOWN_US:
            return []
        process = moment.process_of.get(int(state["dev"]))
        if process is not None and process.tier >= KERNEL_TIER:
            traced[bool(state["kernel_start_us"] != UNKNOWN_US)].append(rank)
    if not traced[True] or Doing.PAST in operation.doing:
        return []
    return [Holding(Reason.GPU_NOT_READY, rank, len(traced[False]) == 1) for rank in traced[False]]


def _flows(moment: Moment, operation: Operation, ends: list[End]) -> list[Holding]:
    """What the counters of the operation's flows say; nothing for algorithms without rules."""
    if not ends:
        return []
    credits = any(end.no_credit for end in ends) or _credits(moment)
    past = frozenset(
        rank for rank, doing in zip(operation.ranks, operation.doing, strict=True) if doing == Doing.PAST
    )
    if operation.pair is not None:
        return pairs.holdings(ends, credits, past)
    leads = [moment.states.rows[row] for row in operation.row if row >= 0]
    algo, proto = int(leads[0]["algo"]), int(leads[0]["proto"])
    host = dict(zip(operation.ranks, operation.host, strict=True))
    if operation.nnodes == len(operation.ranks):
        host = {rank: f"{name}/{rank}" for rank, name in host.items()}  # to NCCL each is its own host
    ring = Ring(host, proto, credits, past, moment.following.get(operation.comm, {}))
    if algo == Algo.RING and operation.func in _RING_FUNCS:
        return rings.holdings(ring, ends)
    if algo == Algo.TREE and operation.func == Func.ALL_REDUCE:
        return trees.holdings(ring, ends)
    return []


def _credits(moment: Moment) -> bool:
    """Whether any flow was ever refused for want of credit: the network is InfiniBand-like then."""
    return bool((moment.flows.rows["no_credit"] > 0).any())
