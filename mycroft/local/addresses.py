"""Where a running local stack can be reached: every command asks, so this imports next to nothing."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

STATE_FILE = "stack.json"


@dataclass(frozen=True)
class Addresses:
    """Where a running stack can be reached."""

    kafka: str
    clickhouse: str
    pid: int


def running(folder: Path) -> Addresses | None:
    """The stack that runs on a data folder, None where there is none."""
    try:
        state = json.loads((folder / STATE_FILE).read_text())
        addresses = Addresses(state["kafka"], state["clickhouse"], int(state["pid"]))
        os.kill(addresses.pid, 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return addresses
