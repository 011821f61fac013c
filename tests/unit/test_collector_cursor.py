"""What a collector leaves to the next one: what is believed of it, and that nothing is told twice for it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.agent import cursor
from collectors.agent.agent import Agent, Config
from collectors.agent.budget import Limits
from collectors.agent.cursor import Cursor, CursorFile, Position, Progress, Unreadable, Who, decode, encode
from collectors.agent.discovery import names
from collectors.agent.files import Files
from collectors.agent.layout import RecordKind, Table
from collectors.agent.metrics import Metrics
from collectors.agent.observer import Observer
from collectors.agent.positions import pair_key
from schemas.enums import Direction, Flag, Func, Kind
from tests.collector_files import FakeProcess
from tests.unit.test_collector_host import MS, SECOND, START, WALL, Host, at, rows

ONE, TWO = Who("7-70-00000000000000aa.mycroft", 11), Who("8-80-00000000000000bb.mycroft", 12)
LEFT = Cursor(3, {ONE: Position(100, 60, 2)})
LATER = 10 * SECOND


# -- the file


def test_the_next_collector_reads_what_was_written(directory: Path) -> None:
    CursorFile(directory).save(LEFT, LATER)
    assert CursorFile(directory).load() == LEFT
    assert [(path.name, path.stat().st_mode & 0o777) for path in directory.iterdir()] == [
        (cursor.NAME, 0o600)
    ]
    assert names(directory) == []


def changed(**values: Any) -> bytes:
    """The bytes of LEFT with other values: of its only process, or of all (version, lost, processes)."""
    found = json.loads(encode(LEFT))
    for name, value in values.items():
        (found if name in found else found["processes"][0])[name] = value
    return json.dumps(found).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"null", b"7", b"[]", b"{}", b"\xff\xfe\x00", b"[" * 100_000, b'{"version":1}',
        encode(LEFT)[:-1],
        encode(LEFT) + b"x", changed(version=0), changed(version=2), changed(version="1"), changed(lost=-1),
        changed(lost=None), changed(lost=0.5), changed(lost=float("nan")), changed(lost=True),
        changed(processes={}), changed(processes=[7]), changed(processes=[{}]), changed(file=7),
        changed(inode=-1), changed(inode="11"), changed(told=-1), changed(told=1 << 64), changed(told=1e300),
        changed(summed=101), changed(drops=[]),
        changed(processes=2 * json.loads(encode(LEFT))["processes"]),
        b'{"version":1,"processes":[],"lost":' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_is_not_used_and_said_once(
    directory: Path, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Unreadable):
        decode(raw)
    (directory / cursor.NAME).write_bytes(raw)
    (directory / cursor.NAME).chmod(0o600)
    assert CursorFile(directory).load() == Cursor()
    (said,) = caplog.messages
    assert "is not used" in said


def by_others(path: Path) -> None:
    path.write_bytes(encode(LEFT))
    path.chmod(0o622)


def linked(path: Path) -> None:
    target = path.with_name("target")
    target.write_bytes(encode(LEFT))
    path.symlink_to(target)


def of_two_names(path: Path) -> None:
    path.write_bytes(encode(LEFT))
    path.chmod(0o600)
    path.with_name("other").hardlink_to(path)


def too_large(path: Path) -> None:
    path.write_bytes(encode(LEFT) + b" " * cursor.MAX_BYTES)
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (by_others, "another user"), (linked, "symbolic"), (of_two_names, "one name"),
        (os.mkfifo, "one name"),
        (os.mkdir, "one name"), (too_large, "larger"),
    ],
)  # fmt: skip
def test_what_others_may_have_put_there_is_not_believed(
    directory: Path, made: Callable[[Path], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    made(directory / cursor.NAME)
    assert CursorFile(directory).load() == Cursor()
    (said,) = caplog.messages
    assert reason in said


def test_a_file_of_another_user_is_not_believed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    CursorFile(directory).save(LEFT, LATER)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert CursorFile(directory).load() == Cursor()


def test_it_is_written_once_a_second_and_only_when_it_has_changed(directory: Path) -> None:
    path, file = directory / cursor.NAME, CursorFile(directory)
    file.load()
    file.save(LEFT, LATER)
    first = path.stat().st_ino
    file.save(LEFT, LATER + 5 * SECOND)
    assert path.stat().st_ino == first
    more = Cursor(3, {ONE: Position(101, 60, 2)})
    file.save(more, LATER + 5 * SECOND)
    again = Cursor(3, {ONE: Position(102, 60, 2)})
    file.save(again, LATER + 5 * SECOND + 900 * MS)
    assert CursorFile(directory).load() == more
    file.save(again, LATER + 5 * SECOND + 900 * MS, last=True)
    assert CursorFile(directory).load() == again
    file.save(Cursor(3, {}), LATER + 20 * SECOND)  # no process is left: nothing to say
    assert list(directory.iterdir()) == []


def test_a_leftover_of_one_that_was_killed_is_replaced(directory: Path) -> None:
    (directory / (cursor.NAME + ".new")).write_bytes(b"half")
    CursorFile(directory).save(LEFT, LATER)
    assert [path.name for path in directory.iterdir()] == [cursor.NAME]


def test_a_folder_that_cannot_be_written_is_said_once(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = CursorFile(directory / "gone")
    for second in range(3):
        file.save(Cursor(second, {ONE: Position()}), LATER + second * SECOND)
    (said,) = caplog.messages
    assert "cannot be written" in said


# -- decisions


def test_only_what_was_delivered_counts_and_flows_once_their_period_is_over() -> None:
    progress = Progress(Cursor())
    progress.note(1, {ONE: (10, 4)}, {ONE}, summed=True, lost=6)
    progress.note(3, {ONE: (20, 5)}, {ONE}, summed=False, lost=9)
    progress.note(4, {ONE: (30, 5), TWO: (7, 1)}, {ONE, TWO}, summed=True, lost=9)
    progress.settle(0)
    assert progress.delivered == Cursor()
    progress.settle(2)
    assert progress.delivered == Cursor(6, {ONE: Position(10, 10, 4)})
    progress.settle(3)
    assert progress.delivered == Cursor(6, {ONE: Position(20, 10, 4)})  # losses since are found again
    progress.settle(4)
    assert progress.delivered == Cursor(9, {ONE: Position(30, 30, 5), TWO: Position(7, 7, 1)})
    assert progress.of(TWO) == Position(7, 7, 1)
    assert progress.of(Who(TWO.name, 13)) == Position()


def test_while_it_reads_again_what_was_told_nothing_goes_back() -> None:
    progress = Progress(LEFT)
    progress.note(1, {ONE: (50, 2)}, {ONE}, summed=False, lost=3)
    progress.settle(1)
    assert progress.delivered == LEFT
    progress.note(2, {ONE: (50, 2)}, {ONE}, summed=True, lost=3)
    progress.settle(2)
    assert progress.delivered == Cursor(3, {ONE: Position(100, 100, 2)})


def test_a_file_that_is_there_but_not_read_just_now_keeps_its_place_and_one_that_is_gone_does_not() -> None:
    progress = Progress(LEFT)
    progress.note(1, {TWO: (5, 0)}, {ONE, TWO}, summed=True, lost=3)
    progress.settle(1)
    assert set(progress.delivered.positions) == {ONE, TWO}
    progress.note(2, {TWO: (5, 0)}, {TWO}, summed=False, lost=3)
    progress.settle(2)
    assert set(progress.delivered.positions) == {TWO}


# -- rings


class Later(Host):
    """A collector on the files of another one that has told of them what `known` says."""

    def __init__(self, directory: Path, known: Position) -> None:
        super().__init__(directory)
        self.files = Files(directory, "node1", Metrics(), 30 * SECOND, known=lambda _: known)
        self.observer = Observer(self.files, Limits(0, 0), self.metrics)


def pairwise(directory: Path, count: int, ring: int = 64) -> FakeProcess:
    """A process that has sent `count` times: record 2k is the flow of send k + 1, record 2k + 1 the send."""
    made = FakeProcess(
        directory, environment={"MYCROFT_JOB": "llama"}, capacities={Table.RING: ring}, nonce=0xAA
    )
    made.anchor(START)
    for name in ("start_anchor", "anchor"):
        made.header[name]["wall_ns"] = WALL
    made.communicator()
    for seq in range(1, count + 1):
        flags = np.uint32(Flag.P2P)
        made.operation(seq % 8, at(seq), seq=seq, func=Func.SEND, flags=flags, peer=1, bytes=100)
        made.flow(0, seq % 8, bytes=10)
        made.finish(0, at(seq + 1))
        made.end(seq % 8, at(seq + 1))
    return made


@pytest.mark.parametrize(("told", "summed"), [(0, 0), (8, 8), (8, 3), (20, 20), (20, 0), (19, 19)])
def test_what_was_told_is_remembered_but_not_told_again(directory: Path, told: int, summed: int) -> None:
    pairwise(directory, 10)
    host = Later(directory, Position(told, summed))
    flushes = host.run(100, 100)
    # Of 20 records the first `told` hold told // 2 sends, the first `summed` half of them, rounded up, flows.
    sends, flows = 10 - told // 2, 10 - (told + 1) // 2
    assert rows(flushes, "coll", Kind.SUM)["n"].sum() == sends
    assert rows(flushes, "coll", Kind.DONE)["seq"].tolist() == list(range(11 - sends, 11))
    assert rows(flushes, "flow", Kind.DONE)["seq"].tolist() == list(range(11 - flows, 11))
    assert rows(flushes, "flow", Kind.SUM)["bytes"].sum() == 10 * (10 - (summed + 1) // 2)
    (dev,) = set(host.last.world.comms["dev"].tolist())  # type: ignore[union-attr]
    key = pair_key(
        np.array([dev], np.uint64), np.array([0xC0], np.uint64),
        np.array([Direction.SEND]), np.array([1], np.int64),
    )  # fmt: skip
    assert host.observer.analysis.pairs.of(key).tolist() == [10]


def test_an_operation_of_which_more_shows_up_after_its_sum_is_not_summed_again(directory: Path) -> None:
    made = pairwise(directory, 1)
    row = made.tables[Table.OPERATIONS][1]
    row["amended"] = 1
    made.ring(RecordKind.OPERATION, row)
    flushes = Later(directory, Position(2, 2)).run(100, 100)
    assert len(rows(flushes, "coll", Kind.SUM)) == 0
    assert rows(flushes, "coll", Kind.DONE)["seq"].tolist() == [1]


@pytest.mark.parametrize(
    ("known", "lost"),
    [
        (Position(0, 0), 36),  # of 100 records 64 are there
        (Position(20, 20), 16),
        (Position(40, 40), 0),
        (Position(40, 30), 6),  # flows that were sent, but not summed
        (Position(100, 100), 0),
    ],
)
def test_only_records_that_nobody_had_told_of_count_as_lost(
    directory: Path, known: Position, lost: int
) -> None:
    pairwise(directory, 50)
    host = Later(directory, known)
    host.tick(100)
    assert host.last is not None
    assert host.last.lost == lost


def test_a_record_that_the_former_one_gave_up_holds_nobody_up(directory: Path) -> None:
    made = pairwise(directory, 10)
    made.tables[Table.RING][4]["sequence"] = 1  # a flow that was never written to its end
    made.tables[Table.RING][19]["sequence"] = 1  # and, which cannot be, the last one that it told of
    pairs = Later(directory, Position(20, 20))
    assert len(rows(pairs.run(100, 100), "coll", Kind.SUM)) == 0
    made.end(1, at(50))
    assert rows(pairs.run(200, 2200), "coll", Kind.SUM)["n"].tolist() == [1]
    assert pairs.last is not None
    assert pairs.last.lost == 0


def test_a_place_beyond_the_end_of_the_ring_is_not_believed(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pairwise(directory, 10)
    flushes = Later(directory, Position(21, 5)).run(100, 100)
    assert rows(flushes, "coll", Kind.SUM)["n"].sum() == 10
    (said,) = caplog.messages
    assert "not believed" in said


def test_a_process_that_took_the_name_of_another_is_read_from_its_oldest(directory: Path) -> None:
    """The same pid, start and nonce, but another file."""
    made = pairwise(directory, 10)
    progress = Progress(Cursor(0, {Who(made.path.name, made.path.stat().st_ino + 1): Position(20, 20)}))
    host = Later(directory, Position())
    host.files = Files(directory, "node1", Metrics(), 30 * SECOND, known=progress.of)
    host.observer = Observer(host.files, Limits(0, 0), host.metrics)
    assert rows(host.run(100, 100), "coll", Kind.SUM)["n"].sum() == 10


# -- what the plugin dropped


def test_drops_of_the_plugin_are_counted_on_from_where_the_former_collector_was(directory: Path) -> None:
    made = pairwise(directory, 10)
    made.header["drops"][0, 0] = 5
    who = Who(made.path.name, made.path.stat().st_ino)
    CursorFile(directory).save(Cursor(7, {who: Position(20, 20, 4)}), LATER)
    agent = Agent(Config("127.0.0.1:1", directory, "node1", Limits(0, 0)))
    agent.tick(SECOND, WALL)
    assert (agent.drops, agent.metrics["plugin_drops_total"]) == (8, 1)
    made.header["drops"][0, 0] = 7
    agent.tick(2 * SECOND, WALL + SECOND)
    assert (agent.drops, agent.metrics["plugin_drops_total"]) == (10, 3)
    agent.close()
    # Kafka was away: the next one finds what this one found.
    assert CursorFile(directory).load() == Cursor(7, {who: Position(20, 20, 4)})
