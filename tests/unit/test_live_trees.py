"""NCCL's double binary tree against tables made by hand and recorded edges; what holds a tree up."""

from __future__ import annotations

from collections import defaultdict

import pytest

from schemas.enums import Proto, Reason
from streams.live.rings import Ring
from streams.live.trees import holdings, parent_of, second_parent_of
from streams.live.wires import End
from tests.oracle import Oracle
from tests.oracle_runs import recorded_run

FIRST = {
    2: [-1, 0],
    3: [-1, 2, 0],
    4: [-1, 2, 0, 2],
    5: [-1, 2, 4, 2, 0],
    6: [-1, 2, 4, 2, 0, 4],
    7: [-1, 2, 4, 2, 0, 6, 4],
    8: [-1, 2, 4, 2, 0, 6, 4, 6],
    9: [-1, 2, 4, 2, 8, 6, 4, 6, 0],
    10: [-1, 2, 4, 2, 8, 6, 4, 6, 0, 8],
    11: [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 8],
    12: [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 8, 10],
    13: [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8],
    14: [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 12],
    15: [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 14, 12],
    16: [-1, 2, 4, 2, 8, 6, 4, 6, 0, 10, 12, 10, 8, 14, 12, 14],
}
"""Parents by host. Leaves and nodes alternate, the root is host 0:

    0---------------8
             ______/ \\______
            4               12
          /   \\            /  \\
        2       6       10     14
       / \\     / \\     /  \\   /  \\
      1   3   5   7   9   11 13   15
"""
SECOND = {
    2: [1, -1],
    3: [1, -1, 0],
    4: [1, 3, 1, -1],
    5: [1, -1, 3, 0, 3],
    6: [1, 5, 3, 1, 3, -1],
    7: [5, -1, 3, 5, 3, 1, 0],
    8: [1, 3, 1, 7, 5, 3, 5, -1],
}
"""Hosts mirrored where their number is even, shifted by one where it is odd."""

RECORDED = {0: {(0, 2), (1, 2), (2, 3)}, 1: {(0, 1), (1, 2), (1, 3)}}
"""Edges between four hosts by channel, as NCCL 2.30.7 showed them."""


@pytest.mark.parametrize("hosts", FIRST)
def test_the_first_tree(hosts: int) -> None:
    assert [parent_of(host, hosts) for host in range(hosts)] == FIRST[hosts]


@pytest.mark.parametrize("hosts", SECOND)
def test_the_second_tree(hosts: int) -> None:
    assert [second_parent_of(host, hosts) for host in range(hosts)] == SECOND[hosts]


@pytest.mark.parametrize("hosts", range(2, 40))
def test_both_span_all_hosts_and_inner_ones_of_one_are_leaves_of_the_other(hosts: int) -> None:
    for rule in (parent_of, second_parent_of):
        for host in range(hosts):
            seen: list[int] = []
            while host >= 0:
                assert host not in seen
                seen.append(host)
                host = rule(host, hosts)  # noqa: PLW2901
    if hosts % 2 == 0:
        inner = [
            {rule(host, hosts) for host in range(hosts)} - {-1} for rule in (parent_of, second_parent_of)
        ]
        assert not inner[0] & inner[1]


def test_the_recorded_edges() -> None:
    for channel, rule in enumerate((parent_of, second_parent_of)):
        edges = {tuple(sorted((host, rule(host, 4)))) for host in range(4) if rule(host, 4) >= 0}
        assert edges == RECORDED[channel]


@pytest.mark.shared
@pytest.mark.parametrize("name", ["a_treeSimple4", "n2_tree8_healthy"])
def test_the_edges_of_recorded_runs(name: str) -> None:
    run = recorded_run(name)
    seen: defaultdict[int, set[tuple[int, ...]]] = defaultdict(set)
    for op, flow in Oracle(run.lines, "flows", 6).at().flows():
        if op.algo == "TREE":
            seen[flow.channel].add(tuple(sorted((run.nodes[op.comm.rank], run.nodes[flow.peer]))))
    assert seen == RECORDED


# The first tree over four hosts with one rank each: 2 and its children 1 and 3 below the root 0.

ALONE = Ring({rank: f"h{rank}" for rank in range(4)}, Proto.SIMPLE, False)


def flow(rank: int, peer: int, counts: tuple[int, int, int], *, send: bool, total: int = 16) -> End:
    """`counts`: ready, transmitted and done, or posted, received and consumed."""
    end = End(rank, peer, 0, send, 0, 0, 4.0, total, 0, 0, 0, 0, 0, 0, 0)
    if send:
        return end._replace(ready=counts[0], transmitted=counts[1], done=counts[2])
    return end._replace(posted=counts[0], received=counts[1], consumed=counts[2])


def leg(lower: int, upper: int, up: int, taken: int, down: int = 4, used: int = 4) -> list[End]:
    """A child and its parent: steps filled to go up and taken there, filled to go down and taken there.

    Eight steps may have arrived beyond those taken, and as many may be on their way.
    """
    return [*_one_way(lower, upper, up, taken), *_one_way(upper, lower, down, used)]


def _one_way(sender: int, receiver: int, filled: int, taken: int) -> list[End]:
    arrived = min(filled, taken + 8)
    return [
        flow(sender, receiver, (filled, filled, arrived), send=True, total=64),
        flow(receiver, sender, (taken + 8, arrived, taken), send=False, total=64),
    ]


def named(ends: list[End], tree: Ring = ALONE) -> list[tuple[Reason, int, bool]]:
    return sorted({(held.reason, held.rank, held.sure) for held in holdings(tree, ends)})


def test_a_leaf_that_fills_no_more() -> None:
    """1 stops after 4 steps: its parent starves of them and has data of 3 unconsumed, 3 has no slot left."""
    ends = [*leg(1, 2, 4, 4), *leg(3, 2, 20, 4), *leg(2, 0, 4, 4)]
    assert named(ends) == [(Reason.GPU_NOT_READY, 1, True)]


def test_an_inner_host_that_takes_nothing() -> None:
    """2 stops at 4: both children wait with all their slots taken, the root starves."""
    ends = [*leg(1, 2, 20, 4), *leg(3, 2, 20, 4), *leg(2, 0, 4, 4)]
    assert named(ends) == [(Reason.GPU_NOT_CONSUMING, 2, True)]


def test_a_root_that_takes_nothing() -> None:
    """0 stops at 4: 2 has its slots to it taken, and all below it too."""
    ends = [*leg(1, 2, 36, 20), *leg(3, 2, 36, 20), *leg(2, 0, 20, 4)]
    assert named(ends) == [(Reason.GPU_NOT_CONSUMING, 0, True)]


def test_going_down_a_leaf_that_takes_nothing() -> None:
    """All went up; 3 takes no more than 4 of what comes down, 2 has its slots to it taken, 1 is ahead."""
    up = [leg(1, 2, 64, 64), leg(3, 2, 64, 64), leg(2, 0, 64, 64)]
    down = [leg(1, 2, 64, 64, 20, 20), leg(3, 2, 64, 64, 20, 4), leg(2, 0, 64, 64, 36, 20)]
    ends = [end for one_way in up for end in one_way[:2]] + [end for one_way in down for end in one_way[2:]]
    assert named(ends) == [(Reason.GPU_NOT_CONSUMING, 3, True)]


def test_a_wire_of_a_tree() -> None:
    """2 filled 20 for the root, 12 left it, 4 arrived, more are posted."""
    ends = [*leg(1, 2, 36, 20), *leg(3, 2, 36, 20), *leg(2, 0, 20, 4)]
    ends = [
        end._replace(received=4) if (end.rank, end.peer, end.send) == (0, 2, False) else end for end in ends
    ]
    assert named(ends) == [(Reason.NOT_DELIVERED, 2, True)]


def test_a_flow_that_is_not_told_leaves_its_host_open() -> None:
    """Without the flow of its child 2 shows nothing that blocks it: the flow may be lost."""
    ends = [end for end in [*leg(3, 2, 20, 4), *leg(2, 0, 4, 4)] if end.rank == 2]
    assert named(ends) == []


def test_flows_that_fit_no_tree() -> None:
    """Edges of a ring: only the wires are judged."""
    assert named([*leg(1, 0, 12, 4, 4, 4), *leg(3, 2, 4, 4, 4, 4)]) == []


# Two ranks a host: the head has the parent's flow, the other may have a child's. The first tree over three
# hosts: 1 below 2 below 0.

PAIRS = Ring({rank: f"h{rank // 2}" for rank in range(6)}, Proto.SIMPLE, False)


def over_pairs(child_at: int, taken: int, ready: int) -> list[tuple[Reason, int, bool]]:
    """Host 2 (ranks 4, 5): head 4 sends to 0; `child_at` receives from 2, has taken so much of 12."""
    up = [flow(4, 0, (ready, ready, ready), send=True), flow(0, 4, (16, ready, ready), send=False)]
    below = [flow(2, child_at, (12, 12, 12), send=True), flow(child_at, 2, (16, 12, taken), send=False)]
    down = [flow(0, 4, (ready, ready, ready), send=True), flow(4, 0, (16, ready, ready), send=False)]
    under = [
        flow(child_at, 2, (ready, ready, ready), send=True),
        flow(2, child_at, (16, ready, ready), send=False),
    ]
    found = holdings(PAIRS, [*up, *below, *down, *under])
    return sorted({(held.reason, held.rank, held.sure) for held in found if held.rank in (4, 5)})


def test_two_ranks_the_other_has_not_handed_on() -> None:
    """O has unconsumed input and has consumed no more than H has ready, so its leg to H is empty: O."""
    assert over_pairs(5, taken=4, ready=4) == [(Reason.GPU_NOT_CONSUMING, 5, True)]


def test_two_ranks_the_head_has_not_sent_on() -> None:
    """O has consumed more than H has ready: H."""
    assert [rank for _, rank, _ in over_pairs(5, taken=8, ready=4)] == [4]


def test_two_ranks_the_other_shows_no_child() -> None:
    assert over_pairs(4, taken=4, ready=4) == [(Reason.UNSEEN, 4, False), (Reason.UNSEEN, 5, False)]
