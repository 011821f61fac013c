"""Who waits for whom, as a drawing: layers from the farthest victim on the left to the cause on the right.

Waiters that are alike (same operation, nothing waits for them) become one box, so that a job of thousands of
ranks still fits on a page.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BOX_W, BOX_H = 190, 44
GAP_X, GAP_Y = 80, 18
MARGIN = 10
MAX_LAYER = 8
"""Boxes of one layer; the rest is counted."""
MAX_NAMED = 8
"""Of ranks that are one box, how many its tooltip lists."""
MAX_TEXT = 26
"""Letters that fit into a box; the whole stands in its tooltip."""


@dataclass(frozen=True)
class Place:
    """A device by its world rank and host, where known."""

    rank: int | None
    host: str | None

    @property
    def name(self) -> str:
        """`rank 5 on node-3`."""
        rank = f"rank {self.rank}" if self.rank is not None else "a device"
        return f"{rank} on {self.host}" if self.host else rank


@dataclass(frozen=True)
class Edge:
    """A wait: ids and names of its ends, the reason, and whether the holder is one that is named."""

    waiter: str
    waiter_name: str
    holder: str
    holder_name: str
    reason: str
    named: bool


@dataclass(frozen=True)
class Box:
    """A node: left upper corner in px, its text cut to fit, the whole of it, and whether it is a cause."""

    x: int
    y: int
    text: str
    title: str
    kind: str
    cause: bool


@dataclass(frozen=True)
class Arrow:
    """From the middle of a box's right side to the left side of another; `title` says why."""

    x1: int
    y1: int
    x2: int
    y2: int
    title: str


@dataclass(frozen=True)
class Drawing:
    """Boxes and arrows within width × height px; `left_out` boxes found no room."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    left_out: int


def draw(edges: Iterable[Edge]) -> Drawing | None:
    """The part of the graph that leads to a named holder; None where there is none.

    >>> drawing = draw([Edge("d1", "rank 1", "o", "AllReduce 7", "in operation", False),
    ...                 Edge("o", "AllReduce 7", "d2", "rank 2", "not launched", True)])
    >>> [(box.text, box.x) for box in drawing.boxes]
    [('rank 1', 10), ('AllReduce 7', 280), ('rank 2', 550)]
    """
    edges = list(dict.fromkeys(edges))
    causes = {edge.holder for edge in edges if edge.named}
    depth = _depths(edges, causes)
    holds = {(edge.holder, edge.waiter) for edge in edges if edge.named}
    # Who holds an operation up stands in it too: that says nothing.
    edges = [
        edge
        for edge in edges
        if edge.waiter in depth and edge.holder in depth and (edge.waiter, edge.holder) not in holds
    ]
    if not edges:
        return None
    names, edges = _merged(edges, causes)
    layers: defaultdict[int, list[str]] = defaultdict(list)
    deepest = max(depth.values())
    for node in names:
        layers[deepest - depth[_first(node)]].append(node)
    for layer in layers.values():
        layer.sort(key=lambda node: (node not in causes, names[node]))
    return _placed(layers, names, edges, causes)


def _depths(edges: list[Edge], causes: set[str]) -> dict[str, int]:
    """Steps from each node to the nearest cause, over waits; nodes from which none is reached are absent."""
    waiters = defaultdict(list)
    for edge in edges:
        waiters[edge.holder].append(edge.waiter)
    depth = dict.fromkeys(causes, 0)
    queue = deque(causes)
    while queue:
        node = queue.popleft()
        for waiter in waiters[node]:
            if waiter not in depth:
                depth[waiter] = depth[node] + 1
                queue.append(waiter)
    return depth


_TOGETHER = "\0"
"""Separates ids of merged nodes; no id has it."""


def _first(node: str) -> str:
    return node.split(_TOGETHER, 1)[0]


def _merged(edges: list[Edge], causes: set[str]) -> tuple[dict[str, str], list[Edge]]:
    """Names by node and edges, with waiters that are alike as one."""
    names = {edge.waiter: edge.waiter_name for edge in edges}
    names |= {edge.holder: edge.holder_name for edge in edges}
    held = {edge.holder for edge in edges}
    for_what: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for edge in edges:
        for_what[edge.waiter].add((edge.holder, edge.reason))
    alike: defaultdict[frozenset[tuple[str, str]], list[str]] = defaultdict(list)
    for node in names:
        if node not in held and node not in causes:
            alike[frozenset(for_what[node])].append(node)
    new = {node: node for node in names}
    for group in alike.values():
        if len(group) > 1:
            together = _TOGETHER.join(group)
            listed = [names[node] for node in group[:MAX_NAMED]]
            more = [f"{len(group) - MAX_NAMED} more"] if len(group) > MAX_NAMED else []
            names[together] = f"{len(group)} ranks: " + ", ".join([*listed, *more])
            new |= dict.fromkeys(group, together)
    left = set(new.values())
    kept = {node: name for node, name in names.items() if node in left}
    moved = (
        Edge(new[edge.waiter], kept[new[edge.waiter]], edge.holder, edge.holder_name, edge.reason, edge.named)
        for edge in edges
    )
    return kept, list(dict.fromkeys(moved))


def _placed(
    layers: Mapping[int, list[str]], names: Mapping[str, str], edges: list[Edge], causes: set[str]
) -> Drawing:
    shown = {number: layer[:MAX_LAYER] for number, layer in layers.items()}
    tallest = max(len(layer) for layer in shown.values())
    height = tallest * (BOX_H + GAP_Y) - GAP_Y + 2 * MARGIN
    # A layer that was skipped (all its nodes merged away) takes no room.
    columns = {number: column for column, number in enumerate(sorted(shown))}
    boxes: dict[str, Box] = {}
    for number, layer in shown.items():
        left = MARGIN + columns[number] * (BOX_W + GAP_X)
        top = (height - len(layer) * (BOX_H + GAP_Y) + GAP_Y) // 2
        for place, node in enumerate(layer):
            kind = _first(node).split(" ", 1)[0]
            y = top + place * (BOX_H + GAP_Y)
            boxes[node] = Box(left, y, _short(names[node]), names[node], kind, node in causes)
    arrows = tuple(
        _arrow(boxes[edge.waiter], boxes[edge.holder], edge.reason)
        for edge in edges
        if edge.waiter in boxes and edge.holder in boxes
    )
    width = len(columns) * (BOX_W + GAP_X) - GAP_X + 2 * MARGIN
    left_out = sum(map(len, layers.values())) - len(boxes)
    return Drawing(width, height, tuple(boxes.values()), arrows, left_out)


def _arrow(waiter: Box, holder: Box, reason: str) -> Arrow:
    return Arrow(waiter.x + BOX_W, waiter.y + BOX_H // 2, holder.x, holder.y + BOX_H // 2, reason)


def _short(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
