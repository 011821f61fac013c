"""Traced processes that are killed at any moment: what their files held is told, once, and that they died.

The processes make the callbacks of a recorded run through the real plugin. What their files held is read here
from the bytes, with the declarations of the layout but nothing of how the collector reads and judges.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.agent import layout
from collectors.agent.agent import Config
from collectors.agent.budget import Limits
from collectors.agent.layout import FLOW, HEADER, OPERATION, EndReason, FlowState, RecordKind, Table
from collectors.replay.runner import Options, host_directory, replay
from collectors.replay.trace import Line, Run
from mycroft.plugin import plugin_path
from mycroft.settings import Settings
from schemas.enums import Flag, Kind
from streams.topics import ensure_topics
from tests.integration.collecting import Reader, running, until
from tests.integration.kafka_fixtures import EmbeddedBroker
from tests.oracle_runs import recorded_run

AT_ONCE, ROUNDS, SEED = 20, 5, 20
LEAD_NS = 200_000_000  # from "started" to the first callback
LINGER_S = 3.0
"""A position that was told just before the death is told again up to two seconds later (default: 30 s)."""

COUNTERS = {
    1: ("ready", "transmitted", "done"),
    2: ("posted", "received", "flushed", "consumed"),
}  # by direction

Key = tuple[int, ...]


@dataclass
class Held:
    """What a file held: operations and flows that had finished, that had not, and positions.

    Operations are (comm, rank, func, seq), flows (comm, rank, seq, channel, peer, direction) with their
    counters, positions (comm, rank, func) with the last launched and the last ended.
    """

    done: Counter[Key]
    running: Counter[Key]
    flows_done: Counter[Key]
    flows_running: dict[Key, Key]
    positions: dict[Key, Key]


def alone(run: Run, number: int) -> Run:
    """Processes that do what the ranks of the run did, each a communicator of its own, and never finalise."""
    lines: list[Line] = []
    by_rank: dict[int, list[Line]] = {p: [] for p in range(run.ranks)}
    for line in run.lines:
        if line["p"] >= 0 and line["cb"] not in ("note", "finalize"):
            by_rank[line["p"]].append(line)
    for p in range(AT_ONCE):
        for line in by_rank[p % run.ranks]:
            changed = {**line, "p": p}
            if "opPid" in line:  # the process that launched it: itself
                changed["opPid"] = p
            if "commId" in line:
                changed["commId"] = hex(int(line["commId"], 0) ^ (number * AT_ONCE + p + 1) << 32)
            lines.append(changed)
    lines.sort(key=lambda line: line["t"])
    return Run(run.name, lines, (0,) * AT_ONCE, 0.0)


def moments(run: Run, chance: random.Random) -> list[int]:
    """When each process is killed, ns of the run: while it has operations to do."""
    found = []
    for p in range(run.ranks):
        times = [line["t"] for line in run.lines if line["p"] == p and line.get("ty") == "ProxyStep"]
        found.append(chance.randint(min(times), max(times)))
    return found


class Killer(threading.Thread):
    """Kills processes at their moments, and keeps their files open, so that they can be read when gone."""

    def __init__(self, pids: tuple[int, ...], due: list[int], directory: Path) -> None:
        super().__init__()
        began = time.monotonic_ns() + LEAD_NS
        self._plan = sorted(zip((began + moment for moment in due), pids, strict=True))
        self._directory = directory
        self._files: dict[int, int] = {}

    def run(self) -> None:
        for moment, pid in self._plan:
            time.sleep(max(0, moment - time.monotonic_ns()) / 1e9)
            self._files[pid] = os.open(self._file_of(pid), os.O_RDONLY)
            os.kill(pid, signal.SIGKILL)

    def _file_of(self, pid: int) -> Path:
        found: list[Path] = []

        def there() -> list[Path]:
            found[:] = self._directory.glob(f"{pid}-*.mycroft")
            return found

        until(there, "a late process has made its file")
        return found[0]

    def held(self) -> dict[int, Held]:
        """What each file holds, by pid; call when all have died."""
        found = {}
        for pid, fd in self._files.items():
            with os.fdopen(fd, "rb") as file:
                found[pid] = read_held(file.read())
        return found


def read_held(raw: bytes) -> Held:
    header: Any = np.frombuffer(raw, HEADER, 1)[0]
    places = layout.tables(header)

    def table(which: Table) -> Any:
        place, row = places[which], layout.ROWS[which]
        rows = np.frombuffer(raw, np.uint8, place.stride * place.capacity, place.offset)
        wide = rows.reshape(place.capacity, place.stride)[:, : row.itemsize]
        return np.ascontiguousarray(wide).reshape(-1).view(row)

    comms, streams = table(Table.COMMUNICATORS), table(Table.STREAMS)
    ring, count = table(Table.RING), int(header["ring_next"])
    assert count <= len(ring), "the ring has run over: the run is too long for this test"
    whole = ring[:count][ring["sequence"][:count] == 2 * np.arange(1, count + 1)]  # not half written
    ended = whole["body"][whole["kind"] == RecordKind.OPERATION].reshape(-1).view(OPERATION)
    finished = whole["body"][whole["kind"] == RecordKind.FLOW].reshape(-1).view(FLOW)
    operations, flows = table(Table.OPERATIONS), table(Table.FLOWS)
    left = operations[layout.control_state(operations["control"]) == layout.OperationState.OPEN]

    def overtaken(row: Any) -> bool:
        """Nothing of it was ever seen, and a later one of its communicator or stream has moved."""
        if row["moved_tick"]:
            return False
        stream = int(row["stream_slot"])
        on_stream = stream < len(streams) and streams[stream]["moved_base"] > row["order"]
        return bool(on_stream or comms[int(row["comm"])]["moved_base"] > row["order"])

    def comm(row: Any) -> Key:
        return int(comms[int(row["comm"])]["comm_id"]), int(comms[int(row["comm"])]["rank"])

    def operation(row: Any) -> Key:
        return *comm(row), int(row["func"]), int(row["seq"])

    def flow(row: Any) -> Key:
        return *comm(row), *(int(row[name]) for name in ("seq", "channel", "peer", "direction"))

    def counters(row: Any) -> Key:
        return (int(row["total"]), *map(int, row["counters"][: len(COUNTERS[int(row["direction"])])]))

    alive = [row for row in left if not overtaken(row)]
    handles = {int(row["handle"]) for row in alive}
    over = [row for row in left if overtaken(row)]
    over += [row for row in ended if row["end_reason"] in (EndReason.BY_SUCCESSOR, EndReason.FINALISED)]
    positions: dict[Key, list[int]] = {}
    for row in comms[comms["generation"] != 0]:
        for func, seq in enumerate(row["launched"]):
            if seq:
                place = (int(row["comm_id"]), int(row["rank"]), func)
                positions[place] = [int(seq), int(row["ended"][func])]
    for row in over:
        at = positions[operation(row)[:3]]
        at[1] = max(at[1], int(row["seq"]))
    open_flows = flows[flows["state"] == FlowState.OPEN]
    return Held(
        Counter(map(operation, ended)),
        Counter(map(operation, alive)),
        Counter((*flow(row), *counters(row)) for row in finished),
        {flow(row): counters(row) for row in open_flows if int(row["parent"]) in handles},
        {place: tuple(both) for place, both in positions.items()},
    )


class Told:
    """What the records of a collector say, in the words of Held."""

    def __init__(self, reader: Reader) -> None:
        coll = [(Kind(row["kind"]), row) for row in reader.rows("coll")]
        flow = [(Kind(row["kind"]), row) for row in reader.rows("flow")]
        self.orphans = [row for kind, row in coll if kind == Kind.ORPHAN]
        self.done = Counter(map(self.operation, (row for kind, row in coll if kind == Kind.DONE)))
        self.running = Counter(map(self.operation, self.orphans))
        self.flows_done = Counter(
            (*self.flow(row), *self.counters(row)) for kind, row in flow if kind == Kind.DONE
        )
        self.flows_running = {  # the last of each
            self.flow(row): self.counters(row) for kind, row in flow if kind == Kind.STATE
        }
        self.positions = {
            (row["comm"], row["rank"], row["func"]): (row["seq"], row["ended"])
            for kind, row in coll
            if kind == Kind.POSITION and row["seq"]
        }
        self.alive = {row["pid"]: row["alive"] for row in reader.rows("proc")}

    @staticmethod
    def operation(row: dict[str, int]) -> Key:
        return row["comm"], row["rank"], row["func"], row["seq"]

    @staticmethod
    def flow(row: dict[str, int]) -> Key:
        return tuple(row[name] for name in ("comm", "rank", "seq", "channel", "peer", "direction"))

    @staticmethod
    def counters(row: dict[str, int]) -> Key:
        return row["total"], *(row[name] for name in COUNTERS[row["direction"]])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_a_killed_process_left_is_told(embedded_broker: EmbeddedBroker, tmp_path: Path) -> None:
    ensure_topics(Settings(kafka=embedded_broker.bootstrap))
    reader, chance = Reader(embedded_broker.bootstrap), random.Random(SEED)
    recorded, directory = recorded_run("g0_nshealthy4"), host_directory(tmp_path, 0)
    directory.mkdir()
    held: dict[int, Held] = {}
    config = Config(embedded_broker.bootstrap, directory, "node1", Limits(0, 0), linger_s=LINGER_S)
    with running(config) as agent:
        for number in range(ROUNDS):
            run, killers = alone(recorded, number), list[Killer]()
            due = moments(run, chance)

            def started(pids: tuple[int, ...], due: list[int] = due, into: list[Killer] = killers) -> None:
                into.append(Killer(pids, due, directory))
                into[0].start()

            replay(run, Options(plugin_path(), tmp_path, "killed", "flows", 6, hold_s=0.0), started)
            killers[0].join()
            held |= killers[0].held()
            until(lambda: not list(directory.glob("*.mycroft")), "files go once all is told and delivered")
        assert agent.sender.lost == 0
        assert agent.drops == 0
    reader.read()
    reader.close()
    told = Told(reader)

    assert len(held) == AT_ONCE * ROUNDS
    assert told.alive == dict.fromkeys(held, 0)
    assert all(row["flags"] & Flag.DIED for row in told.orphans)
    assert told.done == sum((each.done for each in held.values()), Counter())
    assert told.running == sum((each.running for each in held.values()), Counter())
    assert told.flows_done == sum((each.flows_done for each in held.values()), Counter())
    wanted = {place: left for each in held.values() for place, left in each.flows_running.items()}
    assert {place: told.flows_running[place] for place in wanted} == wanted
    positions = {place: both for each in held.values() for place, both in each.positions.items()}
    assert told.positions == positions

    in_steps = [each for each in held.values() if each.flows_running]
    assert len(in_steps) >= 10, "most moments lay between operations: the test shows nothing"
