"""The end of a snapshot as the JSON body of its message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import Envelope, MessageKind, decode, encode
from schemas.malformed import Malformed
from schemas.snapshots import SnapshotEnd, decode_end, encode_end

counts = st.integers(0, 2**40)
ranks = st.lists(st.integers(0, 2**20), max_size=5).map(tuple)
texts = st.text(max_size=8)
ends = st.builds(
    SnapshotEnd, st.integers(0, 2**64 - 1), texts, texts, st.integers(1, 1000), counts, counts, ranks, ranks,
    st.lists(texts, max_size=2).map(tuple),
)  # fmt: skip
END = SnapshotEnd(0xAB, "j", "a", 2, 3, 4, (0, 1), (1,), ("p2p",))
BODY: dict[str, Any] = json.loads(json.dumps(encode_end(END)))


@given(ends)
def test_round_trip_in_an_envelope(end: SnapshotEnd) -> None:
    raw = encode(Envelope(MessageKind.END, body=encode_end(end)))
    assert decode_end(decode(raw).body) == end


def test_the_snapshot_is_a_hex_string() -> None:
    assert BODY["snapshot"] == "00000000000000ab"


def test_no_body() -> None:
    with pytest.raises(Malformed):
        decode_end(None)


@pytest.mark.parametrize("name", sorted(BODY))
def test_a_missing_field_is_malformed(name: str) -> None:
    with pytest.raises(Malformed):
        decode_end({key: value for key, value in BODY.items() if key != name})


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"version": "1"}, {"snapshot": "xyz"}, {"snapshot": 5}, {"job": 5}, {"attempt": None},
        {"partitions": 0}, {"partitions": -1}, {"partitions": "many"}, {"messages": -1}, {"members": -1},
        {"messages": None}, {"ranks": 5}, {"ranks": ["x"]}, {"silent": None}, {"blind": 5},
        {"partitions": float("inf")}, {"ranks": [float("inf")]}, {"ranks": [-1]}, {"ranks": [True]},
        {"snapshot": "-1"}, {"messages": 1.5}, {"partitions": 2**40}, {"blind": [5]}, {"blind": "p2p"},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        decode_end({**BODY, **change})
