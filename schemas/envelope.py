"""The binary message of `nccl.trace` and `nccl.waits`: a header, then sections of records.

    header (fixed part, little-endian, 68 bytes)
      0  magic            u32  0x5243594D, the bytes "MYCR"
      4  version          u16  1
      6  kind             u8   MessageKind
      7  sections         u8
      8  job              u64
     16  attempt          u64
     24  sequence         u64  number of this message from this source to this partition, from 0
     32  drops            u64  records that this source has lost so far
     40  through          i64  sampled-through, ns of the source's clock
     48  epoch            u64  whole second of broker time, in EPOCH, LIVE_EPOCH, MARKER, WINDOW, BASELINES
     56  partition        u32  trace partition that an EPOCH, MARKER or WINDOW speaks for
     60  part, parts      u16  an EPOCH too large for one message is split into parts
     64  source length    u16
     66  reserved         u16  0
     68  source           UTF-8: the host, or what stands for it (an import)
    then each section: type u8, reserved u8, size u16, count u32, size × count bytes

`size` is the stride of a record. It may exceed what the reader knows, since fields are only appended; the
reader takes its own prefix. A type the reader does not know is skipped. Section type 0 is JSON: size 1,
count bytes of UTF-8. There is no checksum: Kafka has one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np

from schemas.malformed import Malformed, json_object
from schemas.records import BY_CODE, RECORD_TYPES, Records, RecordType

MAGIC = 0x5243594D
VERSION = 1
MAX_MESSAGE_BYTES = 512 * 1024
"""Messages are split above this, well below Kafka's 1 MB default."""

_HEADER = struct.Struct("<IHBBQQQQqQIHHHH")
_SECTION = struct.Struct("<BBHI")
_JSON_SECTION = 0


class MessageKind(IntEnum):
    """What a message states beside its records."""

    FLUSH = 1  # live: whatever the source launched by `through` is in messages up to this one
    IMPORT = 2  # part of a snapshot: says nothing yet about what is absent
    END = 3  # end of a snapshot: from here absence means something (JSON: SnapshotEnd)
    EPOCH = 4  # the waits of one snapshot on one trace partition
    MARKER = 5  # a trace partition has sent all its EPOCHs of this second
    LIVE_EPOCH = 6  # the complete current set of waits of one running job on one trace partition
    WINDOW = 7  # rates of one running job on one trace partition in one second; at times their details
    BASELINES = 8  # what is usual of one running job, as of that second


@dataclass(frozen=True)
class Envelope:
    """A decoded message. `sections` maps record type names to structured arrays."""

    kind: MessageKind
    job: int = 0
    attempt: int = 0
    source: str = ""
    sequence: int = 0
    drops: int = 0
    through: int = 0
    epoch: int = 0
    partition: int = 0
    part: int = 0
    parts: int = 1
    sections: Mapping[str, Records] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None


def encode(message: Envelope) -> bytes:
    """The bytes of a message; raises ValueError where they could not be read back as it is."""
    unknown = set(message.sections) - {record.name for record in RECORD_TYPES}
    if unknown:
        raise ValueError(f"no record types: {', '.join(sorted(unknown))}")
    if not 0 <= message.part < message.parts:
        raise ValueError(f"part {message.part} of {message.parts}")
    source = message.source.encode()
    blobs = [
        (record.code, record.dtype.itemsize, len(rows), rows.astype(record.dtype, copy=False).tobytes())
        for record in BY_CODE.values()
        if (rows := message.sections.get(record.name)) is not None
    ]
    if message.body is not None:
        text = json.dumps(message.body, separators=(",", ":")).encode()
        blobs.append((_JSON_SECTION, 1, len(text), text))
    try:
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            message.kind,
            len(blobs),
            message.job,
            message.attempt,
            message.sequence,
            message.drops,
            message.through,
            message.epoch,
            message.partition,
            message.part,
            message.parts,
            len(source),
            0,
        )
    except struct.error as error:
        raise ValueError(f"message field out of range: {error}") from error
    parts = [header, source]
    for code, size, count, blob in blobs:
        parts += (_SECTION.pack(code, 0, size, count), blob)
    return b"".join(parts)


def decode(raw: bytes) -> Envelope:
    """The message in `raw`; raises Malformed. Records are read-only views into `raw` where strides agree."""
    if len(raw) < _HEADER.size:
        raise Malformed(f"{len(raw)} bytes, shorter than the header of {_HEADER.size}")
    (
        magic,
        version,
        kind,
        count,
        job,
        attempt,
        sequence,
        drops,
        through,
        epoch,
        partition,
        part,
        parts,
        source_length,
        _,
    ) = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise Malformed(f"magic is {magic:#010x}, not {MAGIC:#010x}")
    if version != VERSION:
        raise Malformed(f"version {version} is not known here (highest known: {VERSION})")
    if kind not in MessageKind._value2member_map_:
        raise Malformed(f"message kind {kind} is not known")
    at = _HEADER.size + source_length
    try:
        source = raw[_HEADER.size : at].decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"source is not UTF-8: {error}") from error
    if at > len(raw) or not parts > 0 or part >= parts:
        raise Malformed(f"header is inconsistent: source of {source_length} bytes, part {part} of {parts}")
    sections: dict[str, Records] = {}
    body: dict[str, Any] | None = None
    for index in range(count):
        code, size, rows, at, end = _section(raw, at, index)
        if code == _JSON_SECTION:
            body = json_object(raw[at:end], "a JSON section")
        elif (record := BY_CODE.get(code)) is not None:
            if record.name in sections:
                raise Malformed(f"two sections of type {record.name}")
            sections[record.name] = _rows(raw, at, record, size, rows)
        at = end
    if at != len(raw):
        raise Malformed(f"{len(raw) - at} bytes after the last section")
    return Envelope(
        MessageKind(kind),
        job,
        attempt,
        source,
        sequence,
        drops,
        through,
        epoch,
        partition,
        part,
        parts,
        sections,
        body,
    )


def _section(raw: bytes, at: int, index: int) -> tuple[int, int, int, int, int]:
    if at + _SECTION.size > len(raw):
        raise Malformed(f"section {index} begins past the end")
    code, _, size, rows = _SECTION.unpack_from(raw, at)
    begin = at + _SECTION.size
    end = begin + size * rows
    if size == 0 or end > len(raw):
        raise Malformed(f"section {index} wants {rows} records of {size} bytes, {len(raw) - begin} are left")
    return code, size, rows, begin, end


def _rows(raw: bytes, at: int, record: RecordType, size: int, rows: int) -> Records:
    own = record.dtype.itemsize
    if size < own:
        raise Malformed(f"{record.name} records of {size} bytes, at least {own} expected")
    if size == own:
        return np.frombuffer(raw, record.dtype, rows, at)
    wide = np.dtype({"names": ["known"], "formats": [record.dtype], "itemsize": size})
    return np.frombuffer(raw, wide, rows, at)["known"]


def split(message: Envelope, limit: int = MAX_MESSAGE_BYTES) -> Iterable[Envelope]:
    """The message as one or more that each stay within `limit` bytes, numbered by part and parts.

    Only records are divided; a JSON body rides on the first part. Raises ValueError where the body, or a
    single record, does not fit.
    """
    overhead = _HEADER.size + len(message.source.encode()) + _SECTION.size * (len(message.sections) + 1)
    body_bytes = 0
    if message.body is not None:
        body_bytes = len(json.dumps(message.body, separators=(",", ":")).encode())
    largest = max((rows.dtype.itemsize for rows in message.sections.values() if len(rows)), default=0)
    if overhead + max(body_bytes, largest) > limit:
        raise ValueError(
            f"a JSON body of {body_bytes} bytes or records of {largest} exceed the limit of {limit}"
        )
    pieces: list[dict[str, Records]] = [{}]
    room = limit - overhead - body_bytes
    for name, rows in message.sections.items():
        size, taken = rows.dtype.itemsize, 0
        if not len(rows):
            pieces[-1][name] = rows
        while taken < len(rows):
            fit = min(len(rows) - taken, room // size)
            if fit == 0:
                pieces.append({})
                room = limit - overhead
                continue
            pieces[-1][name] = rows[taken : taken + fit]
            taken += fit
            room -= fit * size
    for number, piece in enumerate(pieces):
        yield replace(
            message,
            sections=piece,
            body=message.body if number == 0 else None,
            part=number,
            parts=len(pieces),
        )
