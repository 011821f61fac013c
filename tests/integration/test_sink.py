"""The sink between real brokers and a real store: everything arrives, once, whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clickhouse_connect.driver.client import Client
from confluent_kafka import TopicPartition

from mycroft.local.store_process import StoreProcess, start_store
from mycroft.settings import Settings
from queries.client import connect
from schemas.deadletters import DeadLetter, decode_dead_letter, encode_dead_letter
from schemas.enums import Func, Kind, NodeKind, Reason, Visibility
from schemas.envelope import Envelope, MessageKind, encode
from schemas.incidents import Incident, Node
from schemas.members import Announcement, Member, encode_members
from schemas.migrate import migrate
from schemas.records import COLL, WAIT, Records, RecordType
from schemas.topics import ALERTS, DEAD, MEMBERS, TOPICS, TRACE, VERDICTS, WAITS
from schemas.verdicts import Verdict, encode_verdict
from streams.kafka import consumer, producer
from streams.sink.loop import Sink, TooManyRefused, run_sink
from streams.topics import ensure_topics
from tests.integration.kafka_fixtures import Broker, EmbeddedBroker
from tests.integration.kafka_harness import ApacheKafka

DEADLINE_S = 60
ROOT = Path(__file__).resolve().parents[2]
TABLES = ("coll", "waits", "members", "incidents", "verdicts", "losses", "dead")


class Store:
    """A store that can be taken away and brought back at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: StoreProcess = start_store(folder)
        self.url = self._process.url
        migrate(self.url)
        self.client: Client = connect(self.url)

    def stop(self) -> None:
        self._process.stop()

    def start(self) -> None:
        self._process = start_store(self._folder, port=int(self.url.rsplit(":", 1)[1]))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.client.query(sql).result_rows]


@pytest.fixture(scope="module")
def running_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store(tmp_path_factory.mktemp("store"))
    yield store
    store.stop()


@pytest.fixture
def store(running_store: Store) -> Store:
    """A store whose tables are empty."""
    for table in TABLES:
        running_store.client.command(f"TRUNCATE TABLE nccl.{table}")
    return running_store


@pytest.fixture
def settings(broker: Broker, store: Store) -> Settings:
    made = Settings(kafka=broker.bootstrap, clickhouse=store.url)
    ensure_topics(made)
    return made


@contextmanager
def sink(settings: Settings) -> Iterator[threading.Thread]:
    """A sink in a thread; what it raises is raised here at the end."""
    stop = threading.Event()
    raised: list[BaseException] = []

    def body() -> None:
        try:
            run_sink(settings, stop)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        if raised:
            raise raised[0]
    assert not thread.is_alive()


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def send(settings: Settings, topic: str, values: list[bytes], partition: int = 0) -> None:
    client = producer(settings.kafka, "tests")
    errors: list[str] = []
    for value in values:
        client.produce(
            topic,
            value,
            key=b"key",  # a compacted topic takes none without
            partition=partition,
            on_delivery=lambda error, _: errors.append(error.str()) if error else None,
        )
        client.poll(0)
    assert client.flush(DEADLINE_S) == 0
    assert not errors


def coll(seqs: range, job: int = 1) -> Records:
    """Records with every byte of every number field set, so that a field that moves shows."""
    size = COLL.dtype.itemsize * len(seqs)
    rows: Records = np.frombuffer(bytearray(np.random.default_rng(seqs.start).bytes(size)), COLL.dtype)
    rows["launched"] %= 10**18
    rows["kind"], rows["func"], rows["visibility"] = Kind.DONE, Func.ALL_REDUCE, Visibility.COMPLETE
    rows["datatype"], rows["algo"], rows["proto"] = 8, 2, 3
    rows["job"], rows["seq"] = job, list(seqs)
    return rows


def waits(seqs: range) -> Records:
    rows = WAIT.empty(len(seqs))
    rows["seq"], rows["reason"] = list(seqs), Reason.NOT_LAUNCHED
    rows["waiter_kind"], rows["holder_kind"] = NodeKind.OPERATION, NodeKind.DEVICE
    rows["channel"], rows["epoch"], rows["partition"] = -1, 2**40, 3
    return rows


def trace(rows: Records) -> bytes:
    return encode(Envelope(MessageKind.FLUSH, job=1, source="h", sections={"coll": rows}))


def messages(count: int, rows_each: int = 10) -> list[bytes]:
    return [trace(coll(range(number * rows_each, (number + 1) * rows_each))) for number in range(count)]


def stored(store: Store) -> tuple[int, int]:
    """Rows of nccl.coll, and how many of them differ."""
    ((rows, different),) = store.rows("SELECT count(), uniqExact(seq) FROM nccl.coll")
    return rows, different


def binary(store: Store, record: RecordType) -> bytes:
    columns = ", ".join(f"`{field.name}`" for field in record.fields)
    return store.client.raw_query(f"SELECT {columns} FROM nccl.{record.table} ORDER BY seq FORMAT RowBinary")


INCIDENT = Incident(
    id="00000000000000ab", job="j", attempt="1", kind="stall", category="late-launch", severity="critical",
    confidence="proven", summary="rank 3", culprits=(Node("device", 3, host="h1"),), candidates=(),
    waiting=7, chain=("a",), evidence=(), ruled_out=(), would_decide=(), since=None,
    detected="2026-01-02T03:04:05.000006Z",
)  # fmt: skip
ANNOUNCEMENT = Announcement(
    job="j", job_id=2**64 - 1, attempt="a", attempt_id=5, comm=2**63, name="tp", source="h", nranks=2,
    nnodes=None, members=(Member(0, 2**64 - 2, world_rank=4, host="h"), Member(1, 9, silent=True)),
)  # fmt: skip
VERDICT = Verdict("j", "a", "s", 12, "2026-01-02T03:04:05.000006Z", ("ab",), (2, 3), 4)
LETTER = DeadLetter("nccl.trace", 1, 5, "worker", "odd", b"\x00\x01", "2026-01-02T03:04:05.678Z")


def test_every_topic_reaches_its_table(settings: Settings, store: Store) -> None:
    rows, edges = coll(range(1000)), waits(range(7))
    send(settings, TRACE.name, [trace(rows[:600]), trace(rows[600:])], partition=3)
    epoch = Envelope(MessageKind.EPOCH, job=1, epoch=2**40, partition=3, sections={"wait": edges})
    send(settings, WAITS.name, [encode(epoch), encode(Envelope(MessageKind.MARKER, partition=3))])
    send(settings, MEMBERS.name, [encode_members(ANNOUNCEMENT)], partition=2)
    send(settings, ALERTS.name, [json.dumps(INCIDENT.to_json()).encode()], partition=1)
    send(settings, DEAD.name, [encode_dead_letter(LETTER)])
    send(settings, VERDICTS.name, [encode_verdict(VERDICT)])
    with sink(settings):
        for table, count in zip(TABLES, (1000, 7, 2, 1, 1, 0, 1), strict=True):
            until(lambda: store.rows(f"SELECT count() FROM nccl.{table}")[0][0] == count, table)  # noqa: B023
    assert binary(store, COLL) == rows.tobytes()
    assert binary(store, WAIT) == edges.tobytes()
    assert store.rows("SELECT job, dev, rank, world_rank, host, silent FROM nccl.members ORDER BY rank") == [
        (2**64 - 1, 2**64 - 2, 0, 4, "h", 0),
        (2**64 - 1, 9, 1, None, None, 1),
    ]
    assert store.rows("SELECT id, culprits, hosts, since, toString(detected) FROM nccl.incidents") == [
        (INCIDENT.id, [3], ["h1"], None, "2026-01-02 03:04:05.000006")
    ]
    assert json.loads(store.rows("SELECT incident FROM nccl.incidents")[0][0]) == INCIDENT.to_json()
    assert store.rows("SELECT snapshot, epoch, incidents, missing, lost FROM nccl.verdicts") == [
        ("s", 12, ["ab"], [2, 3], 4)
    ]
    assert store.rows("SELECT topic, partition, offset, stage, reason, toString(seen) FROM nccl.dead") == [
        ("nccl.trace", 1, 5, "worker", "odd", "2026-01-02 03:04:05.678")
    ]


def flush(seq: int, sequence: int, drops: int, source: str = "h") -> bytes:
    sections = {"coll": coll(range(seq, seq + 1))}
    return encode(
        Envelope(MessageKind.FLUSH, 1, source=source, sequence=sequence, drops=drops, sections=sections)
    )


LOSSES = "SELECT partition, source, what, first, missing FROM nccl.losses ORDER BY partition, first, what"


def test_what_sources_have_lost_is_told_across_ranges(settings: Settings, store: Store) -> None:
    with sink(settings):
        send(settings, TRACE.name, [flush(0, 4, 0), flush(1, 5, 0)], partition=2)
        until(lambda: stored(store) == (2, 2), "the first range")
        send(settings, TRACE.name, [flush(2, 8, 30), flush(3, 0, 500), flush(4, 1, 500)], partition=2)
        send(settings, TRACE.name, [flush(5, 6, 0)], partition=1)  # another partition counts for itself
        until(lambda: stored(store) == (6, 6), "the other ranges")
        until(lambda: len(store.rows(LOSSES)) == 2, "losses")
    assert store.rows(LOSSES) == [(2, "h", "drops", 0, 30), (2, "h", "sequence-gap", 6, 2)]


class Crashed(BaseException):
    """Stands for the end of a process."""


def run_until_crash(settings: Settings, monkeypatch: pytest.MonkeyPatch, at_commit: int) -> None:
    """A sink that ends at this commit: at 1 after it, before the insert; at 2 instead of it, after that."""
    real, calls = Sink._commit, 0

    def commit(self: Sink, offsets: list[TopicPartition], assignments: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Crashed
        real(self, offsets, assignments)
        if calls == at_commit:
            raise Crashed

    with monkeypatch.context() as patch:
        patch.setattr(Sink, "_commit", commit)
        with pytest.raises(Crashed), sink(settings):
            until(lambda: calls >= at_commit, "the sink did not get to a commit")


@pytest.mark.parametrize("at_commit", [1, 2], ids=["before the insert", "after the insert"])
def test_losses_are_told_once_when_a_range_is_stored_again(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, at_commit: int
) -> None:
    send(settings, TRACE.name, [flush(0, 0, 0), flush(1, 3, 7)])
    run_until_crash(settings, monkeypatch, at_commit)
    assert len(store.rows(LOSSES)) == (0 if at_commit == 1 else 2)
    with sink(settings):
        send(settings, TRACE.name, [flush(2, 4, 7)])
        until(lambda: stored(store) == (3, 3), "not all rows arrived")
    assert store.rows(LOSSES) == [(0, "h", "drops", 0, 7), (0, "h", "sequence-gap", 1, 2)]


@pytest.mark.parametrize("commits", [1, 2], ids=["before the insert", "after the insert"])
def test_a_crash_between_commits_repeats_nothing(
    settings: Settings, store: Store, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    send(settings, TRACE.name, messages(50))
    run_until_crash(settings, monkeypatch, commits)
    assert (stored(store)[0] > 0) == (commits == 2)
    send(settings, TRACE.name, messages(60)[50:])
    with sink(settings):
        until(lambda: stored(store)[1] == 600, "not all rows arrived")
    assert stored(store) == (600, 600)


@pytest.mark.slow
def test_kill_9_repeats_and_loses_nothing(settings: Settings, store: Store) -> None:
    environment = {**os.environ, "MYCROFT_KAFKA": settings.kafka, "MYCROFT_CLICKHOUSE": settings.clickhouse}
    command = [sys.executable, "-m", "streams.sink"]
    everything = messages(401)
    for number in range(4):
        process = subprocess.Popen(command, cwd=ROOT, env=environment)
        before = stored(store)[0]
        client = producer(settings.kafka, "tests")
        for index, value in enumerate(everything[number * 100 : (number + 1) * 100]):
            client.produce(TRACE.name, value, partition=index % 4)
        client.flush(DEADLINE_S)
        until(lambda: stored(store)[0] > before, "the sink stores nothing")  # noqa: B023
        process.send_signal(signal.SIGKILL)
        process.wait()
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    send(settings, TRACE.name, everything[400:])  # which those before cannot have stored: this one runs
    until(lambda: stored(store)[1] == 4010, "not all rows arrived")
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert stored(store) == (4010, 4010)


def test_a_store_that_is_away_is_waited_for(settings: Settings, store: Store) -> None:
    values = messages(90)
    store.stop()
    try:
        with sink(settings):
            send(settings, TRACE.name, values[:30])
            time.sleep(1)
            store.start()
            until(lambda: stored(store)[1] == 300, "what came before the store is lost")
            store.stop()
            send(settings, TRACE.name, values[30:60])
            time.sleep(1)
            store.start()
            send(settings, TRACE.name, values[60:])
            until(lambda: stored(store)[1] == 900, "what came while the store was away is lost")
    finally:
        store.stop()
        store.start()
    assert stored(store) == (900, 900)


def test_a_sink_that_is_stopped_while_the_store_is_away_loses_nothing(
    settings: Settings, store: Store
) -> None:
    store.stop()
    try:
        with sink(settings):
            send(settings, TRACE.name, messages(30))
            time.sleep(1)
    finally:
        store.start()
    with sink(settings):
        until(lambda: stored(store)[1] == 300, "lost")
    assert stored(store) == (300, 300)


def test_garbage_is_set_aside_once_and_stops_nothing(settings: Settings, store: Store) -> None:
    for topic in TOPICS:
        send(settings, topic.name, [b"\xffgarbage on " + topic.name.encode()], partition=1)
    send(settings, TRACE.name, messages(1), partition=1)
    for _ in range(2):
        with sink(settings):
            until(lambda: len(store.rows("SELECT topic FROM nccl.dead")) >= len(TOPICS), "not all set aside")
            until(lambda: stored(store) == (10, 10), "the rest did not go on")
    found = store.rows(
        "SELECT topic, partition, offset, stage, payload, reason != '' FROM nccl.dead ORDER BY topic"
    )
    assert [row[:4] + row[5:] for row in found] == [
        (topic.name, 1, 0, "sink", 1) for topic in sorted(TOPICS, key=lambda topic: topic.name)
    ]
    told = letters(settings, count=len(TOPICS) - 1)
    assert {letter.topic for letter in told} == {topic.name for topic in TOPICS} - {DEAD.name}
    assert all(letter.payload == b"\xffgarbage on " + letter.topic.encode() for letter in told)


def letters(settings: Settings, count: int) -> list[DeadLetter]:
    """The readable messages of nccl.dead."""
    client = consumer(settings.kafka, "tests", "letters")
    client.subscribe([DEAD.name])
    found: list[DeadLetter] = []

    def read() -> bool:
        message = client.poll(0.1)
        if message is not None and message.error() is None and (value := message.value() or b"")[:1] == b"{":
            found.append(decode_dead_letter(bytes(value)))
        return len(found) >= count

    until(read, "letters on the topic")
    client.close()
    return found


def test_records_with_unknown_codes_are_set_aside_alone(settings: Settings, store: Store) -> None:
    rows = coll(range(100))
    rows["kind"][7] = 99
    send(settings, TRACE.name, [trace(rows)])
    with sink(settings):
        until(lambda: store.rows("SELECT reason FROM nccl.dead"), "nothing was set aside")
    assert stored(store) == (99, 99)
    ((topic, offset, reason),) = store.rows("SELECT topic, offset, reason FROM nccl.dead")
    assert (topic, offset) == (TRACE.name, 0)
    assert reason.startswith("1 of 100 coll records have unknown codes (kind 99)")


@pytest.fixture
def picky_store(store: Store) -> Iterator[Store]:
    """A store that refuses verdicts of more than 4 lost messages."""
    store.client.command("ALTER TABLE nccl.verdicts ADD CONSTRAINT picky CHECK lost < 5")
    yield store
    store.client.command("ALTER TABLE nccl.verdicts DROP CONSTRAINT picky")


def verdicts(lost: list[int]) -> list[bytes]:
    return [
        encode_verdict(Verdict("j", "a", f"s{number}", 1, "2026-01-02T03:04:05Z", lost=count))
        for number, count in enumerate(lost)
    ]


def test_what_the_store_refuses_is_found_and_the_rest_is_stored(
    settings: Settings, picky_store: Store
) -> None:
    send(settings, VERDICTS.name, verdicts([0, 9, 1, 2, 3, 9, 4]))
    with sink(settings):
        until(lambda: len(picky_store.rows("SELECT offset FROM nccl.dead")) == 2, "nothing was set aside")
        until(lambda: len(picky_store.rows("SELECT lost FROM nccl.verdicts")) == 5, "the rest did not go on")
    assert picky_store.rows("SELECT lost FROM nccl.verdicts ORDER BY lost") == [(0,), (1,), (2,), (3,), (4,)]
    found = picky_store.rows("SELECT topic, offset, reason FROM nccl.dead ORDER BY offset")
    assert [row[:2] for row in found] == [(VERDICTS.name, 1), (VERDICTS.name, 5)]
    assert all("picky" in row[2] for row in found)


def test_a_store_that_refuses_everything_stops_the_sink(settings: Settings, picky_store: Store) -> None:
    send(settings, VERDICTS.name, verdicts([9] * 600))
    with (
        pytest.raises(TooManyRefused, match=r"of nccl\.verdicts partition 0: do its tables"),
        sink(settings) as running,
    ):
        until(lambda: not running.is_alive(), "it goes on")
    assert len(picky_store.rows("SELECT offset FROM nccl.dead")) <= 500


def test_a_second_sink_takes_its_share(settings: Settings, store: Store) -> None:
    everything = messages(300)
    with sink(settings):
        for partition in range(4):
            send(settings, TRACE.name, everything[partition * 25 : (partition + 1) * 25], partition)
        with sink(settings):
            for partition in range(4):
                send(settings, TRACE.name, everything[100 + partition * 25 : 125 + partition * 25], partition)
            until(lambda: stored(store)[1] >= 2000, "two sinks")
        for partition in range(4):
            send(settings, TRACE.name, everything[200 + partition * 25 : 225 + partition * 25], partition)
        until(lambda: stored(store)[1] == 3000, "one sink again")
    assert stored(store) == (3000, 3000)


def test_lost_messages_of_the_embedded_broker_are_told(embedded_broker: EmbeddedBroker, store: Store) -> None:
    settings = Settings(kafka=embedded_broker.bootstrap, clickhouse=store.url)
    send(settings, TRACE.name, messages(24, rows_each=2000))  # about 10 MB in one partition
    with sink(settings):
        until(lambda: store.rows("SELECT missing FROM nccl.losses"), "no loss was told")
        until(lambda: stored(store)[0] > 0, "nothing was stored")
    ((first, missing),) = store.rows("SELECT first, missing FROM nccl.losses")
    assert first == 0
    assert stored(store) == ((24 - missing) * 2000, (24 - missing) * 2000)


def test_the_next_start_of_the_embedded_broker_is_stored_too(store: Store, tmp_path: Path) -> None:
    for number in range(2):
        broker = EmbeddedBroker(tmp_path)
        settings = Settings(kafka=broker.bootstrap, clickhouse=store.url)
        send(settings, TRACE.name, [trace(coll(range(number * 10, number * 10 + 10)))])
        with sink(settings):
            until(lambda: stored(store)[0] == (number + 1) * 10, "offsets that repeat")  # noqa: B023
        broker.stop()
        (tmp_path / "broker.address").unlink()


@pytest.mark.kafka
def test_a_restart_of_kafka_loses_nothing(apache_kafka: ApacheKafka, store: Store) -> None:
    apache_kafka.wipe()
    settings = Settings(kafka=apache_kafka.bootstrap, clickhouse=store.url)
    ensure_topics(settings)
    everything = messages(60)
    with sink(settings):
        send(settings, TRACE.name, everything[:30])
        until(lambda: stored(store)[1] == 300, "before the restart")
        apache_kafka.restart()
        send(settings, TRACE.name, everything[30:])
        until(lambda: stored(store)[1] == 600, "after the restart")
    assert stored(store) == (600, 600)
