"""Sentences for incidents: the chain link by link, the evidence, what was ruled out, what would decide.

Every sentence states a record; nothing is concluded here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.enums import DataType, Differs, Func, NodeKind, Reason
from schemas.records import Records
from streams.facts import Facts
from streams.findings import Finding, Link
from streams.live import sentences

MAX_NAMED = 8
"""Ranks that one sentence lists by number before it counts the rest."""

FUNC_NAMES = {
    Func.ANY: "operation", Func.ALL_REDUCE: "AllReduce", Func.ALL_GATHER: "AllGather",
    Func.REDUCE_SCATTER: "ReduceScatter", Func.BROADCAST: "Broadcast", Func.REDUCE: "Reduce",
    Func.ALL_TO_ALL: "AllToAll", Func.GATHER: "Gather", Func.SCATTER: "Scatter", Func.SEND: "Send",
    Func.RECV: "Recv", Func.SEND_RECV: "SendRecv", Func.ALL_GATHER_V: "AllGatherV",
    Func.BARRIER: "Barrier", Func.OTHER: "operation",
}  # fmt: skip
"""Operations as NCCL writes them."""


class Words:
    """Turns records of one job into words, with the names in `facts`."""

    def __init__(self, facts: Facts, waits: Records) -> None:
        self._facts = facts
        self._waits = waits
        self._member = {
            (comm, rank): dev for dev, ranks in facts.ranks.items() for comm, rank in ranks.items()
        }

    def device(self, dev: int) -> str:
        """`rank 5`, with its host where known."""
        known = self._facts.devices.get(dev)
        if known is None or known.world_rank is None:
            return self._member_of(dev)
        host = f" on {known.host}" if known.host else ""
        return f"rank {known.world_rank}{host}"

    def _member_of(self, dev: int) -> str:
        """A device whose world rank nobody told, by its place in a communicator."""
        row = next((row for row in self._waits[self._waits["holder"] == dev]), None)
        comm = None if row is None else self._facts.comms.get(int(row["comm"]))
        if row is None or comm is None:
            return f"device {dev:016x}"
        return f"the member {int(row['holder_rank'])} of {comm.name}"

    def devices(self, devs: Iterable[int]) -> str:
        """`rank 5`, `ranks 2 and 6`, `ranks 0, 1, 2, 3, 4, 5, 6, 7 and 120 more`."""
        devs = list(devs)
        if len(devs) == 1:
            return self.device(devs[0])
        ranks = [self._facts.world_rank(dev) for dev in devs]
        if None in ranks:
            return _list([self.device(dev) for dev in devs])
        return "ranks " + _list([str(rank) for rank in sorted(rank for rank in ranks if rank is not None)])

    def operation(self, row: Any) -> str:
        """`AllReduce 118 of TENSOR[3]`, `Send 7 from rank 4 to rank 8 of PIPELINE[43]`."""
        comm = self._facts.comms.get(int(row["comm"]))
        name = comm.name if comm else f"communicator {int(row['comm']):016x}"
        func = FUNC_NAMES[Func(int(row["func"]))]
        if row["sender"] >= 0:
            ends = [self._end(int(row["comm"]), int(row[end])) for end in ("sender", "receiver")]
            return f"the send from {ends[0]} to {ends[1]} in {name}"
        return f"{func} {int(row['seq'])} of {name}"

    def _end(self, comm: int, rank: int) -> str:
        dev = self._member.get((comm, rank))
        return self.device(dev) if dev is not None else f"member {rank}"

    def link(self, link: Link) -> str:
        """One link of a chain."""
        row = self._waits[link.holding]
        waiter, holder, operation = self.device(link.waiter), self.holder(row), self.operation(row)
        reason = Reason(int(row["reason"]))
        if row["holder_kind"] == NodeKind.LINK:
            return f"{waiter} waits in {operation} for {holder}: {self.holding(row)}"
        if reason == Reason.UNSEEN and not row["total"]:
            return (
                f"{waiter} stands in {operation}: all {row['members']} members launched it, none finished it"
            )
        return f"{waiter} waits for {holder} in {operation}: {holder} {self.holding(row)}"

    def holder(self, row: Any) -> str:
        """Who is waited for in a record: a device, or the link between two."""
        if row["holder_kind"] == NodeKind.LINK:
            sender, receiver = (self.device(int(row[name])) for name in ("holder", "holder_peer"))
            return f"the link from {sender} to {receiver}"
        kind = "waiter" if row["reason"] == Reason.IN_UNSEEN else "holder"
        return self.device(int(row[kind]))

    def holding(self, row: Any) -> str:
        """What the holder of a record did or did not do, as a predicate."""
        reason = Reason(int(row["reason"]))
        live = sentences.holding(row)
        if live is not None and not (reason == Reason.UNSEEN and not row["total"]):
            return live
        if reason == Reason.NOT_LAUNCHED and not row["sure"]:
            return "has no record of it: never launched, or finished"
        if reason == Reason.NOT_LAUNCHED:
            return "never launched it" + _last(row)
        if reason == Reason.QUEUED:
            return (
                "launched it but is held by an older operation"
                if row["sure"]
                else "launched it but may still be held by an older operation"
            )
        if reason == Reason.PEERS_FINISHED:
            return f"has not finished it, though {_members(row['finished'], row['members'])} finished it"
        if reason == Reason.SILENT:
            return "left no record"
        if reason == Reason.MISMATCH:
            return self._difference(row)
        return "stands in it too"

    def _difference(self, row: Any) -> str:
        parts = []
        differs = Differs(int(row["differs"]))
        if differs & Differs.FUNC:
            parts.append(f"called {FUNC_NAMES[Func(int(row['holder_func']))]}")
        if differs & Differs.COUNT:
            parts.append(f"passed {int(row['holder_count'])} elements instead of {int(row['count'])}")
        if differs & Differs.DATATYPE:
            own, rest = DataType(int(row["holder_datatype"])), DataType(int(row["datatype"]))
            parts.append(f"passed {own.name.lower()} instead of {rest.name.lower()}")
        if differs & Differs.ROOT:
            parts.append("named another root")
        return " and ".join(parts) or (
            f"called {FUNC_NAMES[Func(int(row['func']))]} with {int(row['count'])} elements of "
            f"{DataType(int(row['datatype'])).name.lower()}"
        )

    def verdict(self, finding: Finding) -> list[str]:
        """What ends a chain: the most telling record against each device at its end."""
        last = {link.holder for link in finding.chain[-1:]}
        indicting = [
            index
            for index in finding.proof
            if int(self._waits["holder"][index]) in last
            and self._waits["reason"][index] in (Reason.PEERS_FINISHED, Reason.MISMATCH)
        ]
        return [
            f"{self.operation(row)}: {self.device(int(row['holder']))} {self.holding(row)}"
            for row in self._waits[indicting[:1]]
        ]

    def evidence(self, finding: Finding) -> list[str]:
        """The records that indict, one sentence for each device and operation, at most MAX_NAMED."""
        sentences = []
        for index in finding.proof:
            row = self._waits[index]
            separator = ": " if row["holder_kind"] == NodeKind.LINK else " "
            sentence = f"{self.operation(row)}: {self.holder(row)}{separator}{self.holding(row)}"
            if row["reason"] == Reason.NOT_LAUNCHED:
                sentence += f"; {_members(row['launched'], row['members'])} launched it"
            if row["reason"] == Reason.UNSEEN and not row["total"]:
                sentence = (
                    f"{self.operation(row)}: all {int(row['members'])} members launched it, none finished it"
                )
            if sentence not in sentences:
                sentences.append(sentence)
        if len(sentences) > MAX_NAMED:
            sentences[MAX_NAMED:] = [f"and {len(sentences) - MAX_NAMED} more records of the same kind"]
        return sentences


def _last(row: Any) -> str:
    if row["sender"] >= 0 or not row["holder_seq"]:
        return ""
    return f" (its last there is {int(row['holder_seq'])})"


def _members(some: int, of_all: int) -> str:
    return f"{int(some)} of {int(of_all)} member{'s' if of_all != 1 else ''}"


def _list(items: list[str]) -> str:
    if len(items) > MAX_NAMED:
        return ", ".join(items[:MAX_NAMED]) + f" and {len(items) - MAX_NAMED} more"
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
