"""Who waits because of a finding, and the chain that leads from them to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from schemas.enums import NodeKind
from schemas.records import Records
from streams.findings import Finding, Link
from streams.graph import distances, reverse
from streams.membership import I64
from streams.waitgraph import WaitGraph


def with_waiters(
    web: WaitGraph, waits: Records, finding: Finding, precedence: Callable[[int], int]
) -> Finding:
    """The finding with the number of its waiters and the chain from the farthest of them."""
    start = np.array(finding.nodes, np.int64)
    if finding.category == "mismatch":
        start = np.flatnonzero(np.isin(web.node, waits["op"][list(finding.proof)]))
    distance, parent = distances(reverse(web.forward), start)
    device = web.kind == NodeKind.DEVICE
    reaches = device & ((distance > 0) | ((distance == 0) & (len(start) > 1)))
    if len(start) > 1 and finding.category in ("deadlock", "unknown"):
        chain = _around(web, start, precedence) if finding.category == "deadlock" else ()
        return replace(finding, waiting=int(reaches.sum()), chain=chain)
    if finding.category != "mismatch":
        # Those named, and those idle beside them, hold others up; who calls an operation wrongly waits too.
        reaches &= ~np.isin(web.node, np.array([*finding.named, *finding.ahead], np.uint64))
    waiting = int(reaches.sum())
    if finding.ahead:
        # All idle devices hold others up, but the chain is to end at those that are named.
        start = np.flatnonzero(np.isin(web.node, np.array(finding.named, np.uint64)))
        distance, parent = distances(reverse(web.forward), start)
    longest = distance[reaches].max(initial=-1)
    farthest = np.flatnonzero(reaches & (distance == longest)) if longest >= 0 else ()
    if not len(farthest):
        return replace(finding, waiting=waiting)
    first = min(farthest, key=lambda node: precedence(int(web.node[node])))
    return replace(finding, waiting=waiting, chain=_way(web, int(first), parent))


def _record(web: WaitGraph, source: int, target: int) -> int:
    """Index of the active record between two nodes."""
    found = np.flatnonzero(web.active & (web.source == source) & (web.target == target))
    return int(found[0])


def _way(web: WaitGraph, node: int, parent: I64) -> tuple[Link, ...]:
    """The links from a device to the cause along the shortest way."""
    links: list[Link] = []
    while True:
        operation = int(parent[node])
        holder = int(parent[operation]) if operation >= 0 else -1
        if holder < 0:
            return tuple(links)
        links.append(_link(web, node, operation, holder))
        node = holder


def _link(web: WaitGraph, node: int, operation: int, holder: int) -> Link:
    return Link(
        int(web.node[node]),
        _record(web, node, operation),
        _record(web, operation, holder),
        int(web.node[holder]),
    )


def _around(web: WaitGraph, nodes: I64, precedence: Callable[[int], int]) -> tuple[Link, ...]:
    """One round through a circle, from the device of the highest precedence back to itself."""
    members = set(nodes.tolist())
    devices = [node for node in members if web.kind[node] == NodeKind.DEVICE]
    begin = min(devices, key=lambda node: precedence(int(web.node[node])))
    distance, parent = distances(reverse(web.forward), np.array([begin], np.int64))
    following = [
        int(target)
        for target in web.target[web.active & (web.source == begin)]
        if int(target) in members and distance[target] >= 0
    ]
    operation = min(following, key=lambda node: int(distance[node]))
    holder = int(parent[operation])
    return (_link(web, begin, operation, holder), *_way(web, holder, parent))
