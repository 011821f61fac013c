"""A recorded run as a cluster would live it: its processes again, a collector on each of its hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from collectors.hosts import HostCollectors
from collectors.replay.runner import Options, Outcome, host_directory, replay
from collectors.replay.trace import Run
from mycroft.local.alerts import Alert, latest

SETTLE_S: Final = 2.5
"""After the end of a run: what began in its last moments is told until then."""
CLOSED_S: Final = 10.0
"""What is open then closes within this."""
HOLD_S: Final = 5.0
"""A run of whose end nothing is known is held so long: a stall is told within two seconds."""


def observe(
    run: Run,
    options: Options,
    collector: Sequence[str],
    settled: Callable[[], bool],
    started: Callable[[], None] = lambda: None,
) -> Outcome:
    """Replay a run under collectors; returns when it has ended and is `settled`, or after CLOSED_S.

    `collector`: arguments of `python -m collectors.agent`, but folder and host. `started` is called just
    before the first callback. Raises what `replay` raises, and CollectorFailed.
    """
    folders = {f"host{host}": host_directory(options.directory, host) for host in sorted(set(run.nodes))}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    with HostCollectors(folders, collector, options.directory):
        outcome = replay(run, options, lambda _: started())
        ended = time.monotonic()
        while (past := time.monotonic() - ended) < SETTLE_S or (past < CLOSED_S and not settled()):
            time.sleep(0.1)
    return outcome


def all_closed(told: list[Alert]) -> bool:
    """Whether nothing that was told is still open."""
    return all(incident.state == "closed" for incident in latest(told))


def hold_s(run: Run) -> float:
    """How long the processes of a run stay after its last line: as recorded, HOLD_S where that is unknown."""
    return run.hold_s if run.described else HOLD_S
