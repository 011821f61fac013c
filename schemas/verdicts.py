"""The message of `nccl.verdicts`: one judged snapshot, whether or not anything was found.

It is what tells a one-shot run that its answer is settled.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from schemas.malformed import json_object, natural, naturals, reading, text, texts


@dataclass(frozen=True)
class Verdict:
    """What was found in one snapshot.

    `epoch` is the whole second of broker time that was judged, `judged` when (UTC, RFC 3339), `incidents`
    the ids found, `missing` the trace partitions that had not reported, `lost` how many messages of the
    snapshot never arrived.
    """

    job: str
    attempt: str
    snapshot: str
    epoch: int
    judged: str
    incidents: tuple[str, ...] = ()
    missing: tuple[int, ...] = ()
    lost: int = 0


def encode_verdict(verdict: Verdict) -> bytes:
    """JSON bytes."""
    return json.dumps(asdict(verdict), separators=(",", ":")).encode()


def decode_verdict(raw: bytes) -> Verdict:
    """The reverse of encode_verdict; raises Malformed."""
    body = json_object(raw, "a verdict")
    with reading("a verdict"):
        return Verdict(
            job=text(body, "job"),
            attempt=text(body, "attempt"),
            snapshot=text(body, "snapshot"),
            epoch=natural(body, "epoch"),
            judged=text(body, "judged"),
            incidents=texts(body, "incidents"),
            missing=naturals(body, "missing"),
            lost=natural(body, "lost"),
        )
