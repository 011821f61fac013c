"""One flow and its two ends: what blocks an end, and what the wire between them says.

Counters of both ends are compared only when both have been quiet: each is then final, whenever it was read.
Rules of NCCL's network transport; on networks with credits (InfiniBand-like: isend is refused until the
receiver's credit has come) `ready` never exceeds `transmitted` + 1.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.enums import Direction, Proto, Reason
from schemas.records import Records
from streams.live.latest import F64

QUIET_S = 0.5
"""An end that has not moved for so long stands still."""


_COUNTERS = ("total", "ready", "transmitted", "done", "posted", "received", "consumed", "no_credit")


class End(NamedTuple):
    """One end of a flow, as its host last told it."""

    rank: int
    peer: int
    channel: int
    send: bool
    carrier: int
    dev: int
    quiet_s: float
    total: int
    ready: int
    transmitted: int
    done: int
    posted: int
    received: int
    consumed: int
    no_credit: int

    @property
    def quiet(self) -> bool:
        """Whether it stands still."""
        return self.quiet_s >= QUIET_S

    @property
    def starved(self) -> bool:
        """A receive with nothing for its GPU to take."""
        return not self.send and self.received == self.consumed < self.total

    @property
    def unconsumed(self) -> bool:
        """A receive whose GPU has not taken what is there."""
        return not self.send and self.received > self.consumed

    def full(self, slots: int) -> bool:
        """A send whose GPU cannot fill more: data waits for the network, or all its slots are taken."""
        if not self.send or (self.ready >= self.total and self.transmitted >= self.total):
            return False
        return self.ready > self.transmitted or self.ready >= min(self.total, self.done + slots)

    @property
    def moved(self) -> bool:
        """Whether the GPU has visibly done anything on it."""
        return (self.ready if self.send else self.consumed) > 0


def ends(rows: Records, quiet_s: F64) -> list[End]:
    """Of each FLOW record its end; `quiet_s`: for how long each has been quiet by now, shape (rows,)."""
    columns = [rows[name].tolist() for name in ("rank", "peer", "channel", "carrier", "dev", *_COUNTERS)]
    sends = (rows["direction"] == Direction.SEND).tolist()
    return [
        End(rank, peer, channel, send, carrier, dev, quiet, *counters)
        for send, quiet, rank, peer, channel, carrier, dev, *counters in zip(
            sends, quiet_s.tolist(), *columns, strict=True
        )
    ]


class Holding(NamedTuple):
    """What holds an operation up: a member's GPU, proxy or NIC, or the link between two members.

    `sure` is false for one of several members that might be it. For a link `rank` sends and `peer` receives.
    """

    reason: Reason
    rank: int
    sure: bool
    channel: int = -1
    peer: int = -1
    sender: End | None = None
    receiver: End | None = None
    dev: int = 0
    """The device, where it need not be a member (PXN)."""


def slots(proto: int) -> int:
    """Steps that may be open at once on one leg of a ring: 4 with Simple, 8 with LL and LL128."""
    return 4 if proto == Proto.SIMPLE else 8


def wire(sender: End, receiver: End, credits: bool) -> list[Holding]:
    """What the wire holds up; nothing where the cause lies behind one of its ends (see what blocks them)."""
    if not (sender.quiet and receiver.quiet):
        return []
    channel = sender.channel
    link = Holding(Reason.NOT_DELIVERED, sender.rank, True, channel, receiver.rank, sender, receiver)
    idle = Holding(Reason.NOT_POSTED, receiver.rank, True, channel, -1, sender, receiver)
    took_all = receiver.consumed == receiver.received < receiver.total
    if sender.transmitted > receiver.received:
        return [link] if receiver.posted > receiver.received else [idle] if took_all else []
    if sender.ready > sender.transmitted:
        if receiver.posted > sender.transmitted:
            own = Holding(Reason.NOT_TRANSMITTED, sender.rank, True, channel, -1, sender, receiver)
            return [link] if credits else [own]
        return [idle] if took_all else []
    return []
