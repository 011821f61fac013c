"""Broker time, without trusting that the worker's clock is right."""

from __future__ import annotations

import time
from collections import deque

_MEMORY = 64
"""Messages remembered: enough to meet one that was read at once, few enough to follow a step of a clock."""


class BrokerClock:
    """The broker's clock as its append times show it.

    A message is read after it was appended, so append time minus reading time never exceeds the true offset;
    the largest of the last few is the best estimate.
    """

    def __init__(self) -> None:
        self._offsets: deque[float] = deque(maxlen=_MEMORY)

    def observe(self, appended: float) -> None:
        """Take in the append time (s) of a message that was read just now."""
        self._offsets.append(appended - time.time())

    def now(self) -> float:
        """Broker time in seconds since the epoch; the worker's own clock until a message was read."""
        return time.time() + max(self._offsets, default=0.0)
