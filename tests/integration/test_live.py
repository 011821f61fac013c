"""Recorded runs live: plugin, shared memory, collectors, Kafka, sink. What ClickHouse holds is what the
oracle says of the run's end, straight from the trace.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from collectors.replay.runner import Options, host_directory, replay
from collectors.replay.trace import Run
from mycroft.local.stack import Stack
from mycroft.plugin import plugin_path
from queries.client import connect
from schemas.ids import job_id
from tests.integration.pipeline import Pipeline
from tests.oracle import Oracle
from tests.oracle_runs import recorded_run

RUNS = ("e_gpuhang4", "c_hang4", "n2_ring8_gpuhang1")
HOLD_S = 6.0
"""How long a hung run stays alive after its last call: stalls are told within a second."""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    with Stack(tmp_path_factory.mktemp("stack")) as stack:
        assert stack.addresses is not None
        client = connect(stack.addresses.clickhouse)
        yield Pipeline(stack, client)
        client.close()


@contextmanager
def collecting(pipeline: Pipeline, run: Run, folder: Path) -> Iterator[None]:
    """A collector for each host of the run, as on a cluster."""
    collectors = []
    for host in sorted(set(run.nodes)):
        directory = host_directory(folder, host)
        directory.mkdir(parents=True, exist_ok=True)
        command = [
            str(Path(sys.executable).with_name("mycroft")), "collect", "--dir", str(directory),
            "--host", f"host{host}", "--metrics-port", "0", "--budget", "0",
            "--kafka", pipeline.addresses.kafka,
        ]  # fmt: skip
        with (folder / f"collector-{host}.log").open("w") as log:
            collectors.append(subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ)))
    try:
        for host in sorted(set(run.nodes)):
            Pipeline.until(partial(_started, folder / f"collector-{host}.log"))
        yield
        time.sleep(2)  # dead processes are drained
    finally:
        for collector in collectors:
            collector.send_signal(signal.SIGTERM)
        assert [collector.wait(30) for collector in collectors] == [0] * len(collectors)


def _started(log: Path) -> bool | None:
    return "collecting from" in log.read_text() or None


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_what_froze_is_in_the_store(pipeline: Pipeline, name: str, tmp_path: Path) -> None:
    """The counters of every flow that never completed (nccl-profiler-abi: what freezes where)."""
    run = recorded_run(name)
    job = f"live-{name}"
    options = Options(plugin_path(), tmp_path, job, "flows", 6, 1.0, hold_s=HOLD_S)
    with collecting(pipeline, run, tmp_path):
        assert replay(run, options).complete
    picture = Oracle(run.lines, "flows", 6).at()
    wanted = {
        (op.comm.rank, op.seq, flow.channel, flow.peer, flow.send): flow.counters
        for op, flow in picture.flows()
        if not flow.complete
    }
    assert wanted, "a hung run has flows that never completed"
    names = ("ready", "transmitted", "done", "posted", "received", "flushed", "consumed")

    def stored() -> dict[tuple[int, int, int, int, bool], tuple[int, ...]] | None:
        rows = pipeline.client.query(
            "SELECT rank, seq, channel, peer, direction = 'send', max(total), "
            + ", ".join(f"max({name})" for name in names)
            + " FROM nccl.flows WHERE job = {job:UInt64} AND kind IN ('state', 'orphan') "
            "GROUP BY rank, seq, channel, peer, direction",
            parameters={"job": job_id(job)},
        ).result_rows
        found = {}
        for rank, seq, channel, peer, send, total, *counters in rows:
            own = counters[:3] if send else counters[3:]
            found[rank, seq, channel, peer, bool(send)] = (total, *own)
        return found if found.keys() >= wanted.keys() else None

    found = pipeline.until(stored)
    assert {key: found[key] for key in wanted} == wanted
