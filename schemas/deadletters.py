"""The message of `nccl.dead`: what could not be read or stored, where it came from and why."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime, timezone

from schemas.malformed import json_object, natural, reading, text


@dataclass(frozen=True)
class DeadLetter:
    """`topic`, `partition` and `offset` say where the message was read; `payload` is all of it."""

    topic: str
    partition: int
    offset: int
    stage: str
    reason: str
    payload: bytes
    seen: str = ""


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """JSON bytes, the payload in base64; `seen` is set to now where empty."""
    seen = letter.seen or datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps(
        {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "stage": letter.stage,
            "reason": letter.reason,
            "seen": seen,
            "payload": base64.b64encode(letter.payload).decode(),
        }
    ).encode()


def decode_dead_letter(raw: bytes) -> DeadLetter:
    """The reverse of encode_dead_letter; raises Malformed."""
    body = json_object(raw, "a dead letter")
    with reading("a dead letter"):
        return DeadLetter(
            text(body, "topic"),
            natural(body, "partition"),
            natural(body, "offset"),
            text(body, "stage"),
            text(body, "reason"),
            base64.b64decode(text(body, "payload"), validate=True),
            text(body, "seen"),
        )
