"""Verdicts as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.malformed import Malformed
from schemas.verdicts import Verdict, decode_verdict, encode_verdict

VERDICT = Verdict("j", "a", "00000000000000ab", 12, "2026-01-02T03:04:05Z", ("ab", "cd"), (2, 3), 4)
BODY: dict[str, Any] = json.loads(encode_verdict(VERDICT))
texts = st.text(max_size=8)
verdicts = st.builds(
    Verdict, texts, texts, texts, st.integers(0, 2**40), texts, st.lists(texts, max_size=3).map(tuple),
    st.lists(st.integers(0, 1000), max_size=3).map(tuple), st.integers(0, 2**40),
)  # fmt: skip


@given(verdicts)
def test_round_trip(verdict: Verdict) -> None:
    assert decode_verdict(encode_verdict(verdict)) == verdict


@pytest.mark.parametrize("name", sorted(BODY))
def test_a_missing_field_is_malformed(name: str) -> None:
    with pytest.raises(Malformed):
        decode_verdict(json.dumps({key: BODY[key] for key in BODY if key != name}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"job": 5},
        {"snapshot": None},
        {"judged": 1},
        {"epoch": "x"},
        {"missing": ["x"]},
        {"incidents": 5},
        {"epoch": float("inf")},
        {"lost": -1},
        {"incidents": "ab"},
    ],
    ids=str,
)
def test_a_wrong_field_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        decode_verdict(json.dumps({**BODY, **change}).encode())


@given(st.binary(max_size=40))
def test_random_bytes_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_verdict(raw)


def test_depth_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode_verdict(b'{"a":' * 100_000)
