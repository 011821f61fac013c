"""What is usual, over the restart of a worker: written to a compacted topic, read when a worker starts.

Faust's tables can be changed only while an agent handles a message; what is usual is learned in steps, when
all partitions have told a second. So this is the changelog of one, written by ourselves: the last message of
each key holds, a message names its version, and the sink makes a table of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.envelope import Envelope, MessageKind, decode, split
from schemas.ids import hex_id
from schemas.malformed import Malformed, reading
from schemas.records import BASELINE, Records
from schemas.topics import BASELINES
from streams.kafka import read_all
from streams.slow.triggers import Kept

VERSION = 1
"""Of the numbers' meaning: what has another is not read, and learned anew."""


def messages(job: int, attempt: int, second: int, kept: Kept) -> Iterator[tuple[bytes, Envelope]]:
    """Keys and messages that keep a job."""
    body = {"version": VERSION, "pace": kept.pace, "slow": kept.slow}
    whole = Envelope(
        MessageKind.BASELINES, job, attempt, epoch=second, sections={BASELINE.name: kept.rows}, body=body
    )
    for part in split(whole):
        yield f"{hex_id(job)}:{hex_id(attempt)}:{part.part}".encode(), part


def read_kept(bootstrap: str) -> dict[tuple[int, int], Kept]:
    """All jobs that are kept. Blocks; raises BrokerError. What cannot be read is passed over."""
    return gathered(read_all(bootstrap, BASELINES.name))


def gathered(values: Iterator[bytes]) -> dict[tuple[int, int], Kept]:
    """Jobs from the messages of the topic, oldest first."""
    parts: dict[tuple[int, int], dict[int, Records]] = {}
    bodies: dict[tuple[int, int], Any] = {}
    for raw in values:
        try:
            message = decode(raw)
        except Malformed:
            continue
        if message.kind != MessageKind.BASELINES:
            continue
        key = message.job, message.attempt
        if message.body is not None:
            bodies[key] = message.body
            parts[key] = {}
        parts.setdefault(key, {})[message.part] = message.sections.get(BASELINE.name, BASELINE.empty(0))
    found = {}
    for key, body in bodies.items():
        try:
            with reading("what is usual of a job"):
                if body["version"] != VERSION:
                    continue
                pace = {name: float(value) for name, value in body["pace"].items()}
                slow = body["slow"]
                told = None if slow is None else (str(slow[0]), int(slow[1]), float(slow[2]))
                found[key] = Kept(BASELINE.joined(parts[key].values()), pace, told)
        except Malformed:
            continue
    return found
