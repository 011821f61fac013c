"""A model of NCCL's ring over hosts, to derive what freezes where.

A rank fills `step` steps of its own before it needs input, and then one for each step that it takes; a leg
holds at most `slots` steps. Legs within a host are direct, those between hosts go through proxies: ready →
transmitted → (wire) → received → consumed, `buffered` steps of which may lie in the sender's kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schemas.enums import Proto
from tests.live_jobs import LiveJob


@dataclass
class RingModel:
    """One channel of one operation over ranks in this order; `host` says which of them share one."""

    order: Sequence[int]
    host: Callable[[int], str]
    total: int = 64
    step: int = 2
    slots: int = 4
    buffered: int = 0
    credits: bool = False
    frozen: int | None = None
    """Rank whose kernel stops."""
    stops_at: int = 0
    """Steps that it takes before it stops."""
    started: bool = True
    """Whether its kernel has started at all."""
    cut: int | None = None
    """Rank whose wire to the next one stops."""
    cut_at: int = 0
    """Steps that the wire delivers before."""
    ready: dict[int, int] = field(default_factory=dict)
    consumed: dict[int, int] = field(default_factory=dict)
    transmitted: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)

    def next(self, rank: int) -> int:
        """The rank downstream."""
        return self.order[(list(self.order).index(rank) + 1) % len(self.order)]

    def across(self, rank: int) -> bool:
        """Whether the leg that leaves a rank goes over the network."""
        return self.host(rank) != self.host(self.next(rank))

    def posted(self, rank: int) -> int:
        """Receives that a rank's proxy has posted."""
        return min(self.total, self.consumed[rank] + self.slots)

    def run(self) -> RingModel:
        """Until nothing moves any more."""
        for counters in (self.ready, self.consumed, self.transmitted, self.done, self.received):
            counters.update(dict.fromkeys(self.order, 0))
        while sum(self._move(rank) for rank in self.order):
            pass
        return self

    def _move(self, rank: int) -> bool:
        after, before = self.next(rank), self.order[list(self.order).index(rank) - 1]
        moved = False
        input_there = self.received[rank] if self.across(before) else self.ready[before]
        never = rank == self.frozen and not self.started
        halted = rank == self.frozen and self.consumed[rank] >= self.stops_at
        room = (self.done[rank] if self.across(rank) else self.consumed[after]) + self.slots
        fills = min(self.total, self.consumed[rank] + self.step)
        if self.ready[rank] < min(fills, room) and not never:
            self.ready[rank] += 1
            moved = True
        # What is taken in is what the next step that leaves is made of: both move together.
        elif (
            self.consumed[rank] < input_there
            and self.ready[rank] == fills
            and not (never or halted)
            and (fills == self.total or fills < room)
        ):
            self.consumed[rank] += 1
            self.ready[rank] = min(self.total, self.ready[rank] + 1)
            moved = True
        if not self.across(rank):
            return moved
        limit = min(self.ready[rank], self.done[rank] + self.slots)
        if self.credits:
            limit = min(limit, self.posted(after))
        if self.transmitted[rank] < limit:
            self.transmitted[rank] += 1
            moved = True
        arrives = min(self.transmitted[rank], self.posted(after))
        if self.received[after] < arrives and not (rank == self.cut and self.received[after] >= self.cut_at):
            self.received[after] += 1
            moved = True
        if self.done[rank] < min(self.transmitted[rank], self.received[after] + self.buffered):
            self.done[rank] += 1
            moved = True
        return moved

    def tell(
        self, job: LiveJob, comm: str, seq: int, *, channel: int = 0, proto: Proto = Proto.SIMPLE
    ) -> None:
        """Every rank stands in the operation, with the flows that NCCL shows and that are not complete."""
        for rank in self.order:
            after, before = self.next(rank), self.order[list(self.order).index(rank) - 1]
            if channel == 0:
                job.stands(rank, comm, seq)["proto"] = proto
            if self.across(rank) and self.done[rank] < self.total:
                job.flow(
                    rank, comm, seq, after, send=True, channel=channel, total=self.total,
                    ready=self.ready[rank], transmitted=self.transmitted[rank], done=self.done[rank],
                    no_credit=int(self.credits),
                )  # fmt: skip
            if self.across(before) and self.consumed[rank] < self.total:
                job.flow(
                    rank, comm, seq, before, send=False, channel=channel, total=self.total,
                    posted=self.posted(rank), received=self.received[rank], flushed=self.received[rank],
                    consumed=self.consumed[rank],
                )  # fmt: skip
