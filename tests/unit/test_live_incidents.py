"""Incidents of running jobs: they continue, say more, do not flap, close after 3 s, survive a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mycroft.settings import Settings
from schemas.incidents import Incident, Node
from streams.findings import Finding
from streams.incidentlog import live_changes
from streams.live.cases import LiveCases
from streams.live.watch import epochs, found_in
from streams.severity import Rules, severity
from tests.live_jobs import NOW as LOOK
from tests.live_jobs import RULES, LiveJob

NOW = "2026-01-02T03:04:05.000000Z"


def node(rank: int) -> Node:
    return Node("device", rank, dev=f"{rank:016x}")


FOUND = Incident(
    id="00000000000000ab", job="j", attempt="1", kind="stall", category="gpu-hang", severity="notice",
    confidence="candidates", summary="one of", culprits=(), candidates=(node(3), node(4)), waiting=7,
    chain=(), evidence=(), ruled_out=(), would_decide=(), since="2026-01-01T00:00:00.000000Z",
    detected="2026-01-01T00:00:01.000000Z",
)  # fmt: skip
LIKELY = replace(FOUND, confidence="likely", culprits=(node(3),), candidates=())
DEAD = replace(LIKELY, confidence="proven", category="process-dead", severity="critical")
ELSEWHERE = replace(FOUND, id="00000000000000cd", candidates=(node(8), node(9)))


class Log:
    """The alerts topic and a worker's memory."""

    def __init__(self) -> None:
        self.known: dict[str, Incident] = {}
        self.last_found: dict[str, float] = {}

    def step(self, at: float, *found: Incident) -> list[Incident]:
        sent = live_changes(self.known, found, "j", "1", self.last_found, at, NOW)
        self.known.update({incident.id: incident for incident in sent})
        return sent

    def restart(self) -> None:
        self.last_found = {}


def test_it_opens_once() -> None:
    log = Log()
    assert log.step(0.0, FOUND) == [FOUND]
    assert log.step(0.5, FOUND) == []


def test_words_and_counts_alone_are_no_change() -> None:
    log = Log()
    log.step(0.0, FOUND)
    assert log.step(0.5, replace(FOUND, waiting=9, summary="other", chain=("x",), detected=NOW)) == []


def test_twice_as_many_waiting_are_news() -> None:
    """A stopped process is told of at once, when one rank waits; a little later the whole job does."""
    log = Log()
    log.step(0.0, replace(DEAD, waiting=1))
    (told,) = log.step(0.5, replace(DEAD, waiting=7))
    assert (told.revision, told.waiting) == (2, 7)
    assert log.step(1.0, replace(DEAD, waiting=13)) == []
    assert log.step(1.5, replace(DEAD, waiting=7)) == []
    (told,) = log.step(2.0, replace(DEAD, waiting=14))
    assert (told.revision, told.waiting) == (3, 14)


def test_a_finding_continues_the_incident_that_names_one_of_its_devices() -> None:
    log = Log()
    log.step(0.0, FOUND)
    (sent,) = log.step(0.5, replace(LIKELY, id="0000000000000099", detected=NOW, since=NOW))
    assert (sent.id, sent.revision, sent.detected, sent.since) == (FOUND.id, 2, FOUND.detected, FOUND.since)
    assert sent.culprits == (node(3),)


def test_a_culprit_that_dies_stays_the_same_incident() -> None:
    log = Log()
    log.step(0.0, LIKELY)
    (sent,) = log.step(9.0, replace(DEAD, id="0000000000000077"))
    assert (sent.id, sent.category, sent.severity) == (LIKELY.id, "process-dead", "critical")


def test_fewer_candidates_say_more_and_more_say_nothing() -> None:
    log = Log()
    log.step(0.0, FOUND)
    fewer = replace(FOUND, candidates=(node(3),))
    assert [each.candidates for each in log.step(0.5, fewer)] == [(node(3),)]
    assert log.step(1.0, FOUND) == []


def test_more_who_wait_for_one_another_are_news_and_fewer_are_not() -> None:
    """Of a barrier the first that is missed looks late by itself; the others are seen to be missing later."""
    log = Log()
    log.step(0.0, replace(LIKELY, category="late-launch", confidence="proven"))
    both = replace(FOUND, category="outside-nccl")
    (told,) = log.step(0.5, both)
    assert (told.revision, told.category, told.culprits, told.candidates) == (
        2, "outside-nccl", (), (node(3), node(4)),
    )  # fmt: skip
    (told,) = log.step(1.0, replace(both, candidates=(node(3), node(4), node(5))))
    assert told.candidates == (node(3), node(4), node(5))
    assert log.step(1.5, both) == []


def test_it_does_not_flap() -> None:
    """Two readings that take turns: what was said first stands."""
    log = Log()
    log.step(0.0, LIKELY)
    for turn in range(1, 20):
        found = LIKELY if turn % 2 else replace(FOUND, id="0000000000000099")
        assert log.step(turn / 2, found) == []


def test_severity_rises_and_does_not_need_other_devices() -> None:
    log = Log()
    log.step(0.0, FOUND)
    (sent,) = log.step(10.0, replace(FOUND, severity="warning"))
    assert (sent.revision, sent.severity) == (2, "warning")


def test_severity_rises_though_the_devices_come_and_go() -> None:
    """What was said of whom stands while it lasts; that it lasts still makes it louder."""
    log = Log()
    log.step(0.0, LIKELY)
    wider = replace(FOUND, id="0000000000000099", severity="critical")
    (sent,) = log.step(60.0, wider)
    assert (sent.id, sent.severity, sent.culprits) == (LIKELY.id, "critical", LIKELY.culprits)
    assert log.step(60.5, wider) == []


def test_it_closes_after_three_seconds() -> None:
    log = Log()
    log.step(0.0, FOUND)
    assert log.step(2.9) == []
    (sent,) = log.step(3.0)
    assert (sent.state, sent.closed, sent.revision) == ("closed", NOW, 2)
    assert log.step(3.5) == []


def test_one_look_that_misses_it_closes_nothing() -> None:
    log = Log()
    for at in range(0, 20, 2):
        sent = log.step(float(at), *([FOUND] if at % 4 == 0 else []))
        assert bool(sent) == (at == 0)


def test_what_comes_back_opens_again() -> None:
    log = Log()
    log.step(0.0, FOUND)
    log.step(3.0)
    (sent,) = log.step(10.0, FOUND)
    assert (sent.state, sent.closed) == ("open", None)
    assert sent.revision == 3, "later than the closing one, which has 2"


def test_a_restart_gives_it_its_time() -> None:
    log = Log()
    log.step(0.0, FOUND)
    log.restart()
    assert log.step(100.0) == []
    assert log.step(102.9) == []
    (sent,) = log.step(103.0)
    assert sent.state == "closed"


def test_a_restart_continues_what_lasts() -> None:
    log = Log()
    log.step(0.0, FOUND)
    log.restart()
    assert log.step(100.0, FOUND) == []


def test_other_incidents_are_left_alone() -> None:
    """Other jobs, other attempts, and those of another kind."""
    log = Log()
    others = [
        replace(FOUND, id="1" * 16, job="k"), replace(FOUND, id="2" * 16, attempt="2"),
        replace(FOUND, id="3" * 16, kind="slow"),
    ]  # fmt: skip
    log.known = {each.id: each for each in others}
    assert log.step(0.0, LIKELY) == [LIKELY]
    log.step(0.5)
    assert [each.id for each in log.step(10.0)] == [LIKELY.id]


def test_two_at_once() -> None:
    log = Log()
    assert log.step(0.0, FOUND, ELSEWHERE) == [FOUND, ELSEWHERE]
    assert log.step(0.5, ELSEWHERE, FOUND) == []
    (closed,) = [*log.step(2.0, FOUND), *log.step(4.0, FOUND)]
    assert closed.id == ELSEWHERE.id


@pytest.mark.parametrize(
    ("category", "waited", "wanted"),
    [
        ("late-launch", 5.0, "notice"), ("late-launch", 60.0, "warning"), ("late-launch", 300.0, "critical"),
        ("gpu-hang", 1.0, "notice"), ("gpu-hang", 10.0, "warning"), ("gpu-hang", 60.0, "critical"),
        ("link", 0.0, "warning"), ("link", 10.0, "critical"), ("proxy", 1.0, "warning"),
        ("nic-send", 10.0, "critical"), ("nic-recv", 0.0, "warning"), ("outside-nccl", 59.0, "notice"),
        ("process-dead", 0.0, "critical"), ("process-stopped", 0.0, "critical"),
        ("deadlock", 0.0, "critical"), ("host-silent", 0.0, "critical"), ("mismatch", 999.0, "warning"),
    ],
)  # fmt: skip
def test_how_loud(category: str, waited: float, wanted: str) -> None:
    assert severity(Finding(category, "likely", (1,), (), (), ()), waited, 0.0, RULES) == wanted


@pytest.mark.parametrize(
    ("category", "step", "waited", "wanted"),
    [
        # Warning after three steps, critical after ten, where that is more than 60 and 300 s …
        ("late-launch", 40.0, 119.9, "notice"), ("late-launch", 40.0, 120.0, "warning"),
        ("late-launch", 40.0, 399.9, "warning"), ("late-launch", 40.0, 400.0, "critical"),
        ("outside-nccl", 40.0, 119.9, "notice"), ("in-nccl-call", 40.0, 120.0, "warning"),
        # … or more than 10 and 60 s.
        ("gpu-hang", 2.0, 10.0, "warning"), ("gpu-hang", 2.0, 60.0, "critical"),
        ("gpu-hang", 8.0, 23.9, "notice"), ("gpu-hang", 8.0, 24.0, "warning"),
        ("gpu-hang", 8.0, 79.9, "warning"), ("gpu-hang", 8.0, 80.0, "critical"),
        # Nothing benign looks like these, however long a step takes.
        ("link", 40.0, 0.0, "warning"), ("link", 40.0, 10.0, "critical"),
        ("process-dead", 40.0, 0.0, "critical"),
    ],
)  # fmt: skip
def test_how_loud_in_steps(category: str, step: float, waited: float, wanted: str) -> None:
    assert severity(Finding(category, "likely", (1,), (), (), ()), waited, step, RULES) == wanted


def test_a_proven_gpu_fault_is_no_computation() -> None:
    proven = Finding("gpu-hang", "proven", (1,), (), (), ())
    assert [severity(proven, waited, 8.0, RULES) for waited in (0.0, 10.0)] == ["warning", "critical"]


def test_rules_are_set() -> None:
    rules = Rules.of(Settings(severity_late_warning_s=5.0, severity_warning_steps=0.0))
    assert severity(Finding("late-launch", "proven", (1,), (), (), ()), 5.0, 40.0, rules) == "warning"


@pytest.mark.parametrize(("step", "wanted"), [(0.0, "warning"), (20.0, "warning"), (30.0, "notice")])
def test_the_step_that_hosts_tell_decides_how_loud(step: float, wanted: str) -> None:
    """Rank 0 has waited for 80 s: more than three steps of 20 s, less than three of 30 s."""
    job = LiveJob({"dp": range(3)})
    job.at(1, "dp", 20, 20)
    for rank in (0, 2):
        job.stands(rank, "dp", 21, age=80.0)["step_us"] = round(step * 1e6)
    cases = LiveCases(1, 3.0)
    for message in epochs(job.board(), 0, int(LOOK), LOOK):
        cases.take(message, LOOK)
    (case,) = cases.close()
    (incident,) = found_in(case, LOOK, RULES)
    assert (incident.category, incident.severity) == ("late-launch", wanted)
