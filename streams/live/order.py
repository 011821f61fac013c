"""Who launched the operations of two communicators in another order than the others, or left one out.

NCCL wants operations of communicators that share members launched in one order by all of them. Who stands in
a later one and has not launched the earlier waits for those who stand in the earlier and wait for it. It
counts only within a circle of waits: two streams of a healthy job may well overtake each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from streams.live.causes import ABSENT, STANDING
from streams.waitgraph import WaitGraph

_NEVER = 1 << 64
"""Order of what was not launched, after everything that was."""


@dataclass(frozen=True)
class Crossing:
    """Two collectives of different communicators in one circle of waits; everything as node numbers.

    `others` launched `first` before `second`. `astray` did not, and are no more of them; `skipped`: they
    have not launched `first` at all.
    """

    first: int
    second: int
    astray: frozenset[int]
    others: frozenset[int]
    skipped: bool


def crossings(web: WaitGraph) -> dict[int, list[Crossing]]:
    """By component, the pairs of collectives whose order devices in it do not agree about.

    What others saw of the same two collectives counts as well.
    """
    orders: defaultdict[tuple[int, int], dict[int, bool]] = defaultdict(dict)
    for device, launched in _launches(web).items():
        for (one, here, first), (other, there, second) in combinations(sorted(launched), 2):
            if one < other and here != there:
                orders[first, second][device] = other == _NEVER
    found: defaultdict[int, list[Crossing]] = defaultdict(list)
    for (first, second), ahead in orders.items():
        behind = orders.get((second, first))
        if not behind or (len(behind), second) > (len(ahead), first):
            continue
        circle = web.component[first]
        if all((web.component[list(side)] == circle).any() for side in (behind, ahead)):
            crossing = Crossing(first, second, frozenset(behind), frozenset(ahead), all(behind.values()))
            found[int(circle)].append(crossing)
    return dict(found)


def _launches(web: WaitGraph) -> dict[int, list[tuple[int, int, int]]]:
    """By device node, order, communicator and node of each collective in a circle, launched or missing."""
    reason = web.waits["reason"]
    standing, absent = np.isin(reason, STANDING), np.isin(reason, ABSENT) & (web.waits["sure"] == 1)
    operation = np.where(standing, web.target, web.source)
    circle = np.bincount(web.component)[web.component[operation]] > 1
    circle &= web.waits["sender"] < 0  # sends and receives of a pipeline cross in good order
    order, comm = web.waits["holder_order"].tolist(), web.waits["comm"].tolist()
    found: defaultdict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for index in np.flatnonzero(circle & standing).tolist():
        found[int(web.source[index])].append((order[index], comm[index], int(web.target[index])))
    for index in np.flatnonzero(circle & absent).tolist():
        found[int(web.target[index])].append((_NEVER, comm[index], int(web.source[index])))
    return dict(found)


def astray(crossed: Sequence[Crossing]) -> int | None:
    """The one device that skipped what two or more others launched first, if all crossings say so."""
    alone = {
        next(iter(each.astray)) if each.skipped and len(each.astray) == 1 < len(each.others) else None
        for each in crossed
    }
    return alone.pop() if len(alone) == 1 else None
