"""The incident: what diagnose says, on the alerts topic, in the store and from the command line alike.

`alert.schema.json` beside this file is its published form; a test holds the two together.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import Any

from schemas.malformed import json_object, reading


@dataclass(frozen=True)
class Node:
    """A culprit or a candidate. A host or a link is given as one entry for each rank concerned."""

    kind: str
    rank: int | None
    ranks: dict[str, int] = field(default_factory=dict)
    dev: str | None = None
    host: str | None = None
    pid: int | None = None
    gpu: int | None = None
    nic: str | None = None
    channel: int | None = None
    peer: int | None = None


@dataclass(frozen=True)
class Incident:
    """One incident; see alert.schema.json for the meaning of each field."""

    id: str
    job: str
    attempt: str
    kind: str
    category: str
    severity: str
    confidence: str
    summary: str
    culprits: tuple[Node, ...]
    candidates: tuple[Node, ...]
    waiting: int
    chain: tuple[str, ...]
    evidence: tuple[str, ...]
    ruled_out: tuple[str, ...]
    would_decide: tuple[str, ...]
    since: str | None
    detected: str
    revision: int = 1
    state: str = "open"
    closed: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types, fields of the schema only."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def from_json(body: dict[str, Any]) -> Incident:
    """The reverse of to_json; raises KeyError or TypeError on what is no incident."""
    lists = {name: tuple(body[name]) for name in ("chain", "evidence", "ruled_out", "would_decide")}
    nodes = {name: tuple(Node(**node) for node in body[name]) for name in ("culprits", "candidates")}
    return Incident(**{**body, **lists, **nodes})


def decode_incident(raw: bytes | str) -> Incident:
    """The incident in the bytes of an alert; raises Malformed."""
    body = json_object(raw, "an incident")
    with reading("an incident"):
        return from_json(body)


@cache
def alert_schema() -> dict[str, Any]:
    """The published JSON Schema."""
    schema: dict[str, Any] = json.loads((files("schemas") / "alert.schema.json").read_text())
    return schema


def iso_time(nanoseconds: int) -> str:
    """UTC time with microseconds, RFC 3339.

    >>> iso_time(1_500_000_000)
    '1970-01-01T00:00:01.500000Z'
    """
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=rest // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
