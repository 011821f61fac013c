"""A budget far too small for a run: single finished operations go, and nothing else does.

Recorded runs through plugin, collectors and broker; what arrives is compared with what the oracle reads
straight from the run.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from collectors.replay.runner import Options
from mycroft.connections import collector_arguments
from mycroft.local.observed import observe
from mycroft.plugin import plugin_path
from mycroft.settings import Settings
from schemas.enums import Direction, Kind
from streams.topics import ensure_topics
from tests.integration.collecting import Reader
from tests.integration.kafka_fixtures import EmbeddedBroker
from tests.oracle import Oracle, Picture
from tests.oracle_memory import FUNCS
from tests.oracle_runs import recorded_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BUDGETS = {"a_nonblock4": 3000, "n2_ring8_gpuhang1": 6000}
"""By run, bytes a second of a host: flushes with their sums and positions take about as much, and a little is
left for single operations (4 to 8 of 40, 4 to 8 of 24). With eight ranks on two hosts 3000 left none or one.
"""
COUNTERS = ("ready", "transmitted", "done", "posted", "received", "flushed", "consumed")


@pytest.mark.parametrize("name", BUDGETS)
def test_sums_positions_and_what_stalls_arrive_whole(
    name: str, embedded_broker: EmbeddedBroker, tmp_path: Path
) -> None:
    settings = Settings(kafka=embedded_broker.bootstrap, collector_budget_bytes=BUDGETS[name])
    ensure_topics(settings)
    run = recorded_run(name)
    options = Options(plugin_path(), tmp_path / "run", "budget", "flows", log_level=2)
    assert observe(run, options, collector_arguments(settings), lambda: True).complete
    reader = Reader(embedded_broker.bootstrap).read()
    picture = Oracle(run.lines, "flows").at()
    ended = [op for op in picture.operations if op.done]
    assert 0 < len(reader.rows("coll", Kind.DONE)) < len(ended) / 2, "the budget was not too small"
    sums: Counter[tuple[int, int, str]] = Counter()
    for row in reader.rows("coll", Kind.SUM):
        for field in ("n", "bytes"):
            sums[row["rank"], row["func"], field] += row[field]
    wanted: Counter[tuple[int, int, str]] = Counter()
    for op in ended:
        wanted[op.p, int(FUNCS[op.func]), "n"] += 1
        wanted[op.p, int(FUNCS[op.func]), "bytes"] += op.bytes
    assert sums == wanted
    assert positions(reader) == last_launched(picture)
    assert stalled(reader, picture) == frozen(picture)
    reader.close()


def positions(reader: Reader) -> dict[tuple[int, int], int]:
    """By rank and func, the last seq that was told as launched."""
    found: dict[tuple[int, int], int] = {}
    for row in reader.rows("coll", Kind.POSITION):
        if not row["seq"]:
            continue  # of a communicator in which nothing was launched yet
        place = row["rank"], row["func"]
        found[place] = max(found.get(place, 0), row["seq"])
    return found


def last_launched(picture: Picture) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for op in picture.operations:
        place = op.p, int(FUNCS[op.func])
        found[place] = max(found.get(place, 0), op.seq)
    return found


Flows = dict[tuple[Any, ...], tuple[int, ...]]


def stalled(reader: Reader, picture: Picture) -> Flows:
    """The last that was told of each flow in an operation that never ended: its counters."""
    open_seqs = {(op.p, op.seq) for op in picture.operations if not op.done}
    return {
        (row["rank"], row["seq"], row["channel"], row["peer"], row["direction"] == Direction.SEND): tuple(
            row[name] for name in COUNTERS
        )
        for row in reader.rows("flow", Kind.STATE)
        if (row["rank"], row["seq"]) in open_seqs
    }


def frozen(picture: Picture) -> Flows:
    return {
        (op.p, op.seq, flow.channel, flow.peer, flow.send): tuple(getattr(flow, name) for name in COUNTERS)
        for op in picture.operations
        if not op.done
        for flow in op.flows.values()
        if not flow.complete
    }
