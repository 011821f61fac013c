"""The embedded ClickHouse store: `python -m mycroft.local.store --path DIR`.

One process per folder. It writes its URL to standard output, and to the ready file once it can be used; it
ends on SIGTERM and SIGINT, and when the parent that `--parent` names is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import fcntl
import os
import shutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from aiohttp import web

from mycroft.local.store_engine import Engine
from mycroft.local.store_errors import StoreStartError
from mycroft.local.store_http import MAX_URL_BYTES, STATEMENTS, build_app

DEFAULT_PORT = 8123
HOST = "127.0.0.1"
MIN_FREE_BYTES = 256 * 1024**2
"""Below this the engine's merges fail sooner or later, and a start only delays the error."""
PARENT_POLL_S = 0.5
GRACE_S = 5.0
"""How long running statements may take to end on a stop. Parts are written whole: none tears after it."""

_LOCK = "mycroft.lock"


def main(arguments: list[str] | None = None) -> int:
    """Run the store until it is told to stop; status 1 and one line on standard error if it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m mycroft.local.store", description=__doc__)
    parser.add_argument("--path", type=Path, required=True, help="folder of the data, created if absent")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 chooses a free one")
    parser.add_argument("--ready-file", type=Path, help="gets the URL once the store can be used")
    parser.add_argument("--parent", type=int, help="pid of the parent process, whose end is the store's too")
    options = parser.parse_args(arguments)
    path = options.path.absolute()
    try:
        if "?" in str(path):  # chDB takes what follows for its options
            raise StoreStartError(f"{path} has a question mark; choose another folder")
        lock = lock_folder(path)
        listener = listen(options.port)
        engine = Engine(path)
    except StoreStartError as error:
        print(f"store: {error}", file=sys.stderr)
        return 1
    url = f"http://{HOST}:{listener.getsockname()[1]}"
    if not asyncio.run(_serve(engine, listener, url, options.ready_file, options.parent)):
        os._exit(0)  # A statement still runs and cannot be interrupted; Python would wait for its thread.
    engine.close()
    lock.close()
    return 0


def lock_folder(path: Path) -> TextIO:
    """Make the folder and hold it until the returned file is closed; raises StoreStartError.

    The engine has a lock of its own, but names neither the holder nor the way out.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / _LOCK).open("a+")
    except OSError as error:
        raise StoreStartError(f"cannot write to {path}: {error.strerror}; choose another folder") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        text = f"{path} is in use by another store (process {holder}); stop it or choose another folder"
        raise StoreStartError(text) from None
    free = shutil.disk_usage(path).free
    if free < MIN_FREE_BYTES:
        lock.close()
        text = f"{path} has {free >> 20} MiB free, at least {MIN_FREE_BYTES >> 20} MiB are needed; free some"
        raise StoreStartError(text)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def listen(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 chooses one. Raises StoreStartError."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(128)
    except OverflowError as error:
        raise StoreStartError(f"port {port} is not between 0 and 65535") from error
    except OSError as error:
        why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise StoreStartError(f"port {port} on {HOST} {why}; choose another one with --port") from error
    return listener


async def _serve(
    engine: Engine, listener: socket.socket, url: str, ready_file: Path | None, parent: int | None
) -> bool:
    """Serve until told to stop; False where a statement did not end within the grace."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    app = build_app(engine)
    runner = web.AppRunner(
        app, access_log=None, auto_decompress=False, max_line_size=MAX_URL_BYTES, shutdown_timeout=GRACE_S
    )
    await runner.setup()
    await web.SockSite(runner, listener).start()
    print(url, flush=True)
    if ready_file is not None:
        # Renamed into place, so that whoever waits for the file never reads half of it.
        partial = ready_file.with_name(ready_file.name + ".partial")
        partial.write_text(f"{url}\n")
        partial.replace(ready_file)
    while not stop.is_set() and (parent is None or os.getppid() == parent):
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop.wait(), PARENT_POLL_S)
    await runner.cleanup()
    return not app[STATEMENTS]


if __name__ == "__main__":
    sys.exit(main())
