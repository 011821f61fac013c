"""An incident as Alertmanager's v2 API takes it.

Alertmanager knows an alert by its labels. Two of ours may change while an incident lasts (severity and
category): then the alert under the old labels is resolved in the same request.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Final

from schemas.incidents import Incident, Node

HOLDS_S: Final = 3600.0
"""So long an alert stays without being told again: longer than a notifier that is updated or moved is away.
After Alertmanager's own 5 min it would call an incident resolved because nobody spoke."""

_NAMES = {"stall": "TrainingJobStalls", "slow": "TrainingJobSlow"}


@dataclass(frozen=True)
class Alert:
    """One alert; times are seconds since the epoch, `ends` in the past means resolved."""

    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    starts: float
    ends: float

    def to_json(self) -> dict[str, Any]:
        """As the API's postableAlert."""
        return {
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "startsAt": _rfc3339(self.starts),
            "endsAt": _rfc3339(self.ends),
        }


def labels(incident: Incident) -> tuple[tuple[str, str], ...]:
    """What the alert is known by: what routes, and the incident's id."""
    return (
        ("alertname", _NAMES[incident.kind]),
        ("category", incident.category),
        ("incident", incident.id),
        ("job", incident.job),
        ("severity", incident.severity),
    )


def alerts_of(incident: Incident, before: Incident | None, now: float) -> list[Alert]:
    """What to send for a revision, `before` being the one that was sent last: its labels may have to end."""
    ends = now + HOLDS_S if incident.state == "open" else min(_seconds(incident.closed) or now, now)
    told = [_alert(incident, ends)]
    if before is not None and labels(before) != labels(incident) and before.state == "open":
        told.insert(0, _alert(before, now))
    return told


def _alert(incident: Incident, ends: float) -> Alert:
    starts = _seconds(incident.detected) or ends
    return Alert(labels(incident), tuple(_annotations(incident).items()), min(starts, ends), ends)


def _annotations(incident: Incident) -> dict[str, str]:
    lines = [*incident.chain, *(f"Evidence: {line}" for line in incident.evidence)]
    found = {
        "summary": incident.summary,
        "description": "\n".join(lines),
        "confidence": incident.confidence,
        "culprits": ", ".join(map(_name, incident.culprits)),
        "candidates": ", ".join(map(_name, incident.candidates)),
        "waiting": str(incident.waiting),
        "attempt": incident.attempt,
        "explain": f"mycroft explain {incident.id}",
    }
    return {name: text for name, text in found.items() if text}


def _name(node: Node) -> str:
    rank = f"rank {node.rank}" if node.rank is not None else f"device {node.dev}"
    return f"{rank} on {node.host}" if node.host else rank


def _seconds(moment: str | None) -> float | None:
    if moment is None:
        return None
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


def _rfc3339(seconds: float) -> str:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
