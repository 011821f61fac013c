"""What an incident of slowness says."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest

from schemas.incidents import Incident, alert_schema
from schemas.members import Member
from streams.facts import Facts
from streams.report import Occasion
from streams.slow.blame import localise
from streams.slow.findings import Finding
from streams.slow.patterns import Pattern
from streams.slow.report import severity, slow_incident
from tests.unit.test_slow_blame import WORLD, alone, dev, lag, only, ring, two_hosts, window

OCCASION = Occasion("llama", "0.1", 1, 2, 1_700_000_000 * 10**9)
FACTS = Facts(devices={dev(rank): Member(rank, dev(rank), rank, f"host{rank}") for rank in range(8)})


def told(finding: Finding, opened: int = 5 * 10**9) -> Incident:
    found = slow_incident(OCCASION, FACTS, finding, opened, Pattern.PERSISTENT)
    jsonschema.validate(found.to_json(), alert_schema())
    return found


def late(lost: float) -> Finding:
    lags = [lag(WORLD, rank, dev(rank), 4, waited=0.0 if rank == 2 else lost) for rank in range(4)]
    return only(localise(window(lags), alone(4)))


def test_a_late_host() -> None:
    """3 s in ten steps of ten seconds, for which three wait."""
    found = told(late(3.0))
    assert (found.kind, found.category, found.severity, found.confidence) == (
        "slow", "late-launch", "warning", "likely",
    )  # fmt: skip
    assert [node.rank for node in found.culprits] == [2]
    assert found.summary == (
        "Rank 2 on host2 launches its operations late; 3 ranks lose 0.3 s a step to it, 30% of the time, "
        "all the time (0.9 device-seconds a step)."
    )
    assert found.evidence == ("rank 2 on host2 launched later than the others: 3.00 s, those like it 0.00 s",)
    assert found.since == "1970-01-01T00:00:05.000000Z"


def test_candidates_of_a_host() -> None:
    lags, flows, hosts = two_hosts()
    found = told(only(localise(window(lags, flows), hosts)))
    assert found.summary.startswith("One of ranks 4, 5, 6 and 7 takes late what has arrived")
    assert [node.rank for node in found.candidates] == [4, 5, 6, 7]
    assert "kernel tier" in found.would_decide[0]


def test_a_wire_is_told_with_its_direction() -> None:
    lags = [lag(WORLD, rank, dev(rank), 4) for rank in range(4)]
    found = told(only(localise(window(lags, ring(4, net={2: 5.0})), alone(4))))
    assert found.summary.startswith("What rank 2 on host2 sends to rank 3 on host3 passes slowly")
    assert "rank 2 on host2 had sends in the network to rank 3 on host3: 5.00 s" in found.evidence[0]


def test_one_slow_channel_is_named_with_its_number() -> None:
    finding = late(3.0)
    alone_slow = replace(finding, measures=(replace(finding.measures[0], channel=3),))
    assert [node.channel for node in told(alone_slow).culprits] == [3]
    assert [node.channel for node in told(finding).culprits] == [None]


@pytest.mark.parametrize(("lost", "loud"), [(0.6, "notice"), (1.0, "warning"), (5.0, "critical")])
def test_severity_is_the_part_of_the_time_that_is_lost(lost: float, loud: str) -> None:
    assert severity(late(lost), Pattern.PERSISTENT, 100.0) == loud


@pytest.mark.parametrize(
    ("spread", "lasted_s", "loud"),
    [
        (Pattern.PERSISTENT, 59.0, "notice"),  # a checkpoint of one rank looks the same
        (Pattern.PERSISTENT, 61.0, "critical"),
        (Pattern.UNKNOWN, 59.0, "notice"),
        (Pattern.ONCE, 300.0, "notice"),
        (Pattern.PERIODIC, 59.0, "notice"),  # two checkpoints
        (Pattern.PERIODIC, 61.0, "critical"),
    ],
)
def test_late_launches_are_a_notice_as_long_as_they_may_be_a_checkpoint(
    spread: Pattern, lasted_s: float, loud: str
) -> None:
    assert severity(late(5.0), spread, lasted_s) == loud


def test_what_no_checkpoint_looks_like_is_loud_at_once() -> None:
    lags = [lag(WORLD, rank, dev(rank), 4) for rank in range(4)]
    wire = only(localise(window(lags, ring(4, net={2: 5.0})), alone(4)))
    assert severity(wire, Pattern.ONCE, 3.0) == "warning"


def test_the_identity_does_not_depend_on_what_may_change() -> None:
    first, later = late(3.0), late(4.0)
    assert told(first).id == told(replace(later, waiting=7)).id
    assert told(first).id != told(first, opened=6 * 10**9).id
