"""Sends and receives: each flow by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from schemas.enums import Reason
from streams.live.wires import End, Holding, wire


def holdings(ends: Iterable[End], credits: bool, past: Collection[int] = ()) -> list[Holding]:
    """What holds one send and its receive up, over all channels; `past`: ranks that have ended theirs.

    A flow on which nothing has moved may wait for its turn behind a pair that NCCL does not show, so only one
    that has moved proves that its GPU stopped. Over sockets a send that is done lies in the sender's kernel
    (nccl-profiler-abi, "Seen in recorded runs"): what its receiver waits for then is on its way.
    """
    ends = list(ends)
    receives = {end.channel: end for end in ends if not end.send}
    sends = {end.channel: end for end in ends if end.send}
    found: list[Holding] = []
    for channel in sorted({*receives, *sends}):
        sender, receiver = sends.get(channel), receives.get(channel)
        if sender is None and receiver is not None and receiver.peer in past:
            found += _underway(receiver)
            continue
        across = wire(sender, receiver, credits) if sender and receiver else []
        found += across or _ends(sender, receiver)
    return found


def _underway(receiver: End) -> list[Holding]:
    """A receive whose sender has ended: what was posted and has not come, or what its GPU does not take."""
    if not receiver.quiet:
        return []
    if receiver.posted > receiver.received:
        between = (receiver.peer, True, receiver.channel, receiver.rank, None, receiver)
        return [Holding(Reason.NOT_DELIVERED, *between)]
    return _ends(None, receiver)


def _ends(sender: End | None, receiver: End | None) -> list[Holding]:
    """A GPU that does not take what is there, or does not fill what its peer is seen to wait for."""
    if receiver is not None and receiver.quiet and receiver.unconsumed:
        return [_stopped(Reason.GPU_NOT_CONSUMING, receiver, sender, receiver)]
    if sender is None or receiver is None or not (sender.quiet and receiver.quiet):
        return []
    if sender.ready == sender.transmitted < sender.total:
        return [_stopped(Reason.GPU_NOT_READY, sender, sender, receiver)]
    return []


def _stopped(reason: Reason, end: End, sender: End | None, receiver: End | None) -> Holding:
    return Holding(reason, end.rank, end.moved, end.channel, -1, sender, receiver)
