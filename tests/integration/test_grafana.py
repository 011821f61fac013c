"""Every query of the dashboards and alert rules on the real engine, over a job that was lived."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from clickhouse_connect.driver.client import Client

from queries.client import connect
from queries.grafana.build import FOLDER, dashboards
from tests.grafana import Query, expand, queries
from tests.integration.lived_store import LATE_JOB, LIVE_JOB, Lived

pytestmark = pytest.mark.slow

_MADE = dashboards()
QUERIES = [(name, query) for name, made in _MADE.items() for query in queries(made)]
RULES = yaml.safe_load((FOLDER.parent / "provisioning" / "alerting" / "mycroft.yaml").read_text())["groups"][
    0
]["rules"]
NUMBERS = ("Int", "UInt", "Float")
COUNTED_JOB = "counted-7b"
"""Members as those of LIVE_JOB and the windows written below, nothing else: computed by hand."""


@pytest.fixture(scope="module")
def store(lived: Lived) -> Iterator[Client]:
    """The lived store, with a second of slowness, a loss and a dead letter, which that day did not bring."""
    client = connect(lived.url)
    client.command(
        "INSERT INTO nccl.members SELECT * REPLACE ({counted:String} AS job_name, 7 AS job) "
        "FROM (SELECT * FROM nccl.members FINAL WHERE job_name = {job:String})",
        parameters={"job": LIVE_JOB, "counted": COUNTED_JOB},
    )
    jobs = {"jobs": [LIVE_JOB, COUNTED_JOB]}
    client.command(
        "INSERT INTO nccl.lags (job, attempt, comm, dev, rank, nranks, func, start, length_us, n, timed, "
        "bytes, duration_sum_us, interval_sum_us, interval_n, held_sum_us) "
        "SELECT job, attempt, comm, dev, rank, nranks, 'all_reduce', now64(9), 1000000, 10, 10, "
        "10000000, 20000, 1000000, 10, if(rank = 1, 3000000, 0) "
        "FROM nccl.members FINAL WHERE job_name IN {jobs:Array(String)}",
        parameters=jobs,
    )
    client.command(
        "INSERT INTO nccl.rates (job, attempt, comm, nranks, func, algo, proto, size_class, start, "
        "length_us, n, bytes, busbw, interval_sum_us, interval_n, joined, start_skew_max_us) "
        "SELECT DISTINCT job, attempt, comm, nranks, 'all_reduce', 'ring', 'simple', 20, now64(9), 1000000, "
        "10, 1000000, 875000000, 8000000, 80, 10, 3000 "
        "FROM nccl.members FINAL WHERE job_name IN {jobs:Array(String)}",
        parameters=jobs,
    )
    now = int(time.time())
    for table, row in (
        (
            "losses",
            {"seen": now, "topic": "nccl.trace", "source": "host0", "what": "sequence-gap", "missing": 3},
        ),
        ("dead", {"seen": now, "topic": "nccl.trace", "stage": "sink", "reason": "no envelope"}),
    ):
        client.raw_insert(f"nccl.{table}", insert_block=json.dumps(row).encode(), fmt="JSONEachRow")
    yield client
    client.close()


def _ask(client: Client, sql: str, **values: str) -> tuple[list[str], list[str], list[tuple[Any, ...]]]:
    now = int(time.time())
    answer = client.query(expand(sql, now - 2 * 3600, now + 60, values))
    rows = [tuple(row) for row in answer.result_rows]
    return list(answer.column_names), [kind.name for kind in answer.column_types], rows


@pytest.mark.parametrize(
    ("name", "query"), QUERIES, ids=[f"{name}: {query.where}" for name, query in QUERIES]
)
def test_every_query_answers_with_rows_of_the_right_type(
    name: str, query: Query, store: Client, lived: Lived
) -> None:
    columns, kinds, rows = _ask(store, query.sql, job=LIVE_JOB, incident=lived.hang, comm="")
    assert rows, f"{name} {query.where} is empty"
    if query.series:
        assert columns[0] == "time"
        assert kinds[0].startswith("DateTime")
        assert columns[-1] not in ("time", "name")
        assert kinds[-1].startswith(NUMBERS), kinds
        assert all(
            kind.startswith(("String", "Nullable(String)", "LowCardinality(String)")) for kind in kinds[1:-1]
        )
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    if query.where.startswith("annotation"):
        assert columns == ["time", "timeEnd", "text", "tags"]


def _panel(name: str, title: str, ref: str = "A") -> str:
    (found,) = [
        target["rawSql"]
        for panel in _MADE[name]["panels"]
        for target in panel["targets"]
        if panel["title"] == title and target["refId"] == ref
    ]
    return str(found)


def test_the_node_graph_of_a_hang(store: Client, lived: Lived) -> None:
    """All eight ranks stand in AllReduce 7; one of ranks 1 and 2 holds it. Four see its flows, two do not."""
    sql = _panel("incident.json", "Who waits for whom", "nodes")
    columns, _, nodes = _ask(store, sql, incident=lived.hang)
    assert columns == ["id", "title", "subtitle", "color"]
    assert {(title, subtitle, colour) for _, title, subtitle, colour in nodes} == {
        ("rank 1 on host0", "holds", "red"), ("rank 2 on host0", "holds", "red"),
        ("all_reduce 7", "world", "gray"), ("4 ranks", "waits", "blue"), ("2 ranks", "waits", "blue"),
    }  # fmt: skip
    columns, _, edges = _ask(
        store, _panel("incident.json", "Who waits for whom", "edges"), incident=lived.hang
    )
    assert columns == ["id", "source", "target", "mainstat"]
    ids = {row[0] for row in nodes}
    assert {end for row in edges for end in row[1:3]} == ids
    # Two groups stand in it; it waits for two, which stand in it themselves.
    assert len({row[0] for row in edges}) == len(edges) == 6


def test_both_ends_of_the_guilty_flow(store: Client, lived: Lived) -> None:
    """The counters at which the recording froze (test_live compares them with the trace)."""
    last: dict[str, int] = {}
    for end in ("senders", "receivers"):
        _, _, rows = _ask(store, _panel("incident.json", f"Counters of the {end}"), incident=lived.hang)
        last |= {name: steps for _, name, steps in rows}
    assert last["rank 7 → rank 0 transmitted"] == 15
    assert last["rank 0 ← rank 7 received"] == 7
    assert last["rank 0 ← rank 7 consumed"] == 3
    assert last["rank 3 → rank 4 ready"] == 7
    assert last["rank 4 ← rank 3 posted"] == 11


def test_blame_and_bandwidth_of_a_rank(store: Client) -> None:
    """10 AllReduces of 1 MB in 2 ms each, by 8 ranks: 10 MB × 2 × 7 / 8 in 20 ms. Rank 1 held 3 s."""
    _, _, blame = _ask(store, _panel("job.json", "Blame"), job=COUNTED_JOB)
    assert {name: held for _, name, held in blame}["rank     1 host0"] == pytest.approx(3.0)
    assert sum(held for _, _, held in blame) == pytest.approx(3.0)
    _, _, speed = _ask(store, _panel("job.json", "Bus bandwidth"), job=COUNTED_JOB)
    assert len(speed) == 8
    assert all(value == pytest.approx(875e6) for _, _, value in speed)


def test_rates_of_a_communicator(store: Client) -> None:
    """8 members, 80 intervals of 8 s together; the last started 3 ms late."""
    kind = "world all_reduce ≤ 1.00 MiB"
    for dashboard, title, name, value in (
        ("job.json", "Time between operations", kind, 0.1),
        ("job.json", "Launch skew", kind, 0.003),
        ("communicators.json", "Bus bandwidth", f"{kind} ring simple", 875e6),
    ):
        _, _, rows = _ask(store, _panel(dashboard, title), job=COUNTED_JOB, comm="")
        assert {row[1]: row[2] for row in rows} == {name: pytest.approx(value)}


def test_the_jobs_that_are_seen(store: Client) -> None:
    columns, _, rows = _ask(store, _panel("jobs.json", "Jobs"))
    jobs = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
    assert jobs[LIVE_JOB]["ranks"] == 8
    assert jobs[LIVE_JOB]["hosts"] == 2
    # The live one may have closed before its day ended; of a dump no one tells that it is over.
    assert jobs[LATE_JOB]["open_incidents"] == 1
    assert jobs[LATE_JOB]["silent_s"] is None


def test_a_chosen_communicator_leaves_out_the_others(store: Client, lived: Lived) -> None:
    sql = _panel("communicators.json", "By size, algorithm and protocol")
    columns, _, rows = _ask(store, sql, job=LIVE_JOB, comm="world")
    assert rows
    assert {row[columns.index("communicator")] for row in rows} == {"world"}
    assert _ask(store, sql, job=LIVE_JOB, comm="other")[2] == []
    assert lived.hang


@pytest.mark.parametrize("rule", RULES, ids=[rule["title"] for rule in RULES])
def test_every_alert_rule_counts(rule: dict[str, Any], store: Client) -> None:
    """One critical incident (the late rank), one loss, one dead letter; collectors ended with their job."""
    (query,) = [each for each in rule["data"] if each["datasourceUid"] == "mycroft"]
    _, kinds, rows = _ask(store, query["model"]["rawSql"])
    assert len(rows) == len(kinds) == 1
    assert rows[0][0] == (0 if rule["uid"] == "mycroft-silent-collector" else 1)


def test_names_are_text_whatever_they_are(store: Client) -> None:
    for hostile in ("'; DROP TABLE nccl.incidents --", "a'' OR 1 = 1", 'ü" {x:String}'):
        assert _ask(store, _panel("job.json", "Incidents"), job=hostile)[2] == []
