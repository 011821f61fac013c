"""Running jobs at scale: flushes in, culprits out, beside the obvious alternatives on the same data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.kernels import _best
from schemas.enums import Algo, DataType, Direction, Func, Kind, Proto, Visibility
from schemas.envelope import Envelope, MessageKind, decode, encode
from schemas.members import Announcement, Member
from schemas.records import COLL, FLOW, PROC, UNKNOWN_US, Records
from streams.compile import compile_kernels
from streams.live.board import LiveBoard
from streams.live.causes import World
from streams.live.diagnosis import diagnose
from streams.live.moment import Process, hear
from streams.live.stalls import judge
from streams.membership import I64, membership
from streams.operations import join

TENSOR, DATA, PIPELINE = 8, 128, 16
DEVICES = TENSOR * DATA * PIPELINE
CULPRIT = 4_321
SEQ = 41
NOW = 10_000.0


class Job:
    """Four communicators for each device: its host's, data, pipeline, everybody. CULPRIT never launches SEQ.

    Its tensor group stands in that, their data groups stand behind them, and everybody else behind those.
    """

    def __init__(self) -> None:
        self.dev = np.arange(DEVICES)
        tensor, place = np.divmod(self.dev, TENSOR)
        stage, data = np.divmod(tensor, DATA)
        self.host = tensor
        self.comm = {
            "tp": (1_000_000 + tensor, place, TENSOR), "dp": (2_000_000 + stage * TENSOR + place, data, DATA),
            "pp": (3_000_000 + data * TENSOR + place, stage, PIPELINE),
            "world": (np.full(DEVICES, 4_000_000), self.dev, DEVICES),
        }  # fmt: skip
        group = self.host == self.host[CULPRIT]
        self.behind = {
            "tp": group & (self.dev != CULPRIT), "dp": (stage == stage[CULPRIT]) & ~group,
            "world": stage != stage[CULPRIT],
        }  # fmt: skip

    def announcements(self) -> list[Announcement]:
        """One for each communicator and host."""
        found = []
        for name, (comms, ranks, size) in self.comm.items():
            comm, rank = comms.tolist(), ranks.tolist()
            nodes = {"tp": 1, "dp": DATA, "pp": PIPELINE, "world": DEVICES // TENSOR}[name]
            for host in range(DEVICES // TENSOR):
                mine = range(host * TENSOR, host * TENSOR + TENSOR)
                for held in sorted({comm[dev] for dev in mine}):
                    members = tuple(
                        Member(rank[dev], dev + 1, dev, f"h{host}") for dev in mine if comm[dev] == held
                    )
                    found.append(
                        Announcement("bench", 1, "a", 1, held, name, f"h{host}", size, nodes, members)
                    )
        return found

    def _rows(self, name: str, devices: I64, kind: Kind) -> Records:
        comm, rank, size = self.comm[name]
        rows = COLL.empty(len(devices))
        rows["comm"], rows["rank"], rows["dev"], rows["nranks"] = (
            comm[devices],
            rank[devices],
            devices + 1,
            size,
        )
        rows["kind"], rows["func"], rows["peer"], rows["n"] = kind, Func.ALL_REDUCE, -1, 1
        rows["algo"], rows["proto"], rows["datatype"] = Algo.RING, Proto.SIMPLE, DataType.BFLOAT16
        rows["visibility"] = Visibility.LAUNCH if name == "tp" else Visibility.FLOWS
        for field in ("kernel_start_us", "kernel_end_us"):
            rows[field] = UNKNOWN_US
        return rows

    def hung(self) -> tuple[Records, Records]:
        """Coll and flow records of the hang."""
        coll, flow = [], []
        for name in self.comm:
            launched = self._rows(name, self.dev, Kind.POSITION)
            stands = self.behind.get(name, np.zeros(DEVICES, np.bool_))
            launched["seq"] = launched["ended"] = SEQ - 1
            launched["n"] = 0
            past = self._rows(name, self.dev, Kind.SUM)
            past["n"], past["seq"] = 20, 0
            told = stands | (self.behind["dp"] | self.behind["world"] if name == "tp" else False)
            state = self._rows(name, np.flatnonzero(told), Kind.STATE)
            launched["seq"][told] = SEQ
            state["seq"], state["current"] = SEQ, 2 if name == "tp" else 1
            state["age_us"], state["quiet_us"] = 5_000_000, 4_000_000
            coll += [launched, past, state]
            if name != "tp":
                flow += list(self._flows(name, np.flatnonzero(stands)))
        return np.concatenate(coll), np.concatenate(flow)

    def _flows(self, name: str, devices: I64) -> Iterable[Records]:
        """Starving rings: of each host one rank is entered and one left, two channels."""
        comm, rank, size = self.comm[name]
        for direction in (Direction.SEND, Direction.RECV):
            ends = devices
            if name == "world":
                ends = devices[devices % TENSOR == (TENSOR - 1 if direction == Direction.SEND else 0)]
            for channel in range(2):
                rows = FLOW.empty(len(ends))
                rows["comm"], rows["rank"], rows["dev"], rows["carrier"] = (
                    comm[ends],
                    rank[ends],
                    ends + 1,
                    ends + 1,
                )
                step = 1 if direction == Direction.SEND else -1
                rows["peer"], rows["channel"], rows["seq"] = (rank[ends] + step) % size, channel, SEQ
                rows["kind"], rows["func"], rows["direction"] = Kind.STATE, Func.ALL_REDUCE, direction
                rows["total"], rows["quiet_us"] = 64, 4_000_000
                filled = 2 * (TENSOR if name == "world" else 1)
                if direction == Direction.SEND:
                    rows["ready"] = rows["transmitted"] = rows["done"] = filled
                else:
                    rows["received"] = rows["flushed"] = rows["consumed"] = filled
                    rows["posted"] = filled + 4
                yield rows

    def healthy(self, done: int) -> tuple[Records, Records]:
        """What a second of progress is told as: positions, sums, some finished operations; sums of flows."""
        coll = []
        for name in self.comm:
            position, total = (self._rows(name, self.dev, kind) for kind in (Kind.POSITION, Kind.SUM))
            position["seq"] = position["ended"] = SEQ
            position["n"], total["n"] = 0, 10
            coll += [position, total]
            for seq in range(done):
                finished = self._rows(name, self.dev, Kind.DONE)
                finished["seq"] = SEQ - seq
                coll.append(finished)
        flow = FLOW.empty(DEVICES * 8)
        flow["dev"], flow["kind"] = np.repeat(self.dev + 1, 8), Kind.SUM
        return np.concatenate(coll), flow

    def flushes(self, coll: Records, flow: Records, sequence: int) -> list[Envelope]:
        """One message of each host, as it comes off the wire."""
        procs = PROC.empty(DEVICES)
        procs["proc"] = procs["dev"] = self.dev + 1
        procs["alive"], procs["state"], procs["tier"] = 1, ord("S"), 1
        procs["quiet_us"], procs["busy_us"] = 4_000_000, UNKNOWN_US
        parts = {}
        for record, rows in ((COLL, coll), (FLOW, flow), (PROC, procs)):
            host = (rows["dev"].astype(np.int64) - 1) // TENSOR
            order = np.argsort(host, kind="stable")
            cuts = np.searchsorted(host[order], np.arange(1, DEVICES // TENSOR))
            parts[record.name] = np.split(rows[order], cuts)
        return [
            decode(encode(Envelope(
                MessageKind.FLUSH, 1, 1, source=f"h{number}", sequence=sequence,
                sections={name: split[number] for name, split in parts.items()},
            )))
            for number in range(DEVICES // TENSOR)
        ]  # fmt: skip


def _cpu(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    """Measure and print."""
    compile_kernels()
    job = Job()
    announcements = job.announcements()
    table = Table(
        title=f"a running job of {DEVICES:,} devices in four communicators each; one core, CPU time"
    )
    for column in ("step", "time", "rate", "beside"):
        table.add_column(column, justify="left" if column in ("step", "beside") else "right")
    _stream(job, announcements, table)
    _hang(job, announcements, table)
    Console().print(table)


def _stream(job: Job, announcements: list[Announcement], table: Table) -> None:
    board = LiveBoard()
    for announcement in announcements:
        board.announce(announcement)
    coll, flow = job.healthy(2)
    seconds = [job.flushes(coll, flow, second) for second in range(3)]
    records = len(coll) + len(flow) + DEVICES

    def second(number: int) -> None:
        for message in seconds[number]:
            board.take(message, NOW + number)
        for half in (0.0, 0.5):
            assert not len(judge(board.moment(1, 1, NOW + number + half)))

    second(0)
    ours = min(_cpu(partial(second, number)) for number in (1, 2))
    sample = coll[:: max(1, len(coll) // 20_000)]
    texts = [json.dumps(dict(zip(coll.dtype.names or (), row, strict=True))) for row in sample.tolist()]

    def by_json() -> None:
        latest: dict[tuple[int, ...], dict[str, int]] = {}
        for text in texts:
            event = json.loads(text)
            latest[event["comm"], event["dev"], event["kind"], event["seq"]] = event

    events = _cpu(by_json) / len(texts)
    table.add_row(
        "a healthy second, two looks", f"{ours:.2f} s", f"{records / ours / 1e6:.2f} M records/s",
        f"one JSON event a message, parsed and kept: {events * records / ours:.1f} × as long",
    )  # fmt: skip


def _hang(job: Job, announcements: list[Announcement], table: Table) -> None:
    board = LiveBoard()
    for announcement in announcements:
        board.announce(announcement)
    coll, flow = job.hung()
    for message in job.flushes(coll, flow, 0):
        board.take(message, NOW)
    moment = board.moment(1, 1, NOW)
    stalled = len(moment.states.rows) + len(moment.flows.rows)
    judged: list[Records] = []
    judge_s = min(_cpu(lambda: judged.append(judge(board.moment(1, 1, NOW)))) for _ in range(3))
    waits = judged[-1]
    table.add_row(
        "a look at the hang: records to waits",
        f"{judge_s * 1e3:.0f} ms",
        f"{stalled / judge_s / 1e6:.2f} M records/s",
        "",
    )
    members = membership(announcements)
    join_s = _best(lambda: join(members, coll))
    table.add_row(
        "join of its records", f"{join_s * 1e3:.1f} ms", f"{len(coll) / join_s / 1e6:.1f} M records/s",
        "",
    )  # fmt: skip
    rows = PROC.empty(DEVICES)
    rows["proc"] = rows["dev"] = job.dev + 1
    rows["alive"], rows["quiet_us"], rows["busy_us"] = 1, 4_000_000, UNKNOWN_US
    processes: dict[int, Process] = {}
    hear(processes, rows, repeat(NOW, len(rows)))
    world = World(NOW, processes, {dev + 1: f"h{dev // TENSOR}" for dev in range(DEVICES)})
    (finding,) = diagnose(waits, world, int).found
    assert finding.culprits == (CULPRIT + 1,), "the benchmark's own job is judged wrongly"
    diagnose_s = min(_cpu(lambda: diagnose(waits, world, int)) for _ in range(3))
    edges = list(zip(waits["waiter"].tolist(), waits["holder"].tolist(), strict=True))

    def by_networkx() -> None:
        web = nx.DiGraph(edges)
        nx.single_source_shortest_path_length(web.reverse(copy=False), CULPRIT + 1)

    table.add_row(
        f"diagnosis of {len(waits):,} waits", f"{diagnose_s * 1e3:.0f} ms",
        f"{len(waits) / diagnose_s / 1e6:.2f} M waits/s",
        f"networkx, distances to the culprit alone: {_best(by_networkx, 1) / diagnose_s:.1f} × as long",
    )  # fmt: skip


if __name__ == "__main__":
    main()
