"""The rules by which a sink of the wait-for graph becomes a culprit, a candidate or an open question.

Reasons (design: "Diagnose"; the rules that recordings of real NCCL taught):

- Positive evidence comes first: pending where peers have finished, a circle of sure waits.
- An idle device that others wait for is late. Where it alone holds an operation back it is named; several
  that hold back the same operation may wait for one another outside what is recorded: candidates.
- A source that records no point-to-point (gloo) hides waits between idle devices. There the one that is
  behind the others by its own process's launches is named; the others were only reached later.
- A device of which nothing is known is named only where everything else waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from schemas.enums import NodeKind, Reason
from streams.findings import Finding
from streams.graph import distances, reverse
from streams.membership import I64
from streams.waitgraph import WaitGraph

COMPARABLE_LEAD = 8
"""Launches by which an idle device may be ahead of another and both still be at one place of one program.

Pipeline stages launch different numbers of operations; beyond a few the comparison says nothing.
"""


@dataclass(frozen=True)
class Known:
    """What a judgement knows beside the waits."""

    blind: bool = False
    """The source does not record point-to-point: idle devices may wait unseen."""
    silent: frozenset[int] = frozenset()
    """Devices of which nothing is known."""
    present: int | None = None
    """How many devices there are records of, None where that is not known."""
    idle: Mapping[int, int] = field(default_factory=dict)
    """Launch order of each device that pends in nothing, of a blind source."""


def judge_sinks(web: WaitGraph, known: Known) -> list[Finding]:
    """A finding for each sink and each deadlock, or for several that cannot be told apart."""
    circles = web.deadlocks()
    found = [_deadlock(web, nodes) for nodes in circles]
    locked = {int(node) for nodes in circles for node in nodes}
    by_reason: dict[Reason, list[int]] = {
        Reason.PEERS_FINISHED: [],
        Reason.NOT_LAUNCHED: [],
        Reason.SILENT: [],
    }
    for nodes in web.sink_nodes():
        node = int(nodes[0])
        if locked.issuperset(nodes.tolist()):
            continue
        if len(nodes) > 1:
            found.append(_circle(web, nodes))
        elif web.kind[node] == NodeKind.OPERATION:
            found += _dead_end(web, node)
        else:
            reasons = set(web.records_into(node)["reason"].tolist())
            reason = next((each for each in by_reason if each in reasons), None)
            if reason is None:
                found.append(_finding(web, "unknown", "candidates", [], [node], [node]))
            else:
                by_reason[reason].append(node)
    found += _stuck(web, by_reason[Reason.PEERS_FINISHED])
    found += _silent(web, by_reason[Reason.SILENT], known)
    late = by_reason[Reason.NOT_LAUNCHED]
    found += _late_unseen(web, late, known.idle) if known.blind else _late(web, late)
    return found


def _finding(
    web: WaitGraph, category: str, confidence: str, culprits: Sequence[int], candidates: Sequence[int],
    nodes: Sequence[int], ahead: Sequence[int] = (),
) -> Finding:  # fmt: skip
    indicted = np.array([*culprits, *candidates], np.int64)
    against = web.active & np.isin(web.target, indicted) & (web.waits["reason"] != Reason.IN_OPERATION)
    proof = np.flatnonzero(against).tolist()
    # What proves most comes first; an operation that merely queues behind it last.
    weight = {Reason.PEERS_FINISHED: 0, Reason.NOT_LAUNCHED: 1, Reason.QUEUED: 3}
    proof.sort(
        key=lambda index: (
            weight.get(Reason(int(web.waits["reason"][index])), 2),
            *(int(web.waits[name][index]) for name in ("holder", "comm", "seq")),
        )
    )
    devices = [tuple(int(web.node[node]) for node in group) for group in (culprits, candidates, ahead)]
    return Finding(category, confidence, devices[0], devices[1], tuple(nodes), tuple(proof), ahead=devices[2])


def _deadlock(web: WaitGraph, nodes: I64) -> Finding:
    devices = [int(node) for node in nodes if web.kind[node] == NodeKind.DEVICE]
    inside = web.waits[web.inside(nodes)]
    # Different collectives that wait for one another within one communicator are one called in two ways.
    one_call = len(np.unique(inside["comm"])) == 1 and bool((inside["sender"] < 0).all())
    return _finding(web, "mismatch" if one_call else "deadlock", "candidates", [], devices, nodes.tolist())


def _circle(web: WaitGraph, nodes: I64) -> Finding:
    """A circle that is no deadlock: its devices stand in operations that nobody can be shown to hold."""
    devices = [int(node) for node in nodes if web.kind[node] == NodeKind.DEVICE]
    if len(devices) == 1:
        # A group of its own: nobody else can hold it.
        return _finding(web, "gpu-hang", "likely", devices, [], nodes.tolist())
    return _finding(web, "unknown", "candidates", [], devices, nodes.tolist())


def _dead_end(web: WaitGraph, node: int) -> Iterable[Finding]:
    """An operation in which nobody can be shown to hold the others; mismatched ones are found elsewhere."""
    leaving = web.source == node
    if not leaving.any():
        standing = web.source[web.active & (web.target == node)]
        yield _finding(web, "unknown", "candidates", [], sorted(set(standing.tolist())), [node])


def _cohorts(web: WaitGraph, nodes: Sequence[int], reason: Reason) -> list[list[int]]:
    """Nodes grouped by the operations that they hold back together, in order of the smallest node."""
    group = {node: node for node in nodes}

    def head(node: int) -> int:
        while group[node] != node:
            node = group[node]
        return node

    by_operation: dict[int, int] = {}
    chosen = web.active & (web.waits["reason"] == reason) & np.isin(web.target, np.array(nodes, np.int64))
    for index in np.flatnonzero(chosen).tolist():
        node, operation = head(int(web.target[index])), int(web.source[index])
        other = head(by_operation.setdefault(operation, node))
        group[max(node, other)] = min(node, other)
    cohorts: dict[int, list[int]] = {}
    for node in nodes:
        cohorts.setdefault(head(node), []).append(node)
    return list(cohorts.values())


def _stuck(web: WaitGraph, nodes: Sequence[int]) -> list[Finding]:
    """Devices that pend where peers have finished.

    One alone is stuck. Of several in one operation, or beside a member of which it is not known what it does
    there, each may only wait for the rest of the data from another.
    """
    found = []
    for cohort in _cohorts(web, nodes, Reason.PEERS_FINISHED):
        here = np.isin(web.target, cohort) & (web.waits["reason"] == Reason.PEERS_FINISHED)
        sure = bool(web.waits["sure"][here].all())
        beside = np.isin(web.source, web.source[here]) & (web.waits["reason"] == Reason.SILENT)
        suspects = [*cohort, *sorted(set(web.target[beside].tolist()) - set(cohort))]
        if len(suspects) == 1 and sure:
            found.append(_finding(web, "gpu-hang", "likely", suspects, [], cohort))
        else:
            found.append(_finding(web, "gpu-hang", "candidates", [], suspects, cohort))
    return found


def _silent(web: WaitGraph, nodes: Sequence[int], known: Known) -> list[Finding]:
    """Devices of which nothing is known, as one finding: a lost host, or files that were not kept.

    One is named only where it is the only one, and everything there are records of waits for it: otherwise
    it may wait for another of them, or for one that is idle.
    """
    if not nodes:
        return []
    distance, _ = distances(reverse(web.forward), np.array(nodes, np.int64))
    waiting = int(np.count_nonzero((distance > 0) & (web.kind == NodeKind.DEVICE)))
    alone = len(nodes) == 1 and known.silent <= {int(web.node[nodes[0]])}
    if alone and known.present in (None, waiting):
        return [_finding(web, "host-silent", "likely", nodes, [], nodes)]
    found = _finding(web, "host-silent", "candidates", [], nodes, nodes)
    others = tuple(sorted(known.silent - set(found.candidates)))
    return [replace(found, candidates=found.candidates + others)]


def _late(web: WaitGraph, nodes: Sequence[int]) -> list[Finding]:
    """Idle devices of a source that records everything NCCL does.

    A device that alone has not launched some operation is named; one that always shares the blame with
    other idle devices may be waiting for them outside NCCL. Where only the absence of a record says that
    it has not launched, it may as well have finished: then who waits is as likely stuck.
    """
    sure = {node for node in nodes if web.records_into(node)["sure"].any()}
    found = [_unclear(web, node) for node in nodes if node not in sure]
    for cohort in _cohorts(web, sorted(sure), Reason.NOT_LAUNCHED):
        alone = _alone(web, cohort)
        shared = [node for node in cohort if node not in alone]
        if not alone:
            found.append(_finding(web, "late-launch", "candidates", [], shared, cohort))
        else:
            confidence = "likely" if shared else "proven"
            found.append(_finding(web, "late-launch", confidence, sorted(alone), shared, cohort))
    return found


def _unclear(web: WaitGraph, node: int) -> Finding:
    into = web.active & (web.target == node)
    standing = web.active & np.isin(web.target, web.source[into])
    others = sorted(set(web.source[standing].tolist()))
    return _finding(web, "unknown", "candidates", [], [node, *others], [node])


def _alone(web: WaitGraph, cohort: Sequence[int]) -> set[int]:
    """Those of a cohort without which some operation would have nobody idle to wait for."""
    holders: dict[int, set[int]] = {}
    chosen = web.active & (web.waits["reason"] == Reason.NOT_LAUNCHED) & np.isin(web.target, cohort)
    for index in np.flatnonzero(chosen & (web.waits["sure"] == 1)).tolist():
        holders.setdefault(int(web.source[index]), set()).add(int(web.target[index]))
    return {next(iter(nodes)) for nodes in holders.values() if len(nodes) == 1}


def _late_unseen(web: WaitGraph, nodes: Sequence[int], idle: Mapping[int, int]) -> list[Finding]:
    """Idle devices of a source that hides point-to-point: each may wait for any other of them.

    So may one that nobody is seen to wait for: who waits for it does so unseen.
    """
    if not nodes:
        return []
    order = {node: int(web.records_into(node)["holder_order"].max()) for node in nodes}
    least = min((count for count in order.values() if count), default=0)
    suspects = [node for node in nodes if not least < order[node] <= least + COMPARABLE_LEAD]
    ahead = [node for node in nodes if node not in suspects]
    unseen = tuple(sorted(set(idle) - {int(web.node[node]) for node in nodes}))
    if len(suspects) == 1 and not unseen:
        return [_finding(web, "late-launch", "likely", suspects, [], nodes, ahead)]
    found = _finding(web, "late-launch", "candidates", [], suspects, nodes, ahead)
    return [replace(found, candidates=found.candidates + unseen)]
