"""How the store says what went wrong: ClickHouse's codes and texts, and the HTTP status of each."""

from __future__ import annotations

import re

NOT_IMPLEMENTED = 48
SYNTAX_ERROR = 62
UNKNOWN_SETTING = 115
INCORRECT_DATA = 117
READONLY = 164
SESSION_NOT_FOUND = 372
SESSION_IS_LOCKED = 373
CANNOT_DECOMPRESS = 271
UNKNOWN_COMPRESSION_METHOD = 89
STD_EXCEPTION = 1001

_CODE = re.compile(r"^Code: (\d+)\. ")
_VERSION = re.compile(r"\(version [^()]*(?:\([^()]*\))?\)\s*$")

# The statuses of ClickHouse's own HTTP handler. A client retries 429, 503 and 504, so what a retry cannot
# mend has to stay outside of these.
_STATUS: dict[int, int] = {
    **dict.fromkeys((6, 25, 26, 27, 36, 38, 41, 44, 53, 62, 72, 117, 167, 168, 271, 321, 457), 400),
    **dict.fromkeys((46, 47, 50, 56, 60, 63, 73, 78, 81, 89, 115, 336, 372), 404),
    48: 501,
    159: 408,
    209: 503,
    439: 503,
}


class StoreStartError(Exception):
    """The store cannot start; the text is one line that says why and what to change."""


class QueryError(Exception):
    """A statement failed: ClickHouse's error code, and its message as the body of the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """HTTP status for this code."""
        return _STATUS.get(self.code, 500)


def refused(code: int, name: str, text: str) -> QueryError:
    """An error of the store's own, worded like one of ClickHouse.

    >>> refused(62, "SYNTAX_ERROR", "Empty query").message
    'Code: 62. DB::Exception: Empty query. (SYNTAX_ERROR)'
    """
    return QueryError(code, f"Code: {code}. DB::Exception: {text}. ({name})")


def from_engine(text: str, version: str) -> QueryError:
    """The error in a chDB exception's text; `version` is appended where the engine left it out."""
    found = _CODE.match(text)
    if not found:
        return QueryError(STD_EXCEPTION, f"Code: {STD_EXCEPTION}. DB::Exception: {text} (STD_EXCEPTION)")
    message = text if _VERSION.search(text) else f"{text} (version {version})"
    return QueryError(int(found.group(1)), message)
