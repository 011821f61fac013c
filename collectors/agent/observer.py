"""One sample of the host, from the files to what is to be sent, with no more effort than it is worth.

Most ticks end after a glance (native/collector/host.h). The others look at all that is in flight, and once a
second also at what has finished.
"""

from __future__ import annotations

import numpy as np

from collectors.agent.analysis import Analysis, Tick
from collectors.agent.backlog import Flush
from collectors.agent.budget import Limits
from collectors.agent.files import Files
from collectors.agent.metrics import Metrics
from collectors.agent.native import Verdict
from collectors.agent.report import Reporter
from collectors.agent.stall import SILENCE_NS, STALL_AGE_NS, Bools

CALM_NS = STALL_AGE_NS - 150_000_000
"""Operations are followed from this age on, so that by the time that they may stall two looks tell."""


class Observer:
    """What is remembered of the host from tick to tick. One call of `observe` a tick."""

    def __init__(self, files: Files, limits: Limits, metrics: Metrics) -> None:
        self._files = files
        self.analysis = Analysis()
        self.reporter = Reporter(limits, metrics)
        self._wake = 0
        self._seen: list[int] = []
        self._silent = np.zeros(0, np.bool_)
        """Which of `_seen` had called nothing for SILENCE_NS at the last sample."""
        self.tick: Tick | None = None
        """The last look."""

    def observe(self, now: int, wall: int, last: bool = False) -> list[Flush] | None:
        """What is to be sent now; None where a glance was enough. `last` at a clean stop.

        `now` is ns of the monotonic clock, `wall` ns since the epoch, both from just before.
        """
        whole, verdict = last or self.reporter.due(now), None
        if not whole and not self._changed():
            verdict = self._files.glance(now, CALM_NS)
            whole = self._fell_silent(now)
            if not whole and (verdict == Verdict.CALM or (verdict == Verdict.STILL and now < self._wake)):
                return None
        # Right now: who is told of as waiting for a process must not hear later that it had died by then.
        self._files.live(now)
        readings = self._files.read(
            now, whole, glanced=not whole and verdict in (Verdict.STILL, Verdict.MOVED)
        )
        self._seen = [traced.id for traced in readings.traced]
        self._silent = self._silence(now)
        self.tick = tick = self.analysis.look(readings, now, wall)
        flushes = self.reporter.flushes(tick, self.analysis, whole, last)
        self._wake = now + max(min(tick.due_ns, self.reporter.due_ns(now)), 1)
        return flushes

    def _changed(self) -> bool:
        """Whether a process has come, gone, or died without its death being told of."""
        traced = list(self._files.traced.values())
        return [each.id for each in traced] != self._seen or any(
            each.died_at is not None and not each.told_dead for each in traced
        )

    def _fell_silent(self, now: int) -> bool:
        """Whether a process has just been silent for SILENCE_NS. After a glance at those that were seen."""
        before, self._silent = self._silent, self._silence(now)
        return len(before) == len(self._silent) and bool((self._silent & ~before).any())

    def _silence(self, now: int) -> Bools:
        """Which living processes have called nothing for SILENCE_NS, as of the last glance or reading."""
        alive = np.array([traced.died_at is None for traced in self._files.traced.values()], np.bool_)
        silent: Bools = alive & (now - self._files.heard["any_since"] >= SILENCE_NS)
        return silent
