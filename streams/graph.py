"""The wait-for graph as CSR arrays, and the kernels over it.

Nodes are devices and operations; an edge leads from what waits to what it waits for. The answer lies in the
sinks: strongly connected components that no edge leaves. A sink of one node waits for nobody; a sink of
several is a circle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numba import njit

from streams.membership import I64

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Graph:
    """N nodes and E edges; the successors of node n are target[first[n]:first[n + 1]]."""

    first: I64
    """Shape (N + 1,)."""
    target: I64
    """Shape (E,)."""

    @property
    def nodes(self) -> int:
        """N."""
        return len(self.first) - 1


def graph(nodes: int, source: I64, target: I64) -> Graph:
    """CSR form of the edges source[i] → target[i], each in 0 … nodes - 1."""
    order = np.argsort(source, kind="stable")
    first = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=nodes), out=first[1:])
    return Graph(first, target[order].astype(np.int64))


def reverse(forward: Graph) -> Graph:
    """The same graph with every edge turned round."""
    source = np.repeat(np.arange(forward.nodes), np.diff(forward.first))
    return graph(forward.nodes, forward.target, source)


@njit(cache=True, nogil=True)
def _components(first: I64, target: I64) -> I64:
    """Tarjan's algorithm without recursion."""
    nodes = len(first) - 1
    number = np.full(nodes, -1, np.int64)
    low = np.zeros(nodes, np.int64)
    component = np.full(nodes, -1, np.int64)
    path = np.empty(nodes, np.int64)
    stack = np.empty(nodes, np.int64)
    cursor = first[:-1].copy()
    depth, height, counter, found = 0, 0, 0, 0
    for root in range(nodes):
        if number[root] >= 0:
            continue
        path[0], depth = root, 1
        while depth > 0:
            node = path[depth - 1]
            if number[node] < 0:
                number[node] = low[node] = counter
                counter += 1
                stack[height] = node
                height += 1
            if cursor[node] < first[node + 1]:
                following = target[cursor[node]]
                cursor[node] += 1
                if number[following] < 0:
                    path[depth] = following
                    depth += 1
                elif component[following] < 0:
                    low[node] = min(low[node], number[following])
                continue
            depth -= 1
            if depth > 0:
                low[path[depth - 1]] = min(low[path[depth - 1]], low[node])
            if low[node] == number[node]:
                while True:
                    height -= 1
                    component[stack[height]] = found
                    if stack[height] == node:
                        break
                found += 1
    return component


def components(forward: Graph) -> I64:
    """Strongly connected component of each node, numbered so that edges lead to lower numbers, shape (N,)."""
    result: I64 = _components(forward.first, forward.target)
    return result


def sinks(forward: Graph, component: I64) -> Mask:
    """Which components no edge leaves, shape (number of components,)."""
    closed = np.ones(int(component.max(initial=-1)) + 1, np.bool_)
    source = np.repeat(np.arange(forward.nodes), np.diff(forward.first))
    leaves = component[source] != component[forward.target]
    closed[component[source[leaves]]] = False
    return closed


@njit(cache=True, nogil=True)
def _distances(first: I64, target: I64, start: I64) -> tuple[I64, I64]:
    nodes = len(first) - 1
    distance = np.full(nodes, -1, np.int64)
    parent = np.full(nodes, -1, np.int64)
    queue = np.empty(nodes, np.int64)
    head, tail = 0, 0
    for node in start:
        if distance[node] < 0:
            distance[node] = 0
            queue[tail] = node
            tail += 1
    while head < tail:
        node = queue[head]
        head += 1
        for edge in range(first[node], first[node + 1]):
            following = target[edge]
            if distance[following] < 0:
                distance[following] = distance[node] + 1
                parent[following] = node
                queue[tail] = following
                tail += 1
    return distance, parent


def distances(backward: Graph, start: I64) -> tuple[I64, I64]:
    """Steps from each node to the nearest of `start`, and the next node on that way; -1 where none.

    `backward` is the reversed graph, since the search runs from the cause to those who wait. Shapes (N,).
    """
    distance, parent = _distances(backward.first, backward.target, start)
    return distance, parent
