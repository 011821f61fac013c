"""The JSON body of an END message: a snapshot is complete on this partition, and who should have spoken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from schemas.ids import hex_id, parse_hex_id
from schemas.malformed import Malformed, natural, naturals, reading, text, texts

VERSION = 1

MAX_PARTITIONS = 1 << 16
"""More than any broker has: a bound for what one reader will wait for."""


@dataclass(frozen=True)
class SnapshotEnd:
    """One goes to every partition of `nccl.trace`, after the snapshot's last IMPORT there.

    `messages` and `members` count what was sent to this partition (of `nccl.trace` and of `nccl.members`);
    `ranks` are the world ranks expected, `silent` those of them of which nothing is known. `blind` as in
    schemas.members.Announcement.
    """

    snapshot: int
    job: str
    attempt: str
    partitions: int
    messages: int
    members: int
    ranks: tuple[int, ...]
    silent: tuple[int, ...] = ()
    blind: tuple[str, ...] = ()


def encode_end(end: SnapshotEnd) -> dict[str, Any]:
    """The body of the envelope; the snapshot's id as hex string."""
    return {"version": VERSION, **asdict(end), "snapshot": hex_id(end.snapshot)}


def decode_end(body: Mapping[str, Any] | None) -> SnapshotEnd:
    """The reverse of encode_end; raises Malformed."""
    with reading("the end of a snapshot"):
        fields = dict(body or {})
        if fields["version"] != VERSION:
            raise Malformed(f"snapshot end version {fields['version']} is not known here (known: {VERSION})")
        end = SnapshotEnd(
            snapshot=parse_hex_id(fields["snapshot"]),
            job=text(fields, "job"),
            attempt=text(fields, "attempt"),
            partitions=natural(fields, "partitions", MAX_PARTITIONS),
            messages=natural(fields, "messages"),
            members=natural(fields, "members"),
            ranks=naturals(fields, "ranks"),
            silent=naturals(fields, "silent"),
            blind=texts(fields, "blind"),
        )
    if not end.partitions:
        raise Malformed("end of a snapshot for no partition")
    return end
