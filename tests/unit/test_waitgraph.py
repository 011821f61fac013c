"""The wait-for graph: which records are edges, and when possible ones are tried."""

from __future__ import annotations

import numpy as np

from schemas.enums import Func, NodeKind, Reason
from streams.waitgraph import WaitGraph, build
from tests.records import Told, dev_of


def active(web: WaitGraph, reason: Reason) -> int:
    """How many records of a reason are edges."""
    return int((web.active & (web.waits["reason"] == reason)).sum())


def sinks(web: WaitGraph, told: Told) -> list[list[int]]:
    """World ranks of the devices of each sink, sorted; empty for an operation."""
    groups = [nodes[web.kind[nodes] == NodeKind.DEVICE] for nodes in web.sink_nodes()]
    return sorted(told.ranks_of(web.node[group].tolist()) for group in groups)


def late(told: Told, comm: str, waiter: int, holder: int) -> None:
    told.state(waiter, comm, 2)
    told.at(waiter, comm, 2, 1)
    told.at(holder, comm, 1, 1)


def test_nodes_are_devices_and_operations() -> None:
    told = Told({"a": (0, 1), "b": (1, 2)})
    late(told, "a", 0, 1)
    late(told, "b", 1, 2)
    web = build(told.waits())
    assert len(web.node) == 3 + 2
    assert sorted(web.kind.tolist()) == [NodeKind.DEVICE] * 3 + [NodeKind.OPERATION] * 2
    devices = web.node[web.kind == NodeKind.DEVICE].tolist()
    assert sorted(devices) == sorted(dev_of(rank) for rank in (0, 1, 2))
    assert web.active.all()
    assert sinks(web, told) == [[2]]


def test_edges_lead_from_waiters_to_holders() -> None:
    told = Told({"a": (0, 1)})
    late(told, "a", 0, 1)
    web = build(told.waits())
    for index, row in enumerate(web.waits):
        assert web.node[web.source[index]] == row["waiter"]
        assert web.node[web.target[index]] == row["holder"]
    holder = int(np.flatnonzero(web.node == dev_of(1))[0])
    assert web.records_into(holder)["reason"].tolist() == [Reason.NOT_LAUNCHED]
    waiter = int(np.flatnonzero(web.node == dev_of(0))[0])
    assert len(web.records_into(waiter)) == 0


def test_possible_silence_is_no_edge_while_a_sure_way_ends() -> None:
    told = Told({"a": (0, 1, 2)}, silent=[2])
    late(told, "a", 0, 1)
    web = build(told.waits())
    assert active(web, Reason.SILENT) == 0
    assert sinks(web, told) == [[1]]


def test_sure_silence_is_an_edge() -> None:
    told = Told({"a": (0, 1)}, silent=[1])
    told.state(0, "a", 2)
    told.at(0, "a", 2, 1)
    web = build(told.waits())
    assert active(web, Reason.SILENT) == 1
    assert sinks(web, told) == [[1]]


def test_unseen_is_tried_only_where_all_stand() -> None:
    told = Told({"a": (0, 1)})
    for rank in (0, 1):
        told.state(rank, "a", 2)
        told.at(rank, "a", 2, 1)
    web = build(told.waits())
    assert active(web, Reason.UNSEEN) == 2
    assert sinks(web, told) == [[0, 1]]


def test_unseen_elsewhere_is_left_alone() -> None:
    """All of b stand in b; in a one is late. Trying b's possible holders does not touch a."""
    told = Told({"a": (0, 1), "b": (2, 3)})
    late(told, "a", 0, 1)
    for rank in (2, 3):
        told.state(rank, "b", 2)
        told.at(rank, "b", 2, 1)
    web = build(told.waits())
    assert sinks(web, told) == [[1], [2, 3]]


def may_stand_later(told: Told) -> None:
    """0 and 1 both pend in a send to the other, oldest first, and in the receive behind it."""
    for rank, peer in ((0, 1), (1, 0)):
        told.half(rank, Func.SEND, peer, "pipe", 4, current=1)
        told.half(rank, Func.RECV, peer, "pipe", 4, current=2)
        told.half_at(rank, Func.SEND, peer, "pipe", 4, 3)
        told.half_at(rank, Func.RECV, peer, "pipe", 4, 3)


def test_a_circle_tries_where_its_devices_may_stand_instead() -> None:
    told = Told({"pipe": (0, 1), "world": (0, 1, 2)})
    may_stand_later(told)
    for rank in (0, 1):
        told.state(rank, "world", 9, current=2)
        told.at(rank, "world", 9, 8)
    told.at(2, "world", 8, 8)
    web = build(told.waits())
    possible = (web.waits["reason"] == Reason.IN_OPERATION) & (web.waits["sure"] == 0)
    assert possible.any()
    assert web.active[possible].all()
    assert sinks(web, told) == [[2]]


def test_without_a_circle_possible_places_are_not_tried() -> None:
    """0 stands in a send for which 1 is late; that it may also stand in a later operation adds nothing."""
    told = Told({"pipe": (0, 1), "world": (0, 2)})
    told.half(0, Func.SEND, 1, "pipe", 4)
    told.pair(0, 1, "pipe", 4, 3, 3)
    told.state(0, "world", 9, current=2)
    told.at(0, "world", 9, 8)
    told.at(2, "world", 8, 8)
    web = build(told.waits())
    possible = (web.waits["reason"] == Reason.IN_OPERATION) & (web.waits["sure"] == 0)
    assert possible.sum() == 1
    assert not web.active[possible].any()
    assert [1] in sinks(web, told)


def test_a_device_that_peers_prove_stuck_waits_for_nobody() -> None:
    told = Told({"a": (0, 1), "b": (1, 2)})
    told.at(0, "a", 5, 5)
    told.state(1, "a", 5)
    told.at(1, "a", 5, 4)
    # It also stands in another operation (of the same call), for which 2 is late.
    late(told, "b", 1, 2)
    web = build(told.waits())
    outgoing = (web.waits["reason"] == Reason.IN_OPERATION) & (web.waits["waiter"] == dev_of(1))
    assert outgoing.any()
    assert not web.active[outgoing].any()
    assert [1] in sinks(web, told)


def test_an_operation_called_in_two_ways_waits_for_nobody() -> None:
    told = Told({"a": (0, 1, 2)})
    for rank in (0, 1):
        told.state(rank, "a", 2)["count"] = rank + 1
        told.at(rank, "a", 2, 1)
    told.at(2, "a", 1, 1)
    web = build(told.judged().waits)
    assert not (web.waits["reason"] == Reason.MISMATCH).any()
    assert active(web, Reason.NOT_LAUNCHED) == 0
    assert active(web, Reason.IN_OPERATION) == 2
    assert sinks(web, told) == [[]]


def test_inside() -> None:
    told = Told({"a": (0, 1), "b": (0, 1)})
    for rank, stands, lacks in ((0, "a", "b"), (1, "b", "a")):
        told.state(rank, stands, 3)
        told.at(rank, stands, 3, 2)
        told.at(rank, lacks, 2, 2)
    web = build(told.waits())
    (circle,) = web.sink_nodes()
    assert len(circle) == 4
    assert web.inside(circle).all()
    assert not web.inside(circle[:1]).any()
