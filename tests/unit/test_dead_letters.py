"""Dead letters carry all of what could not be read."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.deadletters import DeadLetter, decode_dead_letter, encode_dead_letter
from schemas.malformed import Malformed

LETTER = DeadLetter("nccl.trace", 3, 17, "sink", "magic is 0x0", b"\0\xff", "2026-01-02T03:04:05.000Z")
BODY: dict[str, Any] = json.loads(encode_dead_letter(LETTER))
texts = st.text(max_size=8)
letters = st.builds(
    DeadLetter, texts, st.integers(0, 2**31), st.integers(0, 2**63 - 1), texts, texts, st.binary(max_size=50),
    st.text(min_size=1, max_size=8),
)  # fmt: skip


@given(letters)
def test_round_trip(letter: DeadLetter) -> None:
    assert decode_dead_letter(encode_dead_letter(letter)) == letter


def test_seen_is_now_where_empty() -> None:
    before = datetime.now(timezone.utc)
    letter = DeadLetter("t", 0, 0, "s", "r", b"")
    seen = decode_dead_letter(encode_dead_letter(letter)).seen
    assert seen.endswith("Z")
    age = datetime.fromisoformat(seen.replace("Z", "+00:00")) - before
    assert abs(age.total_seconds()) < 60


@pytest.mark.parametrize("name", sorted(BODY))
def test_a_missing_field_is_malformed(name: str) -> None:
    with pytest.raises(Malformed):
        decode_dead_letter(json.dumps({key: BODY[key] for key in BODY if key != name}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"payload": "a"},
        {"payload": "a*=="},
        {"payload": 5},
        {"offset": "x"},
        {"partition": None},
        {"offset": 1.5},
        {"offset": -1},
        {"offset": float("inf")},
        {"offset": True},
        {"topic": 5},
    ],
    ids=str,
)
def test_a_wrong_field_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        decode_dead_letter(json.dumps({**BODY, **change}).encode())


@given(st.binary(max_size=40))
def test_random_bytes_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_dead_letter(raw)


def test_depth_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode_dead_letter(b'{"a":' * 100_000)
