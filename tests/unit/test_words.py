"""Sentences: world ranks, right numbers, and only what the records say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from schemas.enums import DataType, Func, Reason
from schemas.ids import hex_id
from schemas.members import Member
from schemas.records import WAIT, Records
from streams.facts import CommFacts, Facts, decode, encode, gather
from streams.words import MAX_NAMED, Words
from tests.records import Told, comm_of, dev_of


def words(told: Told, waits: Records | None = None) -> Words:
    judged = told.judged()
    return Words(judged.facts, judged.waits if waits is None else waits)


def names(ranks: list[int], host: str | None = None) -> Words:
    """Words about devices alone."""
    facts = Facts({dev_of(rank): Member(0, dev_of(rank), world_rank=rank, host=host) for rank in ranks})
    return Words(facts, WAIT.empty(0))


def test_devices_by_world_rank_and_host() -> None:
    assert names([5]).device(dev_of(5)) == "rank 5"
    assert names([5], "n3").device(dev_of(5)) == "rank 5 on n3"


def test_a_device_of_which_nothing_is_known() -> None:
    assert names([]).device(0xAB) == "device 00000000000000ab"
    unknown_rank = Words(Facts({0xAB: Member(0, 0xAB)}), WAIT.empty(0))
    assert unknown_rank.device(0xAB) == "device 00000000000000ab"


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([5], "rank 5"),
        ([6, 2], "ranks 2 and 6"),
        ([3, 1, 2], "ranks 1, 2 and 3"),
        (list(range(MAX_NAMED)), "ranks 0, 1, 2, 3, 4, 5, 6 and 7"),
        (list(range(128)), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 120 more"),
    ],
)
def test_several_devices(ranks: list[int], text: str) -> None:
    assert names(ranks).devices(dev_of(rank) for rank in ranks) == text


def test_devices_of_unknown_rank_are_not_left_out() -> None:
    text = names([5]).devices([dev_of(5), 0xAB])
    assert text == "rank 5 and device 00000000000000ab"


def late() -> Told:
    """World ranks 4, 6 and 9: 9 is late in AllGather 5, its last is 3."""
    told = Told({"tp": (4, 6, 9)})
    for rank in (4, 6):
        told.state(rank, "tp", 5, func=Func.ALL_GATHER)
        told.at(rank, "tp", 5, 4)
    told.at(9, "tp", 3, 3)
    return told


def only(waits: Records, reason: Reason) -> Any:
    (row,) = waits[waits["reason"] == reason]
    return row


def test_operations() -> None:
    told = late()
    assert words(told).operation(told.waits()[0]) == "AllGather 5 of tp"


def test_an_operation_of_an_unknown_communicator() -> None:
    text = Words(Facts(), WAIT.empty(0)).operation(late().waits()[0])
    assert text == f"AllGather 5 of communicator {hex_id(comm_of('tp'))}"


def test_sends_name_both_ends_by_world_rank() -> None:
    told = Told({"pipe": (4, 8)})
    told.half(8, Func.RECV, 4, "pipe", 7)
    told.pair(4, 8, "pipe", 6, 7, 6)
    assert words(told).operation(told.waits()[0]) == "the send from rank 4 on n4 to rank 8 on n8 in pipe"


def test_a_late_link() -> None:
    told = late()
    (finding,) = told.findings().found
    (link,) = finding.chain
    assert words(told, told.findings().waits).link(link) == (
        "rank 4 on n4 waits for rank 9 on n9 in AllGather 5 of tp: "
        "rank 9 on n9 never launched it (its last there is 3)"
    )


def test_late_evidence_counts_who_launched() -> None:
    told = late()
    (finding,) = told.findings().found
    assert words(told, told.findings().waits).evidence(finding) == [
        "AllGather 5 of tp: rank 9 on n9 never launched it (its last there is 3); 2 of 3 members launched it"
    ]


def test_what_peers_have_finished() -> None:
    told = Told({"tp": (4, 6, 9)})
    told.at(4, "tp", 5, 5)
    told.at(9, "tp", 5, 5)
    told.state(6, "tp", 5)
    told.at(6, "tp", 5, 4)
    (finding,) = told.findings().found
    said = words(told, told.findings().waits)
    assert said.holding(only(told.waits(), Reason.PEERS_FINISHED)) == (
        "has not finished it, though 2 of 3 members finished it"
    )
    assert said.verdict(finding) == []


def test_queued() -> None:
    told = Told({"tp": (0, 1, 2)})
    told.state(0, "tp", 5)
    told.state(1, "tp", 5, current=0)
    told.state(2, "tp", 5, current=2)
    for rank in told.ranks:
        told.at(rank, "tp", 5, 4)
    said = {
        int(row["holder_rank"]): words(told).holding(row)
        for row in told.waits()
        if row["reason"] == Reason.QUEUED
    }
    assert said == {
        1: "launched it but is held by an older operation",
        2: "launched it but may still be held by an older operation",
    }


def test_silent() -> None:
    told = Told({"tp": (0, 1)}, silent=[1])
    told.state(0, "tp", 5)
    told.at(0, "tp", 5, 4)
    assert words(told).holding(only(told.waits(), Reason.SILENT)) == "left no record"


def test_mismatch() -> None:
    told = Told({"tp": (0, 1, 2)})
    for rank in told.ranks:
        told.state(rank, "tp", 5)["count"] = 1024
    row = told.rows[1]
    row["count"], row["func"], row["datatype"] = 512, Func.ALL_GATHER, DataType.BFLOAT16
    assert words(told).holding(only(told.judged().waits, Reason.MISMATCH)) == (
        "called AllGather and passed 512 elements instead of 1024 and passed bfloat16 instead of float32"
    )


def test_all_stand() -> None:
    told = Told({"tp": (0, 1, 2)})
    for rank in told.ranks:
        told.state(rank, "tp", 5)
        told.at(rank, "tp", 5, 4)
    (finding,) = told.findings().found
    said = words(told, told.findings().waits)
    assert said.evidence(finding) == ["AllReduce 5 of tp: all 3 members launched it, none finished it"]


def test_evidence_is_bounded() -> None:
    """Rank 0 is late in ten communicators."""
    told = Told({f"c{rank:02}": (0, rank) for rank in range(1, 11)})
    for rank in range(1, 11):
        told.state(rank, f"c{rank:02}", 2)
        told.at(rank, f"c{rank:02}", 2, 1)
        told.at(0, f"c{rank:02}", 1, 1)
    (finding,) = told.findings().found
    lines = words(told, told.findings().waits).evidence(finding)
    assert len(lines) == MAX_NAMED + 1
    assert lines[-1] == "and 2 more records of the same kind"
    assert len(set(lines)) == len(lines)


def test_every_func_has_a_name() -> None:
    row = np.zeros(1, WAIT.dtype)
    row["sender"] = -1
    for func in Func:
        row["func"] = func
        assert Words(Facts(), row).operation(row[0])


def test_facts_survive_the_trip() -> None:
    told = late()
    facts = gather(told.announcements(), [dev_of(9), dev_of(4)], [comm_of("tp")])
    assert facts.comms == {comm_of("tp"): CommFacts("tp", 3)}
    assert facts.ranks == {dev_of(4): {comm_of("tp"): 0}, dev_of(9): {comm_of("tp"): 2}}
    read = decode(json.loads(json.dumps(encode(facts))))
    assert (read.comms, read.ranks) == (facts.comms, facts.ranks)
    assert {dev: (known.world_rank, known.host) for dev, known in read.devices.items()} == {
        dev_of(4): (4, "n4"), dev_of(9): (9, "n9"),
    }  # fmt: skip
    assert read.world_rank(dev_of(9)) == 9
    assert read.world_rank(1) is None


def test_facts_of_partitions_are_merged() -> None:
    told = Told({"a": (0, 1), "b": (1, 2)})
    one, other = (gather([each], [dev_of(1)], [each.comm]) for each in told.announcements())
    one.merge(other)
    assert one.ranks == {dev_of(1): {comm_of("a"): 1, comm_of("b"): 0}}
    assert set(one.comms) == {comm_of("a"), comm_of("b")}
