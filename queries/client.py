"""The way to ClickHouse: a client, and errors as one line."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 300

_HINT = "start the local stack with 'mycroft up', or point --clickhouse (MYCROFT_CLICKHOUSE) at one"

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


# A syntax error lists every statement that ClickHouse knows, two screens of them.
_EXPECTED = re.compile(r" Expected one of: .*?(?= \(SYNTAX_ERROR\)|$)")


class StoreError(Exception):
    """ClickHouse cannot be reached or refused a statement; the text is one line."""


def connect(url: str) -> Client:
    """A client of ClickHouse's HTTP interface at `url`; raises StoreError where it does not answer.

    The URL may carry user, password and database (`http://user:secret@host:8123/nccl`). The client keeps no
    HTTP session, so one may be shared by threads. Answers are compressed except on loopback. Statements
    raise ClickHouse's errors; `store_errors` makes them StoreErrors.
    """
    parts = urlsplit(url)
    with store_errors(url):
        try:
            port = parts.port or (8443 if parts.scheme == "https" else 8123)
        except ValueError as error:
            raise StoreError(f"{without_secret(url)!r} is not a URL: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StoreError(f"{without_secret(url)!r} is not an http or https URL of a ClickHouse")
        # The client would try twice, warn in the log and wrap the reason three times.
        socket.create_connection((parts.hostname, port), CONNECT_TIMEOUT_S).close()
        return clickhouse_connect.get_client(
            dsn=url,
            interface=parts.scheme,
            port=port,
            compress=parts.hostname not in _LOOPBACK,
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=READ_TIMEOUT_S,
            autogenerate_session_id=False,
        )


@contextmanager
def store_errors(url: str) -> Iterator[None]:
    """Turn what clickhouse-connect raises into a StoreError of one line.

    >>> with store_errors("http://127.0.0.1:8123"):  # doctest: +SKIP
    ...     client.query("SELECT nothing")
    """
    try:
        yield
    except ClickHouseError as error:
        raise StoreError(one_line(str(error), url)) from error
    except OSError as error:
        text = f"ClickHouse at {without_secret(url)} does not answer ({error.strerror or error}): {_HINT}"
        raise StoreError(text) from error


def one_line(text: str, url: str) -> str:
    """An error's text without stack traces and version, with the URL where ClickHouse did not answer at all.

    >>> one_line("HTTPDriver for http://h:1 returned response code 404\\n Code: 60. DB::Exception: "
    ...          "Unknown table t. (UNKNOWN_TABLE) (version 26.9.2.1)", "http://h:1")
    'Code: 60. Unknown table t. (UNKNOWN_TABLE)'
    """
    text = " ".join(text.split("Stack trace:", 1)[0].split())
    begin = text.find("Code: ")
    if begin < 0:
        return f"ClickHouse at {without_secret(url)} does not answer ({text}): {_HINT}"
    text = text[begin:].split(" (version ", 1)[0].replace("DB::Exception: ", "")
    return _EXPECTED.sub("", text).strip()


def without_secret(url: str) -> str:
    """The URL as it may be shown: without user and password.

    >>> without_secret("http://me:secret@h:8123/nccl")
    'http://h:8123/nccl'
    """
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
