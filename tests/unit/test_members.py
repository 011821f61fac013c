"""Announcements as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.malformed import Malformed
from schemas.members import Announcement, Member, RingPath, decode_members, encode_members

ids = st.integers(0, 2**64 - 1)
texts = st.text(max_size=8)
naturals = st.integers(0, 2**21 - 1)
maybe = st.none() | naturals
ANNOUNCEMENT = Announcement(
    job="j", job_id=1, attempt="a", attempt_id=2, comm=0xAB, name="tp", source="h1", nranks=2, nnodes=None,
    members=(Member(0, 2**64 - 1, world_rank=4, host="h1"), Member(1, 6, silent=True)), blind=("p2p",),
    rings=(RingPath(0, (0, 1, 0)),),
)  # fmt: skip
BODY: dict[str, Any] = json.loads(encode_members(ANNOUNCEMENT))

members = st.builds(
    Member, naturals, ids, maybe, st.none() | texts, st.none() | texts, maybe, maybe,
    st.none() | texts, st.booleans(),
)  # fmt: skip
rings = st.builds(RingPath, naturals, st.lists(naturals, max_size=4).map(tuple))
announcements = st.builds(
    Announcement, texts, ids, texts, ids, ids, texts, texts, naturals, maybe,
    st.lists(members, max_size=4).map(tuple), st.lists(texts, max_size=2).map(tuple), st.none() | texts,
    st.lists(rings, max_size=2).map(tuple),
)  # fmt: skip


@given(announcements)
def test_round_trip(announcement: Announcement) -> None:
    assert decode_members(encode_members(announcement)) == announcement


def test_ids_are_hex_strings() -> None:
    assert (BODY["comm"], BODY["job_id"], BODY["attempt_id"]) == (
        "00000000000000ab",
        f"{1:016x}",
        f"{2:016x}",
    )
    assert [member["dev"] for member in BODY["members"]] == ["f" * 16, "0000000000000006"]


def test_key_holds_communicator_and_source() -> None:
    assert ANNOUNCEMENT.key == b"00000000000000ab:h1"


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in BODY.items() if key != name}


@pytest.mark.parametrize("name", sorted(BODY))
def test_a_missing_field_is_malformed(name: str) -> None:
    with pytest.raises(Malformed):
        decode_members(json.dumps(without(name)).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2}, {"version": None}, {"comm": "xyz"}, {"comm": ""}, {"comm": "0" * 17}, {"comm": 5},
        {"comm": None}, {"nranks": "many"}, {"nranks": None}, {"members": 5}, {"members": [5]},
        {"members": [{}]}, {"members": None}, {"blind": 5}, {"job": 5}, {"name": None}, {"source": ["h"]},
        {"nranks": -1}, {"nranks": 2.5}, {"nranks": float("inf")}, {"nranks": 2**40}, {"nranks": True},
        {"comm": "-1"}, {"comm": "0x1f"}, {"comm": " 1f"}, {"job_id": "1_f"}, {"nnodes": "x"}, {"library": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        decode_members(json.dumps({**BODY, **change}).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"dev": 7}, {"dev": "-1"}, {"rank": -1}, {"rank": float("inf")}, {"rank": "0"}, {"world_rank": "x"},
        {"world_rank": [1]}, {"world_rank": 2**40}, {"silent": "no"}, {"silent": 0}, {"host": 5},
        {"pid": "x"}, {"gpu": -1}, {"gpu_id": 5}, {"address": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_field_of_a_member_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        decode_members(json.dumps({**BODY, "members": [{**BODY["members"][0], **change}]}).encode())


def test_depth_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode_members(b'{"a":' * 100_000)


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(Malformed, match="version 7"):
        decode_members(json.dumps({**BODY, "version": 7}).encode())


@given(st.binary(max_size=40))
def test_random_bytes_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_members(raw)


def test_every_truncation_is_malformed() -> None:
    whole = encode_members(ANNOUNCEMENT)
    for length in range(len(whole)):
        with pytest.raises(Malformed):
            decode_members(whole[:length])


@pytest.mark.parametrize("raw", [b"[]", b"5", b"null", b'"text"', b"{}"])
def test_other_json_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_members(raw)
