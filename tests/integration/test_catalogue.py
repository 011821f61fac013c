"""Every named question on the real engine, over one small story whose answers are worked out by hand.

The story: job `story` has ranks 0 and 1 on host a and ranks 2 and 3 on host b. In operation 7 of `world` all
wait for the link from rank 1 to rank 2; rank 3 has been stopped; host b has said nothing for a minute.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from mycroft.local.store_process import start_store
from queries.catalogue import Table, ask, catalogue
from queries.client import connect
from schemas.migrate import migrate
from tests.integration.lived_store import Lived

JOB, ATTEMPT, WORLD, OPERATION = 7, 1, 10, 99
UNKNOWN_US = 0xFFFF_FFFF
NOW = int(time.time())
SILENT = NOW - 7200
"""Since then nothing has come from host b: longer ago than a test session takes."""
HOSTS = ("a", "a", "b", "b")


def _dev(rank: int) -> int:
    return 100 + rank


def _story() -> dict[str, list[dict[str, Any]]]:
    """Rows by table."""
    key = {"job": JOB, "attempt": ATTEMPT, "comm": WORLD}
    op = {**key, "func": "all_reduce"}
    members = [
        {
            **key, "job_name": "story", "attempt_name": "first", "name": "world", "nranks": 4, "nnodes": 2,
            "rank": rank, "dev": _dev(rank), "world_rank": rank, "host": host, "pid": 1000 + rank,
        }
        for rank, host in enumerate(HOSTS)
    ]  # fmt: skip
    wait = {**op, "seq": 7, "partition": 2, "epoch": NOW}
    standing = {
        **wait, "reason": "in_operation", "waiter_kind": "device", "holder_kind": "operation",
        "holder": OPERATION, "op": OPERATION,
    }  # fmt: skip
    link = {
        **wait, "reason": "not_delivered", "waiter_kind": "operation", "holder_kind": "link", "op": OPERATION,
        "waiter": OPERATION, "holder": _dev(1), "holder_rank": 1, "holder_peer": _dev(2),
        "holder_peer_rank": 2, "waited_us": UNKNOWN_US, "channel": 0,
    }  # fmt: skip
    # Another job has ended a moment ago: of each of its two members nothing is known any more.
    ended = {"job": 8, "attempt": 1, "comm": 20}
    members += [
        {
            **ended,
            "job_name": "ended",
            "attempt_name": "first",
            "name": "world",
            "rank": rank,
            "dev": 200 + rank,
        }
        for rank in range(2)
    ]
    silent = {
        **ended, "func": "all_reduce", "seq": 9, "epoch": NOW, "reason": "silent", "waiter_kind": "operation",
        "waiter": 98, "op": 98, "holder_kind": "device",
    }  # fmt: skip
    waits = [
        *({**silent, "holder": 200 + rank, "holder_rank": rank} for rank in range(2)),
        *({**standing, "waiter": _dev(rank), "waited_us": 1_000_000 * (rank + 1)} for rank in range(4)),
        link,
        link,  # the sink may store it twice
        # An epoch before, somebody else was waited for: it holds no more.
        {**link, "epoch": NOW - 1, "holder": _dev(3), "holder_rank": 3, "seq": 6, "reason": "not_launched",
         "holder_kind": "device"},
        {**wait, "seq": 3, "partition": 1, "epoch": NOW - 3600, "ingested": NOW - 3600, "reason": "mismatch",
         "waiter_kind": "operation", "holder_kind": "device", "holder": _dev(2), "holder_func": "all_reduce",
         "datatype": "float32", "holder_datatype": "float32", "count": 1024, "holder_count": 512},
    ]  # fmt: skip
    coll = [
        # Two seconds of one device: 60 and 40 operations of 1 MB, 1 ms and 3 ms each; as much on another.
        *(
            {**op, "kind": "sum", "dev": _dev(rank), "rank": rank, "nranks": 4, "nnodes": 2, "algo": "ring",
             "proto": "simple", "n": n, "bytes": n * 1_000_000, "duration_sum_us": n * ms * 1000,
             "duration_max_us": longest}
            for rank in (0, 1)
            for n, ms, longest in ((60, 1, 2_000), (40, 3, 9_000))
        ),
        {**op, "kind": "state", "dev": _dev(1), "rank": 1, "seq": 7, "bytes": 4096, "current": 1,
         "age_us": 4_000_000, "quiet_us": 2_000_000, "ingested": NOW - 1},
        {**op, "kind": "state", "dev": _dev(1), "rank": 1, "seq": 7, "bytes": 4096, "current": 1,
         "age_us": 5_000_000, "quiet_us": 3_000_000},
        # This one has ended within the second in which it was told of.
        {**op, "kind": "state", "dev": _dev(0), "rank": 0, "seq": 6, "age_us": 900_000},
        {**op, "kind": "done", "dev": _dev(0), "rank": 0, "seq": 6, "end_us": 950_000},
    ]  # fmt: skip
    flow = {**key, "kind": "sum", "direction": "send", "channel": -1}
    flows = [
        {**flow, "dev": _dev(1), "rank": 1, "peer": 2, "bytes": 8 * 10**9, "net_us": 100_000_000},
        {**flow, "dev": _dev(1), "rank": 1, "peer": 2, "bytes": 2 * 10**9, "net_us": 50_000_000,
         "channel": 1},
        {**flow, "dev": _dev(3), "rank": 3, "peer": 0, "bytes": 10 * 10**9, "net_us": 10_000_000},
        # The receiving end and single operations say the same again.
        {**flow, "dev": _dev(2), "rank": 2, "peer": 1, "bytes": 10 * 10**9, "net_us": 1, "direction": "recv"},
        {**flow, "dev": _dev(1), "rank": 1, "peer": 2, "bytes": 5, "net_us": 5, "kind": "done", "seq": 5},
    ]  # fmt: skip
    proc = {"job": JOB, "attempt": ATTEMPT, "alive": 1, "state": ord("R"), "api_func": "any"}
    procs = [
        {**proc, "proc": 1, "dev": _dev(0), "pid": 1000, "sampled": NOW},
        {**proc, "proc": 2, "dev": _dev(1), "pid": 1001, "sampled": NOW - 2},
        {**proc, "proc": 2, "dev": _dev(1), "pid": 1001, "sampled": NOW - 1, "alive": 0, "state": 0,
         "cpu_us": 2_500_000},
        {**proc, "proc": 3, "dev": _dev(2), "pid": 1002, "sampled": SILENT, "ingested": SILENT},
        {**proc, "proc": 4, "dev": _dev(3), "pid": 1003, "sampled": SILENT, "ingested": SILENT,
         "state": ord("T"), "api_func": "all_reduce", "cpu_us": 1_000_000},
    ]  # fmt: skip
    losses = [
        {"seen": NOW - 60, "topic": "nccl.trace", "partition": partition, "source": "b", "what": what,
         "first": 0, "missing": missing}
        for partition, what, missing in (
            (0, "sequence-gap", 2), (1, "sequence-gap", 3), (0, "drops", 5), (1, "drops", 5), (2, "drops", 4),
        )
    ]  # fmt: skip
    return {
        "members": members, "waits": waits, "coll": coll, "flows": flows, "procs": procs, "losses": losses,
        "incidents": _incidents(),
    }  # fmt: skip


def _incidents() -> list[dict[str, Any]]:
    def row(
        number: int, state: str, severity: str, culprits: list[int], candidates: list[int], ago: int
    ) -> Any:
        nodes = {
            name: [{"rank": rank, "host": HOSTS[rank]} for rank in ranks]
            for name, ranks in (("culprits", culprits), ("candidates", candidates))
        }
        return {
            "id": f"{number:016x}", "revision": 1, "state": state, "job": "story", "attempt": "first",
            "kind": "stall", "category": "link", "severity": severity, "confidence": "likely",
            "summary": f"incident {number}", "culprits": culprits, "candidates": candidates, "waiting": 4,
            "hosts": sorted({HOSTS[rank] for rank in culprits + candidates}),
            "detected": NOW - ago, "incident": json.dumps(nodes),
        }  # fmt: skip

    return [
        row(1, "open", "warning", [1, 2], [], 120),
        row(2, "open", "critical", [0], [], 60),
        row(3, "closed", "critical", [], [2, 3], 86_400),
        row(4, "closed", "critical", [2], [], 40 * 86_400),
    ]


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).replace(tzinfo=None)


ANSWERS: dict[str, tuple[dict[str, str], list[tuple[Any, ...]]]] = {
    "open-incidents": (
        {"job": "story"},
        [
            ("0000000000000002", "critical", "link", "likely", "story", 4, ["a"], 1.0, "incident 2"),
            ("0000000000000001", "warning", "link", "likely", "story", 4, ["a", "b"], 2.0, "incident 1"),
        ],
    ),
    # All four stand in it, the longest for 4 s.
    "who-is-waited-for": (
        {"seconds": "3000"},
        [("story", "world", "all_reduce", 7, "not_delivered", 1, "a", 2, "b", 4, 4.0)],
    ),
    "host-history": (
        {"host": "b"},
        [
            (_time(NOW - 120), "0000000000000001", "open", "link", "likely", "story", "culprit", [2], ["a"],
             "incident 1"),
            (_time(NOW - 86_400), "0000000000000003", "closed", "link", "likely", "story", "candidate",
             [2, 3], [], "incident 3"),
        ],
    ),
    # 150 s over 10 GB, and 10 s over 10 GB.
    "worst-links": ({}, [("a", "b", 10.0, 150.0, 15.0, 1), ("b", "a", 10.0, 10.0, 1.0, 0)]),
    "mismatches": (
        {},
        [("story", "world", 3, 2, "b", "all_reduce", "all_reduce", "float32", "float32", 1024, 512,
          _time(NOW - 3600))],
    ),
    # 2 + 3 messages of two partitions; 5 records, which each partition has told of.
    "losses": (
        {},
        [
            ("b", "nccl.trace", "drops", 5, 1, _time(NOW - 60)),
            ("b", "nccl.trace", "sequence-gap", 5, 2, _time(NOW - 60)),
        ],
    ),
    "in-flight": (
        {"job": "story", "seconds": "3000"},
        [("story", "world", 1, "a", "all_reduce", 7, 4096, 5.0, 3.0, "yes")],
    ),
    "processes-gone": (
        {},
        [
            ("story", 1, "a", 1001, "gone", _time(NOW - 1), "", 2.5),
            ("story", 3, "b", 1003, "stopped", _time(SILENT), "all_reduce", 1.0),
        ],
    ),
    # 100 MB on each rank; (60 × 1 + 40 × 3) / 100 ms; 1 MB in 1.8 ms, times 2 × 3 / 4.
    "communicators": (
        {},
        [("story", "world", 4, 2, "all_reduce", "ring", "simple", 100.0, 0.1, 1.8, 9.0, 0.833)],
    ),
    "silent-collectors": ({"seconds": "3600"}, [("b", None, 2, ["story"], _time(SILENT))]),
}  # fmt: skip


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A store that holds the story and nothing else."""
    store = start_store(Path(tmp_path_factory.mktemp("story")))
    migrate(store.url)
    client = connect(store.url)
    for table, rows in _story().items():
        lines = "\n".join(json.dumps({"ingested": NOW, **row}) for row in rows)
        client.raw_insert(f"nccl.{table}", insert_block=lines.encode(), fmt="JSONEachRow")
    yield client
    client.close()
    store.stop()


def _rows(name: str, found: Table) -> list[tuple[Any, ...]]:
    """As stored times go on, what counts from now is left out."""
    rows = [tuple(_naive(value) for value in row) for row in found.rows]
    if name == "silent-collectors":
        return [(row[0], None, *row[2:]) for row in rows]
    return rows


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.parametrize("name", catalogue())
def test_the_answer_is_the_one_worked_out_by_hand(name: str, story: Client) -> None:
    given, expected = ANSWERS[name]
    found = ask(story, catalogue()[name], given)
    rows = _rows(name, found)
    if name == "open-incidents":  # minutes since then, as it stands now
        at = found.columns.index("minutes")
        for row, wanted in zip(rows, expected, strict=True):
            assert wanted[at] <= row[at] < wanted[at] + 5
        rows = [(*row[:at], wanted[at], *row[at + 1 :]) for row, wanted in zip(rows, expected, strict=True)]
    assert rows == expected


@pytest.mark.parametrize("name", catalogue())
def test_the_worked_result_has_the_columns_of_the_answer(name: str, story: Client) -> None:
    question = catalogue()[name]
    columns = ask(story, question, ANSWERS[name][0]).columns
    lines = [[cell.strip() for cell in line.split("|")] for line in question.result]
    assert tuple(lines[0]) == columns
    assert all(len(line) == len(columns) for line in lines)


def test_a_question_of_another_job_finds_nothing(story: Client) -> None:
    for name, question in catalogue().items():
        if any(each.name == "job" for each in question.parameters):
            assert ask(story, question, {**ANSWERS[name][0], "job": "other"}).rows == (), name


def test_parameters_are_bound_and_never_pasted(story: Client) -> None:
    for text in ("a' OR 1 --", "\\", "{x:String}", "a\n'"):
        assert ask(story, catalogue()["host-history"], {"host": text}).rows == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue())
def test_every_question_can_be_asked_of_a_day_of_work(name: str, lived: Lived) -> None:
    given = {"host": "host0"} if name == "host-history" else {}
    if any(each.name == "seconds" for each in catalogue()[name].parameters):
        given["seconds"] = "3600"
    found = ask(connect(lived.url), catalogue()[name], given)
    if name not in ("losses", "silent-collectors"):
        assert found.rows, "a job that hung leaves something of this"
