"""The whole of Mycroft on one machine: broker, store, worker and sink, each a supervised process.

The broker keeps its data in memory, so when it dies the stack ends; the others are started again.
Where `kafka` or `clickhouse` name real ones, those are used and the embedded ones are not started.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from mycroft.local.addresses import STATE_FILE, Addresses
from mycroft.local.processes import Child, ChildError
from mycroft.settings import Settings
from queries import answers
from queries.client import connect
from schemas.migrate import migrate
from schemas.topics import ALERTS
from streams.kafka import ANSWER_TIMEOUT_S, producer
from streams.topics import ensure_topics

START_TIMEOUT_S = 60.0
DEFAULT_STORE_PORT = 8123
RECALLED = 10_000
"""Open incidents, the newest first, that a new start remembers: more than anybody reads, less than 5 MB."""

_POLL_S = 0.2
_TROUBLE = re.compile(r" (?:WARNING|ERROR) [\w.]+: (.+)")
"""A line of the sink's log that whoever watches the stack should read: what it stores is late, or lost."""


class BrokerDied(RuntimeError):
    """The embedded broker is gone and its messages with it."""


class Stack:
    """A local stack on a folder; a context manager that stops everything it started."""

    def __init__(
        self,
        folder: Path,
        *,
        kafka: str | None = None,
        clickhouse: str | None = None,
        store_port: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self._kafka = kafka
        self._clickhouse = clickhouse
        self._store_port = store_port
        self._tell = tell
        self._broker: Child | None = None
        self._restartable: list[Child] = []
        self._told = ""
        self.addresses: Addresses | None = None

    def __enter__(self) -> Stack:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Bring everything up; returns when it can be used.

        Raises ChildError, MigrationError or BrokerError, each with one line.
        """
        logs, ready = self.folder / "logs", self.folder / "run"
        parent = ("--parent", str(os.getpid()))  # none of them outlives the stack
        shutil.rmtree(ready, ignore_errors=True)
        ready.mkdir(parents=True)
        if self._kafka is None:
            arguments = ["mycroft.local.broker", "--ready-file", str(ready / "broker"), *parent]
            self._broker = Child("broker", arguments, logs / "broker.log", {})
            self._broker.start()
        store = None
        if self._clickhouse is None:
            store = self._store(logs, ready)
            store.start()
        kafka = self._kafka or self._ready(self._broker, ready / "broker")
        settings = Settings(kafka=kafka)
        ensure_topics(settings)
        # The worker compiles its kernels while the store starts.
        environment = {"MYCROFT_KAFKA": kafka, "PYTHONUNBUFFERED": "1"}
        worker = Child("worker", ["streams.worker", *parent], logs / "worker.log", environment)
        self._restartable.append(worker)
        worker.start()
        clickhouse = self._clickhouse or self._ready(store, ready / "store")
        migrate(clickhouse)
        if self._broker is not None:
            _recall(kafka, clickhouse)
        environment = {**environment, "MYCROFT_CLICKHOUSE": clickhouse}
        sink = Child("sink", ["streams.sink", *parent], logs / "sink.log", environment)
        self._restartable.append(sink)
        sink.start()
        self.addresses = Addresses(kafka, clickhouse, os.getpid())
        state = {"kafka": kafka, "clickhouse": clickhouse, "pid": os.getpid()}
        (self.folder / STATE_FILE).write_text(json.dumps(state))

    def _store(self, logs: Path, ready: Path) -> Child:
        port = _free_port() if self._store_port is None else self._store_port
        arguments = [
            "mycroft.local.store", "--path", str(self.folder / "store"), "--port", str(port),
            "--ready-file", str(ready / "store"), "--parent", str(os.getpid()),
        ]  # fmt: skip
        store = Child("store", arguments, logs / "store.log", {})
        self._restartable.append(store)
        return store

    @staticmethod
    def _ready(child: Child | None, file: Path) -> str:
        assert child is not None
        return child.wait_ready(file, START_TIMEOUT_S)

    def children(self) -> dict[str, int | None]:
        """Process ids by part."""
        parts = [*([self._broker] if self._broker else []), *self._restartable]
        return {child.name: child.pid for child in parts}

    def check(self) -> None:
        """Restart what has died; raises BrokerDied where that is the broker."""
        if self._broker is not None and not self._broker.alive():
            raise BrokerDied(
                f"the embedded broker ended ({self._broker.status()}) and with it the messages in memory; "
                "what had reached the store is kept: start the stack again"
            )
        for child in self._restartable:
            if child.name == "sink":
                self._tell_trouble(child)
            if not child.alive():
                how = child.status()
                if child.revive():
                    self._tell(f"{child.name} ended ({how}); started again")

    def _tell_trouble(self, child: Child) -> None:
        """Its warnings, each once as long as nothing else comes between."""
        for line in child.news():
            found = _TROUBLE.search(line)
            if found is not None and found[1] != self._told:
                self._told = found[1]
                self._tell(f"{child.name}: {found[1]}")

    def supervise(self, stopped: Callable[[], bool]) -> None:
        """Keep the stack going until `stopped` says so. Raises BrokerDied."""
        while not stopped():
            self.check()
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop readers first, then the store, then the broker."""
        ordered = sorted(self._restartable, key=lambda child: child.name == "store")
        for group in (ordered[:-1], ordered[-1:], [self._broker] if self._broker else []):
            for child in group:
                child.ask_to_stop()
            for child in group:
                child.stop()
        if self.addresses is not None:
            (self.folder / STATE_FILE).unlink(missing_ok=True)


def _recall(kafka: str, clickhouse: str) -> None:
    """Put the open incidents of the store back on the alerts topic, which the embedded broker forgets.

    The topic is where the worker reads what is open, and where it closes what a new attempt replaces.
    """
    client = producer(kafka, "stack")
    for incident in answers.incidents(connect(clickhouse), open_only=True, limit=RECALLED):
        client.produce(ALERTS.name, json.dumps(incident.to_json()).encode(), incident.job.encode())
    client.flush(ANSWER_TIMEOUT_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


__all__ = ["Addresses", "BrokerDied", "ChildError", "Stack"]
