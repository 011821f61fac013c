"""What hosts say of themselves decides, or does not: each rule with the fact, without it, and elsewhere.

What waits here last moved 4 s before the look, so a cause is at most 9 s old.
"""

from __future__ import annotations

import pytest

from schemas.incidents import Incident
from schemas.records import Records
from streams.live.cases import LiveCases
from streams.live.watch import epochs, found_in
from tests.live_jobs import NOW, RULES, LiveJob, Told, pairs
from tests.rings import RingModel
from tests.unit.test_live_diagnosis import late
from tests.unit.test_live_rings import by_two, one_a_host, told

DEAD = (8, 8, 6), (10, 6, 6)
BOTH_ENDS = Told("link", "candidates", (), (0, 1))


def incident_of(job: LiveJob) -> Incident:
    cases = LiveCases(1, 3.0)
    for message in epochs(job.board(), 0, int(NOW), NOW):
        cases.take(message, NOW)
    (case,) = cases.close()
    (incident,) = found_in(case, NOW, RULES)
    return incident


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("h000", Told("nic-send", "proven", (0,))),
        ("h001", Told("nic-recv", "proven", (1,))),
        ("h002", BOTH_ENDS),  # a bystander
    ],
)
def test_a_lost_carrier_decides_which_end_of_a_link(host: str, wanted: Told) -> None:
    job = pairs((0, 1, *DEAD))
    assert job.told() == [BOTH_ENDS]
    job.lost(host)
    assert job.told() == [wanted]


def test_between_two_lost_carriers_nothing_is_decided() -> None:
    job = pairs((0, 1, *DEAD))
    job.lost("h000")
    job.lost("h001", "ib0")
    assert job.told() == [BOTH_ENDS]


@pytest.mark.parametrize(("age", "decides"), [(0.5, True), (8.9, True), (9.1, False), (None, False)])
def test_a_carrier_lost_before_the_wire_last_moved_is_not_its_own(age: float | None, decides: bool) -> None:
    job = pairs((0, 1, *DEAD))
    job.lost("h001", age=age)
    assert job.told() == [Told("nic-recv", "proven", (1,)) if decides else BOTH_ENDS]


def test_a_carrier_that_is_there_again_says_nothing() -> None:
    job = pairs((0, 1, *DEAD))
    job.lost("h001")
    job.lost("h001", up=True, age=0.1)
    assert job.told() == [BOTH_ENDS]


def test_the_words_name_the_interface() -> None:
    job = pairs((0, 1, *DEAD))
    job.lost("h001", "eth3")
    incident = incident_of(job)
    assert incident.evidence[0] == "h001 has lost the carrier of its interface eth3"
    assert "Rank 1 on h001 does not receive" in incident.summary
    job = pairs((1, 0, *DEAD))
    job.lost("h001", "eth3")
    assert "Rank 1 on h001 does not send" in incident_of(job).summary


def test_the_carrier_of_an_end_with_two_dead_links() -> None:
    """Two dead links that share host 1 name it; which end it is says its carrier, or that of another."""
    job = pairs((1, 0, *DEAD), (1, 2, *DEAD))
    job.lost("h001")
    assert job.told() == [Told("nic-send", "proven", (1,))]
    job = pairs((1, 0, *DEAD), (1, 2, *DEAD))
    job.lost("h002")
    assert sorted(job.told(), key=lambda each: each.category) == [
        Told("link", "candidates", (), (0, 1)),
        Told("nic-recv", "proven", (2,)),
    ]


def test_the_carrier_of_a_sender_with_data_and_credit() -> None:
    """On sockets it is the sender already: its carrier proves it, that of its peer does not."""
    for host, sure in (("h000", "proven"), ("h001", "likely")):
        job = pairs((0, 1, (8, 6, 6), (10, 6, 6)))
        job.lost(host)
        assert job.told() == [Told("nic-send", sure, (0,))]


def test_a_carrier_where_no_wire_is_dead_changes_nothing() -> None:
    job = late()
    job.lost("h002")
    assert job.told() == [Told("late-launch", "proven", (2,))]


def test_a_ring_with_a_nic_down() -> None:
    job = one_a_host()
    job.lost("h002")
    model = RingModel(range(4), job.host, cut=1, cut_at=3, buffered=2)
    assert told(model, job) == [Told("nic-recv", "proven", (2,))]


INNER = Told("gpu-hang", "candidates", (), (1, 2))


def frozen_inside() -> tuple[LiveJob, RingModel]:
    job = by_two()
    return job, RingModel(range(8), job.host, frozen=1, stops_at=20)


@pytest.mark.parametrize(
    ("rank", "code", "age", "wanted"),
    [
        (1, 79, 4.0, Told("gpu-hang", "proven", (1,))),
        (1, 79, 8.9, Told("gpu-hang", "proven", (1,))),
        (1, 79, 9.1, INNER),  # before what waits last moved
        (1, 63, 4.0, INNER),  # a row was remapped: the GPU goes on
        (3, 79, 4.0, INNER),  # on the same host, but no candidate
        (6, 79, 4.0, INNER),  # on a bystander host
    ],
)
def test_an_xid_proves_one_of_several_candidates(rank: int, code: int, age: float, wanted: Told) -> None:
    job, model = frozen_inside()
    job.xid(rank, code, age=age)
    assert told(model, job) == [wanted]


def test_an_xid_of_a_gpu_that_is_none_of_the_jobs() -> None:
    job, model = frozen_inside()
    job.xid(1, own=False)
    assert told(model, job) == [INNER]


def test_an_xid_proves_a_likely_culprit_and_is_named() -> None:
    job = one_a_host()
    RingModel(range(4), job.host, frozen=2, stops_at=10).run().tell(job, "dp", 21)
    assert job.told() == [Told("gpu-hang", "likely", (2,))]
    job.xid(2, 119)
    assert job.told() == [Told("gpu-hang", "proven", (2,))]
    assert incident_of(job).evidence[0] == "the kernel log of h002 has Xid 119 of the GPU at 0000:02:00"


def test_who_does_not_launch_because_its_gpu_is_gone() -> None:
    job = late()
    job.xid(2)
    assert job.told() == [Told("gpu-hang", "proven", (2,))]
    job = late()
    job.xid(1)  # a victim's
    assert job.told() == [Told("late-launch", "proven", (2,))]


def test_of_a_dead_process_it_only_tells_of_what_it_may_have_died() -> None:
    job = late(age=2.0, quiet=1.5)
    job.process(2, alive=False)
    job.xid(2, 31)
    incident = incident_of(job)
    assert (incident.category, incident.confidence) == ("process-dead", "proven")
    assert incident.evidence[0] == "the kernel log of h002 has Xid 31 of the GPU at 0000:02:00"


def test_facts_are_forgotten_and_grow_older() -> None:
    """Told once at NOW: a minute later it is 64 s old, after ten minutes it is not passed on."""
    job = late()
    job.lost("h001")
    board = job.board()
    key = board.jobs(NOW)[0]

    def facts(later: float) -> Records:
        return board.facts(*key, NOW + later)

    assert facts(60.0)["age_us"].tolist() == [64_000_000]
    assert facts(599.0)["age_us"].tolist() == [603_000_000]
    assert len(facts(601.0)) == 0
