"""Reading files of the plugin: layout, discovery, snapshots and rings, of good files and of bad ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.agent import files as files_module
from collectors.agent import layout, native
from collectors.agent.discovery import Lives, OpenFile, open_file
from collectors.agent.files import MAX_REFUSALS_SAID, DirectoryTaken, Files
from collectors.agent.layout import NotOurs, OperationState, RecordKind, Table
from collectors.agent.metrics import Metrics
from collectors.agent.native import Verdict
from collectors.agent.reader import Reader
from collectors.agent.ring import Ring
from collectors.agent.snapshot import Failed, HostReader, Snapshot
from tests.collector_files import FakeProcess, control
from tests.unit.test_collector_procfs import process

PLUGIN = Path(__file__).resolve().parents[2] / "native" / "plugin"


def opened(path: Path) -> OpenFile:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return open_file(fd, path.name)
    finally:
        os.close(fd)


def refusal(path: Path) -> str:
    with pytest.raises(NotOurs) as raised:
        opened(path)
    return str(raised.value)


def test_the_layout_is_the_plugins(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("NO C++ COMPILER, the layout was not compared")
    dump = tmp_path / "dump"
    subprocess.run([compiler, "-std=c++17", "-o", dump, PLUGIN / "layout_dump.cpp"], check=True)
    told: dict[str, Any] = json.loads(subprocess.run([dump], capture_output=True, check=True).stdout)
    assert told["version"] == layout.VERSION
    constants = told["constants"]
    assert (constants["kMagic"], constants["kHeaderBytes"]) == (layout.MAGIC, layout.HEADER_BYTES)
    assert (constants["kNone"], constants["kFuncs"]) == (layout.NONE, layout.FUNCS)
    assert constants["kDropKinds"] == layout.DROP_KINDS
    for name, struct in told["structs"].items():
        ours = layout.STRUCTS[name]
        assert ours.itemsize == struct["size"], name
        assert ours.fields is not None
        for field, (offset, size) in struct["fields"].items():
            found = ours.fields[field]
            assert (found[1], found[0].itemsize) == (offset, size), (name, field)
    for ours_enum, theirs, prefix in (
        (layout.State, "State", "k"), (layout.Tier, "Tier", "kTier"), (layout.Table, "Table", "Table::k"),
        (layout.CommunicatorState, "CommunicatorState", "kComm"), (layout.CallKind, "CallKind", "kCall"),
        (layout.EndReason, "EndReason", "k"), (layout.FlowState, "FlowState", "kFlow"),
        (layout.FlowFlag, "FlowFlag", "kFlow"), (layout.RecordKind, "RecordKind", "kRecord"),
        (layout.OperationState, "OperationState", "k"), (layout.StepState, "StepState", "k"),
    ):  # fmt: skip
        values = {_plain(name, prefix): value for name, value in told["enums"][theirs].items()}
        for member in ours_enum:
            assert values[str(member.name).replace("_", "").lower()] == member.value, (theirs, member)


def _plain(name: str, prefix: str) -> str:
    plain = name.removeprefix(prefix).lower()
    return plain.removeprefix("step") if name.startswith("kStep") else plain


def test_a_good_file(directory: Path) -> None:
    made = FakeProcess(directory, environment={"MYCROFT_JOB": "llama", "RANK": "3"})
    file = opened(made.path)
    assert file.identity == made.identity()
    assert file.environment == {"MYCROFT_JOB": "llama", "RANK": "3"}
    file.close()


def test_the_name_of_the_job_in_the_header_counts_where_the_environment_lacks_it(directory: Path) -> None:
    made = FakeProcess(directory)
    made.header["job"] = b"from-header"
    assert opened(made.path).environment == {"MYCROFT_JOB": "from-header"}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("magic", 0, "magic"),
        ("layout_version", 99, "version 99"),
        ("header_bytes", 64, "header of 64"),
        ("file_bytes", 1 << 29, "shorter than"),
        ("file_bytes", 1 << 40, "shorter than"),
        ("pid", 1, "different processes"),
        ("nonce", 5, "different processes"),
        ("uid", 4242, "belongs to user"),
    ],
)
def test_headers_that_are_refused(directory: Path, field: str, value: int, reason: str) -> None:
    made = FakeProcess(directory)
    made.header[field] = value
    assert reason in refusal(made.path)


@pytest.mark.parametrize(
    ("table", "info"),
    [
        (Table.OPERATIONS, (0, 256, 4, 0, 0)),
        (Table.OPERATIONS, (1 << 62, 256, 4, 0, 0)),
        (Table.FLOWS, (16384, 255, 4, 0, 0)),
        (Table.FLOWS, (16384, 8, 4, 0, 0)),
        (Table.RING, (16384, 288, 0, 0, 0)),
        (Table.PAIRS, (16384, 16, 0xFFFF_FFFF, 0, 0)),
    ],
)
def test_tables_that_are_refused(directory: Path, table: Table, info: tuple[int, ...]) -> None:
    made = FakeProcess(directory)
    made.header["tables"][0, table] = info
    assert refusal(made.path)


def test_what_is_no_file_of_the_plugin_is_refused_unread(directory: Path, tmp_path: Path) -> None:
    made = FakeProcess(directory)
    name = made.path.name
    elsewhere = tmp_path / "elsewhere"
    made.path.rename(elsewhere)
    made.path.symlink_to(elsewhere)
    assert refusal(made.path) == "a symbolic link"
    made.path.unlink()
    os.link(elsewhere, made.path)
    assert refusal(made.path) == "it has another name too"
    made.path.unlink()
    os.mkfifo(made.path)  # opening it must not wait for a writer
    assert refusal(made.path) == "not a regular file"
    made.path.unlink()
    (directory / name).mkdir()
    assert refusal(made.path) == "not a regular file"
    (directory / name).rmdir()
    made.path.write_bytes(b"short")
    assert "shorter than a header" in refusal(made.path)
    made.path.unlink()
    assert "cannot be opened" in refusal(made.path)


def test_only_files_of_these_users_are_read(directory: Path) -> None:
    made = FakeProcess(directory)
    fd = os.open(directory, os.O_RDONLY)
    with pytest.raises(NotOurs, match="belongs to user"):
        open_file(fd, made.path.name, frozenset({made.path.stat().st_uid + 1}))
    os.close(fd)


def reader(made: FakeProcess) -> Reader:
    return Reader(opened(made.path))


def header_of(reading: Reader) -> np.void:
    header: np.void = HostReader().headers([reading])[0]
    return header


def snapshot_of(*readings: Reader, host: HostReader | None = None) -> Snapshot:
    host = host or HostReader()
    host.headers(readings)
    return host.snapshot(1_000_000)


def test_a_snapshot_has_what_is_in_flight(directory: Path) -> None:
    made = FakeProcess(directory)
    made.communicator()
    made.operation(0, 1000)
    made.operation(2, 2000, seq=2)
    made.operation(1, 1500)["control"] = control(2, OperationState.WRITING)
    made.flow(3, 0)
    made.flow(4, 0)["generation"] = 3
    found = snapshot_of(reader(made))
    assert found.open_operations["seq"].tolist() == [1, 2]
    assert len(found.operations) == 3
    assert found.flows["parent"].tolist() == [made.handle(0)]
    assert len(found.communicators) == 1
    assert found.torn == 0


def test_a_slot_that_changes_hands_between_two_looks_is_torn(directory: Path) -> None:
    made = FakeProcess(directory)
    made.communicator()
    for slot in range(3):
        made.operation(slot, 1000, seq=slot + 1)
        made.flow(slot, slot, calls=5)
    host = HostReader()
    assert host.glance([reader(made)], 1_000_000, 0) == Verdict.MOVED
    operations, flows = made.tables[Table.OPERATIONS], made.tables[Table.FLOWS]
    operations[0]["control"] = control(3, OperationState.OPEN)
    flows[0]["generation"] = 4
    operations[1]["control"] = control(2, OperationState.ENDED)  # over, but not another's
    flows[1]["state"] = layout.FlowState.FINISHED
    operations[2]["moved_tick"], flows[2]["calls"] = 2000, 6  # counters may move
    found = host.snapshot(1_000_000, glanced=True)
    assert (seqs(found.open_operations), found.flow_slots.tolist(), found.torn) == ([3], [2], 2)
    assert (found.open_operations["moved_tick"][0], found.flows["calls"][0]) == (2000, 6)


def test_rows_of_several_processes_lie_one_after_another(directory: Path) -> None:
    processes = [FakeProcess(directory, nonce=nonce) for nonce in (1, 2, 3)]
    for number, made in enumerate(processes):
        made.communicator(number)
        for slot in range(number):
            made.operation(2 * slot, 1000, seq=10 * number + slot)
            made.flow(3 * slot + 1, 2 * slot)
    found = snapshot_of(*(reader(made) for made in processes))
    assert found.comm_count.tolist() == [1, 2, 3]
    assert found.operation_count.tolist() == [0, 1, 3]
    assert seqs(found.open_operations) == [10, 20, 21]
    assert found.open_where.tolist() == [1, 2, 2]
    assert found.flow_where.tolist() == [1, 2, 2]
    assert found.flow_slots.tolist() == [1, 1, 4]


def test_a_file_that_is_cut_or_overwritten_while_in_use_is_refused(directory: Path) -> None:
    made, good = FakeProcess(directory), FakeProcess(directory, nonce=9)
    readings = [reader(good), reader(made)]
    made.header["nonce"] = 7
    with pytest.raises(Failed) as raised:
        snapshot_of(*readings)
    assert raised.value.reasons == {1: "its header changed hands"}
    made.header["nonce"] = made.nonce
    # Where tables lie is not read again: that they move changes nothing.
    made.communicator()
    made.operation(0, 1000)
    made.flow(0, 0)
    made.header["tables"]["offset"][0, Table.FLOWS] = 1 << 62
    assert len(snapshot_of(*readings).flows) == 1
    made.header["tables"]["used"][0, Table.PAIRS] = 0xFFFF_FFFF
    header = header_of(readings[1])
    os.truncate(made.path, 20_000)
    with pytest.raises(Failed) as raised:
        snapshot_of(*readings)
    assert raised.value.reasons == {1: "it was cut while in use"}
    with pytest.raises(NotOurs, match="cut"):
        readings[1].table(header, Table.PAIRS)
    os.truncate(made.path, 100)
    with pytest.raises(Failed):
        snapshot_of(*readings)


def test_both_sides_agree_on_what_they_share() -> None:
    sizes = native.library().mycroft_sizes()
    assert tuple(sizes[: len(native.SIZES)]) == native.SIZES


def test_rows_of_a_newer_plugin_may_be_longer(directory: Path) -> None:
    made = FakeProcess(directory)
    made.communicator()
    made.communicator(2, comm=0xC2)
    info = made.header["tables"][0, Table.COMMUNICATORS]
    info["stride"], info["capacity"] = 2 * layout.COMMUNICATOR.itemsize, 4
    info["used"] = 2
    found = snapshot_of(reader(made), reader(FakeProcess(directory, nonce=9))).communicators
    assert found["comm_id"].tolist() == [0xC0, 0xC2]


def test_clocks(directory: Path) -> None:
    made = FakeProcess(directory)
    reading, host = reader(made), HostReader()

    def rate(host: HostReader) -> float:
        return float(snapshot_of(reading, host=host).clocks.rate[0])

    made.header["tick_hz"] = 2_500_000_000
    assert rate(host) == 2.5
    made.header["start_anchor"]["ticks"], made.header["start_anchor"]["monotonic_ns"] = 0, 0
    made.header["anchor"]["ticks"], made.header["anchor"]["monotonic_ns"] = 6 * 10**9, 2 * 10**9
    assert rate(host) == 3
    clocks = snapshot_of(reading, host=host).clocks
    assert clocks.monotonic(0, 3 * 10**9) == 10**9
    for name, value in (("version", 1), ("ticks", (1 << 64) - 1), ("monotonic_ns", -1)):
        good = made.header["anchor"][name].copy()
        made.header["anchor"][name] = value
        assert rate(host) == 3, "the last good one counts while an anchor is being written"
        with pytest.raises(Failed, match="clock"):
            rate(HostReader())
        made.header["anchor"][name] = good


def seqs(of: layout.Raw) -> list[int]:
    return [int(seq) for seq in of["seq"]]


def finished(made: FakeProcess, *numbers: int) -> None:
    for number in numbers:
        row = np.zeros(1, layout.OPERATION)[0]
        row["seq"] = number
        made.ring(RecordKind.OPERATION, row)


def test_a_ring_is_drained_in_order_and_once(directory: Path) -> None:
    made = FakeProcess(directory)
    reading = reader(made)
    ring = Ring(reading)
    assert len(ring.drain(header_of(reading)).operations) == 0
    finished(made, *range(50))
    made.ring(RecordKind.FLOW, np.zeros(1, layout.FLOW)[0])
    found = ring.drain(header_of(reading))
    assert (seqs(found.operations), len(found.flows), found.lost) == (list(range(50)), 1, 0)
    finished(made, *range(50, 100))  # over the end and from the start
    found = ring.drain(header_of(reading))
    assert (seqs(found.operations), found.lost) == (list(range(50, 100)), 0)
    assert ring.behind == 0


def test_what_was_overwritten_is_counted(directory: Path) -> None:
    made = FakeProcess(directory)
    reading = reader(made)
    ring = Ring(reading)
    finished(made, *range(100))
    found = ring.drain(header_of(reading))
    assert (seqs(found.operations), found.lost) == (list(range(36, 100)), 36)


def test_a_record_that_never_becomes_ready_holds_nobody_up(directory: Path) -> None:
    made = FakeProcess(directory)
    reading = reader(made)
    ring = Ring(reading)
    finished(made, 0, 1, 2)
    made.tables[Table.RING][1]["sequence"] = 3
    assert seqs(ring.drain(header_of(reading)).operations) == [0]
    found = ring.drain(header_of(reading))
    assert (seqs(found.operations), found.lost) == ([2], 1)
    # The last one may still be written, by a process that is stopped: nobody waits behind it.
    finished(made, 3)
    made.tables[Table.RING][3]["sequence"] = 7
    for _ in range(3):
        found = ring.drain(header_of(reading))
        assert (len(found.operations), found.lost, ring.behind) == (0, 0, 1)
    made.tables[Table.RING][3]["sequence"] = 8
    assert seqs(ring.drain(header_of(reading)).operations) == [3]


def test_a_ring_that_goes_back_or_jumps_is_survived(directory: Path) -> None:
    made = FakeProcess(directory)
    reading = reader(made)
    ring = Ring(reading)
    finished(made, *range(10))
    ring.drain(header_of(reading))
    made.header["ring_next"] = 3
    assert ring.drain(header_of(reading)).lost == 1
    made.header["ring_next"] = (1 << 64) - 1
    assert ring.drain(header_of(reading)).lost > 1 << 39
    made.header["ring_next"] = 0
    ring.drain(header_of(reading))


def test_kinds_that_nobody_knows_are_counted(directory: Path) -> None:
    made = FakeProcess(directory)
    reading = reader(made)
    finished(made, 1, 2)
    made.tables[Table.RING][0]["kind"] = 99
    found = Ring(reading).drain(header_of(reading))
    assert (seqs(found.operations), found.corrupt) == ([2], 1)


def test_who_lives(directory: Path) -> None:
    made = FakeProcess(directory)
    lives = Lives()
    assert lives.of(made.identity()).alive is True
    reused = FakeProcess(directory, start_ticks=1, nonce=2)
    assert lives.of(reused.identity()).alive is False
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert lives.of(FakeProcess(directory, pid=gone.pid, nonce=3).identity()).alive is False


def test_a_process_of_another_namespace_is_unknown_until_it_is_seen_and_dead_when_it_goes(
    tmp_path: Path,
) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "self" / "ns").mkdir(parents=True)
    (proc / "self" / "ns" / "pid").symlink_to("pid:[4026531836]")
    (tmp_path / "shm").mkdir()
    who = FakeProcess(tmp_path / "shm", start_ticks=700, pid_namespace=4026532999, pid=1)
    lives = Lives(proc)
    identity = who.identity().__class__(1, 700, 4026532999, who.nonce, who.tag, "", 0)
    assert lives.of(identity).alive is None
    process(proc, 55, inner=1, start=700)
    life = lives.of(identity)
    assert (life.alive, life.pid) == (True, 55)
    shutil.rmtree(proc / "55")
    assert lives.of(identity).alive is False


def test_a_process_knows_its_communicators(directory: Path) -> None:
    made = FakeProcess(directory, environment={"MYCROFT_JOB": "llama", "RANK": "3"})
    made.communicator(0, comm=0xA, rank=1, nranks=4, uuid=np.arange(16, dtype=np.uint8))
    made.communicator(1, comm=0xB, generation=3)
    made.communicator(2, comm=0, launches=1)
    made.communicator(3, comm=0xD, rank=-1)
    files = Files(directory, "node1", Metrics(), 0)
    files.scan(0)
    (traced,) = files.traced.values()
    files.read(0)
    assert traced.facts["known"].tolist() == [True, False, True, False]
    (facts, name, member), unnamed = traced.members()
    assert (int(facts["comm"]), int(facts["nranks"]), name.name, name.library) == (0xA, 4, "world", None)
    assert (member.rank, member.world_rank, member.gpu, member.host) == (1, 3, 0, "node1")
    assert member.gpu_id == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert unnamed[2].gpu_id == "0000:3b:00.0"
    before = traced.version
    files.read(0)
    assert traced.version == before
    made.communicator(3, comm=0xD, rank=2)
    files.read(0)
    assert traced.version == before + 1
    assert traced.facts["known"].tolist() == [True, False, True, True]


def test_a_directory_that_is_made_later_has_one_collector(tmp_path: Path) -> None:
    """At boot there is none: whoever sees it first has it, also when it is made again."""
    folder = tmp_path / "later"
    first, second = (Files(folder, "node1", Metrics(), 0) for _ in range(2))
    first.scan(0)
    second.scan(0)
    assert (first.held, second.held) == (False, False)
    folder.mkdir()
    first.scan(1)
    with pytest.raises(DirectoryTaken, match="another collector reads"):
        second.scan(1)
    folder.rmdir()
    folder.mkdir()
    second.scan(2)  # the first still has that which is gone
    first.scan(2)
    assert (first.held, second.held) == (False, True)
    with pytest.raises(DirectoryTaken):
        first.scan(3)
    second.close()
    first.scan(4)
    assert first.held
    first.close()


def test_thousands_of_names_that_somebody_made_hide_no_process(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files_module, "MAX_NAMES", 40)
    files = Files(directory, "node1", Metrics(), 0)
    FakeProcess(directory, nonce=0x1)
    files.scan(0)
    for number in range(100):
        (directory / f"0-0-{number:016x}.mycroft").touch()
    FakeProcess(directory, nonce=0x2)
    for scan in range(1, 5):
        files.scan(scan)
        assert len(files.traced) >= 1, "what is read stays"
    assert len(files.traced) == 2
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("is not read" in line for line in said) == MAX_REFUSALS_SAID
    assert sum("names, only 40 are looked at" in line for line in said) == 1
    files.close()
