"""What has to be sent so that the topic agrees with what was found."""

from __future__ import annotations

from dataclasses import replace

from schemas.incidents import Incident, Node
from streams.incidentlog import changes

NOW = "2026-01-02T03:04:05.000000Z"
BEGAN = "2025-12-31T00:00:00.000000Z"
"""When the first attempt began."""

LATER = "2026-01-02T00:00:00.000000Z"
"""When the second one did."""

FIRST = Incident(
    id="00000000000000ab", job="j", attempt="1", kind="stall", category="late-launch", severity="critical",
    confidence="proven", summary="rank 3", culprits=(Node("device", 3),), candidates=(), waiting=7, chain=(),
    evidence=(), ruled_out=(), would_decide=(), since="2026-01-01T00:00:00.000000Z",
    detected="2026-01-01T00:00:01.000000Z",
)  # fmt: skip
OTHER = replace(FIRST, id="00000000000000cd", summary="rank 4")


def log(*incidents: Incident) -> dict[str, Incident]:
    return {incident.id: incident for incident in incidents}


def test_nothing_known_and_nothing_found() -> None:
    assert changes({}, [], "j", "1", BEGAN, NOW) == []


def test_new_ones_open() -> None:
    assert changes({}, [FIRST, OTHER], "j", "1", BEGAN, NOW) == [FIRST, OTHER]
    assert changes(log(FIRST), [FIRST, OTHER], "j", "1", BEGAN, NOW) == [OTHER]


def test_what_is_unchanged_is_not_sent() -> None:
    assert changes(log(FIRST, OTHER), [OTHER, FIRST], "j", "1", BEGAN, NOW) == []


def test_when_it_was_found_again_is_no_change() -> None:
    again = replace(FIRST, detected=NOW, since=NOW)
    assert changes(log(FIRST), [again], "j", "1", BEGAN, NOW) == []
    assert changes(log(replace(FIRST, revision=5)), [again], "j", "1", BEGAN, NOW) == []


def test_a_change_gets_a_revision_and_keeps_when_it_began() -> None:
    known = log(replace(FIRST, revision=4))
    (sent,) = changes(known, [replace(FIRST, waiting=9, detected=NOW, since=NOW)], "j", "1", BEGAN, NOW)
    assert sent == replace(FIRST, waiting=9, revision=5)


def test_what_is_not_found_again_closes() -> None:
    (sent,) = changes(log(replace(FIRST, revision=2)), [], "j", "1", BEGAN, NOW)
    assert sent == replace(FIRST, state="closed", closed=NOW, revision=3)


def test_what_earlier_attempts_left_open_closes() -> None:
    next_one = replace(OTHER, attempt="2")
    sent = changes(log(FIRST), [next_one], "j", "2", LATER, NOW)
    assert sent == [next_one, replace(FIRST, state="closed", closed=NOW, revision=2)]


def test_an_attempt_that_is_judged_late_closes_nothing_of_the_next() -> None:
    newer = replace(FIRST, attempt="2", detected=NOW)
    assert changes(log(newer), [OTHER], "j", "1", BEGAN, NOW) == [OTHER]
    assert changes(log(newer), [], "j", "1", BEGAN, NOW) == []


def test_other_jobs_are_left_alone() -> None:
    assert changes(log(replace(FIRST, job="k")), [], "j", "1", BEGAN, NOW) == []


def test_closed_ones_stay_closed() -> None:
    assert (
        changes(log(replace(FIRST, state="closed", closed=NOW, revision=2)), [], "j", "1", BEGAN, NOW) == []
    )


def test_a_closed_one_that_is_found_again_opens() -> None:
    known = log(replace(FIRST, state="closed", closed=NOW, revision=2))
    assert changes(known, [FIRST], "j", "1", BEGAN, NOW) == [replace(FIRST, revision=3)]


def test_what_was_sent_settles_it() -> None:
    """Sending the same finding again sends nothing, after every kind of change."""
    known = log(FIRST)
    for found in ([replace(FIRST, waiting=1), OTHER], [OTHER], [], [FIRST]):
        sent = changes(known, found, "j", "1", BEGAN, NOW)
        assert sent
        assert all(each.id not in known or each.revision > known[each.id].revision for each in sent)
        known.update(log(*sent))
        assert changes(known, found, "j", "1", BEGAN, NOW) == []


def test_the_log_itself_is_not_changed() -> None:
    known = log(FIRST)
    changes(known, [OTHER], "j", "1", BEGAN, NOW)
    assert known == log(FIRST)
