"""The collector with a real broker and store: what it sees arrives, also when things go away meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from collectors.agent.agent import Agent, CannotCollect, Config
from collectors.agent.budget import Limits
from collectors.agent.layout import EndReason, Table
from mycroft.settings import Settings
from queries.client import connect
from schemas.enums import Kind
from schemas.envelope import Envelope, MessageKind
from schemas.ids import job_id
from schemas.members import decode_members
from schemas.migrate import migrate
from schemas.topics import partition_of
from streams.sink.loop import run_sink
from streams.topics import ensure_topics
from tests.collector_files import FakeProcess
from tests.integration.collecting import PATIENCE_S, Reader, reading, running, until
from tests.integration.kafka_fixtures import Broker, EmbeddedBroker

MYCROFT = str(Path(sys.executable).with_name("mycroft"))


@pytest.fixture
def reader(broker: Broker) -> Iterator[Reader]:
    with reading(broker.bootstrap) as made:
        yield made


def stalling(directory: Path, nonce: int = 1, pid: int | None = None, comm: int = 0xA1) -> FakeProcess:
    made = FakeProcess(directory, nonce=nonce, pid=pid, environment={"MYCROFT_JOB": "llama"})
    made.communicator(comm=comm)
    now = time.monotonic_ns()
    made.operation(0, now - 2 * 10**9, seq=7)
    made.flow(0, 0, counters=[3, 3, 2, 0])
    made.operation(1, now - 3 * 10**9, seq=6)
    made.end(1, now - 10**9)
    return made


def test_what_is_seen_arrives_where_its_communicator_meets(
    broker: Broker, reader: Reader, directory: Path
) -> None:
    made = stalling(directory)
    made.communicator(1, comm=0xA2, rank=1)
    with running(Config(broker.bootstrap, directory, "node1", Limits(0, 0))):
        until(lambda: reader.read().rows("flow", Kind.STATE), "the stalled flow")
        until(lambda: len(reader.read().flushes[2]) >= 3, "flushes of a communicator without records")
    reader.read()
    assert not reader.flushes[0]
    assert not reader.flushes[3]
    for partition, flushes in reader.flushes.items():
        assert [flush.sequence for flush in flushes] == list(range(len(flushes)))
        assert [flush.through for flush in flushes] == sorted(flush.through for flush in flushes)
        for flush in flushes:
            assert (flush.kind, flush.source, flush.job) == (MessageKind.FLUSH, "node1", job_id("llama"))
            assert flush.drops == 0
            for name in ("coll", "flow"):
                rows = flush.sections.get(name, ())
                assert all(partition_of(int(row["comm"]), 4) == partition for row in rows)
    assert [row["seq"] for row in reader.rows("coll", Kind.DONE)] == [6]
    assert {row["seq"] for row in reader.rows("coll", Kind.STATE)} == {7}
    announced = {partition: decode_members(value) for partition, value in reader.members}
    assert {partition: each.comm for partition, each in announced.items()} == {1: 0xA1, 2: 0xA2}
    assert announced[1].members[0].host == "node1"


def test_rows_land_in_the_store(
    embedded_broker: EmbeddedBroker, store_url: str, directory: Path, tmp_path: Path
) -> None:
    migrate(store_url)
    client = connect(store_url)
    for table in ("coll", "flows", "procs", "members", "facts"):
        client.command(f"TRUNCATE TABLE nccl.{table}")
    settings, stop = Settings(kafka=embedded_broker.bootstrap, clickhouse=store_url), threading.Event()
    sink = threading.Thread(target=run_sink, args=(settings, stop))
    sink.start()
    stalling(directory)
    sys, kmsg = tmp_path / "sys", tmp_path / "kmsg"
    carrier = sys / "class" / "net" / "eth0" / "carrier"
    carrier.parent.mkdir(parents=True)
    carrier.write_text("1\n")
    kmsg.write_text(
        f"3,1,{time.monotonic_ns() // 1000},-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    )

    def count(sql: str) -> int:
        return int(client.query(f"SELECT count() FROM nccl.{sql}").result_rows[0][0])

    try:
        host = Config(
            embedded_broker.bootstrap,
            directory,
            "node1",
            Limits(0, 0),
            proc=Path("/proc"),
            sys=sys,
            kmsg=kmsg,
        )
        with running(host):
            until(lambda: count("facts WHERE toStringCutToZero(name) = 'eth0' AND state = 'up'"), "facts")
            carrier.write_text("0\n")
            until(lambda: count("facts WHERE state = 'down' AND age_us < 5000000"), "the lost carrier")
            mine = "dev IN (SELECT dev FROM nccl.members)"
            until(lambda: count(f"facts WHERE what = 'xid' AND code = 79 AND {mine}"), "the Xid")
            until(lambda: count("flows WHERE kind = 'state' AND ready = 3 AND done = 2"), "flows")
            until(lambda: count("coll WHERE kind = 'state' AND seq = 7 AND current = 1"), "coll")
            until(lambda: count("coll WHERE kind = 'position' AND seq = 7 AND ended = 6"), "positions")
            until(lambda: count(f"procs WHERE alive = 1 AND pid = {os.getpid()}"), "procs")
            until(lambda: count("members WHERE job_name = 'llama' AND host = 'node1'"), "members")
    finally:
        stop.set()
        sink.join(PATIENCE_S)
    assert count("dead") == 0


def test_processes_that_are_killed_leave_their_last_state(
    embedded_broker: EmbeddedBroker, directory: Path
) -> None:
    ensure_topics(Settings(kafka=embedded_broker.bootstrap))
    reader = Reader(embedded_broker.bootstrap)
    victims = [subprocess.Popen(["sleep", "600"]) for _ in range(8)]
    made = [stalling(directory, nonce, victim.pid) for nonce, victim in enumerate(victims, 1)]
    with running(Config(embedded_broker.bootstrap, directory, "n", Limits(0, 0), linger_s=1.0)):
        until(lambda: len({row["dev"] for row in reader.read().rows("coll", Kind.STATE)}) == 8, "all")
        for process, victim in zip(made, victims, strict=True):
            now = time.monotonic_ns()
            process.operation(2, now - 10**6, seq=8)  # its last words
            process.end(2, now, EndReason.BY_FLOWS)
            victim.kill()
            victim.wait()
        until(lambda: not list(directory.iterdir()), "the files are removed once all is told")
    reader.read()
    assert [row["seq"] for row in reader.rows("coll", Kind.ORPHAN)] == [7] * 8
    assert sorted(row["seq"] for row in reader.rows("coll", Kind.DONE)) == [6] * 8 + [8] * 8
    assert {row["pid"] for row in reader.rows("proc") if not row["alive"]} == {each.pid for each in victims}
    reader.close()


def test_while_kafka_is_away_everything_waits(embedded_broker: EmbeddedBroker, directory: Path) -> None:
    ensure_topics(Settings(kafka=embedded_broker.bootstrap))
    reader = Reader(embedded_broker.bootstrap)
    made = stalling(directory)
    with running(Config(embedded_broker.bootstrap, directory, "node1", Limits(0, 0))) as agent:
        until(lambda: reader.read().flushes[1], "the first flush")
        os.kill(embedded_broker.process.pid, signal.SIGSTOP)
        try:
            for seq in range(10, 40):
                now = time.monotonic_ns()
                made.operation(seq % 32 + 2, now - 10**6, seq=seq)
                made.end(seq % 32 + 2, now)
                time.sleep(0.1)
            until(lambda: agent.metrics["backlog_bytes"] > 0, "something waits")
        finally:
            os.kill(embedded_broker.process.pid, signal.SIGCONT)
        until(lambda: len(reader.read().rows("coll", Kind.DONE)) == 31, "all that finished meanwhile")
        assert agent.sender.lost == 0
    reader.read()
    assert [flush.sequence for flush in reader.flushes[1]] == list(range(len(reader.flushes[1])))
    assert reader.flushes[1][-1].drops == 0
    reader.close()


def test_what_does_not_fit_while_kafka_is_away_is_counted(directory: Path) -> None:
    stalling(directory)
    config = Config("127.0.0.1:1", directory, "node1", Limits(0, 0), backlog_bytes=20_000)
    with running(config) as agent:
        deadline = time.monotonic() + PATIENCE_S
        while not agent.metrics["backlog_dropped_total"] and time.monotonic() < deadline:
            time.sleep(0.1)
        until(lambda: agent.metrics["drops_total"] >= agent.metrics["backlog_dropped_total"] > 0, "counted")
        assert agent.metrics["backlog_bytes"] <= 20_000


def test_one_collector_a_host_and_its_metrics(embedded_broker: EmbeddedBroker, directory: Path) -> None:
    stalling(directory)
    with running(Config(embedded_broker.bootstrap, directory, "node1")) as agent:
        with pytest.raises(CannotCollect, match="another collector"):
            Agent(Config(embedded_broker.bootstrap, directory, "node1"))
        until(lambda: agent.metrics["processes"] == 1, "the process is seen")
        assert agent.metrics["communicators"] == 1


def test_the_command_starts_and_stops_and_says_what_is_wrong(
    embedded_broker: EmbeddedBroker, directory: Path
) -> None:
    stalling(directory)
    command = [MYCROFT, "collect", "--dir", str(directory), "--kafka", embedded_broker.bootstrap]
    collector = subprocess.Popen([*command, "--metrics-port", "19479"], stderr=subprocess.PIPE, text=True)

    def metrics() -> str:
        try:
            with urllib.request.urlopen("http://127.0.0.1:19479/metrics") as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    until(lambda: "mycroft_collector_processes 1\n" in metrics(), "it collects")
    second = subprocess.run([*command, "--metrics-port", "0"], capture_output=True, text=True, check=False)
    assert (second.returncode, second.stderr.count("\n")) == (2, 1)
    assert "another collector reads" in second.stderr
    until(lambda: "mycroft_collector_messages_delivered_total 0\n" not in metrics(), "it sends")
    collector.send_signal(signal.SIGTERM)
    assert collector.wait(30) == 0
    assert collector.stderr is not None
    assert "Traceback" not in collector.stderr.read()
    wrong = subprocess.run([*command, "--log-level", "loud"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, "'loud' is no log level" in wrong.stderr) == (2, True)


class Load(threading.Thread):
    """A traced process that finishes one operation and its one flow after another until it is stopped.

    Record 2k of its ring is the flow of operation k + 1 (seq), record 2k + 1 the operation.
    """

    def __init__(self, directory: Path, ring: int = 8192) -> None:
        super().__init__()
        self._process = FakeProcess(
            directory, nonce=1, environment={"MYCROFT_JOB": "llama"}, capacities={Table.RING: ring}
        )
        self._process.communicator(comm=0xA1)
        self._stopped = threading.Event()
        self.done = 0

    def finish(self, count: int) -> None:
        """Finishes so many; operation `seq` carries 1000 + seq bytes, its flow `seq`."""
        for seq in range(self.done + 1, self.done + count + 1):
            now = time.monotonic_ns()
            self._process.operation(seq % 32, now - 2 * 10**6, seq=seq, bytes=1000 + seq)
            self._process.flow(0, seq % 32, bytes=seq)
            self._process.finish(0, now - 10**6)
            self._process.end(seq % 32, now)
        self.done += count

    def run(self) -> None:
        while not self._stopped.wait(0.005):
            self.finish(1)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def sums(flushes: Iterable[Envelope], section: str) -> tuple[int, int]:
    """How many operations or flows all sums together tell of, and their bytes."""
    rows = [
        row for flush in flushes for row in flush.sections.get(section, ()) if int(row["kind"]) == Kind.SUM
    ]
    return sum(int(row["n"]) for row in rows), sum(int(row["bytes"]) for row in rows)


def all_of(first: int, last: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The sums of operations first … last of a Load, and of their flows: an arithmetic series each."""
    count = last - first + 1
    series = count * (first + last) // 2
    return (count, 1000 * count + series), (count, series)


def sent(reader: Reader, before: int, section: str) -> Callable[[], bool]:
    """Whether flushes after the first `before` have sums."""
    return lambda: sums(reader.read().flushes[1][before:], section)[0] > 0


def test_what_one_collector_has_summed_the_next_one_does_not_sum_again(
    broker: Broker, reader: Reader, directory: Path
) -> None:
    config, load = Config(broker.bootstrap, directory, "node1", Limits(0, 0)), Load(directory)
    flushes = reader.flushes[partition_of(0xA1, 4)]
    load.start()
    try:
        for _ in range(2):
            before = len(reader.read().flushes[1])
            with running(config):  # stopped while flows are being summed: a period is five seconds
                until(sent(reader, before, "flow"), "flows are summed")
                until(sent(reader, before, "coll"), "operations are summed")
    finally:
        load.stop()
    with running(config):
        until(lambda: sums(reader.read().flushes[1], "coll") >= all_of(1, load.done)[0], "the last of them")
    seen = len(reader.read().flushes[1])
    with running(config):
        until(lambda: len(reader.read().flushes[1]) > seen, "one that finds nothing new")
    reader.read()
    assert (sums(flushes, "coll"), sums(flushes, "flow")) == all_of(1, load.done)
    for section in ("coll", "flow"):
        assert [row["seq"] for row in reader.rows(section, Kind.DONE)] == list(range(1, load.done + 1))
    assert {flush.drops for flush in flushes} == {0}


def test_after_a_collector_was_killed_nothing_is_missing_and_little_is_told_twice(
    broker: Broker, reader: Reader, directory: Path
) -> None:
    command = [
        *(sys.executable, "-m", "collectors.agent", "--kafka", broker.bootstrap, "--dir", str(directory)),
        *("--host", "node1", "--budget", "0", "--comm-records", "0", "--backlog", str(1 << 25)),
        *("--linger", "30", "--metrics-port", "0"),
    ]
    load, cursor = Load(directory), directory / "collector.cursor"
    load.start()
    try:
        with subprocess.Popen(command) as killed:
            until(cursor.exists, "it has noted how far it is")
            until(lambda: sums(reader.read().flushes[1], "coll")[0] > 1000, "operations are summed")
            killed.kill()
        (noted,) = json.loads(cursor.read_text())["processes"]
        before = len(reader.read().flushes[1])
        with running(Config(broker.bootstrap, directory, "node1", Limits(0, 0))):
            until(lambda: len(reader.read().flushes[1]) > before + 1, "the next one sends")
            load.stop()
            done = load.done
            until(lambda: sums(reader.read().flushes[1], "coll")[0] >= done, "all")
    finally:
        load.stop()
    reader.read()
    flushes = reader.flushes[partition_of(0xA1, 4)]
    again = max(at for at, flush in enumerate(flushes) if flush.sequence == 0)
    first, second = flushes[:again], flushes[again:]
    # Of records 2k (a flow) and 2k + 1 (its operation) the first `told` and `summed` are behind it.
    told, summed = noted["told"] // 2, -(-noted["summed"] // 2)
    assert 0 < summed <= told
    assert sums(second, "coll") == all_of(told + 1, load.done)[0]
    assert sums(second, "flow") == all_of(summed + 1, load.done)[1]
    # What it had told beyond that comes twice: no more than its last words.
    for section, known in (("coll", told), ("flow", summed)):
        each = [words for flush in first if (words := sums([flush], section)[0])]
        assert 0 <= sum(each) - known <= sum(each[-2:])


def test_records_lost_between_two_collectors_are_counted_once(
    broker: Broker, reader: Reader, directory: Path
) -> None:
    config, load = Config(broker.bootstrap, directory, "node1", Limits(0, 0)), Load(directory, ring=64)
    load.finish(50)  # 100 records for 64 places
    with running(config):
        until(lambda: sums(reader.read().flushes[1], "coll")[0] == 32, "what was left")
    assert reader.flushes[1][-1].drops == 36
    load.finish(40)  # 80 records: 16 of them are never seen
    with running(config) as agent:
        until(lambda: sums(reader.read().flushes[1], "coll")[0] == 64, "what was left this time")
        assert agent.metrics["ring_lost_total"] == 16
    reader.read()
    assert reader.flushes[1][-1].drops == 36 + 16
