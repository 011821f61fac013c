"""The backlog: bounded always, and what can be spared goes first."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectors.agent.backlog import Backlog, Flush, without_details, without_states
from schemas.enums import Kind
from schemas.records import COLL, FLOW, PROC, Records, RecordType


def rows(record: RecordType, kinds: list[Kind]) -> Records:
    found = record.empty(len(kinds))
    found["kind"] = kinds
    return found


def flush(through: int, kinds: list[Kind], flow_kinds: list[Kind] | None = None) -> Flush:
    sections = {
        COLL.name: rows(COLL, kinds),
        FLOW.name: rows(FLOW, flow_kinds or []),
        PROC.name: PROC.empty(1),
    }
    return Flush(1, 2, through, np.array([7], np.uint64), sections, np.array([7], np.uint64))


ALL = [Kind.STATE, Kind.DONE, Kind.SUM, Kind.POSITION, Kind.ORPHAN]


def kinds(of: Flush) -> list[int]:
    return [int(kind) for kind in of.sections[COLL.name]["kind"]]


def test_thinning_keeps_what_nothing_says_again() -> None:
    whole = flush(5, ALL, [Kind.STATE, Kind.DONE, Kind.SUM])
    assert kinds(without_states(whole)) == [Kind.DONE, Kind.SUM, Kind.POSITION, Kind.ORPHAN]
    thin = without_details(whole)
    assert kinds(thin) == [Kind.SUM, Kind.POSITION, Kind.ORPHAN]
    assert [int(kind) for kind in thin.sections[FLOW.name]["kind"]] == [Kind.SUM]
    assert (thin.through, len(thin.sections[PROC.name])) == (5, 1)
    assert whole.records == 9


def test_states_go_first_then_details_then_the_oldest_flush() -> None:
    one = flush(1, ALL)
    backlog = Backlog(3 * one.size)
    for through in range(3):
        assert backlog.put(flush(through, ALL)) == 0
    # One flush of room is missing; three states are not enough, so details go too.
    gone = 0
    for through in range(3, 6):
        gone += backlog.put(flush(through, ALL))
    waiting = []
    while backlog.peek() is not None:
        waiting.append(backlog.pop())
    # Whole flushes go only when all that can be spared of every flush is gone.
    lean = without_details(one)
    assert [each.through for each in waiting] == sorted(each.through for each in waiting)
    assert waiting[-1].through == 5
    if len(waiting) < 6:
        assert all(kinds(each) == kinds(lean) for each in waiting)
    assert gone + sum(each.records for each in waiting) == 6 * one.records
    assert backlog.size == 0


def test_a_state_of_the_newest_goes_before_a_completion_of_the_oldest() -> None:
    old, new = flush(1, [Kind.DONE] * 4), flush(2, [Kind.STATE] * 4)
    backlog = Backlog(old.size + new.size - 1)
    backlog.put(old)
    assert backlog.put(new) == 4
    assert kinds(backlog.pop()) == [Kind.DONE] * 4
    assert kinds(backlog.pop()) == []


def test_what_never_fits_is_counted() -> None:
    backlog = Backlog(10)
    assert backlog.put(flush(1, ALL)) == 6
    assert backlog.put(Flush(1, 2, 3, np.array([7], np.uint64))) == 1
    assert (len(backlog), backlog.size, backlog.peek()) == (0, 0, None)


actions = st.lists(st.one_of(st.none(), st.lists(st.sampled_from(ALL), max_size=12)), max_size=40)


@given(actions, st.integers(0, 20_000))
def test_it_never_exceeds_its_bound_and_loses_nothing_uncounted(
    history: list[list[Kind] | None], limit: int
) -> None:
    backlog = Backlog(limit)
    entered = left = counted = whole = 0
    for through, step in enumerate(history):
        if step is None:
            if backlog.peek() is not None:
                left += backlog.pop().records
        else:
            one = flush(through, step)
            entered += one.records
            before = len(backlog)
            counted += backlog.put(one)
            whole += before + 1 - len(backlog)
        assert backlog.size <= limit
    while backlog.peek() is not None:
        left += backlog.pop().records
    assert backlog.size == 0
    assert entered == left + counted
