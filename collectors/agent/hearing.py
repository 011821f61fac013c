"""When each process was last heard of: any callback at all, and any of its proxy thread.

Counted at each glance by native/collector/hearing.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from collectors.agent.layout import Raw
from collectors.agent.stall import micros


@dataclass(frozen=True)
class Heard:
    """When a process was last heard of, µs before the tick, and how many callbacks it has made."""

    quiet_us: int
    proxy_us: int
    callbacks: int


def heard(rows: Raw, now: int) -> list[Heard]:
    """Rows of native.HEARD at `now`, ns of the monotonic clock."""
    quiet, silent = micros(now - rows["any_since"]), micros(now - rows["proxy_since"])
    each = zip(quiet.tolist(), silent.tolist(), rows["calls"].tolist(), strict=True)
    return [Heard(*row) for row in each]
