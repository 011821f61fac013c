"""From files to flushes, tick by tick, without Kafka: what a host says of what its processes do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from collectors.agent import procfs
from collectors.agent.analysis import Tick
from collectors.agent.announce import Announcer
from collectors.agent.backlog import Flush
from collectors.agent.budget import Limits
from collectors.agent.files import Files
from collectors.agent.identity import device_id
from collectors.agent.layout import CommunicatorState, EndReason, FlowFlag, Raw, StepState, Table
from collectors.agent.metrics import Metrics
from collectors.agent.observer import Observer
from collectors.agent.reader import Reader
from collectors.agent.snapshot import HostReader
from schemas.enums import Direction, Flag, Func, Kind, Visibility
from schemas.ids import job_id
from schemas.members import RingPath
from schemas.records import COLL, FLOW, UNKNOWN_US, Records
from tests.collector_files import FakeProcess

MS = 1_000_000
SECOND = 1000 * MS
START = 1_000_000 * SECOND  # of the monotonic clock; all tests say times relative to it
WALL = 1_760_000_000 * SECOND
NO_LIMIT = Limits(0, 0)


class Host:
    """Files, analysis and reports of one host, driven by hand."""

    def __init__(self, directory: Path, limits: Limits = NO_LIMIT, linger_ns: int = 30 * SECOND) -> None:
        self.directory = directory
        self.metrics = Metrics()
        self.files = Files(directory, "node1", self.metrics, linger_ns)
        self.observer = Observer(self.files, limits, self.metrics)
        self.reporter = self.observer.reporter
        self.announcer = Announcer("node1")
        self.last: Tick | None = None

    def process(self, nonce: int = 0x1111, job: str = "llama", **more: object) -> FakeProcess:
        made = FakeProcess(self.directory, nonce=nonce, environment={"MYCROFT_JOB": job}, **more)  # type: ignore[arg-type]
        made.anchor(START)
        for name in ("start_anchor", "anchor"):
            made.header[name]["wall_ns"] = WALL
        return made

    def tick(self, at_ms: float) -> list[Flush]:
        now, wall = START + int(at_ms * MS), WALL + int(at_ms * MS)
        self.files.scan(now)
        self.files.live(now)
        flushes = self.observer.observe(now, wall)
        if flushes is None:
            return []
        self.last = self.observer.tick
        self.files.remove(now, delivered=True)
        return flushes

    def run(self, first_ms: int, last_ms: int) -> list[Flush]:
        """Ticks every 100 ms, both ends included."""
        return [flush for at in range(first_ms, last_ms + 1, 100) for flush in self.tick(at)]


def at(ms: float) -> int:
    return START + int(ms * MS)


def rows(flushes: Sequence[Flush], section: str, kind: Kind | None = None) -> Records:
    empty = {COLL.name: COLL, FLOW.name: FLOW}.get(section)
    found = [flush.sections[section] for flush in flushes if section in flush.sections]
    joined = np.concatenate([empty.empty(0), *found]) if empty else np.concatenate(found)
    return joined if kind is None else joined[joined["kind"] == kind]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    folder = tmp_path / "shm"
    folder.mkdir()
    return Host(folder)


def test_a_healthy_second(host: Host) -> None:
    made = host.process()
    made.communicator(nranks=4, rank=2)
    host.tick(0)
    made.operation(0, at(10), order=7)
    made.flow(0, 0, first_tick=at(11), counters=[8, 8, 8, 0], bytes=1024, time=[2 * MS, 0, 3 * MS, 0])
    made.finish(0, at(20))
    made.end(0, at(20))
    made.header["moved_order"] = 7
    flushes = host.run(100, 1000)
    (second,) = flushes
    assert (second.job, second.through, second.comms.tolist()) == (job_id("llama"), WALL + SECOND, [0xC0])
    (done,) = rows(flushes, "coll", Kind.DONE)
    assert (done["seq"], done["rank"], done["nranks"], done["end_us"], done["api_us"]) == (1, 2, 4, 10_000, 5)
    assert (done["launched"], done["age_us"]) == (WALL + 10 * MS, 990_000)
    (summed,) = rows(flushes, "coll", Kind.SUM)
    assert (summed["n"], summed["bytes"], summed["duration_p50_us"]) == (1, 1024, 10_000)
    (position,) = rows(flushes, "coll", Kind.POSITION)
    assert (position["func"], position["seq"], position["ended"], position["order"]) == (
        Func.ALL_REDUCE,
        1,
        1,
        7,
    )
    (flow,) = rows(flushes, "flow", Kind.DONE)
    assert (flow["done"], flow["bytes"], flow["gpu_us"], flow["net_us"]) == (8, 1024, 2000, 3000)
    assert (flow["first_us"], flow["seq"], flow["peer"]) == (1000, 1, 1)
    (proc,) = rows(flushes, "proc")
    assert (proc["pid"], proc["alive"], chr(proc["state"])) == (os.getpid(), 1, "R")
    assert flow["carrier"] == proc["proc"]
    assert done["dev"] == device_id(int(proc["proc"]), 0)


def test_each_second_a_flush_even_if_nothing_happened_and_idle_positions_every_five(host: Host) -> None:
    host.process().communicator()
    flushes = host.run(0, 10_000)
    silent = flushes.pop(2)  # told when the process had called nothing for 1.15 s
    assert (silent.through - WALL, len(rows([silent], "proc"))) == (1200 * MS, 1)
    assert [flush.through for flush in flushes] == [WALL + second * SECOND for second in range(11)]
    told = [len(rows([flush], "coll", Kind.POSITION)) for flush in flushes]
    assert told == [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    (first,) = rows(flushes[:1], "coll", Kind.POSITION)
    assert (first["func"], first["seq"], first["age_us"]) == (Func.ANY, 0, UNKNOWN_US)


def test_an_operation_that_stalls_is_told_at_once_on_change_and_each_second(host: Host) -> None:
    made = host.process()
    made.communicator()
    host.tick(0)
    made.operation(0, at(10))
    flow = made.flow(0, 0, since=at(15), head_state=StepState.SEND_GPU)
    assert not rows(host.run(100, 300), "coll", Kind.STATE).size
    # At 400 ms it is 390 ms old, and for 300 ms, since it was seen first, nothing has moved.
    flushes = host.run(400, 400)
    (state,) = rows(flushes, "coll", Kind.STATE)
    assert (state["seq"], state["current"], state["age_us"]) == (1, 1, 390_000)
    (told,) = rows(flushes, "flow", Kind.STATE)
    assert (told["quiet_us"], told["gpu_us"], told["current"]) == (385_000, 385_000, 1)
    assert flushes[0].comms.tolist() == [0xC0]
    assert len(rows(flushes, "proc")) == 1
    assert not rows(host.run(500, 900), "coll", Kind.STATE).size  # nothing new
    flow["counters"][0] = 3
    assert len(rows(host.tick(1000), "coll", Kind.STATE)) == 1  # with each second's flush
    assert not rows(host.run(1100, 1200), "coll", Kind.STATE).size
    (state,) = rows(host.run(1300, 1300), "coll", Kind.STATE)
    assert state["quiet_us"] == 300_000  # it moved, and stands again: told as soon as that is seen
    flow["counters"][0] = 4
    (state,) = rows(host.run(1400, 1900), "coll", Kind.STATE)
    assert state["quiet_us"] == 300_000
    assert len(rows(host.run(2000, 4300), "coll", Kind.STATE)) == 3
    # Its end is told whatever the budget says.
    made.finish(0, at(4050))
    made.end(0, at(4050))
    host.reporter._limits = Limits(1, 1)
    (done,) = rows(host.run(4100, 5000), "coll", Kind.DONE)
    assert done["end_us"] == 4_040_000


def test_polls_without_credit_are_no_progress_but_a_sign_of_life(host: Host) -> None:
    made = host.process()
    made.communicator()
    made.operation(0, at(-1000))
    flow = made.flow(0, 0, head_state=StepState.SEND_CREDIT, since=at(-900))
    host.tick(0)
    for ms in range(100, 1001, 100):
        flow["calls"] += 50_000
        flow["no_credit"] += 50_000
        flushes = host.tick(ms)
    (state,) = rows(flushes, "flow", Kind.STATE)
    assert (state["no_credit"], state["quiet_us"], state["credit_us"]) == (500_000, 1_900_000, 1_900_000)
    (proc,) = rows(flushes, "proc")
    assert (proc["proxy_us"], proc["callbacks"]) == (0, 500_000)


def test_queued_operations_do_not_stall(host: Host) -> None:
    made = host.process()
    made.communicator(0, comm=0xA)
    made.communicator(1, comm=0xB)
    made.operation(0, at(-5000), seq=1, order=1, base=1)
    made.operation(1, at(-4000), seq=1, order=2, base=2, comm=1)
    for slot in range(2):
        made.flow(slot, slot, start_tick=at(-3000))
    states = rows(host.run(0, 100), "coll", Kind.STATE)
    assert set(states["comm"].tolist()) == {0xA}


def test_slow_operations_stall_only_beyond_ten_medians(host: Host) -> None:
    made = host.process()
    made.communicator()
    host.tick(0)
    for slot in range(3):  # the first is left out; the others take 200 ms
        made.operation(slot, at(10 + slot), seq=slot + 1)
        made.end(slot, at(210 + slot))
    host.run(100, 1000)
    made.operation(3, at(1010), seq=4)
    made.flow(0, 3)
    assert not rows(host.run(1100, 3000), "coll", Kind.STATE).size
    (state,) = rows(host.run(3100, 3100), "coll", Kind.STATE)
    assert state["age_us"] == 2_090_000


def test_what_stalls_is_told_with_the_jobs_step_time(host: Host) -> None:
    """Four launches of AllReduce 500 ms apart, the first interval left out; between them others of another
    count that come twice as often, and one of another communicator, of which one alone says nothing.
    """
    made = host.process()
    made.communicator()
    made.communicator(1, comm=0xC1)
    host.tick(0)
    slot = 0
    for seq, launched in enumerate((10, 510, 1010, 1510), 1):
        for count, each in ((100, launched), (7, launched + 50), (7, launched + 300)):
            made.operation(slot, at(each), seq=3 * seq, count=count)
            made.end(slot, at(each + 20))
            slot += 1
    made.operation(slot, at(1700), seq=1, count=100, comm=1)
    made.end(slot, at(1720))
    host.run(100, 3000)
    made.operation(slot + 1, at(3010), seq=20, count=100)
    made.flow(0, slot + 1)
    made.operation(slot + 2, at(3010), seq=2, count=100, comm=1, stream=1)
    made.flow(1, slot + 2)
    states = rows(host.run(3100, 6000), "coll", Kind.STATE)
    told = {(int(row["comm"]), int(row["step_us"])) for row in states}
    assert told == {(0xC0, 500_000), (0xC1, 0)}


def test_operations_that_show_nothing_never_look_open_for_ever(host: Host) -> None:
    made = host.process()
    comm = made.communicator()
    for slot in range(10):
        made.operation(slot, at(-5000 + slot), seq=slot + 1, visibility=Visibility.LAUNCH)
    made.slot(Table.STREAMS, 0)
    host.tick(0)
    assert not host.last.coll.unseen.any()  # type: ignore[union-attr]
    # The device is at rest: it may stand in the oldest that has not certainly ended, or in the newest.
    flushes = host.run(100, 400)
    states = rows(flushes, "coll", Kind.STATE)
    assert (sorted(states["seq"].tolist()), set(states["current"].tolist())) == ([1, 10], {0, 2})
    # A later one of the communicator has moved: all before it are over.
    comm["moved_base"] = 9
    flushes = host.run(500, 1000)
    (position,) = rows(flushes, "coll", Kind.POSITION)
    assert (position["seq"], position["ended"]) == (10, 8)
    assert len(host.last.coll) == 2  # type: ignore[union-attr]


def test_retired_operations_are_done_or_orphans(host: Host) -> None:
    made = host.process()
    made.communicator()
    host.tick(0)
    cases = [
        (EndReason.BY_SUCCESSOR, Visibility.LAUNCH, Kind.DONE, 0),
        (EndReason.RECYCLED, Visibility.LAUNCH, Kind.DONE, Flag.OVERWRITTEN),
        (EndReason.RECYCLED, Visibility.FLOWS, Kind.ORPHAN, Flag.OVERWRITTEN),
        (EndReason.FINALISED, Visibility.LAUNCH, Kind.DONE, 0),
        (EndReason.ABORTED, Visibility.FLOWS, Kind.ORPHAN, Flag.ABORTED),
    ]
    for slot, (reason, visibility, _, _) in enumerate(cases):
        made.operation(slot, at(10), seq=slot + 1, visibility=visibility)
        made.end(slot, at(20), reason)
    found = rows(host.run(100, 1000), "coll")
    for number, (_, _, kind, flags) in enumerate(cases, start=1):
        (row,) = found[(found["seq"] == number) & np.isin(found["kind"], (Kind.DONE, Kind.ORPHAN))]
        assert (Kind(row["kind"]), Flag(int(row["flags"])), row["end_us"]) == (kind, flags, UNKNOWN_US)


def test_a_finalised_communicator_says_so_and_is_no_longer_flushed_to(host: Host) -> None:
    made = host.process()
    comm = made.communicator()
    host.tick(0)
    comm["state"] = CommunicatorState.FINALISED
    (flush,) = host.run(100, 1000)
    (position,) = rows([flush], "coll", Kind.POSITION)
    assert position["flags"] == Flag.FINALISED
    assert flush.comms.tolist() == []


def test_a_flow_that_another_process_carries_is_given_back_to_its_owner(host: Host) -> None:
    owner, relay = host.process(nonce=0xAAAAA), host.process(nonce=0xBBBBB, pid=os.getppid())
    owner.communicator(comm=0xA, rank=5, nranks=8)
    relay.communicator(comm=0xB, rank=1)
    # The relay has a communicator, an operation and a slot of the same numbers.
    owner.operation(0, at(-2000), seq=42, visibility=Visibility.LAUNCH)
    relay.operation(0, at(-2000), seq=7)
    relay.flow(
        0, 0, parent=owner.handle(0), context=owner.context(0), flags=FlowFlag.FOREIGN, op=0xFFFF_FFFF,
        comm=0xFFFF_FFFF, rank=5, seq=0, func=0, launch_tick=0, start_tick=at(-1990),
    )  # fmt: skip
    flushes = host.run(0, 100)
    (flow,) = rows(flushes, "flow", Kind.STATE)
    states = rows(flushes, "coll", Kind.STATE)
    assert states[states["comm"] == 0xA]["visibility"].tolist() == [Visibility.FLOWS]
    procs = {int(row["proc"]): row for row in rows(flushes, "proc")}
    assert (flow["comm"], flow["rank"], flow["seq"], flow["func"]) == (0xA, 5, 42, Func.ALL_REDUCE)
    ids = [traced.id for traced in host.files.traced.values()]
    assert [int(flow["carrier"])] == [each for each in ids if device_id(each, 0) != flow["dev"]]
    assert set(procs) == set(ids)
    # The owner is gone: what nobody on this host can be asked for is left out.
    relay.tables[Table.FLOWS][0]["parent"] = 4 << 60 | 0xCCCCC << 40
    host.tick(200)
    assert not len(host.last.flow_states(host.last.flow.of >= -1))  # type: ignore[union-attr]


def test_a_finished_flow_finds_an_operation_that_is_launched_while_the_host_is_read(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's header was read before its launch, its relay's after the flow had finished."""
    owner, relay = host.process(nonce=0xAAAAA), host.process(nonce=0xBBBBB, pid=os.getppid())
    owner.communicator(comm=0xA, rank=5, nranks=8)
    relay.communicator(comm=0xB, rank=1)
    relay.operation(0, at(-2000), seq=7)
    host.tick(0)
    relay.flow(
        0, 0, parent=owner.handle(0), context=owner.context(0), flags=FlowFlag.FOREIGN, op=0xFFFF_FFFF,
        comm=0xFFFF_FFFF, rank=5, seq=0, func=0, launch_tick=0, start_tick=at(900),
    )  # fmt: skip
    relay.finish(0, at(950))
    read = HostReader.headers

    def headers(self: HostReader, readers: Sequence[Reader]) -> Raw:
        found: Raw = read(self, readers).copy()
        owner.operation(0, at(890), seq=42, visibility=Visibility.LAUNCH)
        return found

    monkeypatch.setattr(HostReader, "headers", headers)
    (flow,) = rows(host.tick(1000), "flow", Kind.DONE)
    assert (flow["comm"], flow["rank"], flow["seq"], flow["func"]) == (0xA, 5, 42, Func.ALL_REDUCE)


def test_what_a_dead_process_carried_of_an_operation_that_is_over_is_told_once(tmp_path: Path) -> None:
    """The owner's kernel is through; of its flow this is all that anybody will ever know."""
    folder = tmp_path / "shm"
    folder.mkdir()
    host = Host(folder)
    owner, relay = host.process(nonce=0xAAAAA), host.process(nonce=0xBBBBB, pid=(1 << 22) + 5, start_ticks=77)
    owner.communicator(comm=0xA, rank=5, nranks=8)
    relay.communicator(comm=0xB, rank=1)
    owner.operation(0, at(-2000), seq=42, visibility=Visibility.KERNEL)
    relay.flow(
        0, 0, parent=owner.handle(0), context=owner.context(0), flags=FlowFlag.FOREIGN, op=0xFFFF_FFFF,
        comm=0xFFFF_FFFF, rank=5, seq=0, func=0, launch_tick=0, start_tick=at(-1990), counters=(4, 3, 2, 0),
    )  # fmt: skip
    owner.end(0, at(-1000), EndReason.BY_KERNELS)
    flushes = host.run(0, 3000)
    (flow,) = rows(flushes, "flow")
    assert (flow["kind"], Flag(int(flow["flags"]))) == (Kind.ORPHAN, Flag.DIED)
    assert (flow["comm"], flow["rank"], flow["seq"], flow["func"]) == (0xA, 5, 42, Func.ALL_REDUCE)
    assert (flow["ready"], flow["transmitted"], flow["done"]) == (4, 3, 2)


def test_a_process_that_falls_silent_is_told_at_once(host: Host) -> None:
    """Between two seconds, and once: who waits for it learns then that it launches nothing."""
    made = host.process()
    made.communicator()
    host.tick(0)
    made.header["callbacks"] += 1
    host.tick(400)  # its last sign
    told = [at for at in range(500, 4000, 100) if host.tick(at)]
    assert told == [1000, 1600, 2000, 3000]
    quiet = host.last.heard[0].quiet_us  # type: ignore[union-attr]
    assert quiet == 2_600_000


def test_a_look_sees_a_death_of_a_moment_ago(host: Host) -> None:
    """Those who wait for the dead are told of in the same look: the death must be in it."""
    with subprocess.Popen(["sleep", "60"]) as child:
        status = procfs.status(child.pid)
        assert status is not None
        host.process(pid=child.pid, start_ticks=status.start_ticks)
        assert [row["alive"] for row in rows(host.tick(0), "proc")] == [1]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and still there
        flushes = host.observer.observe(at(1100), WALL + 1100 * MS)
        assert [row["alive"] for row in rows(flushes or [], "proc")] == [0]


def test_a_dead_process_leaves_its_last_state_and_its_file_goes(tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    host = Host(folder, linger_ns=2 * SECOND)
    dead = host.process(pid=(1 << 22) + 5, start_ticks=77)
    dead.communicator()
    dead.operation(0, at(-100))
    dead.flow(0, 0)
    dead.operation(1, at(-200), seq=9)
    dead.end(1, at(-150))
    flushes = host.run(0, 0)
    (orphan,) = rows(flushes, "coll", Kind.ORPHAN)
    assert (orphan["seq"], Flag(int(orphan["flags"]))) == (1, Flag.DIED)
    assert len(rows(flushes, "flow", Kind.STATE)) == 1
    assert rows(flushes, "coll", Kind.DONE)["seq"].tolist() == [9]
    assert rows(flushes, "proc")["alive"].tolist() == [0]
    flushes = host.run(100, 1900)
    assert rows(flushes, "proc")["alive"].tolist() == [0]
    assert not rows(flushes, "coll", Kind.ORPHAN).size  # once
    assert dead.path.exists()
    host.run(2000, 2100)
    assert not dead.path.exists()
    assert host.metrics["files_removed_total"] == 1
    assert not host.files.traced


def test_a_corrupt_communicator_is_told_in_codes_that_exist(host: Host) -> None:
    made = host.process()
    slot = made.communicator(nranks=8)
    slot["launched"][14] = 5
    slot["nnodes"] = 0xFFFF_FFFF
    found = rows(host.run(0, 1000), "coll", Kind.POSITION)
    assert set(found["func"].tolist()) <= {int(func) for func in Func}
    assert found["nnodes"].tolist() == [0] * len(found)


def test_two_jobs_on_one_host_are_two_statements(host: Host) -> None:
    host.process(nonce=1, job="a").communicator(comm=0xA)
    host.process(nonce=2, job="b").communicator(comm=0xB)
    flushes = host.tick(0)
    assert {(flush.job, *flush.comms.tolist()) for flush in flushes} == {
        (job_id("a"), 0xA), (job_id("b"), 0xB),
    }  # fmt: skip
    assert all(len(flush.sections["proc"]) == 1 for flush in flushes)


def test_files_that_cannot_be_read_are_said_and_the_others_go_on(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = host.process(nonce=1), host.process(nonce=2)
    good.communicator()
    bad.header["layout_version"] = 9
    (flush,) = host.tick(0)
    assert host.metrics["files_refused"] == 1
    assert len(flush.sections["proc"]) == 1
    host.run(100, 3000)
    assert len([record for record in caplog.records if "layout version 9" in record.message]) == 1
    bad.header["layout_version"] = 1  # a file that was just being made
    host.run(3100, 4200)
    assert (host.metrics["files_refused"], len(host.files.traced)) == (0, 2)


def test_a_file_that_is_replaced_is_another_process(host: Host) -> None:
    host.process().communicator(comm=0xA)
    host.tick(0)
    (before,) = host.files.traced.values()
    before_inode = before.file.inode
    other = host.directory / "other"
    other.write_bytes(before.file.name.encode())
    other.replace(host.directory / before.file.name)
    host.tick(100)
    assert not host.files.traced
    assert (host.directory / before.file.name).stat().st_ino != before_inode


def test_the_budget_leaves_sums_positions_and_stalls_whole(tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    host = Host(folder, Limits(4000, 0))
    made = host.process(capacities={Table.OPERATIONS: 512, Table.RING: 512})
    made.communicator()
    made.operation(500, at(-5000), seq=1000, order=1)
    made.flow(0, 500)
    host.tick(0)
    for slot in range(200):
        made.operation(slot, at(10), seq=slot + 1, order=slot + 2)
        made.end(slot, at(20))
    flushes = host.run(100, 1000)
    assert rows(flushes, "coll", Kind.SUM)["n"].tolist() == [200]
    assert len(rows(flushes, "coll", Kind.POSITION)) == 1
    assert len(rows(flushes, "coll", Kind.STATE)) >= 1
    done = rows(flushes, "coll", Kind.DONE)
    assert 0 < len(done) < 20
    assert host.metrics["records_sampled_out_total"] == 200 - len(done)
    assert sum(flush.size - 1024 - flush.comms.nbytes for flush in flushes) <= 4000


def test_sends_and_receives_are_told_by_peer(host: Host) -> None:
    made = host.process()
    made.communicator()
    host.tick(0)
    made.operation(0, at(10), seq=3, func=Func.SEND, flags=Flag.P2P, peer=1)
    made.end(0, at(20))
    pair = made.slot(Table.PAIRS, 5)
    pair["key"], pair["count"] = 2 << 48 | 0 << 36 | Direction.SEND << 32 | 1, 4
    positions = rows(host.run(100, 1000), "coll", Kind.POSITION)
    (each,) = positions[positions["peer"] == 1]
    assert (each["func"], each["seq"], each["ended"]) == (Func.SEND, 4, 3)
    assert Flag(int(each["flags"])) & Flag.P2P


def test_pairs_are_known_by_the_mark_of_their_communicators_generation(host: Host) -> None:
    """layout.h, Pair::key: generations begin at random, so they seldom are the mark itself."""
    made = host.process()
    made.communicator()
    generation = 0x1_5A7C
    made.slot(Table.COMMUNICATORS, 0)["generation"] = generation
    host.tick(0)
    made.operation(0, at(10), seq=9, func=Func.RECV, flags=Flag.P2P, peer=1, comm_generation=generation)
    pair = made.slot(Table.PAIRS, 5)
    mark = (generation >> 1 & 0x7FFF) + 1
    pair["key"], pair["count"] = mark << 48 | 0 << 36 | Direction.RECV << 32 | 1, 9
    positions = rows(host.run(100, 1000), "coll", Kind.POSITION)
    (each,) = positions[positions["peer"] == 1]
    assert (each["func"], each["seq"]) == (Func.RECV, 9)


def test_members_are_announced_on_change_and_each_minute(host: Host) -> None:
    made = host.process()
    made.communicator(comm=0xA, nranks=4)
    host.tick(0)

    rings: dict[int, tuple[RingPath, ...]] = {}

    def announced(ms: int) -> list[int]:
        host.tick(ms)
        return [each.comm for each in host.announcer.due(host.files.traced.values(), at(ms), rings)]

    assert announced(100) == [0xA]
    assert announced(200) == []
    made.communicator(1, comm=0xB)
    assert announced(1100) == [0xB]  # communicators are looked at each second
    assert announced(60_200) == [0xA, 0xB]
    rings[0xB] = (RingPath(0, (0, 1, 2, 3, 0)),)
    assert announced(60_300) == [0xB]
