"""ClickHouse's HTTP interface over the embedded engine.

As much of it as clickhouse-connect, clickhouse-go and curl use: /ping, statements by GET and POST, rows in
the body, `param_*`, settings as URL parameters, `session_id`, compressed bodies, ClickHouse's headers and
errors.
Not here: users, external tables, `compress=1` (ClickHouse's own block compression), streamed answers.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from aiohttp import BodyPartReader, web
from aiohttp.typedefs import Handler

from mycroft.local.store_codec import compress, decompress
from mycroft.local.store_engine import Answer, Engine, Statement
from mycroft.local.store_errors import INCORRECT_DATA, NOT_IMPLEMENTED, QueryError, refused
from mycroft.local.store_native import FIRST_FRAMED_REVISION, with_frames

MAX_BODY_BYTES = 2 * 1024**3
MAX_URL_BYTES = 1024**2  # ClickHouse's http_max_uri_size
DEFAULT_SESSION_TIMEOUT_S = 60.0  # ClickHouse's default_session_timeout
SWEEP_S = 10.0

# Answers are computed on these threads: each holds one statement, and the engine adds its own threads to it.
WORKERS = 16

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_REQUEST_PARAMETERS = frozenset(
    {
        "query", "query_id", "database", "default_format", "session_id", "session_timeout", "session_check",
        "user", "password", "quota_key", "role", "stacktrace", "compress", "decompress", "wait_end_of_query",
        "buffer_size", "client_protocol_version", "close_session",
    }
)  # fmt: skip
# Settings of the HTTP server, not of the engine; this module decides what they do.
_HTTP_SETTINGS = frozenset(
    {
        "enable_http_compression", "http_zlib_compression_level", "send_progress_in_http_headers",
        "http_headers_progress_interval_ms", "cancel_http_readonly_queries_on_client_close",
        "http_write_exception_in_output_format", "http_response_buffer_size",
    }
)  # fmt: skip
_CONTENT_TYPES = {
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "CSVWithNames": "text/csv; charset=UTF-8; header=present",
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "Native": "application/octet-stream",
    "RowBinary": "application/octet-stream",
}


STATEMENTS: web.AppKey[set[Future[web.Response]]] = web.AppKey("statements", set)
"""Key of the statements that run now; those that are left after the clean-up could not be interrupted."""


def build_app(engine: Engine) -> web.Application:
    """The web application over an engine; closes neither the engine nor the socket."""
    handlers = _Handlers(engine)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_only_local])
    app.router.add_get("/ping", handlers.ping)
    app.router.add_route("*", "/", handlers.statement)
    app.router.add_route("*", "/{elsewhere:.+}", handlers.elsewhere)
    app[STATEMENTS] = handlers.running
    app.cleanup_ctx.append(handlers.sweep)
    return app


@web.middleware
async def _only_local(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Keep web pages out: the store has no users, so a browser on this machine must not be a way in.

    A page of another site is told by its Origin, a rebound DNS name by its Host.
    """
    if "Origin" in request.headers or urlsplit(f"//{request.host}").hostname not in _LOOPBACK:
        return web.Response(status=403, text="The embedded store answers programs on this machine only.\n")
    return await handler(request)


@dataclass(frozen=True)
class _Request:
    """A request in the store's terms: the statement, and how it is to be run and answered."""

    statement: Statement
    query_id: str
    session_id: str
    session_timeout_s: float
    session_check: bool
    revision: int
    encodings: str


class _Handlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(WORKERS, "store")
        self.running: set[Future[web.Response]] = set()

    async def sweep(self, _app: web.Application) -> AsyncIterator[None]:
        """End idle HTTP sessions for as long as the application runs."""
        task = asyncio.create_task(self._sweep())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await asyncio.get_running_loop().run_in_executor(self._threads, self._engine.end_idle_sessions)

    async def ping(self, _request: web.Request) -> web.Response:
        return web.Response(body=b"Ok.\n", content_type="text/html", charset="UTF-8")

    async def elsewhere(self, request: web.Request) -> web.Response:
        return web.Response(status=404, text=f"There is no handle {request.path}\n")

    async def statement(self, request: web.Request) -> web.Response:
        query_id = request.query.get("query_id") or str(uuid.uuid4())
        try:
            asked = await _parse(request, query_id)
            if asked is None:
                return await self.ping(request)
            future = self._threads.submit(self._answer, asked)
            self.running.add(future)
            future.add_done_callback(self.running.discard)
            return await asyncio.wrap_future(future)
        except QueryError as error:
            return self._failure(error, query_id)

    def _answer(self, asked: _Request) -> web.Response:
        """Run it and build the response; blocks, so it runs on a worker thread."""
        if asked.session_id:
            answer = self._engine.run_in_session(
                asked.statement,
                asked.session_id,
                timeout_s=asked.session_timeout_s,
                must_exist=asked.session_check,
            )
        else:
            answer = self._engine.run(asked.statement)
        body = answer.body
        if answer.format == "Native" and asked.revision >= FIRST_FRAMED_REVISION:
            body = with_frames(body)
        headers = self._headers(asked.query_id) | {
            "X-ClickHouse-Format": answer.format,
            "X-ClickHouse-Summary": _summary(answer),
            "Content-Type": _CONTENT_TYPES.get(answer.format, "text/plain; charset=UTF-8"),
        }
        body, encoding = compress(body, asked.encodings)
        if encoding:
            headers["Content-Encoding"] = encoding
        return web.Response(body=body, headers=headers)

    def _failure(self, error: QueryError, query_id: str) -> web.Response:
        headers = self._headers(query_id) | {
            "X-ClickHouse-Exception-Code": str(error.code),
            "Content-Type": "text/plain; charset=UTF-8",
        }
        return web.Response(status=error.status, body=f"{error.message}\n".encode(), headers=headers)

    def _headers(self, query_id: str) -> dict[str, str]:
        return {
            "X-ClickHouse-Query-Id": query_id,
            "X-ClickHouse-Timezone": self._engine.timezone,
            "X-ClickHouse-Server-Display-Name": self._engine.display_name,
        }


async def _parse(request: web.Request, query_id: str) -> _Request | None:
    """The request in the store's terms, None where it has no statement at all; raises QueryError."""
    parameters = dict(
        parse_qsl(urlsplit(request.raw_path).query, keep_blank_values=True, errors="surrogateescape")
    )
    rows = b""
    if request.content_type == "multipart/form-data":
        parameters |= await _form(request)
    elif request.can_read_body:
        rows = decompress(await request.read(), request.headers.get("Content-Encoding", ""))
    if not rows and "query" not in parameters and request.method in ("GET", "HEAD"):
        return None
    if parameters.get("decompress", "0") != "0" or parameters.get("compress", "0") != "0":
        text = "The embedded store does not speak ClickHouse's block compression: use enable_http_compression"
        raise refused(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", text)
    sql = parameters.get("query", "").encode(errors="surrogateescape")
    headers = request.headers
    statement = Statement(
        text=sql or rows,
        rows=rows if sql else b"",
        database=parameters.get("database") or headers.get("X-ClickHouse-Database") or "",
        default_format=parameters.get("default_format")
        or headers.get("X-ClickHouse-Format")
        or "TabSeparated",
        settings={
            name: value
            for name, value in parameters.items()
            if name not in _REQUEST_PARAMETERS | _HTTP_SETTINGS and not name.startswith("param_")
        },
        params={name[6:]: value for name, value in parameters.items() if name.startswith("param_")},
        read_only=request.method in ("GET", "HEAD"),
    )
    compressible = parameters.get("enable_http_compression", "0") != "0"
    return _Request(
        statement,
        query_id,
        parameters.get("session_id", ""),
        _number(parameters, "session_timeout", DEFAULT_SESSION_TIMEOUT_S),
        parameters.get("session_check", "0") == "1",
        int(_number(parameters, "client_protocol_version", 0)),
        headers.get("Accept-Encoding", "") if compressible else "",
    )


async def _form(request: web.Request) -> dict[str, str]:
    """Parameters that came as a form, as clickhouse-connect sends them where they are too long for a URL."""
    fields: dict[str, str] = {}
    reader = await request.multipart()
    while (part := await reader.next()) is not None:
        if not isinstance(part, BodyPartReader) or not part.name or part.filename:
            text = "The embedded store does not take external tables"
            raise refused(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", text)
        fields[part.name] = (await part.read()).decode(errors="surrogateescape")
    return fields


def _number(parameters: Mapping[str, str], name: str, default: float) -> float:
    try:
        return float(parameters.get(name, default))
    except ValueError:
        raise refused(INCORRECT_DATA, "INCORRECT_DATA", f"{name} is not a number") from None


def _summary(answer: Answer) -> str:
    return json.dumps(
        {
            "read_rows": str(answer.read_rows),
            "read_bytes": str(answer.read_bytes),
            "written_rows": str(answer.written_rows),
            "written_bytes": str(answer.written_bytes),
            "elapsed_ns": str(int(answer.elapsed_s * 1e9)),
        }
    )
