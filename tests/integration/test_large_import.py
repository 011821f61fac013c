"""1,024 ranks of 2,000 entries each through the embedded broker, which keeps a few MB of them at a time."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from collectors.flight_recorder.importer import send_snapshot
from collectors.flight_recorder.snapshot import read_snapshot
from mycroft.local.stack import Stack
from queries.client import connect
from tests.flight_recorder_dumps import BASE_NS
from tests.integration.pipeline import Pipeline
from tests.unit.test_cases import summary

RANKS = 1024
ENTRIES = 2000
TENSOR = 8
LATE = 517


def _dump(rank: int) -> dict[str, Any]:
    """Alternating tensor (8 ranks) and world operations; all finished but the last.

    Rank LATE never launched its last tensor operation (its number is ENTRIES / 2): its seven peers wait there
    for it, and everybody else, a world operation further, for those eight.
    """
    first = rank // TENSOR * TENSOR
    groups = {
        "0": ("default_pg", list(range(RANKS))),
        str(1 + rank // TENSOR): ("TENSOR_MODEL_PARALLEL_GROUP", list(range(first, first + TENSOR))),
    }
    names = list(groups)
    beside_late = first == LATE // TENSOR * TENSOR
    launched = ENTRIES - (2 if rank == LATE else 1 if beside_late else 0)
    finished = ENTRIES - (2 if beside_late else 1)
    entries = [
        {
            "record_id": number,
            "pg_id": 1 - number % 2,
            "process_group": (names[1 - number % 2], groups[names[1 - number % 2]][0]),
            "collective_seq_id": 1 + number // 2,
            "p2p_seq_id": 0,
            "op_id": 1 + number // 2,
            "profiling_name": "nccl:all_reduce",
            "time_created_ns": BASE_NS + number * 1_000_000,
            "input_sizes": [[4096, 1024]],
            "input_dtypes": ["BFloat16"],
            "output_sizes": [[4096, 1024]],
            "output_dtypes": ["BFloat16"],
            "state": "completed" if number < finished else "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": number < finished,
            "timeout_ms": 600_000,
            "is_p2p": False,
        }
        for number in range(launched)
    ]
    status = {}
    for pg_id in (0, 1):
        own = [entry for entry in entries if entry["pg_id"] == pg_id]
        ended = [entry for entry in own if entry["retired"]]
        status[str(pg_id)] = {
            "last_enqueued_collective": own[-1]["collective_seq_id"],
            "last_started_collective": -1,
            "last_completed_collective": ended[-1]["collective_seq_id"],
        }
    return {
        "version": "2.9",
        "nccl_version": "2.27.3",
        "pg_config": {
            name: {"name": name, "desc": desc, "ranks": str(ranks)} for name, (desc, ranks) in groups.items()
        },
        "pg_status": status,
        "entries": entries,
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    for rank in range(RANKS):
        (dumps / f"_dump_{rank}").write_bytes(pickle.dumps(_dump(rank), protocol=2))
    snapshot = read_snapshot(dumps, "large")
    stop = threading.Event()
    with Stack(tmp_path / "stack") as stack:
        supervisor = threading.Thread(target=stack.supervise, args=(stop.is_set,), daemon=True)
        supervisor.start()
        assert stack.addresses is not None
        pipeline = Pipeline(stack, connect(stack.addresses.clickhouse))
        send_snapshot(snapshot, pipeline.settings)
        verdict = pipeline.verdict(snapshot)
        found = pipeline.found(snapshot)
        stored = pipeline.until(
            lambda: rows if (rows := pipeline.count("coll")) >= snapshot.records else None
        )
        lost = pipeline.count("losses")
        stop.set()
        supervisor.join()
    assert summary(found) == {("late-launch", (LATE,), ())}
    assert found[0].waiting == RANKS - 1
    # Every entry, and two positions for each rank.
    assert stored == snapshot.records == RANKS * ENTRIES - TENSOR - 1 + 2 * RANKS
    assert (verdict.lost, verdict.missing, lost) == (0, (), 0)
