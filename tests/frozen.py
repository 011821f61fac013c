"""What freezes where, as the facts of NCCL's profiler interface have it, and the query that shows it.

The states are NCCL's: what a step waits for. The table of faults speaks of a ring of hosts 0 → 1 → 2 → 3 with
rank 2 bad; the balance of two hosts is that of the ring's two ends on one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = 4
"""Open steps of a flow in ring Simple: what may be on its way between two ranks."""

QUERY = """
WITH open AS (
    SELECT rank, func, seq, max(kernel_start_us < 4294967295) AS kernel_started,
           max(kernel_end_us < 4294967295) AS kernel_stopped
    FROM nccl.coll WHERE job = {job:UInt64} AND kind IN ('done', 'state', 'orphan')
    GROUP BY rank, func, seq HAVING countIf(kind = 'done') = 0
    ORDER BY seq LIMIT 1 BY rank
)
SELECT rank, seq, kernel_started, kernel_stopped, direction = 'send' AS send, channel, max(total),
       max(ready), max(transmitted), max(done), max(posted), max(received), max(flushed), max(consumed),
       max(no_credit)
FROM nccl.flows AS flows INNER JOIN open USING (rank, func, seq)
WHERE job = {job:UInt64} AND kind IN ('done', 'state')
GROUP BY rank, seq, kernel_started, kernel_stopped, send, channel ORDER BY rank, send, channel
"""
"""Of each rank the flows of its oldest operation that never ended. Counters only grow."""

LAUNCHED = """
SELECT rank, max(seq) FROM nccl.coll
WHERE job = {job:UInt64} AND kind = 'position' GROUP BY rank ORDER BY rank
"""


@dataclass(frozen=True)
class Stuck:
    """A row of QUERY: one flow of what a rank stands in."""

    rank: int
    seq: int
    kernel_started: bool
    kernel_stopped: bool
    send: bool
    channel: int
    total: int
    ready: int
    transmitted: int
    done: int
    posted: int
    received: int
    flushed: int
    consumed: int
    no_credit: int

    @property
    def send_gpu_wait(self) -> bool:
        """All that the GPU has filled is gone, and it is not all."""
        return self.send and self.ready == self.transmitted == self.done < self.total

    @property
    def send_wait(self) -> bool:
        """Handed to the network, and not completed."""
        return self.send and self.transmitted > self.done

    @property
    def send_peer_wait(self) -> bool:
        """Filled by the GPU, and the peer gives no credit."""
        return self.send and self.ready > self.transmitted and self.no_credit > 0

    @property
    def recv_wait(self) -> bool:
        """Posted, and nothing comes: all that came is consumed."""
        return not self.send and self.posted > self.received == self.flushed == self.consumed

    @property
    def recv_gpu_wait(self) -> bool:
        """What came is flushed, and the GPU does not take it."""
        return not self.send and self.received == self.flushed > self.consumed


class Ring:
    """What stands, rank by rank."""

    def __init__(self, flows: Sequence[Stuck]) -> None:
        self.flows = flows

    def sends(self, rank: int) -> list[Stuck]:
        """Unfinished sends, by channel."""
        return [flow for flow in self.flows if flow.rank == rank and flow.send and flow.done < flow.total]

    def receives(self, rank: int) -> list[Stuck]:
        """Unfinished receives, by channel."""
        return [f for f in self.flows if f.rank == rank and not f.send and f.consumed < f.total]

    def ahead(self, upstream: int, rank: int) -> list[int]:
        """By channel, how many steps `upstream` has sent that `rank` has not received."""
        theirs = {flow.channel: flow.received for flow in self.receives(rank)}
        return [flow.done - theirs[flow.channel] for flow in self.sends(upstream)]

    def balance(self, entering: int, leaving: int) -> set[int]:
        """Of a host, on all channels: steps that leave it minus steps that its entering rank has consumed."""
        taken = {flow.channel: flow.consumed for flow in self.receives(entering)}
        return {flow.done - taken[flow.channel] for flow in self.sends(leaving)}


def faults(name: str, ring: Ring, launched: dict[int, int]) -> list[str]:
    """What is not as the table has it for a fault of rank 2: the bad rank, its upstream, its downstream."""
    bad, up, down = 2, 1, 3
    receives, sends = ring.receives(bad), ring.sends(bad)
    upstream, downstream = ring.sends(up), ring.receives(down)
    in_recv_wait = bool(downstream) and all(flow.recv_wait for flow in downstream)
    told = {"downstream in RecvWait": in_recv_wait, "upstream has sends": bool(upstream)}
    if name in ("c_hang4", "x1_cts_hang4"):
        others = {launched[rank] for rank in (0, 1, 3)}
        told |= {
            "nothing open on the bad rank": not receives and not sends,
            "its last seq one lower": others == {launched[bad] + 1},
            "downstream has received nothing": all(flow.received == 0 < flow.posted for flow in downstream),
        }
    if name == "c_hang4":
        told["upstream: some sends stopped, the rest in SendGPUWait"] = all(
            flow.send_gpu_wait and flow.done > 0 for flow in upstream
        )
    elif name == "x1_cts_hang4":
        told["upstream in SendPeerWait"] = all(flow.send_peer_wait for flow in upstream)
        told["and its receives in RecvGPUWait"] = all(flow.recv_gpu_wait for flow in ring.receives(up))
    elif name in ("e_gpuhang4", "e2_computehang4"):
        midway = name == "e_gpuhang4"
        ahead = ring.ahead(up, bad)
        told |= {
            "receives in RecvGPUWait": bool(receives) and all(flow.recv_gpu_wait for flow in receives),
            "KernelCh open, or never there": all(
                flow.kernel_started == midway and not flow.kernel_stopped for flow in receives
            ),
            "consumed only where its kernel ran": all((flow.consumed > 0) == midway for flow in receives),
            "upstream ahead by what is in flight": set(ahead) == {SLOTS} if midway else min(ahead) > 0,
        }
        if midway:
            told["sends in SendGPUWait"] = bool(sends) and all(flow.send_gpu_wait for flow in sends)
    elif name == "d_sigstop4":
        told["upstream ahead of what was received"] = min(ring.ahead(up, bad)) > 0
    elif name == "h1_linkdown4":
        told["looks like a victim"] = all(flow.recv_wait for flow in receives) and all(
            flow.send_gpu_wait for flow in sends
        )
        told["upstream in SendWait"] = all(flow.send_wait for flow in upstream)
    elif name == "i1_kill4":
        told["upstream in SendWait or SendGPUWait"] = all(f.send_wait or f.send_gpu_wait for f in upstream)
    else:
        raise KeyError(name)
    return [what for what, right in told.items() if not right]


@dataclass(frozen=True)
class Hosts:
    """A ring over two hosts with n = 4 ranks each: entering and leaving rank of the bad and the other one.

    `up`, `down`: hops of the culprit from the entering and to the leaving rank; `midway`: its kernel ran.
    """

    bad: tuple[int, int]
    other: tuple[int, int]
    up: int
    down: int
    midway: bool

    @property
    def balance(self) -> int:
        """Of the bad host, with Simple: 2(d − u), and 2 more where the kernel stopped midway."""
        return 2 * (self.down - self.up) + 2 * self.midway


STARVES = 2 * 4
"""The balance of a host that merely starves: 2n."""

HOSTS = {
    "n2_ring8_gpuhang1": Hosts((0, 3), (4, 7), 1, 2, True),
    "n2_ring8_gpuhang3": Hosts((0, 3), (4, 7), 3, 0, True),
    "n2_ring8_computehang2": Hosts((0, 3), (4, 7), 2, 1, False),
    "n2_ring8_hang6": Hosts((4, 7), (0, 3), 2, 1, False),
    "n2_nvl8_computehang7": Hosts((5, 6), (1, 2), 2, 1, False),
}
"""Rings 0-1-2-3 | 4-5-6-7, with NVLink 1-0-3-2 | 5-4-7-6."""
