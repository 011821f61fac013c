"""The binary message: its bytes, its trip there and back, and what is no message."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import MAX_MESSAGE_BYTES, Envelope, MessageKind, decode, encode, split
from schemas.malformed import Malformed
from schemas.records import COLL, RECORD_TYPES, WAIT, Records, RecordType

U16, U32, U64 = 2**16 - 1, 2**32 - 1, 2**64 - 1
HEADER = 68

GOLDEN = bytes.fromhex(
    "4d594352"  # magic: "MYCR"
    "0100"  # version 1
    "03"  # END
    "01"  # one section
    "0807060504030201"  # job
    "1000000000000000"  # attempt
    "0200000000000000"  # sequence
    "0300000000000000"  # drops
    "feffffffffffffff"  # through: -2
    "0500000000000000"  # epoch
    "06000000"  # partition
    "0000"  # part
    "0100"  # parts
    "0300"  # source length
    "0000"  # reserved
    "68c3a9"  # "hé"
    "00000100" + "07000000" + "7b2261223a317d"  # JSON, stride 1, 7 bytes: {"a":1}
)
GOLDEN_MESSAGE = Envelope(
    MessageKind.END, job=0x0102030405060708, attempt=16, source="hé", sequence=2, drops=3, through=-2,
    epoch=5, partition=6, body={"a": 1},
)  # fmt: skip


def filled(record: RecordType, count: int, seed: int) -> Records:
    """Records of random bytes."""
    raw = np.random.default_rng(seed).integers(0, 256, count * record.dtype.itemsize, np.uint8)
    rows: Records = raw.view(record.dtype)
    return rows


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    parts = draw(st.integers(1, U16))
    chosen = draw(st.sets(st.sampled_from(RECORD_TYPES)))
    return Envelope(
        kind=draw(st.sampled_from(MessageKind)),
        job=draw(st.integers(0, U64)),
        attempt=draw(st.integers(0, U64)),
        source=draw(st.text(st.characters(codec="utf-8"), max_size=20)),
        sequence=draw(st.integers(0, U64)),
        drops=draw(st.integers(0, U64)),
        through=draw(st.integers(-(2**63), 2**63 - 1)),
        epoch=draw(st.integers(0, U64)),
        partition=draw(st.integers(0, U32)),
        part=draw(st.integers(0, parts - 1)),
        parts=parts,
        sections={
            record.name: filled(record, draw(st.integers(0, 5)), draw(st.integers(0, U32)))
            for record in RECORD_TYPES
            if record in chosen
        },
        body=draw(st.none() | st.dictionaries(st.text(max_size=5), json_values, max_size=4)),
    )


def same(one: Envelope, other: Envelope) -> bool:
    plain = replace(one, sections={}) == replace(other, sections={})
    return plain and {name: rows.tobytes() for name, rows in one.sections.items()} == {
        name: rows.tobytes() for name, rows in other.sections.items()
    }


def section(code: int, size: int, count: int, raw: bytes) -> bytes:
    return struct.pack("<BBHI", code, 0, size, count) + raw


def with_sections(*sections: bytes) -> bytes:
    """A message whose sections are given as bytes."""
    head = bytearray(encode(Envelope(MessageKind.IMPORT, job=1, source="h")))
    head[7] = len(sections)
    return bytes(head) + b"".join(sections)


def test_golden_bytes() -> None:
    assert encode(GOLDEN_MESSAGE) == GOLDEN
    assert same(decode(GOLDEN), GOLDEN_MESSAGE)


def test_kinds_are_never_renumbered() -> None:
    assert {kind.name: kind.value for kind in MessageKind} == {
        "FLUSH": 1, "IMPORT": 2, "END": 3, "EPOCH": 4, "MARKER": 5, "LIVE_EPOCH": 6, "WINDOW": 7,
        "BASELINES": 8,
    }  # fmt: skip


@given(envelopes())
def test_round_trip(message: Envelope) -> None:
    read = decode(encode(message))
    assert same(read, message)
    assert all(
        rows.dtype == record.dtype
        for record in RECORD_TYPES
        if (rows := read.sections.get(record.name)) is not None
    )


@given(envelopes())
def test_header_lies_as_documented(message: Envelope) -> None:
    raw = encode(message)
    at: dict[str, tuple[str, int]] = {
        "magic": ("<I", 0), "version": ("<H", 4), "kind": ("<B", 6), "sections": ("<B", 7),
        "job": ("<Q", 8), "attempt": ("<Q", 16), "sequence": ("<Q", 24), "drops": ("<Q", 32),
        "through": ("<q", 40), "epoch": ("<Q", 48), "partition": ("<I", 56), "part": ("<H", 60),
        "parts": ("<H", 62), "source length": ("<H", 64), "reserved": ("<H", 66),
    }  # fmt: skip
    read = {name: struct.unpack_from(form, raw, offset)[0] for name, (form, offset) in at.items()}
    source = message.source.encode()
    assert read == {
        "magic": 0x5243594D, "version": 1, "kind": int(message.kind),
        "sections": len(message.sections) + (message.body is not None),
        "job": message.job, "attempt": message.attempt, "sequence": message.sequence,
        "drops": message.drops, "through": message.through, "epoch": message.epoch,
        "partition": message.partition, "part": message.part, "parts": message.parts,
        "source length": len(source), "reserved": 0,
    }  # fmt: skip
    assert raw[:4] == b"MYCR"
    assert raw[HEADER : HEADER + len(source)] == source


def test_sections_lie_as_documented() -> None:
    rows = filled(COLL, 3, 1)
    raw = encode(Envelope(MessageKind.IMPORT, source="ab", sections={"coll": rows}, body={}))
    stride = COLL.dtype.itemsize
    assert struct.unpack_from("<BBHI", raw, HEADER + 2) == (1, 0, stride, 3)
    begin = HEADER + 2 + 8
    assert raw[begin : begin + 3 * stride] == rows.tobytes()
    assert raw[begin + 3 * stride :] == section(0, 1, 2, b"{}")


@pytest.mark.parametrize(
    "message",
    [
        Envelope(MessageKind.FLUSH, job=-1),
        Envelope(MessageKind.FLUSH, job=2**64),
        Envelope(MessageKind.FLUSH, partition=2**32),
        Envelope(MessageKind.FLUSH, through=2**63),
        Envelope(MessageKind.FLUSH, source="h" * (U16 + 1)),
    ],
)
def test_what_the_header_cannot_carry_is_refused(message: Envelope) -> None:
    with pytest.raises(ValueError, match="out of range"):
        encode(message)


def test_every_truncation_is_malformed() -> None:
    whole = encode(
        Envelope(
            MessageKind.IMPORT, source="häst", body={"a": [1, 2]},
            sections={"coll": filled(COLL, 2, 1), "wait": filled(WAIT, 1, 2)},
        )
    )  # fmt: skip
    decode(whole)
    for length in range(len(whole)):
        with pytest.raises(Malformed):
            decode(whole[:length])


def test_bytes_after_the_end_are_malformed() -> None:
    with pytest.raises(Malformed):
        decode(GOLDEN + b"\0")


@given(st.binary(max_size=300))
def test_random_bytes_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode(raw)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_random_bytes_behind_a_right_beginning_raise_nothing_else(raw: bytes, sections: int) -> None:
    for begin in (GOLDEN[:7] + bytes([sections]), GOLDEN[:7] + bytes([sections]) + GOLDEN[8:HEADER] + b"abc"):
        with suppress(Malformed):
            decode(begin + raw)


@given(st.data())
def test_a_changed_byte_raises_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(encode(replace(GOLDEN_MESSAGE, sections={"wait": filled(WAIT, 1, 3)})))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        decode(bytes(raw))


@pytest.mark.parametrize("kind", [0, 9, 255])
def test_unknown_kind(kind: int) -> None:
    with pytest.raises(Malformed, match=f"kind {kind}"):
        decode(GOLDEN[:6] + bytes([kind]) + GOLDEN[7:])


@pytest.mark.parametrize("version", [0, 2, 513])
def test_unknown_version(version: int) -> None:
    with pytest.raises(Malformed, match=f"version {version}"):
        decode(GOLDEN[:4] + struct.pack("<H", version) + GOLDEN[6:])


@pytest.mark.parametrize(("part", "parts"), [(0, 0), (1, 1), (2, 1), (5, 0)])
def test_part_beyond_parts(part: int, parts: int) -> None:
    with pytest.raises(Malformed, match="part"):
        decode(GOLDEN[:60] + struct.pack("<HH", part, parts) + GOLDEN[64:])


def test_source_that_is_no_utf8() -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        decode(GOLDEN[:HEADER] + b"h\xff\xff" + GOLDEN[HEADER + 3 :])


@pytest.mark.parametrize("record", RECORD_TYPES, ids=lambda record: record.name)
@pytest.mark.parametrize("extra", [1, 8, 37])
@pytest.mark.parametrize("count", [0, 1, 4])
def test_longer_records_are_read_by_prefix(record: RecordType, extra: int, count: int) -> None:
    rows = filled(record, count, 7)
    wide = b"".join(row.tobytes() + b"\xee" * extra for row in rows)
    raw = with_sections(section(record.code, record.dtype.itemsize + extra, count, wide))
    read = decode(raw).sections[record.name]
    assert read.dtype == record.dtype
    assert read.tobytes() == rows.tobytes()
    # What was read can be sent on.
    again = decode(encode(Envelope(MessageKind.IMPORT, sections={record.name: read})))
    assert again.sections[record.name].tobytes() == rows.tobytes()


@pytest.mark.parametrize("record", RECORD_TYPES, ids=lambda record: record.name)
def test_shorter_records_are_malformed(record: RecordType) -> None:
    size = record.dtype.itemsize - 1
    with pytest.raises(Malformed, match=record.name):
        decode(with_sections(section(record.code, size, 1, bytes(size))))


def test_section_of_an_unknown_type_is_skipped() -> None:
    rows = filled(COLL, 2, 9)
    unknown = section(200, 24, 3, bytes(72))
    known = section(COLL.code, COLL.dtype.itemsize, 2, rows.tobytes())
    for raw in (with_sections(unknown, known), with_sections(known, unknown)):
        read = decode(raw)
        assert set(read.sections) == {"coll"}
        assert read.sections["coll"].tobytes() == rows.tobytes()


def test_two_sections_of_one_type_are_malformed() -> None:
    one = section(COLL.code, COLL.dtype.itemsize, 0, b"")
    with pytest.raises(Malformed, match="two sections"):
        decode(with_sections(one, one))


def test_section_without_a_stride_is_malformed() -> None:
    for code in (0, 1, 200):
        with pytest.raises(Malformed):
            decode(with_sections(section(code, 0, U32, b"")))


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"1", b"null", b'{"a":1}}', b"\xff\xfe", b"\x00"])
def test_json_that_is_no_object_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed, match="JSON"):
        decode(with_sections(section(0, 1, len(text), text)))


def test_records_read_are_read_only() -> None:
    read = decode(encode(Envelope(MessageKind.IMPORT, sections={"coll": filled(COLL, 2, 1)})))
    with pytest.raises(ValueError, match="read-only"):
        read.sections["coll"]["seq"] = 1


@st.composite
def large(draw: st.DrawFn) -> tuple[Envelope, int]:
    """A message, and a limit below which it may have to be divided."""
    body: dict[str, Any] | None = draw(st.none() | st.fixed_dictionaries({"a": st.text(max_size=40)}))
    source = draw(st.text(st.characters(codec="utf-8"), max_size=8))
    counts = {record: draw(st.integers(0, 30)) for record in RECORD_TYPES if draw(st.booleans())}
    message = Envelope(
        MessageKind.EPOCH, job=5, source=source, epoch=9, partition=3, body=body,
        sections={record.name: filled(record, count, count) for record, count in counts.items()},
    )  # fmt: skip
    # Room for one record and whatever is around it.
    least = HEADER + 8 * 4 + 4 * 8 + 300 + WAIT.dtype.itemsize
    return message, draw(st.integers(least, least + 5000))


@given(large())
def test_split_keeps_everything_below_the_limit(case: tuple[Envelope, int]) -> None:
    message, limit = case
    parts = list(split(message, limit))
    assert all(len(encode(part)) <= limit for part in parts)
    assert [(part.part, part.parts) for part in parts] == [(n, len(parts)) for n in range(len(parts))]
    assert [part.body for part in parts] == [message.body] + [None] * (len(parts) - 1)
    for name, rows in message.sections.items():
        pieces = [part.sections[name].tobytes() for part in parts if name in part.sections]
        assert b"".join(pieces) == rows.tobytes()
    bare = replace(message, sections={}, body=None)
    assert all(replace(part, sections={}, body=None, part=0, parts=1) == bare for part in parts)


@given(large())
def test_split_makes_no_more_parts_than_needed(case: tuple[Envelope, int]) -> None:
    """Two neighbours would not fit into one message."""
    message, limit = case
    parts = list(split(message, limit))
    for one, other in pairwise(parts):
        size = len(encode(one)) + sum(rows[:1].nbytes for rows in other.sections.values())
        assert size + 8 * len(message.sections) + 8 > limit


def test_split_leaves_a_small_message_alone() -> None:
    message = Envelope(MessageKind.EPOCH, body={"a": 1}, sections={"wait": filled(WAIT, 3, 1)})
    (part,) = split(message)
    assert same(part, message)


def test_split_at_the_default_limit() -> None:
    rows = filled(WAIT, 2 * MAX_MESSAGE_BYTES // WAIT.dtype.itemsize, 1)
    parts = list(split(Envelope(MessageKind.EPOCH, sections={"wait": rows})))
    assert len(parts) == 3
    assert max(len(encode(part)) for part in parts) <= MAX_MESSAGE_BYTES == 512 * 1024


def test_split_refuses_a_body_larger_than_a_message() -> None:
    with pytest.raises(ValueError, match="body of"):
        list(split(Envelope(MessageKind.EPOCH, body={"a": "x" * 500}), 400))


@pytest.mark.parametrize("body", [None, {}, {"a": 1}])
def test_split_counts_the_body_whatever_is_in_it(body: dict[str, Any] | None) -> None:
    message = Envelope(MessageKind.EPOCH, sections={"wait": filled(WAIT, 4, 1)}, body=body)
    limit = HEADER + 2 * 8 + 4 * WAIT.dtype.itemsize
    assert all(len(encode(part)) <= limit for part in split(message, limit))


def test_split_keeps_an_empty_section() -> None:
    (part,) = split(Envelope(MessageKind.EPOCH, sections={"wait": WAIT.empty(0)}))
    assert len(part.sections["wait"]) == 0


def test_split_refuses_a_record_larger_than_a_message() -> None:
    with pytest.raises(ValueError, match="records"):
        list(split(Envelope(MessageKind.EPOCH, sections={"wait": WAIT.empty(1)}), 200))


def test_what_could_not_be_read_back_is_refused() -> None:
    with pytest.raises(ValueError, match="colls"):
        encode(Envelope(MessageKind.IMPORT, sections={"colls": COLL.empty(1)}))
    with pytest.raises(ValueError, match="part 3 of 1"):
        encode(Envelope(MessageKind.IMPORT, part=3))


def test_deep_json_is_malformed() -> None:
    text = b'{"a":' * 100_000
    with pytest.raises(Malformed):
        decode(with_sections(section(0, 1, len(text), text)))


def test_body_is_written_compactly() -> None:
    body = {"a": [1, 2], "b": {"c": None}}
    raw = encode(Envelope(MessageKind.END, body=body))
    assert raw.endswith(json.dumps(body, separators=(",", ":")).encode())
