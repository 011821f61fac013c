"""Identities: framed hashes and their hex form."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import hash64, hex_id, job_id, parse_hex_id

parts = st.lists(st.text(max_size=4) | st.integers(-(2**70), 2**70), max_size=4)


def test_known_values() -> None:
    """Ids lie in stores: another hash would tear apart what belongs together."""
    # blake2b of 8 bytes over "s3:job" "s1:x", read little-endian.
    assert job_id("x") == hash64("job", "x") == 0xDA03FC9718C0153F


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("abc",), ("ab", "c")),
        (("a", ""), ("a",)),
        (("", "a"), ("a", "")),
        ((1,), ("1",)),
        ((1, 2), (12,)),
        ((-1,), (1,)),
        (("s1:a",), ("a",)),
        (("a", "s1:b"), ("a", "b")),
        ((), ("",)),
        ((1, "2"), ("1", 2)),
    ],
)
def test_parts_are_framed(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    assert hash64(*one) != hash64(*other)


@given(parts)
def test_range(several: list[str | int]) -> None:
    assert 1 <= hash64(*several) < 2**64
    assert hash64(*several) == hash64(*several)


@given(parts, parts)
def test_different_parts_differ(one: list[str | int], other: list[str | int]) -> None:
    assert (hash64(*one) == hash64(*other)) == (one == other)


def test_ids_are_spread_over_partitions() -> None:
    taken = sorted({hash64("comm", number) % 8 for number in range(200)})
    assert taken == list(range(8))
    assert all(low < high for low, high in pairwise(taken))


class Zero:
    """A digest of nothing but zeros."""

    def update(self, _: bytes) -> None: ...

    def digest(self) -> bytes:
        return bytes(8)


def test_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemas.ids.hashlib.blake2b", lambda digest_size: Zero())  # noqa: ARG005
    assert hash64("anything") == 1


@given(st.integers(0, 2**64 - 1))
def test_hex_there_and_back(value: int) -> None:
    text = hex_id(value)
    assert len(text) == 16
    assert text == text.lower()
    assert parse_hex_id(text) == value


def test_short_hex_is_read() -> None:
    assert parse_hex_id("aB") == 0xAB


@pytest.mark.parametrize(
    "text", ["", "0" * 17, "xyz", "12 34", "1.5", "--1", "-1", "+1f", "0x1f", " 1f", "1_f", "１"]
)
def test_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="not an id"):
        parse_hex_id(text)
