"""Builder of running jobs: what the hosts of a job flush at one moment, told rank by rank in world ranks.

It goes the whole way that a worker goes: flushes into a board per trace partition, epochs into a round, the
round into incidents. Ages and quiet times are seconds before NOW; each host has a clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mycroft.settings import Settings
from schemas.enums import Algo, DataType, Direction, FactKind, Func, Kind, PortState, Proto, Visibility
from schemas.envelope import Envelope, MessageKind
from schemas.ids import hash64
from schemas.incidents import Incident
from schemas.members import Announcement, Member, RingPath
from schemas.records import COLL, FACT, FLOW, PROC, UNKNOWN_US, Records
from streams.live.board import LiveBoard
from streams.live.cases import LiveCases
from streams.live.moment import Moment
from streams.live.stalls import judge
from streams.live.watch import epochs, found_in
from streams.severity import Rules
from tests.records import ATTEMPT_ID, JOB_ID, LAUNCHED_NS, comm_of, dev_of

RULES = Rules.of(Settings())
NOW = 10_000.0
"""Broker time of the look, s."""


def proc_of(rank: int) -> int:
    """Process instance of a world rank."""
    return hash64("process", rank)


@dataclass(frozen=True)
class Told:
    """One incident in world ranks."""

    category: str
    confidence: str
    culprits: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()

    @classmethod
    def of(cls, incident: Incident) -> Told:
        ranks = [
            tuple(-1 if node.rank is None else node.rank for node in nodes)
            for nodes in (incident.culprits, incident.candidates)
        ]
        return cls(incident.category, incident.confidence, *ranks)


class LiveJob:
    """A running job. `comms`: world ranks by name; `per_host` neighbouring ranks share a host.

    All hosts announce and flush; those in `mute` do not flush. `skew`: s by which a host's clock is ahead.
    `rings`: orders that NCCL's log has told, by communicator, in ranks of it.
    """

    def __init__(
        self, comms: Mapping[str, Sequence[int]], *, per_host: int = 1, mute: Iterable[str] = (),
        skew: Mapping[str, float] | None = None, rings: Mapping[str, tuple[RingPath, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.comms = {name: tuple(ranks) for name, ranks in comms.items()}
        self.per_host = per_host
        self.mute = frozenset(mute)
        self.skew = dict(skew or {})
        self.rings = dict(rings or {})
        self.colls: list[tuple[int, str, Records]] = []
        self.flows: list[tuple[int, str, Records]] = []
        self.facts: list[tuple[str, Records]] = []
        self.procs: dict[int, Records] = {}
        for rank in self.ranks:
            self.process(rank)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All world ranks."""
        return tuple(sorted({rank for ranks in self.comms.values() for rank in ranks}))

    def host(self, rank: int) -> str:
        """Host of a world rank."""
        return f"h{rank // self.per_host:03}"

    @property
    def hosts(self) -> list[str]:
        """All hosts."""
        return sorted({self.host(rank) for rank in self.ranks})

    def nnodes(self, comm: str) -> int:
        """Hosts of a communicator."""
        return len({self.host(rank) for rank in self.comms[comm]})

    def _since(self, rank: int, age_s: float) -> int:
        """ns since the epoch at which something happened so long before NOW, by the host's clock."""
        return LAUNCHED_NS + int((self.skew.get(self.host(rank), 0.0) - age_s) * 1e9)

    def coll(self, kind: Kind, rank: int, comm: str, func: Func, seq: int, peer: int | None) -> Records:
        """A new coll record, to be filled in further; `rank` and `peer` are world ranks."""
        members, row = self.comms[comm], COLL.empty(1)
        row["job"], row["attempt"], row["comm"], row["dev"] = JOB_ID, ATTEMPT_ID, comm_of(comm), dev_of(rank)
        row["rank"], row["nranks"], row["nnodes"] = members.index(rank), len(members), self.nnodes(comm)
        row["kind"], row["func"], row["seq"] = kind, func, seq
        # NCCL gives every collective a root, those that have none the first rank.
        row["peer"] = (
            members.index(peer) if peer is not None else 0 if kind in (Kind.STATE, Kind.DONE) else -1
        )
        row["datatype"], row["count"], row["n"] = DataType.FLOAT32, 1024, 1
        row["algo"], row["proto"], row["visibility"] = Algo.RING, Proto.SIMPLE, Visibility.FLOWS
        for name in (
            "api_us",
            "first_us",
            "end_us",
            "kernel_start_us",
            "kernel_end_us",
            "age_us",
            "quiet_us",
        ):
            row[name] = UNKNOWN_US
        self.colls.append((rank, comm, row))
        return row

    def state(
        self, rank: int, comm: str, seq: int, *, func: Func = Func.ALL_REDUCE, peer: int | None = None,
        age: float = 5.0, quiet: float = 4.0, current: int = 1, visibility: Visibility = Visibility.FLOWS,
    ) -> Records:  # fmt: skip
        """An operation in flight."""
        row = self.coll(Kind.STATE, rank, comm, func, seq, peer)
        row["visibility"], row["current"] = visibility, current
        row["age_us"], row["quiet_us"] = round(age * 1e6), round(quiet * 1e6)
        row["launched"] = self._since(rank, age)
        return row

    def at(
        self, rank: int, comm: str, launched: int, ended: int, *, func: Func = Func.ALL_REDUCE,
        peer: int | None = None, called: int = 0, flags: int = 0,
    ) -> Records:  # fmt: skip
        """How far a rank is; `called` API calls beyond what NCCL has launched."""
        row = self.coll(Kind.POSITION, rank, comm, func, launched, peer)
        row["ended"], row["n"], row["flags"] = ended, called, flags
        return row

    def past(self, rank: int, comm: str, n: int = 20, *, algo: Algo = Algo.RING) -> Records:
        """Operations that a rank has ended: it is connected."""
        row = self.coll(Kind.SUM, rank, comm, Func.ALL_REDUCE, 0, None)
        row["n"], row["algo"] = n, algo
        return row

    def stands(self, rank: int, comm: str, seq: int, **told: object) -> Records:
        """A rank that stands in an operation, with its position and its history."""
        func = told.get("func", Func.ALL_REDUCE)
        assert isinstance(func, Func)
        self.at(rank, comm, seq, seq - 1, func=func)
        self.past(rank, comm)
        return self.state(rank, comm, seq, **told)  # type: ignore[arg-type]

    def flow(
        self, rank: int, comm: str, seq: int, peer: int, *, send: bool, channel: int = 0,
        func: Func = Func.ALL_REDUCE, total: int = 16, quiet: float = 4.0, carrier: int | None = None,
        **counters: int,
    ) -> Records:  # fmt: skip
        """One end of a flow; what is not given of its counters is 0. `carrier` is a world rank."""
        members, row = self.comms[comm], FLOW.empty(1)
        row["job"], row["attempt"], row["comm"], row["dev"] = JOB_ID, ATTEMPT_ID, comm_of(comm), dev_of(rank)
        row["carrier"] = proc_of(rank if carrier is None else carrier)
        row["rank"], row["peer"], row["kind"] = members.index(rank), members.index(peer), Kind.STATE
        row["direction"] = Direction.SEND if send else Direction.RECV
        row["seq"], row["func"], row["channel"], row["current"] = seq, func, channel, 1
        row["n"], row["total"], row["age_us"], row["first_us"] = 1, total, 5_000_000, UNKNOWN_US
        row["quiet_us"], row["launched"] = round(quiet * 1e6), self._since(rank, 5.0)
        for name, value in counters.items():
            row[name] = value
        self.flows.append((rank, comm, row))
        return row

    def process(
        self, rank: int, *, alive: bool = True, state: str = "S", quiet: float = 4.0, tier: int = 1
    ) -> Records:
        """What its host says of a process; the last word counts."""
        row = PROC.empty(1)
        row["job"], row["attempt"], row["proc"], row["dev"] = JOB_ID, ATTEMPT_ID, proc_of(rank), dev_of(rank)
        row["pid"], row["alive"], row["state"], row["tier"] = 1000 + rank, alive, ord(state), tier
        row["quiet_us"] = row["proxy_us"] = round(quiet * 1e6)
        for name in {"api_us", "busy_us"} & set(PROC.dtype.names or ()):
            row[name] = UNKNOWN_US
        row["sampled"] = self._since(rank, 0.0)
        self.procs[rank] = row
        return row

    def lost(self, host: str, name: str = "eth0", *, age: float | None = 4.0, up: bool = False) -> None:
        """A host says that an interface went down so long ago; age None: it was so from the beginning."""
        row = self._fact(host, name, FactKind.INTERFACE, age)
        row["state"] = PortState.UP if up else PortState.DOWN

    def xid(self, rank: int, code: int = 79, *, age: float = 4.0, own: bool = True) -> None:
        """The kernel of a rank's host has reported its GPU; `own` false: another GPU there."""
        row = self._fact(self.host(rank), f"0000:{rank:02x}:00", FactKind.XID, age)
        row["code"], row["dev"] = code, dev_of(rank) if own else 0

    def _fact(self, host: str, name: str, what: FactKind, age: float | None) -> Records:
        row = FACT.empty(1)
        row["job"], row["attempt"], row["what"] = JOB_ID, ATTEMPT_ID, what
        row["host"], row["name"] = host.encode(), name.encode()
        row["age_us"] = UNKNOWN_US if age is None else round(age * 1e6)
        self.facts.append((host, row))
        return row

    def announcements(self) -> list[Announcement]:
        """One for each communicator and host."""
        return [
            Announcement(
                job="job", job_id=JOB_ID, attempt="1", attempt_id=ATTEMPT_ID, comm=comm_of(name), name=name,
                source=host, nranks=len(ranks), nnodes=self.nnodes(name),
                members=tuple(
                    Member(at, dev_of(rank), world_rank=rank, host=host, pid=1000 + rank)
                    for at, rank in enumerate(ranks)
                    if self.host(rank) == host
                ),
                rings=self.rings.get(name, ()),
            )
            for name, ranks in self.comms.items()
            for host in sorted({self.host(rank) for rank in ranks})
        ]  # fmt: skip

    def flush(self, host: str, sequence: int = 0, comms: Iterable[str] | None = None) -> Envelope:
        """What one host flushes to a partition that holds these communicators."""
        held = set(self.comms if comms is None else comms)

        def mine(rows: list[tuple[int, str, Records]], empty: Records) -> Records:
            chosen = [row for rank, comm, row in rows if self.host(rank) == host and comm in held]
            return np.concatenate([empty, *chosen])

        procs = [
            row
            for rank, row in self.procs.items()
            if self.host(rank) == host and any(rank in self.comms[comm] for comm in held)
        ]
        return Envelope(
            MessageKind.FLUSH, JOB_ID, ATTEMPT_ID, source=host, sequence=sequence,
            sections={
                COLL.name: mine(self.colls, COLL.empty(0)), FLOW.name: mine(self.flows, FLOW.empty(0)),
                PROC.name: np.concatenate([PROC.empty(0), *procs]),
                FACT.name: np.concatenate([FACT.empty(0), *(row for at, row in self.facts if at == host)]),
            },
        )  # fmt: skip

    def board(
        self, comms: Iterable[str] | None = None, *, at: float = NOW, board: LiveBoard | None = None
    ) -> LiveBoard:
        """A trace partition that has heard all hosts `at`, and before; its second word if it is given."""
        held = list(self.comms if comms is None else comms)
        sequence = 0 if board is None else 1
        if board is None:
            board = LiveBoard()
            for announcement in self.announcements():
                if announcement.comm in {comm_of(name) for name in held}:
                    board.announce(announcement)
            # The job was first heard of long ago: by now every host has had time to speak.
            board.take(Envelope(MessageKind.FLUSH, JOB_ID, ATTEMPT_ID, source=self.hosts[0]), at - 100.0)
            sequence = 1
        for host in self.hosts:
            if host not in self.mute:
                board.take(self.flush(host, sequence, held), at)
        return board

    def moment(self, *, now: float = NOW) -> Moment:
        """One look, everything on one partition."""
        return self.board().moment(JOB_ID, ATTEMPT_ID, now)

    def waits(self, *, now: float = NOW) -> Records:
        """Who waits for whom."""
        return judge(self.moment(now=now))

    def told(
        self, partitions: Sequence[Sequence[str]] | None = None, *, missing: Iterable[int] = (),
        now: float = NOW,
    ) -> list[Told]:  # fmt: skip
        """The incidents; `partitions`: which communicators each one holds, `missing`: those not heard."""
        parts = [list(self.comms)] if partitions is None else [list(part) for part in partitions]
        boards = [self.board(part) for part in parts]
        return judged(boards, missing=missing, now=now)


def judged(
    boards: Sequence[LiveBoard], *, missing: Iterable[int] = (), now: float = NOW,
    cases: LiveCases | None = None,
) -> list[Told]:  # fmt: skip
    """One round over all partitions; `cases` where the judge has heard former ones."""
    cases = cases or LiveCases(len(boards), 3.0)
    for number, board in enumerate(boards):
        if number not in set(missing):
            for message in epochs(board, number, int(now), now):
                cases.take(message, now)
            cases.mark(number, now)
    assert cases.over(now + 3.0)
    return [Told.of(incident) for case in cases.close() for incident in found_in(case, now, RULES)]


def pairs(*flows: tuple[int, int, tuple[int, int, int], tuple[int, int, int]], no_credit: int = 0) -> LiveJob:
    """Sends and receives: sender, receiver, ready, transmitted and done; posted, received and consumed."""
    job = LiveJob({"pp": range(4)})
    for sender, receiver, sent, came in flows:
        for rank, func, peer in ((sender, Func.SEND, receiver), (receiver, Func.RECV, sender)):
            job.at(rank, "pp", 9, 8, func=func, peer=peer)
            job.state(rank, "pp", 9, func=func, peer=peer)
        counts = dict(zip(("ready", "transmitted", "done"), sent, strict=True), no_credit=no_credit)
        job.flow(sender, "pp", 9, receiver, send=True, func=Func.SEND, **counts)
        counts = dict(zip(("posted", "received", "consumed"), came, strict=True), flushed=came[1])
        job.flow(receiver, "pp", 9, sender, send=False, func=Func.RECV, **counts)
    return job
