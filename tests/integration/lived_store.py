"""A store as a day of work leaves it: a recorded run that hung while it was watched, and dumps of hung jobs.

It is lived once for a test session, through the whole pipeline; what stays is the store alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from collectors.flight_recorder.importer import send_snapshot
from collectors.flight_recorder.snapshot import read_snapshot
from collectors.replay.runner import Options
from mycroft.connections import collector_arguments
from mycroft.local.alerts import wait_watching
from mycroft.local.observed import observe
from mycroft.local.stack import Stack
from mycroft.local.store_process import start_store
from mycroft.plugin import plugin_path
from mycroft.settings import Settings
from queries import answers
from queries.client import connect
from tests.cases import CASES
from tests.integration.pipeline import Pipeline
from tests.oracle_runs import recorded_run

RUN = "n2_ring8_gpuhang1"
"""8 ranks on 4 hosts, two each; the GPU of rank 1 stops."""
LIVE_JOB = "llama-7b"
LATE_JOB, MISMATCH_JOB = "late-7b", "sizes-7b"


@dataclass(frozen=True)
class Lived:
    """Where it is, and what was found: the live hang, the late rank and the mismatch, by incident id."""

    url: str
    hang: str
    late: str
    mismatch: str


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """The store of three jobs, on an embedded engine of its own."""
    with living(tmp_path_factory.mktemp("lived")) as store:
        yield store


@contextmanager
def living(folder: Path) -> Iterator[Lived]:
    """Live that day in a folder and keep its store open."""
    with Stack(folder) as stack:
        assert stack.addresses is not None
        found = _live(stack.addresses.kafka, stack.addresses.clickhouse, folder)
    store = start_store(folder / "store")
    try:
        yield Lived(store.url, *found)
    finally:
        store.stop()


def _live(kafka: str, clickhouse: str, folder: Path) -> tuple[str, str, str]:
    settings, client = Settings(kafka=kafka, clickhouse=clickhouse), connect(clickhouse)
    wait_watching(kafka)
    for job, case in ((LATE_JOB, "late"), (MISMATCH_JOB, "sizes-differ")):
        (story,) = [each for each in CASES if each.name == case]
        send_snapshot(read_snapshot(story.write(folder / case), job), settings)
    options = Options(plugin_path(), folder / "run", LIVE_JOB, "flows", log_level=2)

    def known(job: str) -> str | None:
        ids = [one.id for one in answers.incidents(client, job=job)]
        return ids[-1] if ids else None

    observe(recorded_run(RUN), options, collector_arguments(settings), lambda: known(LIVE_JOB) is not None)
    hang, late, mismatch = (Pipeline.until(partial(known, job)) for job in (LIVE_JOB, LATE_JOB, MISMATCH_JOB))
    return hang, late, mismatch
