"""chDB behind one small interface: statements in, answers out, errors as QueryError.

What chDB does that this module lives with, all of it tried: one process per folder; a connection runs one
statement at a time, several connections run at once without harm; SET, USE and temporary tables belong to
a connection. So a request without an HTTP session has a connection of its own, which costs 1 to 3 ms, and an
HTTP session keeps one.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from mycroft.local.store_connection import Connection, EngineResult
from mycroft.local.store_errors import (
    READONLY,
    SESSION_IS_LOCKED,
    SESSION_NOT_FOUND,
    SYNTAX_ERROR,
    UNKNOWN_SETTING,
    StoreStartError,
    from_engine,
    refused,
)
from mycroft.local.store_sql import InsertHead, first_word, output_format, split_insert

_NAME = re.compile(r"^[A-Za-z_]\w*$")
_READ_ONLY = (
    "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly. "
    "You should use method POST for modifying queries"
)


@dataclass(frozen=True)
class Statement:
    """One statement as a request brings it.

    `text` is SQL, with the rows of an INSERT behind it or apart from it in `rows`. `settings` and `database`
    hold for this statement only, `params` fill the `{name:Type}` placeholders, in ClickHouse's escaped text.
    `read_only` refuses what changes data.
    """

    text: bytes
    rows: bytes = b""
    database: str = ""
    default_format: str = "TabSeparated"
    settings: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False


@dataclass(frozen=True)
class Answer:
    """What a statement gave: the body in `format`, rows and bytes read and written, seconds it took."""

    body: bytes = b""
    format: str = "TabSeparated"
    read_rows: int = 0
    read_bytes: int = 0
    written_rows: int = 0
    written_bytes: int = 0
    elapsed_s: float = 0.0


@dataclass
class _HttpSession:
    connection: Connection
    timeout_s: float
    used: float
    busy: threading.Lock = field(default_factory=threading.Lock)


class Engine:
    """The ClickHouse engine over one folder. Its methods block, and may be called from several threads."""

    def __init__(self, path: Path) -> None:
        """Open the folder; raises StoreStartError where the engine refuses it."""
        self._path = str(path)
        try:
            # Held for as long as the store runs: with its last connection the engine would close.
            self._root = Connection(self._path)
            facts = self._root.query(b"SELECT version(), timezone(), displayName()", "TabSeparated").bytes()
        except RuntimeError as error:
            raise StoreStartError(f"the engine cannot use {path}: {' '.join(str(error).split())}") from error
        self.version, self.timezone, self.display_name = facts.decode().rstrip("\n").split("\t")
        self._sessions: dict[str, _HttpSession] = {}
        self._lock = threading.Lock()

    def run(self, statement: Statement) -> Answer:
        """Run a statement with no state before or after it; raises QueryError."""
        with self._translated(), closing(Connection(self._path)) as connection:
            return _execute(connection, statement, lasting=False)

    def run_in_session(
        self, statement: Statement, session_id: str, *, timeout_s: float = 60.0, must_exist: bool = False
    ) -> Answer:
        """Run a statement in an HTTP session, which ends after `timeout_s` without use; raises QueryError."""
        session = self._session(session_id, timeout_s, must_exist)
        if not session.busy.acquire(blocking=False):
            text = f"Session {session_id} is locked by a concurrent client"
            raise refused(SESSION_IS_LOCKED, "SESSION_IS_LOCKED", text)
        try:
            with self._translated():
                return _execute(session.connection, statement, lasting=True)
        finally:
            session.used = time.monotonic()
            session.busy.release()

    def end_idle_sessions(self) -> None:
        """Forget the HTTP sessions whose time-out has passed."""
        now = time.monotonic()
        with self._lock:
            ended = [
                (name, session)
                for name, session in self._sessions.items()
                if now - session.used > session.timeout_s and session.busy.acquire(blocking=False)
            ]
            for name, _ in ended:
                del self._sessions[name]
        for _, session in ended:
            session.connection.close()

    def close(self) -> None:
        """Close all connections, and with them the folder."""
        with self._lock:
            sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.connection.close()
        self._root.close()

    def _session(self, session_id: str, timeout_s: float, must_exist: bool) -> _HttpSession:
        self.end_idle_sessions()
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                if must_exist:
                    raise refused(SESSION_NOT_FOUND, "SESSION_NOT_FOUND", f"Session {session_id} not found")
                session = _HttpSession(Connection(self._path), timeout_s, time.monotonic())
                self._sessions[session_id] = session
            session.used, session.timeout_s = time.monotonic(), timeout_s
        return session

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # all that chDB raises
            raise from_engine(str(error), self.version) from error


def _execute(connection: Connection, statement: Statement, *, lasting: bool) -> Answer:
    for name in (*statement.settings, *statement.params):
        if not _NAME.match(name):
            raise refused(UNKNOWN_SETTING, "UNKNOWN_SETTING", f"Neither a setting nor a parameter: {name!r}")
    text, head, rows = _divide(statement)
    word = first_word(text)
    if not word:
        raise refused(SYNTAX_ERROR, "SYNTAX_ERROR", "Empty query")
    kind, count = ("MUTATING", 1) if head else connection.classify(text)
    if count > 1:
        raise refused(SYNTAX_ERROR, "SYNTAX_ERROR", "Multi-statements are not allowed")
    # SET and USE are about the session itself: what they change must not be put back behind them.
    about_session = word in ("SET", "USE")
    if statement.read_only and not about_session and kind in ("MUTATING", "CONTROL"):
        raise refused(READONLY, "READONLY", _READ_ONLY)
    if about_session:
        connection.forget_settings()
        return _select(connection, statement, text)
    scope = connection.overlaid if lasting else connection.applied
    with scope(statement.settings, statement.database):
        if head is None:
            return _select(connection, statement, text)
        return _answer(connection.insert(head, rows, statement.params), b"", statement.default_format)


def _divide(statement: Statement) -> tuple[bytes, InsertHead | None, bytes]:
    """Text, head and rows of a statement, the last two for an INSERT; rows in the body are not copied."""
    text, rows = statement.text, statement.rows
    head = split_insert(text)
    if head is None and rows:  # such as "INSERT INTO t" in the URL and "VALUES (1)" in the body
        text, rows = text + b"\n" + rows, b""
        head = split_insert(text)
    if head is not None and (inline := text[head.data_at :]):
        rows = inline + b"\n" + rows if rows else inline
    return text, head, rows


def _select(connection: Connection, statement: Statement, text: bytes) -> Answer:
    result = connection.query(text, statement.default_format, statement.params)
    return _answer(result, result.bytes(), output_format(text, statement.default_format))


def _answer(result: EngineResult, body: bytes, fmt: str) -> Answer:
    return Answer(
        body,
        fmt,
        result.storage_rows_read(),
        result.storage_bytes_read(),
        result.rows_written(),
        result.bytes_written(),
        result.elapsed(),
    )
