"""The dataclass and the published schema say the same."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, FormatChecker

from schemas.incidents import Incident, Node, alert_schema, decode_incident, from_json, iso_time
from schemas.malformed import Malformed

FORMATS = FormatChecker(formats=[])
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def _is_date_time(value: object) -> bool:
    if not isinstance(value, str):
        return True
    if not _RFC3339.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


FORMATS.checks("date-time")(_is_date_time)
VALIDATOR = Draft202012Validator(alert_schema(), format_checker=FORMATS)


def options(name: str) -> list[str]:
    """Allowed values of a field."""
    values: list[str] = alert_schema()["properties"][name]["enum"]
    return values


hexes = st.integers(0, 2**64 - 1).map(lambda value: f"{value:016x}")
texts = st.text(max_size=10)
some_texts = st.lists(texts, max_size=3).map(tuple)
maybe = st.none() | st.integers(-(2**31), 2**31)
times = st.integers(0, 4_000_000_000_000_000_000).map(iso_time)
nodes = st.builds(
    Node, st.sampled_from(["device", "host", "link"]), maybe,
    st.dictionaries(hexes, st.integers(0, 2**31), max_size=3), st.none() | hexes, st.none() | texts, maybe,
    maybe, st.none() | texts, maybe, maybe,
)  # fmt: skip
some_nodes = st.lists(nodes, max_size=2).map(tuple)
incidents = st.builds(
    Incident, id=hexes, job=texts, attempt=texts, kind=st.sampled_from(options("kind")),
    category=st.sampled_from(options("category")), severity=st.sampled_from(options("severity")),
    confidence=st.sampled_from(options("confidence")), summary=texts, culprits=some_nodes,
    candidates=some_nodes, waiting=st.integers(0, 2**31), chain=some_texts, evidence=some_texts,
    ruled_out=some_texts, would_decide=some_texts, since=st.none() | times, detected=times,
    revision=st.integers(1, 2**31), state=st.sampled_from(options("state")), closed=st.none() | times,
)  # fmt: skip
INCIDENT = Incident(
    id="00000000000000ab", job="j", attempt="1", kind="stall", category="late-launch", severity="critical",
    confidence="proven", summary="rank 3", culprits=(Node("device", 3),), candidates=(), waiting=7, chain=(),
    evidence=(), ruled_out=(), would_decide=(), since=None, detected=iso_time(0),
)  # fmt: skip


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(alert_schema())


@given(incidents)
def test_every_incident_validates(incident: Incident) -> None:
    VALIDATOR.validate(incident.to_json())


@given(incidents)
def test_round_trip(incident: Incident) -> None:
    assert from_json(incident.to_json()) == incident
    assert from_json(json.loads(json.dumps(incident.to_json()))) == incident


def names(record: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(record)}


def test_fields_are_those_of_the_schema() -> None:
    schema = alert_schema()
    node = schema["$defs"]["node"]
    assert names(Incident) == set(schema["properties"]) == set(schema["required"])
    assert names(Node) == set(node["properties"]) == set(node["required"])
    assert set(INCIDENT.to_json()) == names(Incident)
    assert set(INCIDENT.to_json()["culprits"][0]) == names(Node)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "ab"}, {"id": "00000000000000AB"}, {"revision": 0}, {"waiting": -1}, {"waiting": None},
        {"category": "slow"}, {"severity": "bad"}, {"confidence": "sure"}, {"kind": "hang"},
        {"detected": None}, {"detected": "yesterday"}, {"detected": "2026-13-01T00:00:00Z"},
        {"since": "2026-01-01"}, {"closed": 5}, {"extra": 1}, {"culprits": [{"kind": "device"}]},
        {"chain": [1]}, {"state": "gone"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_incident_does_not_validate(change: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(INCIDENT.to_json())
    assert not VALIDATOR.is_valid({**INCIDENT.to_json(), **change})


@pytest.mark.parametrize("name", sorted(INCIDENT.to_json()))
def test_every_field_is_required(name: str) -> None:
    assert not VALIDATOR.is_valid({key: value for key, value in INCIDENT.to_json().items() if key != name})


@pytest.mark.parametrize("body", [{}, {"id": "x"}, {**INCIDENT.to_json(), "extra": 1}])
def test_from_json_refuses_what_is_no_incident(body: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        from_json(body)


@given(incidents)
def test_alerts_are_read_back(incident: Incident) -> None:
    assert decode_incident(json.dumps(incident.to_json())) == incident
    assert decode_incident(json.dumps(incident.to_json()).encode()) == incident


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"5", b"null", b"\xff", b'{"a":' * 100_000, b'{"chain": 5}']
)
def test_what_is_no_alert_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        decode_incident(raw)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (999, "1970-01-01T00:00:00.000000Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (1_500_000_000, "1970-01-01T00:00:01.500000Z"),
        (951_782_400_000_000_000, "2000-02-29T00:00:00.000000Z"),
        (1_699_999_999_999_999_999, "2023-11-14T22:13:19.999999Z"),
    ],
)
def test_iso_time(nanoseconds: int, text: str) -> None:
    assert iso_time(nanoseconds) == text


@given(st.integers(0, 4_000_000_000 * 10**9))
def test_iso_time_is_read_back(nanoseconds: int) -> None:
    moment = datetime.fromisoformat(iso_time(nanoseconds).replace("Z", "+00:00"))
    assert moment.tzinfo == timezone.utc
    whole = int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond
    assert whole == nanoseconds // 1000


@given(st.lists(st.integers(0, 4_000_000_000 * 10**9), min_size=2, max_size=2))
def test_iso_times_sort_as_times(pair: list[int]) -> None:
    early, late = sorted(pair)
    assert iso_time(early) <= iso_time(late)
