"""Dumps in, culprit out: every story through Kafka, worker, sink and store, on both brokers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from jsonschema import Draft202012Validator

from collectors.flight_recorder.messages import Message, messages
from collectors.flight_recorder.snapshot import read_snapshot
from schemas.incidents import Incident, alert_schema
from schemas.topics import DEAD, TOPICS, TRACE
from streams.kafka import producer
from streams.topics import partitions
from tests.cases import CASES, Case
from tests.figures import Figure
from tests.integration.pipeline import Pipeline
from tests.recordings import RECORDED, recorded
from tests.unit.test_cases import expected, summary

WORKER_BACK_S = 20.0
"""Within this after a killed worker's restart the answer has to be there (the figure is printed)."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(pipeline: Pipeline, case: Case, tmp_path: Path) -> None:
    snapshot = pipeline.bring(case.write(tmp_path), f"case-{case.name}")
    found = pipeline.found(snapshot)
    assert summary(found) == expected(case.answers)
    assert pipeline.count("coll", "job = {job:UInt64}", job=snapshot.job_id) == snapshot.records
    alerts = pipeline.alerts(snapshot.job)
    assert {one.id: one for one in alerts} == {one.id: one for one in found}
    for alert in alerts:
        Draft202012Validator(alert_schema()).validate(alert.to_json())


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(pipeline: Pipeline, name: str) -> None:
    folder, answers = recorded(name)
    assert summary(pipeline.found(pipeline.bring(folder, f"recorded-{name}"))) == expected(answers)


def _late(folder: Path) -> Path:
    (case,) = [case for case in CASES if case.name == "late"]
    return case.write(folder)


def test_two_jobs_at_once_are_never_mixed(pipeline: Pipeline, tmp_path: Path) -> None:
    """Their messages alternate; the ranks and group names are the same, the faults are not."""
    (hang,) = [case for case in CASES if case.name == "gpu-hang"]
    snapshots = [
        read_snapshot(_late(tmp_path / "a"), "both-a"),
        read_snapshot(hang.write(tmp_path / "b"), "both-b"),
    ]
    streams = [
        list(messages(snapshot, partitions(pipeline.addresses.kafka, TRACE.name))) for snapshot in snapshots
    ]
    sender = producer(pipeline.addresses.kafka, "test")
    for number in range(max(map(len, streams))):
        for stream in streams:
            _send(sender, stream[number : number + 1])
    assert summary(pipeline.found(snapshots[0])) == {("late-launch", (3,), ())}
    assert summary(pipeline.found(snapshots[1])) == {("gpu-hang", (1,), ())}


def test_imported_again_it_is_a_new_attempt_and_the_former_closes(pipeline: Pipeline, tmp_path: Path) -> None:
    folder = _late(tmp_path)
    first = pipeline.bring(folder, "again")
    (former,) = pipeline.found(first)
    second = pipeline.bring(folder, "again")
    (latter,) = pipeline.found(second)
    assert first.attempt != second.attempt
    assert former.id != latter.id
    assert latter.state == "open"

    def closed() -> Incident | None:
        (one,) = [one for one in pipeline.found(first) if one.id == former.id]
        return one if one.state == "closed" else None

    assert pipeline.until(closed).revision == 2
    rows = pipeline.client.query(
        "SELECT count(), uniqExact(attempt) FROM nccl.coll WHERE job = {job:UInt64}",
        parameters={"job": first.job_id},
    ).result_rows
    assert rows == [(2 * first.records, 2)]


def test_rows_of_a_year_old_dump_stay(pipeline: Pipeline, tmp_path: Path) -> None:
    """Partition and TTL go by the time of ingest: an old dump must not vanish when its tables are merged."""
    (old,) = [case for case in CASES if case.name == "late-a-year-old"]
    snapshot = pipeline.bring(old.write(tmp_path), "old")
    pipeline.found(snapshot)
    for table in ("coll", "waits", "members", "incidents"):
        pipeline.client.command(f"OPTIMIZE TABLE nccl.{table} FINAL")
    assert pipeline.count("coll", "job = {job:UInt64}", job=snapshot.job_id) == snapshot.records
    years = pipeline.client.query(
        "SELECT DISTINCT toYear(launched) FROM nccl.coll WHERE job = {job:UInt64} AND kind = 'state'",
        parameters={"job": snapshot.job_id},
    ).result_rows
    assert years == [(2025,)]


def _send(sender: Producer, batch: Iterable[Message]) -> None:
    for message in batch:
        sender.produce(message.topic, message.value, message.key, partition=message.partition)
    assert sender.flush(10) == 0


@pytest.mark.parametrize("late", range(4))
def test_a_late_partition_never_makes_a_victim_the_culprit(
    pipeline: Pipeline, tmp_path: Path, late: int
) -> None:
    """The chain 1 → 0 → 2 → 3 crosses partitions; whichever comes last, only rank 3 is ever named."""
    snapshot = read_snapshot(_late(tmp_path), f"delayed-{late}")
    everything = list(messages(snapshot, partitions(pipeline.addresses.kafka, TRACE.name)))
    sender = producer(pipeline.addresses.kafka, "test")
    _send(sender, [message for message in everything if message.partition != late])
    time.sleep(3)  # several epochs in which the other partitions have said all they have
    assert pipeline.alerts(snapshot.job) == []
    _send(sender, [message for message in everything if message.partition == late])
    assert summary(pipeline.found(snapshot)) == {("late-launch", (3,), ())}
    assert summary(pipeline.alerts(snapshot.job)) == {("late-launch", (3,), ())}


def test_garbage_lands_in_dead_once_and_stops_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    sender = producer(pipeline.addresses.kafka, "test")
    topics = [topic.name for topic in TOPICS if topic is not DEAD]
    garbage = {name: f"garbage on {name}".encode() for name in topics}
    for name, value in garbage.items():
        sender.produce(name, value, b"a compacted topic wants a key", partition=1)
    assert sender.flush(10) == 0

    def landed() -> list[tuple[str, str, str]] | None:
        rows = pipeline.client.query(
            "SELECT topic, reason, base64Decode(payload) FROM nccl.dead WHERE partition = 1 "
            "AND startsWith(base64Decode(payload), 'garbage on ') ORDER BY topic"
        ).result_rows
        return [tuple(row) for row in rows] if len(rows) >= len(garbage) else None

    rows = pipeline.until(landed)
    assert [row[0] for row in rows] == sorted(garbage)
    assert all(reason for _, reason, _ in rows)
    assert {row[0]: row[2].encode() for row in rows} == garbage
    assert summary(pipeline.found(pipeline.bring(_late(tmp_path), "after-garbage"))) == {
        ("late-launch", (3,), ())
    }
    time.sleep(1)
    again = pipeline.until(landed)
    assert again == rows


def test_a_worker_killed_in_the_middle_of_an_import(
    pipeline: Pipeline, tmp_path: Path, figure: Figure
) -> None:
    snapshot = read_snapshot(_late(tmp_path), "killed")
    everything = list(messages(snapshot, partitions(pipeline.addresses.kafka, TRACE.name)))
    sender = producer(pipeline.addresses.kafka, "test")
    _send(sender, everything[: len(everything) // 2])
    time.sleep(1)
    former = pipeline.stack.children()["worker"]
    assert former is not None
    os.kill(former, signal.SIGKILL)
    _send(sender, everything[len(everything) // 2 :])
    pipeline.until(lambda: _other(pipeline.stack.children()["worker"], former))
    began = time.monotonic()
    found = pipeline.found(snapshot)
    took = time.monotonic() - began
    figure(f"answer {took:.1f} s after the restart of a killed worker")
    assert summary(found) == {("late-launch", (3,), ())}
    assert [alert.id for alert in pipeline.alerts("killed")] == [one.id for one in found]
    assert took <= WORKER_BACK_S


def _other(pid: int | None, former: int) -> int | None:
    return pid if pid != former else None
