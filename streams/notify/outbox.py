"""What to send to Alertmanager and when, as a state machine without clock, network or Kafka of its own.

Revisions go out one after the other, each until it is taken: nothing overtakes, so whoever reads the alerts
sees incidents open, change and close in the order of the topic. What is open and was told a minute ago or
more is told again every minute, because Alertmanager forgets its alerts when it restarts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from schemas.incidents import Incident
from streams.notify.alerts import Alert, alerts_of

REFRESH_S: Final = 60.0
"""As Prometheus does."""
FIRST_BACKOFF_S: Final = 0.5
LAST_BACKOFF_S: Final = 15.0
"""The longest that an alert waits for an Alertmanager that is back."""


@dataclass(frozen=True)
class Post:
    """One request. `place` is the partition and offset that is done with it, None of a refresh."""

    alerts: tuple[Alert, ...]
    place: tuple[int, int] | None


@dataclass(frozen=True)
class _Waiting:
    partition: int
    offset: int
    incident: Incident


@dataclass
class _Told:
    incident: Incident
    at: float | None
    """When it was last sent; None where that was before this start."""


class Outbox:
    """Revisions on their way. Times are the caller's, seconds since the epoch."""

    def __init__(self, refresh_s: float = REFRESH_S) -> None:
        self._refresh_s = refresh_s
        self._waiting: deque[_Waiting] = deque()
        self._told: dict[int, dict[str, _Told]] = {}
        self._backoff = 0.0
        self._not_before = 0.0
        self._refreshed = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def remember(self, partition: int, incident: Incident) -> None:
        """A revision that was sent before this start: it is not sent again unless it is open (see due)."""
        self._keep(partition, _Told(incident, None))

    def take(self, partition: int, offset: int, incident: Incident) -> None:
        """A revision to send."""
        self._waiting.append(_Waiting(partition, offset, incident))

    def forget(self, partition: int) -> None:
        """The partition is somebody else's now."""
        self._told.pop(partition, None)
        self._waiting = deque(each for each in self._waiting if each.partition != partition)

    def due(self, now: float) -> Post | None:
        """What to send now; the same until `sent` or `failed` is called."""
        if now < self._not_before:
            return None
        if self._waiting:
            return self._next(now)
        if now - self._refreshed >= self._refresh_s:
            alerts = [alert for told in self._stale(now) for alert in alerts_of(told.incident, None, now)]
            if alerts:
                return Post(tuple(alerts), None)
            self._refreshed = now
        return None

    def sent(self, post: Post, now: float) -> None:
        """It was taken, or never will be."""
        self._backoff = self._not_before = 0.0
        if post.place is None:
            for told in self._stale(now):
                told.at = now
            self._refreshed = now
            return
        done = self._waiting.popleft()
        self._keep(done.partition, _Told(done.incident, now))

    def failed(self, now: float) -> None:
        """It was not taken: not again before the back-off has passed."""
        self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF_S), LAST_BACKOFF_S)
        self._not_before = now + self._backoff

    def _keep(self, partition: int, told: _Told) -> None:
        of_partition = self._told.setdefault(partition, {})
        known = of_partition.get(told.incident.id)
        if known is None or told.incident.revision >= known.incident.revision:
            of_partition[told.incident.id] = told

    def _stale(self, now: float) -> list[_Told]:
        """What is open and was not told for a while."""
        return [
            told
            for of_partition in self._told.values()
            for told in of_partition.values()
            if told.incident.state == "open" and (told.at is None or now - told.at >= self._refresh_s)
        ]

    def _next(self, now: float) -> Post:
        head = self._waiting[0]
        told = self._told.get(head.partition, {}).get(head.incident.id)
        known = told.incident if told is not None else None
        # The topic may hold a revision twice, and what is open again after a restart of the local stack.
        stale = known is not None and known.revision >= head.incident.revision
        alerts = () if stale else tuple(alerts_of(head.incident, known, now))
        return Post(alerts, (head.partition, head.offset))
