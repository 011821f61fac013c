"""How a long-running process of ours is told to stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

_PARENT_CHECK_S = 0.5


def stop_event(parent: int | None = None) -> threading.Event:
    """An event that SIGTERM, SIGINT and the end of the process `parent` set. For the main thread.

    Watching the parent is what ends a child whose supervisor was killed and could not stop it.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if parent is not None:
        when_orphaned(parent, stop.set)
    return stop


def when_orphaned(parent: int, call: Callable[[], object]) -> None:
    """Call something, once and from another thread, when the process `parent` is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_CHECK_S)
        call()

    threading.Thread(target=watch, daemon=True).start()
