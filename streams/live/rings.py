"""Rings (AllReduce, AllGather, ReduceScatter, and the chains of Broadcast and Reduce), host by host.

A host is entered by the receive of one of its ranks and left by the send of one of them; between the two lie
legs that NCCL does not show. With one rank a host both are the same rank, and what blocks its kernel can be
said for sure. With several the counts of the two ends tell whether the host starves, lacks credit or holds
the data itself, and narrow who: diagnosis-rules, "A ring over hosts". Where NCCL's log has told the order of
the ring, they say which inner rank it is. They were checked on an emulated GPU only: they are never sure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from schemas.enums import Proto, Reason
from streams.live.wires import End, Holding, slots, wire


@dataclass(frozen=True)
class Ring:
    """What is known of one ring or tree operation. `host` by rank; `past`: ranks that have ended it.

    `after`: the rank that follows, by channel and rank, as far as NCCL's log tells it.
    """

    host: Mapping[int, str]
    proto: int
    credits: bool
    past: frozenset[int] = frozenset()
    after: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @cached_property
    def members(self) -> dict[str, list[int]]:
        """The ranks of each host."""
        found: dict[str, list[int]] = {}
        for rank, host in self.host.items():
            found.setdefault(host, []).append(rank)
        return found

    def path(self, entry: End, leave: End, members: Sequence[int]) -> tuple[int, ...]:
        """A host's ranks in this channel's order, from the entering to the leaving one; empty: unknown."""
        ranks = [entry.rank]
        while len(ranks) < len(members):
            ranks.append(self.after.get((entry.channel, ranks[-1]), -1))
        return tuple(ranks) if ranks[-1] == leave.rank and set(ranks) == set(members) else ()


@dataclass(frozen=True)
class Inside:
    """One channel of a host that holds what is inside it: who may be it, by the counts of its two ends."""

    suspects: frozenset[int]
    entry: End | None
    leave: End | None


def holdings(ring: Ring, ends: Iterable[End]) -> list[Holding]:
    """All that holds the operation up, over all channels."""
    channels: defaultdict[int, list[End]] = defaultdict(list)
    for end in ends:
        channels[end.channel].append(end)
    found: list[Holding] = []
    inside: defaultdict[str, list[Inside]] = defaultdict(list)
    for channel in sorted(channels):
        found += _channel(ring, channels[channel], inside)
    for _, seen in sorted(inside.items()):
        found += _inside(ring, seen)
    return found


def _channel(ring: Ring, ends: Sequence[End], inside: dict[str, list[Inside]]) -> list[Holding]:
    entries = {ring.host.get(end.rank, ""): end for end in ends if not end.send}
    exits = {ring.host.get(end.rank, ""): end for end in ends if end.send}
    receives = {(end.peer, end.rank): end for end in ends if not end.send}
    sends = {(end.rank, end.peer): end for end in ends if end.send}
    found: list[Holding] = []
    for host in sorted({*entries, *exits}):
        entry, leave = entries.get(host), exits.get(host)
        members = ring.members.get(host, [])
        full = leave is not None and leave.full(slots(ring.proto))
        starved = entry is not None and entry.starved
        if full and leave is not None:
            found += _across(leave, receives.get((leave.rank, leave.peer)), ring.credits)
        if starved and entry is not None:
            found += _across(sends.get((entry.peer, entry.rank)), entry, ring.credits)
        if full or not all(end.quiet for end in (entry, leave) if end is not None):
            continue
        if len(members) == 1:
            found += _alone(entry, leave, starved)
        elif suspects := _within(ring, members, entry, leave, starved):
            inside[host].append(Inside(suspects, entry, leave))
    return found


def _across(sender: End | None, receiver: End | None, credits: bool) -> list[Holding]:
    return [] if sender is None or receiver is None else wire(sender, receiver, credits)


def _alone(entry: End | None, leave: End | None, starved: bool) -> list[Holding]:
    """A rank that is alone on its host, and whose send has room. An end that is not told of is complete."""
    ends = [end for end in (entry, leave) if end is not None]
    if starved or not _pending(entry, leave):
        return []
    taking = entry is not None and entry.unconsumed
    reason = Reason.GPU_NOT_CONSUMING if taking else Reason.GPU_NOT_READY
    moved = any(end.moved for end in ends)
    return [Holding(reason, ends[0].rank, moved, ends[0].channel, -1, leave, entry)]


def _pending(entry: End | None, leave: End | None) -> bool:
    """Whether there is anything left for a GPU to do: steps to take, or to fill."""
    return (entry is not None and entry.unconsumed) or (leave is not None and leave.ready < leave.total)


def _within(
    ring: Ring, members: Sequence[int], entry: End | None, leave: End | None, starved: bool
) -> frozenset[int]:
    """The ranks of a host one of which holds what is inside it, empty where the host starves.

    All flows of a host's devices that stand in an operation are told, so an end that is not is complete.
    """
    if entry is None or leave is None:  # in the last steps counts tell no more
        return frozenset(members) if _pending(entry, leave) and not starved else frozenset()
    step, depth = (2, 4) if ring.proto == Proto.SIMPLE else (1, 8)
    last = len(members) - 1
    path = ring.path(entry, leave, members)
    ahead = entry.consumed + step * len(members)
    held = min(leave.total, ahead) - leave.ready
    everyone = frozenset(members)
    if leave.ready >= leave.total or (held <= 0 and not entry.unconsumed):
        return frozenset()
    if entry.consumed >= entry.total or ahead > leave.total:
        return everyone  # ranks in between have filled all: their legs do not count any more
    if entry.unconsumed:
        hops, rest = divmod(held, depth)
        if rest > step or not 0 <= hops <= last:
            return everyone
        if path:
            return frozenset({path[hops]})
        inner = everyone - {entry.rank, leave.rank}
        return frozenset({entry.rank}) if hops == 0 else frozenset({leave.rank}) if hops == last else inner
    least = -(-(held - step) // depth)  # hops from the entry, at least
    if path and least <= last:
        return frozenset(path[max(least, 1) :])
    return frozenset({leave.rank}) if least >= last else everyone - {entry.rank}


def _inside(ring: Ring, seen: Sequence[Inside]) -> list[Holding]:
    """What all channels agree on, else what any of them says; never sure: unchecked on a GPU."""
    sets = [each.suspects for each in seen]
    suspects = (frozenset.intersection(*sets) or frozenset.union(*sets)) - ring.past
    entry, leave = seen[0].entry, seen[0].leave
    channel = next(end.channel for end in (entry, leave) if end is not None)
    return [Holding(Reason.UNSEEN, rank, False, channel, -1, leave, entry) for rank in sorted(suspects)]
