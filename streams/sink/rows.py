"""From the bytes of a message to rows of tables, as pure functions.

Records stay packed: their rows are the message's own bytes with the time of ingestion behind each, sent as
RowBinary. Everything else becomes JSONEachRow. The time is the caller's, so that a range that is
stored again after a crash is the same to the byte and falls into the same partition of the table.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

import numpy as np

from schemas.deadletters import DeadLetter, decode_dead_letter
from schemas.envelope import MessageKind, decode, encode
from schemas.incidents import Node, from_json
from schemas.malformed import Malformed
from schemas.members import Member, decode_members
from schemas.records import (
    BASELINE,
    COLL,
    FACT,
    FLOW,
    LAG,
    PROC,
    RATE,
    WAIT,
    Records,
    RecordType,
    enum_values,
    unknown_codes,
)
from schemas.topics import ALERTS, BASELINES, DEAD, MEMBERS, TRACE, VERDICTS, WAITS
from schemas.verdicts import decode_verdict
from streams.sink.losses import Loss, Numbered

STAGE = "sink"
"""`stage` of the dead letters that the sink writes. It stores these itself and skips them on the topic."""

_INCIDENT_TEXTS = (
    "id", "state", "job", "attempt", "kind", "category", "severity", "confidence", "summary",
)  # fmt: skip

_U32 = 1 << 32
_U64 = 1 << 64
_I32 = 1 << 31


@dataclass(frozen=True)
class Rows:
    """Rows of one table; `data` of equal table and columns can be joined."""

    table: str
    columns: tuple[str, ...]
    format: str
    data: bytes


@dataclass(frozen=True)
class Refusal:
    """The part of a message that the store could not take: why, and a message with that part alone."""

    reason: str
    payload: bytes


@dataclass(frozen=True)
class Decoded:
    """What a message becomes; `numbered` is what a flush says of its place among its source's."""

    rows: tuple[Rows, ...] = ()
    refused: Refusal | None = None
    numbered: Numbered | None = None


def decode_message(topic: str, value: bytes | None, at: int) -> Decoded:
    """The rows of one message; `at` is the time of ingestion in seconds. Raises Malformed."""
    if value is None:
        if topic == MEMBERS.name:  # how a compacted topic forgets a key
            return Decoded()
        raise Malformed("no value")
    try:
        return _READERS[topic](value, at)
    except RecursionError as error:
        raise Malformed("JSON is nested too deeply") from error


def dead_rows(letters: Iterable[DeadLetter], at: int) -> Rows:
    """Rows of nccl.dead."""
    return _json_rows(
        "dead",
        (
            {
                "seen": _time(letter.seen) if letter.seen else _moment(at),
                "topic": letter.topic,
                "partition": _unsigned(letter.partition, "partition"),
                "offset": _unsigned(letter.offset, "offset", _U64),
                "stage": letter.stage,
                "reason": letter.reason,
                "payload": base64.b64encode(letter.payload).decode(),
            }
            for letter in letters
        ),
        at,
    )


def loss_rows(topic: str, partition: int, losses: Iterable[Loss], at: int) -> Rows:
    """Rows of nccl.losses."""
    return _json_rows(
        "losses",
        (
            {
                "seen": _moment(at), "topic": topic, "partition": partition, "source": loss.source,
                "what": loss.what, "first": loss.first, "missing": loss.missing,
            }
            for loss in losses
        ),
        at,
    )  # fmt: skip


def _envelope(stored: tuple[RecordType, ...], value: bytes, at: int) -> Decoded:
    message = decode(value)
    numbered = None
    if message.kind == MessageKind.FLUSH:
        numbered = Numbered(message.source, message.sequence, message.drops)
    rows, refused, reasons = [], {}, []
    for record in stored:
        records = message.sections.get(record.name)
        if records is None or not len(records):
            continue
        bad = unknown_codes(record, records)
        if bad.any():
            refused[record.name] = records[bad]
            reasons.append(_why(record, records[bad], len(records)))
            records = records[~bad]
        if len(records):
            rows.append(_packed(record, records, at))
    if not refused:
        return Decoded(tuple(rows), numbered=numbered)
    payload = encode(replace(message, sections=refused))
    why = "; ".join(reasons) + "; the payload has only these"
    return Decoded(tuple(rows), Refusal(why, payload), numbered)


def _why(record: RecordType, bad: Records, total: int) -> str:
    codes = [
        f"{name} {', '.join(str(code) for code in sorted(unknown)[:5])}"
        for name, allowed in enum_values(record).items()
        if (unknown := {int(code) for code in np.unique(bad[name])} - allowed)
    ]
    return f"{len(bad)} of {total} {record.name} records have unknown codes ({'; '.join(codes)})"


def _packed(record: RecordType, records: Records, at: int) -> Rows:
    size = record.dtype.itemsize
    packed = np.empty((len(records), size + 4), np.uint8)
    packed[:, :size] = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), size)
    packed[:, size:] = np.frombuffer(at.to_bytes(4, "little"), np.uint8)
    columns = (*(field.name for field in record.fields), "ingested")
    return Rows(record.table, columns, "RowBinary", packed.tobytes())


def _members(value: bytes, at: int) -> Decoded:
    said = decode_members(value)
    common = {
        "job": said.job_id, "job_name": said.job, "attempt": said.attempt_id, "attempt_name": said.attempt,
        "comm": said.comm, "name": said.name, "source": said.source,
        "library": _text(said.library, "library"),
        "nranks": _unsigned(said.nranks, "nranks"), "nnodes": _maybe(said.nnodes, "nnodes"),
    }  # fmt: skip
    return _decoded(_json_rows("members", (common | _member(member) for member in said.members), at))


def _member(member: Member) -> dict[str, Any]:
    return {
        "rank": _unsigned(member.rank, "rank"), "dev": member.dev,
        "world_rank": _maybe(member.world_rank, "world_rank"), "host": _text(member.host, "host"),
        "address": _text(member.address, "address"), "pid": _maybe(member.pid, "pid"),
        "gpu": _maybe(member.gpu, "gpu"), "gpu_id": _text(member.gpu_id, "gpu_id"),
        "silent": int(bool(member.silent)),
    }  # fmt: skip


def _alert(value: bytes, at: int) -> Decoded:
    try:
        body = json.loads(value)
        incident = from_json(body)
        nodes = (*incident.culprits, *incident.candidates)
        row = {
            name: _needed(body[name], name)
            for name in _INCIDENT_TEXTS
        } | {
            "revision": _unsigned(incident.revision, "revision"),
            "culprits": [_rank(node) for node in incident.culprits],
            "candidates": [_rank(node) for node in incident.candidates],
            "hosts": sorted({_needed(node.host, "host") for node in nodes if node.host is not None}),
            "waiting": _unsigned(incident.waiting, "waiting"),
            "since": None if incident.since is None else _time(incident.since),
            "detected": _time(incident.detected),
            "closed": None if incident.closed is None else _time(incident.closed),
            "incident": json.dumps(body),
        }  # fmt: skip
    except Malformed:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Malformed(f"not an incident: {type(error).__name__}: {error}") from error
    return _decoded(_json_rows("incidents", [row], at))


def _rank(node: Node) -> int | None:
    if node.rank is None:
        return None
    if not isinstance(node.rank, int) or not -_I32 <= node.rank < _I32:
        raise Malformed(f"rank {node.rank!r} is not a 32-bit integer")
    return node.rank


def _verdict(value: bytes, at: int) -> Decoded:
    verdict = decode_verdict(value)
    row = {
        "job": verdict.job, "attempt": verdict.attempt, "snapshot": verdict.snapshot,
        "epoch": _unsigned(verdict.epoch, "epoch", _U64), "judged": _time(verdict.judged),
        "incidents": list(verdict.incidents), "lost": _unsigned(verdict.lost, "lost", _U64),
        "missing": [_unsigned(partition, "missing") for partition in verdict.missing],
    }  # fmt: skip
    return _decoded(_json_rows("verdicts", [row], at))


def _dead(value: bytes, at: int) -> Decoded:
    letter = decode_dead_letter(value)
    return Decoded() if letter.stage == STAGE else _decoded(dead_rows([letter], at))


_READERS: Mapping[str, Callable[[bytes, int], Decoded]] = {
    TRACE.name: partial(_envelope, (COLL, FLOW, PROC, FACT)),
    WAITS.name: partial(_envelope, (WAIT, LAG, RATE)),
    BASELINES.name: partial(_envelope, (BASELINE,)),
    MEMBERS.name: _members,
    ALERTS.name: _alert, VERDICTS.name: _verdict, DEAD.name: _dead,
}  # fmt: skip


def _decoded(rows: Rows) -> Decoded:
    return Decoded((rows,)) if rows.data else Decoded()


def _json_rows(table: str, rows: Iterable[Mapping[str, Any]], at: int) -> Rows:
    lines = [json.dumps({**row, "ingested": at}, separators=(",", ":")) + "\n" for row in rows]
    return Rows(table, (), "JSONEachRow", "".join(lines).encode())


def _unsigned(value: object, name: str, limit: int = _U32) -> int:
    # The store would wrap what is too large, without a word.
    if not isinstance(value, int) or not 0 <= value < limit:
        raise Malformed(f"{name} {value!r} is not an integer from 0 to {limit - 1}")
    return int(value)


def _maybe(value: object, name: str) -> int | None:
    return None if value is None else _unsigned(value, name)


def _needed(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{name} is not text")
    return value


def _text(value: object, name: str) -> str | None:
    return None if value is None else _needed(value, name)


def _time(text: object) -> str:
    """RFC 3339 as ClickHouse reads it without further settings: UTC, microseconds."""
    try:
        moment = datetime.fromisoformat(_needed(text, "time").replace("Z", "+00:00"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
        return f"{moment.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S.%f}"
    except (ValueError, OverflowError) as error:
        raise Malformed(f"{text!r} is not a time: {error}") from error


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M:%S}"
