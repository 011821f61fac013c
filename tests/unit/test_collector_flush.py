"""Flushes as messages: every partition is told, numbers have no gap, the watermark comes last."""

from __future__ import annotations

import urllib.error
import urllib.request

import numpy as np
import pytest

from collectors.agent.backlog import Flush
from collectors.agent.flush import Counts, by_partition, home, messages, sections
from collectors.agent.metrics import CATALOGUE, Metrics, MetricsServer, PortTaken
from schemas.envelope import MAX_MESSAGE_BYTES, MessageKind, decode
from schemas.records import COLL, FLOW, PROC, Records, RecordType


def rows(record: RecordType, comms: list[int]) -> Records:
    found = record.empty(len(comms))
    found["comm"] = comms
    return found


def flush(comms: list[int], coll: list[int], procs: list[int], through: int = 5) -> Flush:
    return Flush(
        1, 2, through, np.array(comms, np.uint64),
        sections([rows(COLL, coll)], [], [PROC.empty(len(procs))]), np.array(procs, np.uint64),
    )  # fmt: skip


def test_every_partition_of_a_live_communicator_is_told_records_or_not() -> None:
    found = by_partition(flush([4, 5, 9], [4, 4], [9]), 4)
    assert {partition: sorted(held) for partition, held in found.items()} == {0: ["coll"], 1: ["proc"]}
    assert sorted(by_partition(flush([4, 5, 6], [], []), 4)) == [0, 1, 2]


def test_messages_are_numbered_by_partition_and_say_how_much_was_lost() -> None:
    counts = Counts()
    first = list(messages(flush([4, 5], [4], []), 4, "node1", 3, counts))
    second = list(messages(flush([5], [5], [], through=6), 4, "node1", 3, counts))
    told = [(ready.partition, decode(ready.value)) for ready in first + second]
    assert [(partition, message.sequence, message.through) for partition, message in told] == [
        (0, 0, 5), (1, 0, 5), (1, 1, 6),
    ]  # fmt: skip
    message = told[0][1]
    assert (message.kind, message.job, message.attempt, message.source, message.drops) == (
        MessageKind.FLUSH, 1, 2, "node1", 3,
    )  # fmt: skip
    assert [ready.records for ready in first] == [1, 0]


def test_of_a_large_flush_only_the_last_part_states_the_new_time() -> None:
    counts = Counts()
    many = 2 * MAX_MESSAGE_BYTES // COLL.dtype.itemsize
    list(messages(flush([4], [], [], through=1), 4, "node1", 0, counts))
    parts = [decode(ready.value) for ready in messages(flush([4], [4] * many, []), 4, "node1", 0, counts)]
    assert len(parts) >= 2
    assert [part.through for part in parts] == [1] * (len(parts) - 1) + [5]
    assert [part.sequence for part in parts] == list(range(1, len(parts) + 1))
    assert sum(len(part.sections["coll"]) for part in parts) == many
    assert all(
        len(ready.value) <= MAX_MESSAGE_BYTES
        for ready in messages(flush([4], [4] * many, []), 4, "n", 0, counts)
    )


def test_two_jobs_share_the_numbers_of_a_partition_but_not_their_time() -> None:
    counts = Counts()
    one = flush([4], [], [])
    other = Flush(9, 2, 7, one.comms)
    found = [decode(ready.value) for each in (one, other) for ready in messages(each, 4, "n", 0, counts)]
    assert [(message.job, message.sequence, message.through) for message in found] == [(1, 0, 5), (9, 1, 7)]


def test_a_process_is_told_of_with_its_lowest_communicator() -> None:
    assert (home([9, 4], 77), home([], 77)) == (4, 77)
    assert set(sections([COLL.empty(0)], [FLOW.empty(1), FLOW.empty(2)], [])) == {"flow"}


def test_metrics_are_served_with_their_meaning() -> None:
    metrics = Metrics()
    metrics.add("ticks_total")
    metrics.set("tick_seconds_max", 0.25)
    server = MetricsServer(metrics, 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            text = answer.read().decode()
        assert "mycroft_collector_ticks_total 1\n" in text
        assert "mycroft_collector_tick_seconds_max 0.250000\n" in text
        assert text.count("# HELP") == text.count("# TYPE") == len(CATALOGUE)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/other")
        with pytest.raises(PortTaken, match="--metrics-port"):
            MetricsServer(metrics, server.port)
    finally:
        server.close()


def test_the_catalogue_is_the_only_home_of_names_and_has_no_labels() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.add("unheard_of")
    with pytest.raises(KeyError):
        metrics.set("unheard_of", 1)
    assert all(metric.meaning and metric.remedy for metric in CATALOGUE)
    assert all(metric.name.endswith("_total") == (metric.kind == "counter") for metric in CATALOGUE)
    assert "{" not in metrics.text()
