"""The graph kernels against networkx on random digraphs."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.graph import Graph, components, distances, graph, reverse, sinks

Edges = list[tuple[int, int]]


@st.composite
def digraphs(draw: st.DrawFn) -> tuple[int, Edges]:
    """Nodes and edges, with self loops and doubles."""
    nodes = draw(st.integers(0, 12))
    if nodes == 0:
        return 0, []
    end = st.integers(0, nodes - 1)
    return nodes, draw(st.lists(st.tuples(end, end), max_size=30))


def built(nodes: int, edges: Edges) -> Graph:
    source, target = (np.array([edge[end] for edge in edges], np.int64) for end in (0, 1))
    return graph(nodes, source, target)


def reference(nodes: int, edges: Edges) -> nx.DiGraph:
    known = nx.DiGraph()
    known.add_nodes_from(range(nodes))
    known.add_edges_from(edges)
    return known


def successors(forward: Graph) -> list[list[int]]:
    return [
        sorted(forward.target[forward.first[node] : forward.first[node + 1]].tolist())
        for node in range(forward.nodes)
    ]


def grouped(component: list[int]) -> set[frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for node, number in enumerate(component):
        groups.setdefault(number, set()).add(node)
    return {frozenset(group) for group in groups.values()}


each = settings(deadline=None)


@each
@given(digraphs())
def test_csr_form(case: tuple[int, Edges]) -> None:
    nodes, edges = case
    forward = built(nodes, edges)
    assert forward.nodes == nodes
    assert successors(forward) == [sorted(t for s, t in edges if s == node) for node in range(nodes)]
    assert successors(reverse(forward)) == [sorted(s for s, t in edges if t == node) for node in range(nodes)]
    assert successors(reverse(reverse(forward))) == successors(forward)


@each
@given(digraphs())
def test_components(case: tuple[int, Edges]) -> None:
    nodes, edges = case
    component = components(built(nodes, edges)).tolist()
    known = nx.strongly_connected_components(reference(nodes, edges))
    assert grouped(component) == {frozenset(group) for group in known}
    assert set(component) == set(range(len(set(component))))
    # Edges lead to lower numbers.
    assert all(component[target] <= component[source] for source, target in edges)


@each
@given(digraphs())
def test_sinks(case: tuple[int, Edges]) -> None:
    nodes, edges = case
    forward = built(nodes, edges)
    component = components(forward)
    closed = sinks(forward, component)
    known = {
        frozenset(group)
        for group in nx.attracting_components(reference(nodes, edges))
    }  # fmt: skip
    found = {
        frozenset(np.flatnonzero(component == number).tolist()) for number in np.flatnonzero(closed).tolist()
    }
    assert len(closed) == len(set(component.tolist()))
    assert found == known
    # From every node some sink can be reached.
    assert bool(closed.any()) == (nodes > 0)


@each
@given(digraphs(), st.data())
def test_distances(case: tuple[int, Edges], data: st.DataObject) -> None:
    nodes, edges = case
    start = sorted(data.draw(st.sets(st.integers(0, nodes - 1), max_size=3))) if nodes else []
    distance, parent = distances(reverse(built(nodes, edges)), np.array(start, np.int64))
    known = reference(nodes, edges).reverse()
    nearest = nx.multi_source_dijkstra_path_length(known, set(start)) if start else {}
    assert distance.tolist() == [nearest.get(node, -1) for node in range(nodes)]
    for node, following in enumerate(parent.tolist()):
        if distance[node] <= 0:
            assert following == -1
        else:
            assert (node, following) in edges
            assert distance[following] == distance[node] - 1


def test_no_nodes() -> None:
    forward = built(0, [])
    component = components(forward)
    assert forward.nodes == 0
    assert component.shape == (0,)
    assert sinks(forward, component).shape == (0,)
    distance, parent = distances(reverse(forward), np.empty(0, np.int64))
    assert distance.shape == parent.shape == (0,)


def test_a_self_loop_is_a_sink_of_one_node() -> None:
    forward = built(2, [(0, 1), (1, 1)])
    component = components(forward)
    assert component.tolist() == [1, 0]
    assert sinks(forward, component).tolist() == [True, False]


def test_a_self_loop_leaves_no_way_closed() -> None:
    forward = built(2, [(0, 0), (0, 1)])
    component = components(forward)
    assert sinks(forward, component)[component].tolist() == [False, True]


def test_a_long_chain_does_not_recurse() -> None:
    nodes = 50_000
    forward = built(nodes, [(node, node + 1) for node in range(nodes - 1)])
    component = components(forward)
    assert component.tolist() == list(range(nodes - 1, -1, -1))
    distance, _ = distances(reverse(forward), np.array([nodes - 1], np.int64))
    assert distance[0] == nodes - 1
