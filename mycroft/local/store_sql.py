"""What the store has to know about a statement's text: where an INSERT's data begins, which format answers.

The engine's own parser cannot be asked. Given an INSERT with its data behind it, chDB reads the data the
way `clickhouse-client` reads a script: it ends at an empty line, so binary rows would be cut off silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    rb"""(?P<blank>\s+|--[^\n]*|\#[ !][^\n]*|/\*.*?\*/)
       | (?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)
       | (?P<word>[A-Za-z_]\w*)
       | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_DATA_START = re.compile(rb"[ \t\f]*\r?\n?")
_TRAILING_FORMAT = re.compile(rb"\bFORMAT\s+(\w+)\s*(?:SETTINGS\b[^()]*)?[;\s]*$", re.IGNORECASE)
_COMMENT = re.compile(rb"--[^\n]*|/\*.*?\*/", re.DOTALL)

# Words after which the next one is the name of a table, whatever it looks like.
_BEFORE_NAME = frozenset({b"INTO", b"TABLE", b"."})
# An INSERT that has one of these takes its rows from a query or a file, not from the request.
_OTHER_SOURCE = frozenset({b"SELECT", b"WITH", b"FROM", b"WATCH", b"EXPLAIN"})


@dataclass(frozen=True)
class InsertHead:
    """An INSERT whose rows follow in the request.

    `sql` is the statement up to its SETTINGS, FORMAT or VALUES, `settings` its SETTINGS clause or nothing,
    `format` the format of the rows, `data_at` the offset in the text at which they begin.
    """

    sql: bytes
    settings: bytes
    format: str
    data_at: int


def first_word(text: bytes) -> str:
    """What the statement begins with, in capitals; empty where there is no statement.

    >>> first_word(b"/* why */ select 1")
    'SELECT'
    """
    token = next(_tokens(text), None)
    return token.group().decode("ascii", "replace").upper() if token else ""


def split_insert(text: bytes) -> InsertHead | None:
    """Divide an INSERT from its rows; None for any other statement, and for INSERT ... SELECT.

    >>> split_insert(b"INSERT INTO t (a) FORMAT RowBinary\\nxyz")
    InsertHead(sql=b'INSERT INTO t (a)', settings=b'', format='RowBinary', data_at=35)
    """
    depth, previous, settings_at = 0, b"", -1
    tokens = _tokens(text)
    first = next(tokens, None)
    if first is None or first.group().upper() != b"INSERT":
        return None
    for token in tokens:
        word = token.group().upper()
        if word in (b"(", b")"):
            depth += 1 if word == b"(" else -1
        elif token.lastgroup == "word" and depth == 0 and previous not in _BEFORE_NAME:
            if word in _OTHER_SOURCE:
                return None
            if word == b"SETTINGS":
                settings_at = token.start()
            fmt, data_at = "", 0
            if word == b"VALUES":
                fmt, data_at = "Values", token.end()
            elif word == b"FORMAT" and (name := next(tokens, None)) is not None:
                begin = _DATA_START.match(text, name.end())
                fmt, data_at = name.group().decode("ascii", "replace"), begin.end() if begin else name.end()
            if fmt:
                end = token.start()
                cut = end if settings_at < 0 else settings_at
                return InsertHead(text[:cut].rstrip(), text[cut:end].rstrip(), fmt, data_at)
        previous = word
    return None


def output_format(text: bytes, default: str) -> str:
    """Format in which the engine will answer: the statement's FORMAT clause, else `default`.

    >>> output_format(b"SELECT 1 FORMAT JSON -- why not", "TabSeparated")
    'JSON'
    """
    found = _TRAILING_FORMAT.search(_COMMENT.sub(b" ", text[-4096:]))
    return found.group(1).decode("ascii", "replace") if found else default


def quote(value: str) -> str:
    """A ClickHouse string literal.

    >>> quote("it's")
    "'it\\\\'s'"
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quote_name(name: str) -> str:
    """An identifier in backquotes."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _tokens(text: bytes) -> Iterator[re.Match[bytes]]:
    return (token for token in _TOKEN.finditer(text) if token.lastgroup != "blank")
