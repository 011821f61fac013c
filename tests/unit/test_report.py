"""From findings to incidents."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import Func
from schemas.ids import hex_id
from schemas.incidents import Incident, from_json
from streams.diagnosis import diagnose
from streams.report import Occasion, incidents
from tests.records import LAUNCHED_NS, Told, comm_of, dev_of
from tests.unit.test_diagnosis import never_launched

OCCASION = Occasion("job", "1", 11, 22, 1_500_000_000)


def reported(told: Told, occasion: Occasion = OCCASION) -> list[Incident]:
    return incidents(occasion, told.judged().facts, told.findings(blind="p2p" in occasion.blind))


def late(seq: int = 5, comm: str = "tp") -> Told:
    """World ranks 4, 6 and 9, of which 9 is late."""
    told = Told({comm: (4, 6, 9)})
    for rank in (4, 6):
        told.state(rank, comm, seq)
        told.at(rank, comm, seq, seq - 1)
    told.at(9, comm, seq - 1, seq - 1)
    return told


def hung() -> Told:
    told = Told({"tp": (4, 6, 9)})
    for rank in (4, 6):
        told.at(rank, "tp", 5, 5)
    told.state(9, "tp", 5)
    told.at(9, "tp", 5, 4)
    return told


def silent() -> Told:
    told = Told({"tp": (4, 6, 9)}, silent=[9])
    for rank in (4, 6):
        told.state(rank, "tp", 5)
        told.at(rank, "tp", 5, 4)
    return told


def different() -> Told:
    told = Told({"tp": (4, 6, 9)})
    for rank in told.ranks:
        told.done(rank, "tp", 5)["count"] = 1 if rank == 9 else 2
        told.at(rank, "tp", 5, 5)
    return told


def crossed() -> Told:
    told = Told({"a": (4, 9), "b": (4, 9)})
    for rank, stands, lacks in ((4, "a", "b"), (9, "b", "a")):
        told.state(rank, stands, 3)
        told.at(rank, stands, 3, 2)
        told.at(rank, lacks, 2, 2)
    return told


def together() -> Told:
    told = Told({"tp": (4, 6, 9)})
    for rank in told.ranks:
        told.state(rank, "tp", 5)
        told.at(rank, "tp", 5, 4)
    return told


CASES = {
    "late-launch": late, "gpu-hang": hung, "host-silent": silent, "mismatch": different, "deadlock": crossed,
    "unknown": together,
}  # fmt: skip


@pytest.mark.parametrize("category", CASES)
def test_category_and_severity(category: str) -> None:
    (incident,) = reported(CASES[category]())
    assert incident.category == category
    assert incident.severity == ("warning" if category == "mismatch" else "critical")
    assert (incident.kind, incident.state, incident.revision, incident.closed) == ("stall", "open", 1, None)
    assert (incident.job, incident.attempt) == ("job", "1")
    assert incident.detected == "1970-01-01T00:00:01.500000Z"
    assert incident.would_decide
    assert from_json(incident.to_json()) == incident


@pytest.mark.parametrize("category", CASES)
def test_the_culprit_is_named_by_its_world_rank(category: str) -> None:
    (incident,) = reported(CASES[category]())
    named = incident.culprits or incident.candidates
    assert 9 in [node.rank for node in named]
    assert "9" in incident.summary
    if incident.culprits:
        assert [node.rank for node in incident.culprits] == [9]
        # Rank within the communicator: never said in words.
        assert "rank 2" not in incident.summary


@pytest.mark.parametrize(
    ("category", "waiting"),
    [
        ("late-launch", 2),
        ("gpu-hang", 0),
        ("host-silent", 2),
        ("mismatch", 0),
        ("deadlock", 2),
        ("unknown", 3),
    ],
)
def test_how_many_wait(category: str, waiting: int) -> None:
    (incident,) = reported(CASES[category]())
    assert incident.waiting == waiting
    assert (f"; {waiting} ranks wait" in incident.summary) == (waiting > 0)


def test_one_that_waits() -> None:
    told = Told({"tp": (4, 9)})
    told.state(4, "tp", 5)
    told.at(4, "tp", 5, 4)
    told.at(9, "tp", 4, 4)
    (incident,) = reported(told)
    assert incident.summary == "Rank 9 on n9 never launched what the others wait in; 1 rank waits."


def test_a_late_rank_in_full() -> None:
    (incident,) = reported(late())
    assert incident.summary == "Rank 9 on n9 never launched what the others wait in; 2 ranks wait."
    assert incident.confidence == "proven"
    assert incident.candidates == ()
    (node,) = incident.culprits
    assert (node.kind, node.rank, node.dev, node.host) == ("device", 9, hex_id(dev_of(9)), "n9")
    assert node.ranks == {hex_id(comm_of("tp")): 2}
    assert incident.chain == (
        "rank 4 on n4 waits for rank 9 on n9 in AllReduce 5 of tp: "
        "rank 9 on n9 never launched it (its last there is 4)",
    )
    assert incident.evidence == (
        "AllReduce 5 of tp: rank 9 on n9 never launched it (its last there is 4); 2 of 3 members launched it",
    )
    assert incident.ruled_out == ("the 2 ranks that wait: each stands in an operation that others hold up",)
    assert incident.since == "2023-11-14T22:13:20.000000Z"
    assert "py-spy" in incident.would_decide[0]


def test_chain_is_told_link_by_link() -> None:
    told = Told({"a": (0, 1), "b": (1, 2), "c": (2, 3)})
    for low, comm in enumerate("abc"):
        told.state(low, comm, 8)
        told.at(low, comm, 8, 7)
        told.at(low + 1, comm, 7, 7)
    (incident,) = reported(told)
    assert [line.split(" in ")[0] for line in incident.chain] == [
        "rank 0 on n0 waits for rank 1 on n1",
        "rank 1 on n1 waits for rank 2 on n2",
        "rank 2 on n2 waits for rank 3 on n3",
    ]
    assert "rank 3" in incident.chain[-1]


def test_candidates_are_sorted_and_the_doubt_is_explained() -> None:
    told = Told({"tp": (9, 6, 4)})
    told.state(9, "tp", 5)
    told.at(9, "tp", 5, 4)
    for rank in (6, 4):
        told.at(rank, "tp", 4, 4)
    (incident,) = reported(told)
    assert incident.culprits == ()
    assert [node.rank for node in incident.candidates] == [4, 6]
    assert incident.confidence == "candidates"
    assert incident.summary.startswith("One or more of ranks 4 and 6 never launched")
    assert "cannot be told apart" in incident.summary
    assert "ranks 4 and 6 have nothing pending" in incident.would_decide[0]


def test_a_blind_source_says_that_it_is_blind() -> None:
    told = Told({"a": (1, 50), "b": (2, 51)})
    for waiter, idle, comm in ((50, 1, "a"), (51, 2, "b")):
        told.state(waiter, comm, 3)
        told.at(waiter, comm, 3, 2, order=9)
        told.at(idle, comm, 2, 2, order=7)
    (incident,) = reported(told, replace(OCCASION, blind=("p2p",)))
    assert [node.rank for node in incident.candidates] == [1, 2]
    assert "records no point-to-point operations" in incident.would_decide[0]
    # The same job of a source that sees all: two culprits.
    assert [[node.rank for node in each.culprits] for each in reported(told)] == [[1], [2]]


def test_idle_ranks_ahead_are_ruled_out_in_words() -> None:
    told = Told({"a": (1, 50), "b": (2, 51)})
    for waiter, idle, comm, order in ((50, 1, "a", 5), (51, 2, "b", 7)):
        told.state(waiter, comm, 3)
        told.at(waiter, comm, 3, 2, order=9)
        told.at(idle, comm, 2, 2, order=order)
    (incident,) = reported(told, replace(OCCASION, blind=("p2p",)))
    assert [node.rank for node in incident.culprits] == [1]
    assert incident.waiting == 2
    assert incident.ruled_out[1].startswith("the 2 ranks that wait: each stands in an operation")
    assert incident.ruled_out[0] == (
        "rank 2 on n2 is idle too, but ahead: launched more operations than rank 1 on n1"
    )


def test_missing_partitions_and_lost_messages_are_said() -> None:
    (incident,) = reported(late(), replace(OCCASION, missing=(1, 3), lost=7))
    assert incident.evidence[-2:] == (
        "incomplete: nothing came from trace partitions 1, 3 in time",
        "incomplete: 7 messages of the snapshot never arrived",
    )
    (incident,) = reported(late(), replace(OCCASION, missing=(1, 3), unread=(3,)))
    assert incident.evidence[-1] == (
        "incomplete: nothing came from trace partitions 1, 3 in time; no worker reads 3"
    )
    (whole,) = reported(late())
    assert not any("incomplete" in line for line in whole.evidence)
    assert whole.id == incident.id


def test_held_by_something_of_which_no_record_arrived() -> None:
    told = Told({"tp": (4, 9)})
    told.state(4, "tp", 5)
    told.at(4, "tp", 5, 4)
    told.state(9, "tp", 5, current=0)
    told.at(9, "tp", 5, 4)
    (incident,) = reported(told)
    assert incident.culprits == ()
    assert "something unrecorded holds it" in incident.summary
    assert "all stand" not in incident.summary


def test_nothing_found() -> None:
    told = Told({"tp": (0, 1)})
    told.at(0, "tp", 5, 5)
    told.at(1, "tp", 5, 5)
    assert reported(told) == []


def test_unknown_facts_are_null() -> None:
    told = late()
    found = told.findings()
    (incident,) = incidents(OCCASION, type(told.judged().facts)(), found)
    (node,) = incident.culprits
    assert (node.rank, node.host, node.pid, node.gpu, node.ranks) == (None, None, None, None, {})
    assert node.dev == hex_id(dev_of(9))


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(sorted(CASES)), st.randoms(use_true_random=False))
def test_order_of_records_changes_nothing(category: str, random: Random) -> None:
    told = CASES[category]()
    before = reported(told)
    random.shuffle(told.rows)
    assert reported(told) == before


def test_id_does_not_depend_on_what_may_change() -> None:
    (incident,) = reported(late())
    (later,) = reported(late(), replace(OCCASION, detected=OCCASION.detected + 10**9, missing=(2,)))
    assert later.id == incident.id
    # One more rank waits in the same operation, one more communicator is held up behind it.
    told = late()
    told.comms["behind"] = (4, 7)
    told.state(7, "behind", 1)
    told.at(7, "behind", 1, 0)
    told.at(4, "behind", 0, 0)
    (more,) = reported(told)
    assert more.waiting == incident.waiting + 1
    assert more.id == incident.id


def test_ids_differ_where_the_case_differs() -> None:
    ids = [
        reported(late())[0].id,
        reported(late(seq=6))[0].id,
        reported(late(comm="dp"))[0].id,
        reported(late(), replace(OCCASION, attempt_id=23))[0].id,
        reported(late(), replace(OCCASION, job_id=12))[0].id,
    ]
    assert len(set(ids)) == len(ids)
    assert all(len(each) == 16 for each in ids)


def test_incidents_of_one_judgement_have_different_ids() -> None:
    """A mismatch and those who hang in the operation itself share the operation, not the id."""
    told = late()
    for rank in told.ranks:
        told.done(rank, "tp", 3)["count"] = 1 if rank == 4 else 2
    found = reported(told)
    assert [each.category for each in found] == ["late-launch", "mismatch"]
    assert len({each.id for each in found}) == 2


def test_since_is_the_launch_of_the_stalled_operation() -> None:
    told = late()
    for row in told.rows:
        row["launched"] = LAUNCHED_NS - 500_000_000
    (incident,) = reported(told)
    assert incident.since == "2023-11-14T22:13:19.500000Z"
    for row in told.rows:
        row["launched"] = 0
    (incident,) = reported(told)
    assert incident.since is None


def test_one_candidate_is_not_spoken_of_as_several() -> None:
    told = never_launched()
    judged = told.judged()
    found = diagnose(judged.waits, incomplete=True)
    (incident,) = incidents(Occasion("j", "1", 1, 2, 3), judged.facts, found)
    assert "cannot be told apart" not in incident.summary
    assert "One or more of rank" not in incident.summary


def test_a_different_root_is_said() -> None:
    told = Told({"w": (0, 1, 2)})
    for r in range(3):
        told.state(r, "w", 5, func=Func.BROADCAST)["peer"] = 1 if r == 2 else 0
    (incident,) = incidents(Occasion("j", "1", 1, 2, 3), told.judged().facts, told.findings())
    assert any("root" in line for line in incident.evidence), incident.evidence
