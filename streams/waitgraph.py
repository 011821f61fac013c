"""From wait records to the graph in which the sinks are the answer.

Which edges count is decided in rounds. Sure edges come first. Where they end in nothing that could be an
answer (a circle, or an operation that everybody stands in), the possible edges of just those nodes are
tried as well: a device whose oldest open operation is a send may in truth stand in a later one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.enums import NodeKind, Reason
from schemas.records import Records
from streams.graph import Graph, Mask, components, graph, sinks
from streams.membership import I64, U64

_CIRCLE = (Reason.IN_OPERATION, Reason.NOT_LAUNCHED, Reason.QUEUED)


@dataclass(frozen=True)
class WaitGraph:
    """N nodes, W wait records of which some are edges at present."""

    waits: Records
    """Shape (W,), without mismatches."""
    kind: npt.NDArray[np.uint8]
    """NodeKind of each node, shape (N,)."""
    node: U64
    """Id of each node, shape (N,)."""
    source: I64
    """Waiting node of each record, shape (W,)."""
    target: I64
    """Node waited for of each record, shape (W,)."""
    active: Mask
    """Which records are edges, shape (W,)."""
    forward: Graph
    component: I64
    """Shape (N,)."""
    closed: Mask
    """Which components are sinks, shape (components,)."""

    def sink_nodes(self) -> list[I64]:
        """The nodes of each sink that somebody waits for, in order of the smallest node."""
        inside = np.flatnonzero(self.closed[self.component])
        groups: dict[int, list[int]] = {}
        for node in inside.tolist():
            groups.setdefault(int(self.component[node]), []).append(node)
        waited_for = np.zeros(len(self.node), np.bool_)
        waited_for[self.target[self.active]] = True
        return [np.array(group, np.int64) for group in groups.values() if waited_for[group].any()]

    def records_into(self, node: int) -> Records:
        """The active wait records that point at a node."""
        found: Records = self.waits[self.active & (self.target == node)]
        return found

    def deadlocks(self) -> list[I64]:
        """The nodes of each circle of sure waits that none of its devices can be out of.

        An operation needs all its members, so a circle lasts whoever else it waits for besides. But a
        device that may stand in an operation outside of it may not be in it at all.
        """
        reason, sure = self.waits["reason"], self.waits["sure"] == 1
        real = sure & np.isin(reason, _CIRCLE)
        component = components(graph(len(self.node), self.source[real], self.target[real]))
        size = np.bincount(component)
        out = (reason == Reason.IN_OPERATION) & (component[self.source] != component[self.target])
        lasting = size > 1
        lasting[component[self.source[out]]] = False
        groups: dict[int, list[int]] = {}
        for node in np.flatnonzero(lasting[component]).tolist():
            groups.setdefault(int(component[node]), []).append(node)
        return [np.array(group, np.int64) for group in groups.values()]

    def inside(self, nodes: I64) -> Mask:
        """Which records are edges between the given nodes, shape (W,)."""
        mask: Mask = self.active & np.isin(self.source, nodes) & np.isin(self.target, nodes)
        return mask


def build(waits: Records) -> WaitGraph:
    """The graph of all wait records of one job, from all communicators."""
    mismatched = np.unique(waits["op"][waits["reason"] == Reason.MISMATCH])
    waits = waits[waits["reason"] != Reason.MISMATCH]
    kind, node, source, target = nodes_of(waits, waits["holder"])
    reason, sure = waits["reason"], waits["sure"] == 1
    stuck = np.unique(waits["holder"][reason == Reason.PEERS_FINISHED])
    # A device that its peers prove stuck, and an operation called in two ways, wait for nobody else.
    barred = (reason == Reason.IN_OPERATION) & np.isin(waits["waiter"], stuck)
    barred |= (waits["waiter_kind"] == NodeKind.OPERATION) & np.isin(waits["waiter"], mismatched)
    active = sure | np.isin(reason, (Reason.QUEUED, Reason.NOT_LAUNCHED, Reason.PEERS_FINISHED))
    active &= (reason != Reason.UNSEEN) & ~barred
    while True:
        forward = graph(len(node), source[active], target[active])
        component = components(forward)
        closed = sinks(forward, component)
        more = _possible(waits, source, target, active, component, closed) & ~barred & ~active
        if not more.any():
            return WaitGraph(waits, kind, node, source, target, active, forward, component, closed)
        active |= more


def nodes_of(waits: Records, holder: U64) -> tuple[npt.NDArray[np.uint8], U64, I64, I64]:
    """Kind and id of each node, and the nodes of each record's waiter and holder (whose ids are `holder`).

    Ids are hashes; the kind is mixed into the top bits, so that one sort of plain integers will do.
    """
    kinds = np.concatenate([waits["waiter_kind"], waits["holder_kind"]])
    ids = np.concatenate([waits["waiter"], holder])
    mark = np.uint64(61)
    mixed = ids ^ (kinds.astype(np.uint64) << mark)
    _, at, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    index = inverse.reshape(-1).astype(np.int64)
    return kinds[at], ids[at], index[: len(waits)], index[len(waits) :]


def _possible(waits: Records, source: I64, target: I64, active: Mask, component: I64, closed: Mask) -> Mask:
    """Records that leave a sink which is no answer, shape (W,)."""
    size = np.bincount(component, minlength=len(closed))
    reason, sure = waits["reason"], waits["sure"] == 1
    internal = active & (component[source] == component[target])
    doubtful = np.zeros(len(closed), np.bool_)
    possible = reason == Reason.IN_OPERATION
    doubtful[component[source[internal & ~possible & ~(sure & np.isin(reason, _CIRCLE))]]] = True
    circle = closed & (size > 1)
    leaves = circle[component[source]]
    escape = leaves & (reason == Reason.IN_OPERATION)
    escape |= leaves & doubtful[component[source]] & (reason == Reason.SILENT)
    unseen = closed[component[source]] & (reason == Reason.UNSEEN)
    # Members whose record was lost are held by such an operation as much as they may hold it.
    unseen |= (reason == Reason.IN_OPERATION) & np.isin(target, source[unseen])
    result: Mask = escape | unseen
    return result
