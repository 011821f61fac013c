"""The message of `nccl.members`: which devices one source announces as members of a communicator.

Key: "<comm hex>:<source>", so that compaction keeps the last announcement of each source.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from schemas.ids import hex_id, parse_hex_id
from schemas.malformed import (
    Malformed,
    json_object,
    natural,
    optional_natural,
    optional_text,
    reading,
    text,
    texts,
)

VERSION = 1

MAX_RANKS = (1 << 21) - 1
"""Ranks of the largest communicator: 21 bits, as the joiner packs them."""

MAX_U32 = (1 << 32) - 1

IMPORT = "import:"
"""What the source of an import begins with; a host has no such name."""


@dataclass(frozen=True)
class Member:
    """One rank of a communicator. Unknown facts are None; a silent member's device is known by its id."""

    rank: int
    dev: int
    world_rank: int | None = None
    host: str | None = None
    address: str | None = None
    pid: int | None = None
    gpu: int | None = None
    gpu_id: str | None = None
    silent: bool = False


@dataclass(frozen=True)
class RingPath:
    """Ranks of a communicator in the order of a channel's ring; a whole ring ends as it begins."""

    channel: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Announcement:
    """Members of one communicator as one source knows them.

    `blind` names what the source does not record at all ("p2p"): idle ranks may wait in it unseen. `rings`:
    the order of its rings as far as NCCL's log tells it, which callbacks do not.
    """

    job: str
    job_id: int
    attempt: str
    attempt_id: int
    comm: int
    name: str
    source: str
    nranks: int
    nnodes: int | None
    members: tuple[Member, ...]
    blind: tuple[str, ...] = ()
    library: str | None = None
    rings: tuple[RingPath, ...] = ()

    @property
    def imported(self) -> bool:
        """Whether this is part of a snapshot, not said by a host of a job that runs."""
        return self.source.startswith(IMPORT)

    @property
    def key(self) -> bytes:
        """Compaction key."""
        return f"{hex_id(self.comm)}:{self.source}".encode()


def encode_members(announcement: Announcement) -> bytes:
    """JSON bytes; 64-bit ids as hex strings."""
    body = asdict(announcement)
    body["version"] = VERSION
    for name in ("job_id", "attempt_id", "comm"):
        body[name] = hex_id(body[name])
    for member in body["members"]:
        member["dev"] = hex_id(member["dev"])
    return json.dumps(body, separators=(",", ":")).encode()


def decode_members(raw: bytes) -> Announcement:
    """The reverse of encode_members; raises Malformed."""
    body = json_object(raw, "a members message")
    with reading("a members message"):
        if body["version"] != VERSION:
            raise Malformed(f"members version {body['version']} is not known here (known: {VERSION})")
        return Announcement(
            job=text(body, "job"),
            job_id=parse_hex_id(body["job_id"]),
            attempt=text(body, "attempt"),
            attempt_id=parse_hex_id(body["attempt_id"]),
            comm=parse_hex_id(body["comm"]),
            name=text(body, "name"),
            source=text(body, "source"),
            nranks=natural(body, "nranks", MAX_RANKS),
            nnodes=optional_natural(body, "nnodes", MAX_RANKS),
            members=tuple(_member(member) for member in body["members"]),
            blind=texts(body, "blind"),
            library=optional_text(body, "library"),
            rings=tuple(_ring(path) for path in body["rings"]),
        )


def _ring(body: dict[str, Any]) -> RingPath:
    ranks = body["ranks"]
    if not isinstance(ranks, list) or not all(type(rank) is int and 0 <= rank <= MAX_RANKS for rank in ranks):
        raise Malformed("field ranks of a ring is not a list of ranks")
    return RingPath(natural(body, "channel", MAX_U32), tuple(ranks))


def _member(body: dict[str, Any]) -> Member:
    if not isinstance(body["silent"], bool):
        raise Malformed("field silent is not true or false")
    return Member(
        rank=natural(body, "rank", MAX_RANKS),
        dev=parse_hex_id(body["dev"]),
        world_rank=optional_natural(body, "world_rank", MAX_RANKS),
        host=optional_text(body, "host"),
        address=optional_text(body, "address"),
        pid=optional_natural(body, "pid", MAX_U32),
        gpu=optional_natural(body, "gpu", MAX_U32),
        gpu_id=optional_text(body, "gpu_id"),
        silent=body["silent"],
    )
