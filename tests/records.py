"""Builders of coll records and announcements: a job is told rank by rank, in world ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from schemas.enums import DataType, Flag, Func, Kind, Visibility
from schemas.ids import hash64
from schemas.members import Announcement, Member
from schemas.records import COLL, UNKNOWN_US, Records
from streams import snapshots
from streams.diagnosis import diagnose
from streams.findings import Finding, Findings
from streams.judge import waits
from streams.membership import Membership, membership
from streams.mismatch import mismatches
from streams.operations import Operations, Positions, join
from streams.suspects import Known

JOB_ID, ATTEMPT_ID = 11, 22
LAUNCHED_NS = 1_700_000_000_000_000_000


def dev_of(rank: int) -> int:
    """Device of a world rank: some large number."""
    return hash64("device", rank)


def comm_of(name: str) -> int:
    """Id of a communicator by its name."""
    return hash64("communicator", name)


class Told:
    """What is known of one job: communicators by name as world ranks, and the records of their ranks.

    Collectives share one seq per communicator unless `per_func`.
    """

    def __init__(
        self, comms: Mapping[str, Sequence[int]], *, silent: Iterable[int] = (), per_func: bool = False
    ) -> None:
        self.comms = {name: tuple(ranks) for name, ranks in comms.items()}
        self.silent = frozenset(silent)
        self.per_func = per_func
        self.rows: list[Records] = []

    @property
    def ranks(self) -> tuple[int, ...]:
        """All world ranks."""
        return tuple(sorted({rank for ranks in self.comms.values() for rank in ranks}))

    def row(self, kind: Kind, rank: int, comm: str, func: Func, seq: int, peer: int | None = None) -> Records:
        """A new record, to be filled in further; `rank` and `peer` are world ranks."""
        row = COLL.empty(1)
        members = self.comms[comm]
        row["job"], row["attempt"], row["comm"], row["dev"] = JOB_ID, ATTEMPT_ID, comm_of(comm), dev_of(rank)
        row["rank"], row["nranks"] = members.index(rank), len(members)
        row["kind"], row["func"], row["visibility"] = kind, func, Visibility.COMPLETE
        row["datatype"], row["count"], row["n"] = DataType.FLOAT32, 1024, 1
        row["seq"], row["peer"] = seq, -1 if peer is None else members.index(peer)
        row["launched"], row["age_us"] = LAUNCHED_NS, UNKNOWN_US
        if peer is not None:
            row["flags"] = Flag.P2P
        elif not self.per_func:
            row["flags"] = Flag.SEQ_PER_COMM
        self.rows.append(row)
        return row

    def state(
        self, rank: int, comm: str, seq: int, *, current: int = 1, func: Func = Func.ALL_REDUCE
    ) -> Records:
        """An operation in flight."""
        row = self.row(Kind.STATE, rank, comm, func, seq)
        row["current"] = current
        return row

    def done(self, rank: int, comm: str, seq: int, *, func: Func = Func.ALL_REDUCE) -> Records:
        """A finished operation."""
        return self.row(Kind.DONE, rank, comm, func, seq)

    def at(
        self, rank: int, comm: str, launched: int, ended: int, *, order: int = 0, func: Func = Func.ANY
    ) -> Records:
        """How far a rank is in a communicator (with `func`: in the operations of that func)."""
        row = self.row(Kind.POSITION, rank, comm, func, launched)
        row["ended"], row["order"] = ended, order
        return row

    def half(
        self, rank: int, func: Func, peer: int, comm: str, seq: int, *, current: int = 1, done: bool = False
    ) -> Records:
        """One end of a send and receive."""
        row = self.row(Kind.DONE if done else Kind.STATE, rank, comm, func, seq, peer)
        row["current"] = 0 if done else current
        return row

    def half_at(
        self, rank: int, func: Func, peer: int, comm: str, launched: int, ended: int, *, order: int = 0
    ) -> Records:
        """How far one end of a pair is."""
        row = self.row(Kind.POSITION, rank, comm, func, launched, peer)
        row["ended"], row["order"] = ended, order
        return row

    def pair(self, sender: int, receiver: int, comm: str, sent: int, received: int, ended: int) -> None:
        """Positions of both ends of a pair: what each has launched, and what both have finished."""
        self.half_at(sender, Func.SEND, receiver, comm, sent, ended)
        self.half_at(receiver, Func.RECV, sender, comm, received, ended)

    def records(self) -> Records:
        """All records, in the order in which they were told."""
        return np.concatenate([COLL.empty(0), *self.rows])

    def announcements(self) -> list[Announcement]:
        """One for each communicator."""
        return [announcement(name, ranks, silent=self.silent) for name, ranks in self.comms.items()]

    def joined(self) -> tuple[Membership, Operations, Positions]:
        """Membership, operations and positions; all rows must belong somewhere."""
        members = membership(self.announcements())
        operations, positions, stray = join(members, self.records())
        assert stray == 0
        return members, operations, positions

    def waits(self) -> Records:
        """Who waits for whom."""
        return waits(*self.joined())

    def mismatches(self) -> Records:
        """Who called differently."""
        members, operations, _ = self.joined()
        return mismatches(members, operations)

    def judged(self) -> snapshots.Judged:
        """Waits and mismatches with the facts about what they mention."""
        return snapshots.judge(self.announcements(), [self.records()], JOB_ID, ATTEMPT_ID)

    def findings(self, *, blind: bool = False) -> Findings:
        """The whole way from records to findings."""
        order = {dev_of(rank): rank for rank in self.ranks}
        known = Known(blind=blind, silent=self.judged().facts.silent())
        return diagnose(self.judged().waits, known=known, precedence=lambda dev: order.get(dev, 1 << 32))

    def told(self, *, blind: bool = False) -> list[tuple[str, str, list[int], list[int], int]]:
        """Findings as category, confidence, culprits and candidates (sorted world ranks) and waiters."""
        return [self.plain(finding) for finding in self.findings(blind=blind).found]

    def plain(self, finding: Finding) -> tuple[str, str, list[int], list[int], int]:
        """One finding in world ranks."""
        return (
            finding.category, finding.confidence,
            self.ranks_of(finding.culprits), self.ranks_of(finding.candidates), finding.waiting,
        )  # fmt: skip

    def ranks_of(self, devs: Iterable[int]) -> list[int]:
        """World ranks of devices, sorted; -1 for devices of none."""
        known = {dev_of(rank): rank for rank in self.ranks}
        return sorted(known.get(dev, -1) for dev in devs)


def announcement(name: str, ranks: Sequence[int], *, silent: Iterable[int] = ()) -> Announcement:
    """The members of a communicator, given as world ranks, each on a host of its own."""
    return Announcement(
        job="job", job_id=JOB_ID, attempt="1", attempt_id=ATTEMPT_ID, comm=comm_of(name), name=name,
        source="test", nranks=len(ranks), nnodes=len(ranks),
        members=tuple(
            Member(at, dev_of(rank), world_rank=rank, host=f"n{rank}", silent=rank in set(silent))
            for at, rank in enumerate(ranks)
        ),
    )  # fmt: skip
