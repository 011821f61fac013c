"""Incidents for whoever reads the alerts topic, and a way to put them there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from schemas.incidents import Incident, Node
from schemas.topics import ALERTS
from streams.kafka import producer


def an_incident(number: int, **changes: Any) -> Incident:
    """One that is told apart by its number; it began at minute `number` of an hour."""
    plain: dict[str, Any] = {
        "id": f"{number:016x}", "job": "llama-7b", "attempt": "first", "kind": "stall", "category": "link",
        "severity": "warning", "confidence": "likely", "summary": f"Incident {number}.",
        "culprits": (Node("device", 3, host="node-3"),), "candidates": (), "waiting": 4,
        "chain": ("rank 0 waits for rank 3",), "evidence": ("3 of 7 arrived",), "ruled_out": (),
        "would_decide": (), "since": None, "detected": f"2026-03-01T03:{number % 60:02d}:00.000000Z",
    }  # fmt: skip
    return Incident(**{**plain, **changes})


def tell(bootstrap: str, incidents: Iterable[Incident]) -> None:
    """Put revisions on the topic, as the worker does."""
    client = producer(bootstrap, "tests")
    for incident in incidents:
        client.produce(ALERTS.name, json.dumps(incident.to_json()).encode(), incident.job.encode())
    assert client.flush(30) == 0
