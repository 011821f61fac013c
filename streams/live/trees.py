"""Trees (AllReduce): data goes up to the root and comes down again, host by host.

Callbacks do not say who is whose parent. NCCL's double binary tree over hosts does: its two trees are
functions of the number of hosts alone, and the flows seen on a channel tell which of them it is. Where they
fit neither, only the wires are judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from schemas.enums import Reason
from streams.live.rings import Ring
from streams.live.wires import End, Holding, wire

SLOTS = 8
"""Steps that may be open at once on one leg of a tree."""


def parent_of(node: int, nodes: int) -> int:
    """Parent in NCCL's binary tree of `nodes` hosts, −1 for the root, which is host 0.

    Odd hosts are leaves; one whose lowest set bit is b hangs below the one that has 2b set instead, or, where
    there is no such host, the one without b.

    >>> [parent_of(node, 4) for node in range(4)]
    [-1, 2, 0, 2]
    """
    if node == 0:
        return -1
    bit = node & -node
    above = (node ^ bit) | bit << 1
    return above if above < nodes else node ^ bit


def second_parent_of(node: int, nodes: int) -> int:
    """Parent in the other tree: the mirror image of the first, or the first shifted by one if odd."""
    if nodes % 2 == 0:
        above = parent_of(nodes - 1 - node, nodes)
        return above if above < 0 else nodes - 1 - above
    above = parent_of((node - 1) % nodes, nodes)
    return above if above < 0 else (above + 1) % nodes


def holdings(tree: Ring, ends: Iterable[End]) -> list[Holding]:
    """All that holds the operation up, over all channels."""
    channels: defaultdict[int, list[End]] = defaultdict(list)
    for end in ends:
        channels[end.channel].append(end)
    found: list[Holding] = []
    for channel in sorted(channels):
        found += _channel(tree, channels[channel])
    return found


def _channel(tree: Ring, ends: Sequence[End]) -> list[Holding]:
    receives = {(end.peer, end.rank): end for end in ends if not end.send}
    sends = {(end.rank, end.peer): end for end in ends if end.send}
    found: list[Holding] = []
    for place in sorted({*sends, *receives}):
        sender, receiver = sends.get(place), receives.get(place)
        if sender and receiver and (sender.full(SLOTS) or receiver.starved):
            found += wire(sender, receiver, tree.credits)
    parents = _parents(tree.host, ends)
    for host in sorted(set(tree.host.values())) if parents is not None else ():
        found += _host(tree, host, parents or {}, ends)
    return found


def _parents(host: Mapping[int, str], ends: Sequence[End]) -> dict[str, str | None] | None:
    """Parent of each host in the tree that the flows fit, None where they fit neither."""
    order = list(dict.fromkeys(host[rank] for rank in sorted(host)))
    seen = {frozenset((host.get(end.rank, ""), host.get(end.peer, ""))) for end in ends}
    for rule in (parent_of, second_parent_of):
        above = [rule(node, len(order)) for node in range(len(order))]
        edges = {frozenset((order[node], order[up])) for node, up in enumerate(above) if up >= 0}
        if seen <= edges:
            return {order[node]: order[up] if up >= 0 else None for node, up in enumerate(above)}
    return None


def _host(tree: Ring, host: str, parents: Mapping[str, str | None], ends: Sequence[End]) -> list[Holding]:
    """A host whose kernel nothing visible blocks, in one of the two directions."""
    mine = [end for end in ends if tree.host.get(end.rank) == host]
    if not mine or not all(end.quiet for end in mine):
        return []
    above = parents[host]
    to_parent = [end for end in mine if end.send and tree.host.get(end.peer) == above]
    from_parent = [end for end in mine if not end.send and tree.host.get(end.peer) == above]
    to_children = [end for end in mine if end.send and tree.host.get(end.peer) != above]
    from_children = [end for end in mine if not end.send and tree.host.get(end.peer) != above]
    children = sum(parent == host for parent in parents.values())
    if (above is not None and not (to_parent and from_parent)) or len(from_children) < children:
        return []  # some flow is not told of: it is complete, or lost
    hungry = any(end.starved for end in from_children)
    up = any(end.ready < end.total for end in to_parent)
    if up and not hungry and not any(end.full(SLOTS) for end in to_parent):
        return _inside(tree, host, to_parent, from_children, mine)
    down = any(end.ready < end.total for end in to_children) or any(end.unconsumed for end in from_parent)
    empty = any(end.starved for end in from_parent) or (above is None and hungry)
    if down and not empty and not any(end.full(SLOTS) for end in to_children):
        return _inside(tree, host, to_parent, from_children, mine)
    return []


def _inside(
    tree: Ring, host: str, to_parent: Sequence[End], from_children: Sequence[End], mine: Sequence[End]
) -> list[Holding]:
    members = [rank for rank, where in tree.host.items() if where == host and rank not in tree.past]
    suspects = members
    heads = {end.rank for end in to_parent}
    if len(members) == 2 and len(heads) == 1:
        head = next(iter(heads))
        other = [end for end in from_children if end.rank != head]
        if any(end.unconsumed and end.consumed <= to_parent[0].ready for end in other):
            suspects = [rank for rank in members if rank != head]
        elif any(end.consumed > to_parent[0].ready for end in other):
            suspects = [head]
    if len(suspects) != 1:
        sender = next((end for end in mine if end.send), None)
        receiver = next((end for end in mine if not end.send), None)
        return [Holding(Reason.UNSEEN, rank, False, -1, -1, sender, receiver) for rank in suspects]
    own = [end for end in mine if end.rank == suspects[0]]
    reason = Reason.GPU_NOT_CONSUMING if any(end.unconsumed for end in own) else Reason.GPU_NOT_READY
    sender = next((end for end in own if end.send), None)
    receiver = next((end for end in own if not end.send), None)
    moved = any(end.moved for end in own)
    return [Holding(reason, suspects[0], moved, mine[0].channel, -1, sender, receiver)]
