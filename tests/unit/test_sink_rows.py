"""Messages to rows."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from schemas.deadletters import DeadLetter, encode_dead_letter
from schemas.enums import Func, Kind, NodeKind, Reason, Visibility
from schemas.envelope import Envelope, MessageKind, decode, encode
from schemas.incidents import Incident, Node
from schemas.malformed import Malformed
from schemas.members import Announcement, Member, encode_members
from schemas.records import COLL, WAIT, Records, RecordType
from schemas.topics import ALERTS, DEAD, MEMBERS, TOPICS, TRACE, VERDICTS, WAITS, Topic
from schemas.verdicts import Verdict, decode_verdict, encode_verdict
from streams.sink.losses import DROPS, Loss, Numbered, offset_gaps
from streams.sink.rows import Decoded, decode_message, loss_rows

AT = 1_700_000_000
INCIDENT = Incident(
    id="00000000000000ab", job="j", attempt="1", kind="stall", category="late-launch", severity="critical",
    confidence="proven", summary="rank 3",
    culprits=(Node("device", 3, host="h1"), Node("host", None, host="h1")),
    candidates=(), waiting=7, chain=("a",), evidence=(), ruled_out=(), would_decide=(),
    since="2026-01-02T03:04:05.000006Z", detected="2026-01-02T05:04:05.500000+02:00",
)  # fmt: skip
ANNOUNCEMENT = Announcement(
    job="j", job_id=2**64 - 1, attempt="a", attempt_id=5, comm=2**63, name="tp", source="h",
    nranks=2, nnodes=None,
    members=(Member(0, 2**64 - 2, world_rank=4, host="h"), Member(1, 9, silent=True)),
)  # fmt: skip
VERDICT = Verdict("j", "a", "s", 12, "2026-01-02T03:04:05.000006Z", ("ab",), (2, 3), 4)


def coll(rows: int) -> Records:
    records = COLL.empty(rows)
    records["seq"] = np.arange(rows)
    records["kind"], records["func"], records["visibility"] = Kind.DONE, Func.ALL_REDUCE, Visibility.COMPLETE
    return records


def waits(rows: int) -> Records:
    records = WAIT.empty(rows)
    records["reason"], records["waiter_kind"], records["holder_kind"] = (
        Reason.SILENT,
        NodeKind.OPERATION,
        NodeKind.DEVICE,
    )
    return records


def packed(sections: dict[str, Records]) -> bytes:
    return encode(Envelope(MessageKind.FLUSH, job=1, sections=sections))


def json_rows(decoded: Decoded) -> list[dict[str, Any]]:
    assert [rows.format for rows in decoded.rows] == ["JSONEachRow"]
    return [json.loads(line) for line in decoded.rows[0].data.splitlines()]


@pytest.mark.parametrize(("topic", "record", "rows"), [(TRACE, COLL, coll(3)), (WAITS, WAIT, waits(2))])
def test_records_stay_as_they_are(topic: Topic, record: RecordType, rows: Records) -> None:
    (table,) = decode_message(topic.name, packed({record.name: rows}), AT).rows
    assert (table.table, table.format) == (record.table, "RowBinary")
    assert table.columns == (*(field.name for field in record.fields), "ingested")
    wide = np.dtype([("known", record.dtype), ("ingested", "<u4")])
    back = np.frombuffer(table.data, wide)
    assert (back["known"] == rows).all()
    assert (back["ingested"] == AT).all()


def test_records_of_a_newer_writer_lose_only_what_is_not_known() -> None:
    rows = coll(2)
    wide = np.zeros(2, np.dtype([("known", COLL.dtype), ("new", "<u8")]))
    wide["known"] = rows
    raw = packed({"coll": rows})
    section = len(raw) - rows.nbytes - 8
    raw = (
        raw[:section]
        + bytes([1, 0])
        + (COLL.dtype.itemsize + 8).to_bytes(2, "little")
        + raw[section + 4 : section + 8]
    )
    (table,) = decode_message(TRACE.name, raw + wide.tobytes(), AT).rows
    assert table.data[: COLL.dtype.itemsize] == rows[:1].tobytes()
    assert len(table.data) == 2 * (COLL.dtype.itemsize + 4)


def test_a_message_without_records_has_no_rows() -> None:
    nothing = Decoded(numbered=Numbered("", 0, 0))
    assert decode_message(TRACE.name, packed({}), AT) == nothing
    assert decode_message(TRACE.name, packed({"coll": coll(0)}), AT) == nothing


def test_rows_with_unknown_codes_are_set_aside_alone() -> None:
    rows = coll(4)
    rows["kind"][1], rows["func"][2] = 77, 99
    decoded = decode_message(TRACE.name, packed({"coll": rows}), AT)
    assert len(decoded.rows[0].data) == 2 * (COLL.dtype.itemsize + 4)
    assert decoded.refused is not None
    assert decoded.refused.reason == (
        "2 of 4 coll records have unknown codes (kind 77; func 99); the payload has only these"
    )
    again = decode(decoded.refused.payload)
    assert again.job == 1
    assert again.sections["coll"]["seq"].tolist() == [1, 2]


def test_members_are_one_row_each() -> None:
    first, second = json_rows(decode_message(MEMBERS.name, encode_members(ANNOUNCEMENT), AT))
    assert (first["job"], first["dev"], first["world_rank"], first["host"]) == (2**64 - 1, 2**64 - 2, 4, "h")
    assert (second["rank"], second["silent"], second["host"], second["ingested"]) == (1, 1, None, AT)
    assert decode_message(MEMBERS.name, None, AT) == Decoded()


def test_an_incident_is_one_row_with_the_whole_alert() -> None:
    body = json.dumps(INCIDENT.to_json()).encode()
    (row,) = json_rows(decode_message(ALERTS.name, body, AT))
    assert (row["id"], row["culprits"], row["candidates"], row["hosts"]) == (
        INCIDENT.id,
        [3, None],
        [],
        ["h1"],
    )
    assert (row["since"], row["detected"], row["closed"]) == (
        "2026-01-02 03:04:05.000006",
        "2026-01-02 03:04:05.500000",
        None,
    )
    assert json.loads(row["incident"]) == INCIDENT.to_json()


def test_a_verdict_is_one_row() -> None:
    assert decode_verdict(encode_verdict(VERDICT)) == VERDICT
    (row,) = json_rows(decode_message(VERDICTS.name, encode_verdict(VERDICT), AT))
    assert (row["snapshot"], row["incidents"], row["missing"], row["lost"]) == ("s", ["ab"], [2, 3], 4)


def test_dead_letters_of_others_are_stored_and_its_own_are_not() -> None:
    letter = DeadLetter("nccl.trace", 3, 9, "worker", "why", b"\x00\xff")
    (row,) = json_rows(decode_message(DEAD.name, encode_dead_letter(letter), AT))
    assert (row["topic"], row["partition"], row["offset"], row["stage"]) == ("nccl.trace", 3, 9, "worker")
    assert base64.b64decode(row["payload"]) == b"\x00\xff"
    own = encode_dead_letter(replace(letter, stage="sink"))
    assert decode_message(DEAD.name, own, AT) == Decoded()


def altered(raw: bytes, **changes: object) -> bytes:
    return json.dumps({**json.loads(raw), **changes}).encode()


ALERT = json.dumps(INCIDENT.to_json()).encode()


@pytest.mark.parametrize(
    ("topic", "value", "reason"),
    [
        *((topic.name, b"\x00garbage", "") for topic in TOPICS),
        *((topic.name, b"", "") for topic in TOPICS),
        *((topic.name, b"[" * 100_000, "") for topic in TOPICS),
        *((topic.name, b"[1]", "") for topic in TOPICS),
        *((topic.name, b'"text"', "") for topic in TOPICS),
        *((topic.name, None, "no value") for topic in TOPICS if topic is not MEMBERS),
        (ALERTS.name, altered(ALERT, revision=-1), "revision -1 is not an integer from 0"),
        (ALERTS.name, altered(ALERT, id=7), "id is not text"),
        (ALERTS.name, altered(ALERT, detected="yesterday"), "'yesterday' is not a time"),
        (ALERTS.name, altered(ALERT, culprits=["x"]), "not an incident"),
        (ALERTS.name, altered(ALERT, culprits=[{"kind": "device", "rank": 2**31}]), "rank 2147483648 is not"),
        (VERDICTS.name, altered(encode_verdict(VERDICT), missing=[2**32]), "missing 4294967296 is not"),
        (VERDICTS.name, altered(encode_verdict(VERDICT), job=None), "field job is not text"),
        (
            MEMBERS.name,
            altered(encode_members(ANNOUNCEMENT), nranks=2**40),
            "field nranks is not a whole number",
        ),
        (MEMBERS.name, altered(encode_members(ANNOUNCEMENT), library=5), "library is not text"),
    ],
)
def test_what_cannot_be_read_says_why(topic: str, value: bytes | None, reason: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode_message(topic, value, AT)
    assert reason in str(caught.value)
    assert str(caught.value)


def test_only_a_flush_says_where_it_stands_among_its_source_s() -> None:
    flush = Envelope(MessageKind.FLUSH, source="h", sequence=7, drops=3, sections={"coll": coll(1)})
    assert decode_message(TRACE.name, encode(flush), AT).numbered == Numbered("h", 7, 3)
    bad = coll(1)
    bad["kind"] = 99
    refused = decode_message(TRACE.name, encode(replace(flush, sections={"coll": bad})), AT)
    assert refused.refused is not None
    assert refused.numbered == Numbered("h", 7, 3)
    for other in (MessageKind.IMPORT, MessageKind.EPOCH):
        assert decode_message(TRACE.name, encode(replace(flush, kind=other)), AT).numbered is None


def test_losses_have_a_row_each() -> None:
    losses = [*offset_gaps([(4, 2)]), Loss("h", DROPS, 5, 6)]
    rows = loss_rows("t", 3, losses, AT)
    assert rows.table == "losses"
    common = {"seen": "2023-11-14 22:13:20", "topic": "t", "partition": 3, "ingested": AT}
    assert [json.loads(line) for line in rows.data.splitlines()] == [
        common | {"source": "", "what": "offset-gap", "first": 4, "missing": 2},
        common | {"source": "h", "what": "drops", "first": 5, "missing": 6},
    ]
