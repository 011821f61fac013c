"""What the collectors of a training job's hosts send each second, of any number of ranks.

Eight ranks a host, four communicators a device: its host's (tensor parallel, inside the host, so that only
launches show), its data parallel group's, its pipeline's (sends and receives), everybody's. A second has one
training step. Positions and sums are told each second, sums of flows each five, hosts in turn; single
operations with their flows are chosen by the collector's own budget. `stalled` is what they say of a hang.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectors.agent.backlog import Flush
from collectors.agent.budget import Limits, choose, demand, levels
from schemas.enums import Algo, DataType, Direction, Flag, Func, Kind, Proto, Visibility
from schemas.ids import hash64
from schemas.members import Announcement, Member
from schemas.records import COLL, FLOW, PROC, UNKNOWN_US, Records

A_HOST = 8
FLOW_PERIOD_S = 5
_TOOK_US = 3000
"""From the last launch of an operation to its end."""
_JITTER_US = 1000
_MESSAGE_BYTES = 128
"""What the collector reckons for each communicator's envelope."""
BEGAN_NS = 1_790_000_000_000_000_000
SECOND_NS = 1_000_000_000
_STATE_QUIET_US = 300_000

I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class _Use:
    """What each device of one communicator does in a second; arrays of shape (ranks,).

    `peers` are the ranks at the other ends of its flows, in the order of `directions`.
    """

    name: str
    func: Func
    comm: U64
    rank: I64
    size: int
    nodes: int
    operations: int
    peer: I64
    """Of a send or receive, else −1."""
    directions: tuple[Direction, ...] = ()
    peers: tuple[I64, ...] = ()
    channels: int = 1
    shows: tuple[npt.NDArray[np.bool_], ...] = ()
    """Which devices have a flow in each of the directions: of a host's ranks some have none."""

    @property
    def pair(self) -> bool:
        """Whether it is sends or receives."""
        return self.func in (Func.SEND, Func.RECV)


class Hosts:
    """The hosts of one job of `ranks`, a multiple of 32; `seed` draws the launches."""

    def __init__(self, ranks: int, seed: int = 0, limits: Limits | None = None) -> None:
        self.ranks, self._seed = ranks, seed
        self.job, self.name = hash64("benchmark", ranks), f"bench-{ranks}"
        dev = np.arange(ranks)
        self.host, place = np.divmod(dev, A_HOST)
        self.hosts = ranks // A_HOST
        stages = min(16, max(1, self.hosts // 4))
        groups = self.hosts // stages
        group, self.stage = np.divmod(self.host, stages)
        self.devs = np.array([hash64("device", ranks, number) for number in dev.tolist()], np.uint64)
        self.uses = tuple(self._uses(dev, place, group, stages, groups))
        self._limits = Limits() if limits is None else limits

    def _uses(self, dev: I64, place: I64, group: I64, stages: int, groups: int) -> Iterator[_Use]:
        everyone, none = np.ones(self.ranks, np.bool_), np.full(self.ranks, -1)
        both = (Direction.SEND, Direction.RECV)
        yield _Use("tp", Func.ALL_REDUCE, _ids("tp", self.host), place, A_HOST, 1, 120, none)
        yield _Use(
            "dp", Func.ALL_REDUCE, _ids("dp", self.stage * A_HOST + place), group, groups, groups, 20, none,
            both, ((group + 1) % groups, (group - 1) % groups), 2, (everyone, everyone),
        )  # fmt: skip
        pipeline = _ids("pp", group * A_HOST + place)
        ahead, behind = (self.stage + 1) % stages, (self.stage - 1) % stages
        for func, peer, direction in (
            (Func.SEND, ahead, Direction.SEND), (Func.RECV, behind, Direction.RECV),
        ):  # fmt: skip
            yield _Use(
                "pp", func, pipeline, self.stage, stages, stages, 16, peer, (direction,), (peer,), 1,
                (everyone,),
            )  # fmt: skip
        ring = ((dev + 1) % self.ranks, (dev - 1) % self.ranks)
        ends = (place == A_HOST - 1, place == 0)
        yield _Use(
            "world", Func.ALL_REDUCE, _ids("world", np.zeros(self.ranks, np.int64)), dev, self.ranks,
            self.hosts, 1, none, both, ring, 2, ends,
        )  # fmt: skip

    def announcements(self) -> Iterator[Announcement]:
        """One for each communicator and host."""
        for use in self.uses:
            if use.func == Func.RECV:
                continue  # sends told of it
            for first in range(0, self.ranks, A_HOST):
                mine = np.arange(first, first + A_HOST)
                source = f"h{first // A_HOST}"
                for comm in np.unique(use.comm[mine]).tolist():
                    members = tuple(
                        Member(int(use.rank[at]), int(self.devs[at]), int(at), source)
                        for at in mine[use.comm[mine] == comm].tolist()
                    )
                    yield Announcement(
                        self.name, self.job, "1", 1, comm, use.name, source, use.size, use.nodes, members
                    )

    def healthy(self, number: int, partitions: int, wanted: Sequence[int]) -> list[Flush]:
        """What each host says at the end of second `number`, as far as it goes to the wanted partitions."""
        jitter = np.random.default_rng((self._seed, number)).integers(0, _JITTER_US, self.ranks)
        coll, flow = _Rows(), _Rows()
        for use, least in zip(self.uses, self._chosen(number), strict=True):
            mine = np.flatnonzero(_within(use.comm, partitions, wanted))
            done = (number + 1) * use.operations
            coll.add(mine, self._positions(use, mine, done, done))
            coll.add(mine, self._sums(use, mine, number, jitter))
            seq = np.arange(number * use.operations + 1, done + 1)
            kept = (
                levels(*np.broadcast_arrays(use.comm[mine, None], seq.astype(np.uint64))) >= least[mine, None]
            )
            row, at = np.nonzero(kept)
            which, seqs = mine[row], seq[at]
            coll.add(which, self._done(use, which, seqs, number, jitter))
            for dev, rows in self._flows(use, which, seqs, Kind.DONE):
                flow.add(dev, rows)
            told = mine[(self.host[mine] + number) % FLOW_PERIOD_S == 0]
            for dev, rows in self._flow_sums(use, told):
                flow.add(dev, rows)
        return self._flushes(number, coll, flow, partitions, wanted, {}, 0)

    def every_flow(self, number: int) -> Records:
        """All flows of second `number`, whatever the budget; of their times only `launched` is set."""
        parts = []
        draw = np.random.default_rng((self._seed, number))
        for use in self.uses:
            seq = np.arange(number * use.operations + 1, (number + 1) * use.operations + 1)
            which, seqs = (each.ravel() for each in np.meshgrid(np.arange(self.ranks), seq, indexing="ij"))
            late = draw.integers(0, _JITTER_US * 1000, (self.ranks, use.operations))
            for dev, rows in self._flows(use, which, seqs, Kind.DONE):
                place = rows["seq"].astype(np.int64) - 1 - number * use.operations
                rows["launched"] = BEGAN_NS + number * SECOND_NS + late[dev, place]
                rows["launched"] += place * (SECOND_NS * 9 // 10) // use.operations
                parts.append(rows)
        return np.concatenate(parts)

    def stalled(
        self, number: int, began: int, culprit: int, partitions: int, wanted: Sequence[int]
    ) -> list[Flush]:
        """The same once `culprit` has launched nothing since second `began`.

        Its host's ranks stand in their tensor group, their data groups behind them, everybody else in the
        communicator of all.
        """
        behind = self.behind(culprit)
        quiet_us = (number - began) * 1_000_000 + _STATE_QUIET_US
        coll, flow = _Rows(), _Rows()
        alike: dict[str, I64] = {}
        for use in self.uses:
            done = began * use.operations
            mine = np.flatnonzero(_within(use.comm, partitions, wanted))
            stands = behind.get(use.name, np.zeros(self.ranks, np.bool_))
            inside = use.name == "tp"
            launched = stands | (inside & (np.arange(self.ranks) != culprit))
            coll.add(mine, self._positions(use, mine, np.where(launched, done + 1, done)[mine], done))
            # Of those of which only the launch shows, and which others do not wait for, hosts tell each 5 s.
            told = launched if (number - began) % FLOW_PERIOD_S == 0 else stands
            which = mine[told[mine]]
            since = BEGAN_NS + began * SECOND_NS
            states = self._states(use, which, done + 1, quiet_us, 2 if inside else 1)
            states["launched"] = since
            coll.add(which, states)
            for dev, rows in self._flows(use, mine[stands[mine]], np.full(self.ranks, done + 1), Kind.STATE):
                rows["launched"], rows["age_us"] = since, quiet_us
                flow.add(dev, rows)
            alike[use.name] = np.flatnonzero(stands)
        return self._flushes(number, coll, flow, partitions, wanted, alike, quiet_us)

    def behind(self, culprit: int) -> dict[str, npt.NDArray[np.bool_]]:
        """Who waits in which communicator when that device launches nothing."""
        group = self.host == self.host[culprit]
        stage = self.stage == self.stage[culprit]
        return {"tp": group & (np.arange(self.ranks) != culprit), "dp": stage & ~group, "world": ~stage}

    def _chosen(self, number: int) -> list[I64]:
        """For each use and device the least level of the single operations that its host sends."""
        least = [np.zeros(self.ranks, np.int64) for _ in self.uses]
        for host in range(self.hosts):
            self._choose(np.arange(host * A_HOST, (host + 1) * A_HOST), number, least)
        return least

    def _choose(self, mine: I64, number: int, least: list[I64]) -> None:
        """What one host can afford beside what it says in any case."""
        level: dict[int, list[npt.NDArray[np.uint8]]] = {}
        size: dict[int, list[I64]] = {}
        share: dict[int, float] = {}
        spent = PROC.dtype.itemsize * A_HOST
        for use in self.uses:
            seq = np.arange(1, use.operations + 1, dtype=np.uint64) + np.uint64(number * use.operations)
            for comm in np.unique(use.comm[mine]).tolist():
                at = mine[use.comm[mine] == comm]
                flows = use.channels * sum(int(shows[at].sum()) for shows in use.shows)
                share[comm] = len(at) / use.size
                drawn = levels(np.full(len(seq), comm, np.uint64), seq)
                for count, width in ((len(at), COLL.dtype.itemsize), (flows, FLOW.dtype.itemsize)):
                    level.setdefault(comm, []).append(np.repeat(drawn, count))
                    size.setdefault(comm, []).append(np.full(count * len(seq), width))
                spent += 2 * len(at) * COLL.dtype.itemsize + flows // use.channels * FLOW.dtype.itemsize
        spent += _MESSAGE_BYTES * len(share)
        demands = [
            demand(comm, np.concatenate(level[comm]), np.concatenate(size[comm]), share[comm])
            for comm in sorted(share)
        ]
        found = choose(demands, spent, self._limits)
        for use, levels_of in zip(self.uses, least, strict=True):
            levels_of[mine] = [found[comm] for comm in use.comm[mine].tolist()]

    def _rows(self, use: _Use, which: I64, kind: Kind) -> Records:
        rows = COLL.empty(len(which))
        rows["job"], rows["attempt"], rows["dev"] = self.job, 1, self.devs[which]
        rows["comm"], rows["rank"] = use.comm[which], use.rank[which]
        rows["nranks"], rows["nnodes"] = use.size, use.nodes
        rows["kind"], rows["func"], rows["peer"] = kind, use.func, use.peer[which]
        rows["visibility"] = Visibility.FLOWS if use.shows else Visibility.LAUNCH
        rows["algo"], rows["proto"] = Algo.RING, Proto.SIMPLE
        rows["datatype"], rows["channels"] = DataType.BFLOAT16, use.channels
        rows["flags"] = Flag.P2P if use.pair else 0
        for name in ("api_us", "first_us", "end_us", "kernel_start_us", "kernel_end_us", "age_us"):
            rows[name] = UNKNOWN_US
        return rows

    def _positions(self, use: _Use, which: I64, launched: I64 | int, ended: int) -> Records:
        rows = self._rows(use, which, Kind.POSITION)
        rows["seq"], rows["ended"] = launched, ended
        return rows

    def _sums(self, use: _Use, which: I64, number: int, jitter: I64) -> Records:
        rows = self._rows(use, which, Kind.SUM)
        rows["peer"], rows["n"] = -1, use.operations
        rows["bytes"], rows["count"] = use.operations << 26, use.operations << 25
        rows["seq"] = (number + 1) * use.operations
        rows["launched"] = self._launched(use, rows["seq"], which, number, jitter)
        took = np.where(bool(use.shows), _TOOK_US + _JITTER_US - jitter[which], UNKNOWN_US)
        rows["duration_sum_us"] = np.where(took == UNKNOWN_US, 0, took * use.operations)
        for name in ("max", "p50", "p90", "p99"):
            rows[f"duration_{name}_us"] = took
        return rows

    def _done(self, use: _Use, which: I64, seq: I64, number: int, jitter: I64) -> Records:
        rows = self._rows(use, which, Kind.DONE)
        rows["seq"], rows["n"] = seq, 1
        rows["bytes"], rows["count"] = 1 << 26, 1 << 25
        rows["launched"] = self._launched(use, seq, which, number, jitter)
        rows["api_us"] = 12
        if use.shows:
            rows["first_us"], rows["end_us"] = 90, _TOOK_US + _JITTER_US - jitter[which]
        return rows

    def _launched(self, use: _Use, seq: npt.NDArray[np.integer], which: I64, number: int, jitter: I64) -> I64:
        """By the host's clock, ns: the operations of a second follow one another evenly."""
        place = seq.astype(np.int64) - 1 - number * use.operations
        begin = place * (SECOND_NS * 9 // 10) // use.operations
        return BEGAN_NS + number * SECOND_NS + begin + jitter[which] * 1000

    def _states(self, use: _Use, which: I64, seq: int, quiet_us: int, current: int) -> Records:
        rows = self._rows(use, which, Kind.STATE)
        rows["seq"], rows["current"], rows["n"] = seq, current, 1
        rows["bytes"], rows["count"] = 1 << 26, 1 << 25
        rows["age_us"] = rows["quiet_us"] = quiet_us
        return rows

    def _flows(self, use: _Use, which: I64, seq: I64, kind: Kind) -> Iterator[tuple[I64, Records]]:
        """Flows of operations `seq` of devices `which`, by direction and channel; a state starves."""
        for direction, peers, shows in zip(use.directions, use.peers, use.shows, strict=True):
            chosen = np.flatnonzero(shows[which])
            dev = which[chosen]
            for channel in range(use.channels):
                rows = self._flow_rows(use, dev, kind, direction, peers)
                rows["channel"], rows["seq"], rows["total"] = channel, seq[chosen], 64
                if kind == Kind.DONE:
                    steps, posted = 64, 64
                else:
                    steps = 2 * (A_HOST if use.name == "world" else 1)
                    posted, rows["quiet_us"] = steps + 4, 4_000_000
                sends = direction == Direction.SEND
                for name in (
                    ("ready", "transmitted", "done") if sends else ("received", "flushed", "consumed")
                ):
                    rows[name] = steps
                if not sends:
                    rows["posted"] = posted
                yield dev, rows

    def _flow_sums(self, use: _Use, which: I64) -> Iterator[tuple[I64, Records]]:
        for direction, peers, shows in zip(use.directions, use.peers, use.shows, strict=True):
            dev = which[shows[which]]
            rows = self._flow_rows(use, dev, Kind.SUM, direction, peers)
            rows["func"], rows["channel"], rows["n"] = Func.ANY, -1, use.operations * FLOW_PERIOD_S
            rows["bytes"] = (use.operations * FLOW_PERIOD_S) << 26
            rows["net_us"] = use.operations * FLOW_PERIOD_S * _TOOK_US
            yield dev, rows

    def _flow_rows(self, use: _Use, dev: I64, kind: Kind, direction: Direction, peers: I64) -> Records:
        rows = FLOW.empty(len(dev))
        rows["job"], rows["attempt"], rows["comm"], rows["rank"] = (
            self.job, 1, use.comm[dev], use.rank[dev],
        )  # fmt: skip
        rows["dev"] = rows["carrier"] = self.devs[dev]
        rows["kind"], rows["func"], rows["direction"], rows["peer"] = kind, use.func, direction, peers[dev]
        rows["n"] = 1
        return rows

    def _procs(self, quiet_us: int) -> Records:
        rows = PROC.empty(self.ranks)
        rows["quiet_us"] = quiet_us
        rows["job"], rows["attempt"], rows["proc"], rows["dev"] = self.job, 1, self.devs, self.devs
        rows["alive"], rows["state"], rows["tier"], rows["busy_us"] = 1, ord("S"), 1, UNKNOWN_US
        return rows

    def _flushes(
        self, number: int, coll: _Rows, flow: _Rows, partitions: int, wanted: Sequence[int],
        stalls: dict[str, I64], quiet_us: int,
    ) -> list[Flush]:  # fmt: skip
        home = np.minimum.reduce([use.comm for use in self.uses])
        # Processes are told at home, and again where something of theirs stalls.
        told = [(np.arange(self.ranks), home)]
        told += [(stalls[use.name], use.comm[stalls[use.name]]) for use in self.uses if use.name in stalls]
        dev = np.concatenate([which for which, _ in told])
        comm = np.concatenate([where for _, where in told])
        kept = _within(comm, partitions, wanted)
        dev, comm = dev[kept], comm[kept]
        order = np.argsort(self.host[dev], kind="stable")
        dev, comm = dev[order], comm[order]
        cut = np.searchsorted(self.host[dev], np.arange(self.hosts + 1))
        colls, flows = coll.by_host(COLL.empty(0), self.hosts), flow.by_host(FLOW.empty(0), self.hosts)
        procs = self._procs(quiet_us)
        found = []
        for host in range(self.hosts):
            mine = slice(host * A_HOST, (host + 1) * A_HOST)
            alive = np.unique(np.concatenate([use.comm[mine] for use in self.uses]))
            ours = slice(cut[host], cut[host + 1])
            sections = {COLL.name: colls[host], FLOW.name: flows[host], PROC.name: procs[dev[ours]]}
            found.append(
                Flush(
                    self.job, 1, BEGAN_NS + (number + 1) * SECOND_NS,
                    alive[_within(alive, partitions, wanted)],
                    {name: rows for name, rows in sections.items() if len(rows)}, comm[ours],
                )
            )  # fmt: skip
        return found


class _Rows:
    """Records of one type, with the device of each."""

    def __init__(self) -> None:
        self._parts: list[tuple[I64, Records]] = []

    def add(self, which: I64, rows: Records) -> None:
        self._parts.append((which, rows))

    def by_host(self, none: Records, hosts: int) -> list[Records]:
        """Those of each host."""
        plain = np.dtype((np.void, none.dtype.itemsize))
        host = np.concatenate([np.zeros(0, np.int64), *(which for which, _ in self._parts)]) // A_HOST
        rows = np.concatenate([none.view(plain), *(rows.view(plain) for _, rows in self._parts)])
        order = np.argsort(host, kind="stable")
        cuts = np.searchsorted(host[order], np.arange(1, hosts))
        return [part.view(none.dtype) for part in np.split(rows[order], cuts)]


def _within(comm: U64, partitions: int, wanted: Sequence[int]) -> npt.NDArray[np.bool_]:
    return np.isin(comm % np.uint64(partitions), np.array(wanted, np.uint64))


def _ids(name: str, numbers: I64) -> U64:
    """A communicator's id for each number."""
    ids = {number: hash64("comm", name, number) for number in np.unique(numbers).tolist()}
    return np.array([ids[number] for number in numbers.tolist()], np.uint64)
