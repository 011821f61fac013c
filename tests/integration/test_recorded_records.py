"""Recorded runs through plugin, collectors and broker: the records that come are what the oracle says.

Without limits, so that all is told. A sample of versions, tiers and kinds of runs, some of them cut off at a
moment while their processes live; MYCROFT_RECORDS=all replays every recorded run by every version.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest
from clickhouse_connect.driver.client import Client

from collectors.replay.runner import Options, Outcome
from collectors.replay.trace import Run
from mycroft.connections import collector_arguments
from mycroft.local.observed import observe
from mycroft.local.processes import Child
from mycroft.local.stack import START_TIMEOUT_S
from mycroft.plugin import plugin_path
from mycroft.settings import Settings
from schemas.ids import job_id
from streams.topics import ensure_topics
from tests.figures import Figure
from tests.frozen import HOSTS, LAUNCHED, QUERY, STARVES, Ring, Stuck, faults
from tests.integration.collecting import until
from tests.integration.following import Follower
from tests.oracle import Oracle, Picture
from tests.oracle_records import Comparison, wanted
from tests.oracle_runs import all_runs, recorded_run
from tests.told import Told

ALL = os.environ.get("MYCROFT_RECORDS") == "all"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if ALL else 300)]

AT_ONCE = 8 if ALL else 5
"""Replays at a time: mostly they wait."""
SPEED = 4.0
HOLD_S = 3.0
"""So long a run stays as it is after its last call: what stands is told within a second."""


@dataclass(frozen=True)
class Case:
    """A run by an API version at a tier, up to a share of its length."""

    name: str
    version: int
    tier: str
    until: float = 1.0

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}-{self.tier}" + (f"-{self.until:g}" if self.until < 1 else "")


def _all_live(name: str, until: float) -> bool:
    """Whether every process of a run lives, and none is stopped, at a share of its length."""
    run = recorded_run(name)
    end = run.lines[-1]["t"] * until
    notes = [line["what"] for line in run.lines if line["cb"] == "note" and line["t"] <= end]
    gone = any(what == "SIGKILL" or what.startswith("process e") for what in notes)
    return not gone and notes.count("SIGSTOP") == notes.count("SIGCONT")


SAMPLE = [
    Case("g0_nshealthy4", 6, "kernel"), Case("a_nonblock4", 5, "flows"), Case("m_initfail4", 6, "flows"),
    Case("n2_pxn8_gpuhang2", 7, "kernel"), Case("n2_pxn8_kill4", 5, "flows"), Case("a_p2p4", 7, "kernel"),
    Case("c_hang4", 5, "kernel"), Case("e_gpuhang4", 6, "kernel"), Case("e2_computehang4", 6, "kernel"),
    Case("i1_kill4", 7, "flows"), Case("x1_cts_hang4", 6, "flows"), Case("c3_mismatch4", 7, "flows"),
    Case("a_group4", 6, "kernel"), Case("b2_gpustraggler4", 7, "kernel"), Case("m_dyn4", 6, "kernel"),
    Case("n2_ring8_gpuhang1", 6, "flows"), Case("n2_pp8_healthy", 5, "kernel"), Case("n_netprof2", 6, "ops"),
    Case("e_gpuhang4", 4, "kernel"), Case("n2_pxn8_gpuhang2", 4, "flows"), Case("a_tpdp4", 4, "flows"),
    Case("e_gpuhang4", 3, "kernel"), Case("a_p2p4", 3, "flows"), Case("n2_ring8_sigstop2", 3, "ops"),
    Case("n2_pxn8_kill4", 6, "kernel"),
]  # fmt: skip
MOMENTS = [
    Case("a_nonblock4", 6, "flows", 0.55), Case("n2_pxn8_gpuhang2", 6, "kernel", 0.5),
    Case("n2_ring8_sigstop2", 7, "kernel", 0.3), Case("y0_async_healthy4", 5, "flows", 0.6),
]  # fmt: skip
FROZEN = [
    Case("c_hang4", 6, "kernel"), Case("x1_cts_hang4", 7, "kernel"), Case("e_gpuhang4", 7, "kernel"),
    Case("e2_computehang4", 5, "kernel"), Case("d_sigstop4", 6, "kernel", 0.7), Case("i1_kill4", 6, "kernel"),
    Case("h1_linkdown4", 6, "kernel", 0.6), *(Case(name, 6, "flows") for name in HOSTS),
]  # fmt: skip
"""Two of them cut off while the process is stopped, and while the link is down."""
if ALL:
    KERNEL = [name for name in all_runs() if "nokch" not in name]
    """Recorded with kernel channels: without, NCCL would not have been asked for them."""
    SAMPLE = [Case(name, version, "kernel") for name in KERNEL for version in (3, 4, 5, 6, 7)]
    SAMPLE += [Case(name, 6, tier) for name in all_runs() for tier in ("flows", "ops")]
    MOMENTS = [
        Case(name, 6, "kernel", until) for name in KERNEL for until in (0.45, 0.75) if _all_live(name, until)
    ]


@dataclass(frozen=True)
class Lived:
    """A run that is over, and what was told of it."""

    job: int
    run: Run
    outcome: Outcome
    told: Told
    picture: Picture

    def compared(self, case: Case, told: Told) -> Comparison:
        """What was told beside what is right."""
        operations = wanted(self.picture, self.run.lines, case.version)
        return Comparison(told, operations, case.version, self.outcome.pids, self.outcome.wall, SPEED)


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """One broker, and nobody who listens."""
    with tempfile.TemporaryDirectory(prefix="mycroft-") as folder:
        path = Path(folder)
        arguments = ["mycroft.local.broker", f"--ready-file={path / 'ready'}", f"--parent={os.getpid()}"]
        broker = Child("broker", arguments, path / "broker.log", {})
        broker.start()
        try:
            address = broker.wait_ready(path / "ready", START_TIMEOUT_S)
            ensure_topics(Settings(kafka=address))
            yield address
        finally:
            broker.stop()


@pytest.fixture(scope="module")
def lived(kafka: str, request: pytest.FixtureRequest) -> Iterator[Callable[[Case], Lived]]:
    """Starts all selected runs, a few at a time, and gives one that is over, waiting for it."""
    chosen = [
        cast(Case, item.callspec.params["case"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.getparent(pytest.Module) is request.node
    ]
    follower = Follower(kafka)
    with tempfile.TemporaryDirectory(prefix="mycroft-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        futures: dict[Case, Future[Lived]] = {
            case: pool.submit(_live, case, Path(folder) / str(case), kafka, follower)
            for case in dict.fromkeys(chosen)
        }
        yield lambda case: futures[case].result()
        pool.shutdown(cancel_futures=True)
    follower.close()


def _live(case: Case, folder: Path, kafka: str, follower: Follower) -> Lived:
    run = recorded_run(case.name)
    end = run.lines[-1]["t"] * case.until
    run = replace(run, lines=[line for line in run.lines if line["t"] <= end])
    picture = Oracle(run.lines, case.tier, case.version).at()
    stands = case.until < 1 or any(op.done is False for op in picture.operations)
    hold_s = HOLD_S if stands else 0.0
    options = Options(
        plugin_path(), folder, str(case), case.tier, case.version, SPEED, hold_s=hold_s, log_level=2
    )
    unlimited = Settings(kafka=kafka, collector_budget_bytes=0, collector_comm_records=0)
    outcome = observe(run, options, collector_arguments(unlimited), lambda: True)
    return Lived(job_id(str(case)), run, outcome, Told(follower.flushes(str(case))), picture)


def _shown(differences: list[str]) -> str:
    return "\n".join([f"{len(differences)} differences", *differences[:20]])


@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_what_a_run_has_told_at_its_end(case: Case, lived: Callable[[Case], Lived]) -> None:
    life = lived(case)
    assert life.outcome.complete, life.outcome.faults()
    differences = life.compared(case, life.told).differences()
    assert not differences, _shown(differences)


@pytest.mark.parametrize("case", MOMENTS, ids=str)
def test_what_a_run_tells_at_a_moment(case: Case, lived: Callable[[Case], Lived]) -> None:
    life = lived(case)
    assert life.outcome.complete, life.outcome.faults()
    stands = life.compared(case, life.told.while_alive()).stands(HOLD_S)
    assert not stands, _shown(stands)
    differences = life.compared(case, life.told).differences()
    assert not differences, _shown(differences)


@pytest.fixture(scope="module")
def sink(kafka: str, migrated_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Stores what the broker has, and what comes."""
    environment = {"MYCROFT_KAFKA": kafka, "MYCROFT_CLICKHOUSE": migrated_store_url}
    log = tmp_path_factory.mktemp("sink") / "sink.log"
    child = Child("sink", ["streams.sink", f"--parent={os.getpid()}"], log, environment)
    child.start()
    yield
    assert child.alive(), child.status()
    child.stop()


@pytest.mark.usefixtures("sink")
@pytest.mark.parametrize("case", FROZEN, ids=str)
def test_what_froze_is_asked_of_the_store(
    case: Case, lived: Callable[[Case], Lived], store: Client, figure: Figure
) -> None:
    """The right answers are the table's of what freezes where, none of them read from the run."""
    life = lived(case)
    assert life.outcome.complete, life.outcome.faults()
    rows = sum(len(flush.sections.get(name, ())) for flush in life.told.flushes for name in ("coll", "flow"))
    job = {"job": life.job}
    count = " + ".join(
        f"(SELECT count() FROM nccl.{table} WHERE job = {{job:UInt64}})" for table in ("coll", "flows")
    )
    until(lambda: store.command(f"SELECT {count}", job) == rows, "the sink stores all of it")
    ring = Ring([Stuck(*row) for row in store.query(QUERY, job).result_rows])
    launched = {int(rank): int(seq) for rank, seq in store.query(LAUNCHED, job).result_rows}
    if case.name not in HOSTS:
        assert faults(case.name, ring, launched) == []
        return
    hosts = HOSTS[case.name]
    for entering, leaving in (hosts.bad, hosts.other):
        assert all(flow.send_gpu_wait for flow in ring.sends(leaving)), "SendGPUWait on every host"
        held = [flow.recv_gpu_wait for flow in ring.receives(entering)]
        assert held
        assert set(held) == {(entering, leaving) == hosts.bad}, "RecvGPUWait on the bad host alone"
    balances = ring.balance(*hosts.bad), ring.balance(*hosts.other)
    figure(f"{case}: balances of its hosts {balances}")
    assert balances == ({hosts.balance}, {STARVES})
