"""What judges, without what stores: a broker and a worker, for tests that ask the alerts topic alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mycroft.local.alerts import wait_watching
from mycroft.local.processes import Child
from mycroft.local.stack import START_TIMEOUT_S
from mycroft.settings import Settings
from streams.topics import ensure_topics


@contextmanager
def judging(folder: Path) -> Iterator[str]:
    """A broker and a worker that watches, without what stores: where the broker is."""
    parent = f"--parent={os.getpid()}"
    broker = Child(
        "broker",
        ["mycroft.local.broker", f"--ready-file={folder / 'ready'}", parent],
        folder / "broker.log",
        {},
    )
    broker.start()
    try:
        kafka = broker.wait_ready(folder / "ready", START_TIMEOUT_S)
        ensure_topics(Settings(kafka=kafka))
        worker = Child("worker", ["streams.worker", parent], folder / "worker.log", {"MYCROFT_KAFKA": kafka})
        worker.start()
        try:
            wait_watching(kafka)
            yield kafka
            assert worker.alive(), worker.status()
        finally:
            worker.stop()
    finally:
        broker.stop()
