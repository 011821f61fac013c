"""One connection to chDB, with what chDB's Python API lacks: settings for one statement only."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, cast

from mycroft.local.store_sql import InsertHead, quote, quote_name

# Where chDB's defaults are a shell's and not a server's: a mistyped statement is not an expression.
_AS_A_SERVER = "implicit_select=0&allow_introspection_functions=0"


class EngineResult(Protocol):
    """What chDB gives back. Rows and bytes are counts, elapsed is in seconds."""

    def bytes(self) -> bytes:
        """The answer in the format asked for."""

    def storage_rows_read(self) -> int:
        """Rows read from tables."""

    def storage_bytes_read(self) -> int:
        """Bytes read from tables."""

    def rows_written(self) -> int:
        """Rows written to tables."""

    def bytes_written(self) -> int:
        """Bytes written to tables."""

    def elapsed(self) -> float:
        """Seconds the statement took."""


class Connection:
    """A chDB connection to the engine over one folder; every method raises RuntimeError as chDB does.

    It runs one statement at a time, so it must not be shared between threads without a lock.
    """

    def __init__(self, path: str) -> None:
        # The days of PARTITION BY must not depend on where the machine stands; containers use UTC too.
        os.environ["TZ"] = "UTC"
        # chDB takes 1.5 s to import, so errors that can be found without it come at once.
        session: Any = importlib.import_module("chdb.session")

        self._session = session.Session(f"{path}?{_AS_A_SERVER}")
        # The wrapper around this object converts results to Python; the store wants the bytes as they are.
        self._raw: Any = self._session._conn._conn
        self._before: dict[str, str] = {}

    def close(self) -> None:
        """End it; the engine goes with the last connection."""
        self._session.close()

    def query(self, sql: bytes, fmt: str, params: Mapping[str, str] | None = None) -> EngineResult:
        """Run a statement; `fmt` holds where it has no FORMAT of its own."""
        return cast(EngineResult, self._raw.query(sql, fmt, params=dict(params or {})))

    def insert(self, head: InsertHead, rows: bytes, params: Mapping[str, str]) -> EngineResult:
        """Run an INSERT with its rows; binary safe.

        The engine reads them as a file, because chDB's own `send_insert` reports success where the write
        failed: a full disk, a violated constraint or too many partitions lost the rows without an error.
        """
        with _as_file(rows) as path:
            source = f" FROM INFILE {quote(path)} COMPRESSION 'none' ".encode()
            sql = head.sql + source + head.settings + f" FORMAT {head.format}".encode()
            return self.query(sql, "Null", params)

    def classify(self, sql: bytes) -> tuple[str, int]:
        """Query class (READ_ONLY, MUTATING, CONTROL, UNKNOWN) and number of statements; 0 if unparsable."""
        facts = self._raw.classify_query(sql)
        return str(facts["query_class"].name), int(facts["statement_count"])

    @contextmanager
    def applied(self, settings: Mapping[str, str], database: str) -> Iterator[None]:
        """Settings and current database from now on; for a connection that ends with the statement."""
        if database:
            self.query(f"USE {quote_name(database)}".encode(), "Null")
        self._set({name: quote(value) for name, value in settings.items()})
        yield

    @contextmanager
    def overlaid(self, settings: Mapping[str, str], database: str) -> Iterator[None]:
        """Settings and current database for one statement, put back afterwards."""
        previous = self.query(b"SELECT currentDatabase()", "TSVRaw").bytes()[:-1].decode() if database else ""
        before = {name: self._value_before(name) for name in settings}
        try:
            with self.applied(settings, database):
                yield
        finally:
            self._set(before)
            if previous != database:
                self.query(f"USE {quote_name(previous)}".encode(), "Null")

    def forget_settings(self) -> None:
        """A statement may have changed settings of this session: look again before the next overlay."""
        self._before.clear()

    def _value_before(self, name: str) -> str:
        if name not in self._before:
            changed = f"SELECT value FROM system.settings WHERE name = {quote(name)} AND changed"
            row = self.query(changed.encode(), "TSVRaw").bytes()
            self._before[name] = quote(row[:-1].decode()) if row else "DEFAULT"
        return self._before[name]

    def _set(self, literals: Mapping[str, str]) -> None:
        if literals:
            changes = ", ".join(f"{name} = {literal}" for name, literal in literals.items())
            self.query(f"SET {changes}".encode(), "Null")


@contextmanager
def _as_file(rows: bytes) -> Iterator[str]:
    """A path under which this process reads the rows, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("rows"), "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(rows)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile(prefix="mycroft-rows-") as named:
            named.write(rows)
            named.flush()
            yield named.name
