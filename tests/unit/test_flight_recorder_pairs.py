"""The n-th send of a pair meets the n-th receive, counted where possible, else aligned."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collectors.flight_recorder.pairs import Ends, Traffic, align


class End(NamedTuple):
    """One end of the pair 0 → 1: its operations in launch order, True where pending."""

    pending: list[bool]
    full: bool = False
    known: bool = True


def number(sender: End, receiver: End) -> tuple[list[int], list[int], bool, Ends]:
    """Numbers of the sends and of the receives, whether they are relative, and the ends."""
    sends = np.array([True] * len(sender.pending) + [False] * len(receiver.pending), np.bool_)
    zeros = np.zeros(len(sends), np.int64)
    traffic = Traffic(zeros, zeros, zeros + 1, sends, np.array(sender.pending + receiver.pending, np.bool_))
    seq, relative, ends = align(
        traffic,
        np.array([0, 2]),
        np.array([sender.known, receiver.known]),
        np.array([sender.full, receiver.full]),
    )
    assert len(set(relative.tolist())) <= 1
    return seq[sends].tolist(), seq[~sends].tolist(), bool(relative.any()), ends


def test_full_histories_are_counted() -> None:
    # The sender's third is buffered and done, the receiver has not launched its third.
    sends, receives, relative, ends = number(
        End([False, False, False], full=True), End([False, True], full=True)
    )
    assert (sends, receives, relative) == ([1, 2, 3], [1, 2], False)
    assert (ends.launched.tolist(), ends.ended.tolist()) == ([[3, 2]], [[3, 1]])


def test_oldest_pending_of_both_ends_are_the_same() -> None:
    sends, receives, relative, ends = number(End([True, True]), End([False, False, True]))
    assert (sends, receives, relative) == ([3, 4], [1, 2, 3], True)
    assert (ends.launched.tolist(), ends.ended.tolist()) == ([[4, 3]], [[2, 2]])


def test_an_end_with_nothing_pending_has_not_launched_what_the_other_waits_in() -> None:
    sends, receives, relative, ends = number(End([]), End([True]))
    assert (sends, receives, relative) == ([], [1], True)
    assert (ends.launched.tolist(), ends.ended.tolist()) == ([[0, 1]], [[0, 0]])


def test_a_silent_end_does_not_make_a_count_relative() -> None:
    _, receives, relative, _ = number(End([], known=False), End([False, True], full=True))
    assert (receives, relative) == ([1, 2], False)


def test_no_traffic() -> None:
    sends, receives, _, ends = number(End([]), End([]))
    assert (sends, receives, ends.launched.shape) == ([], [], (0, 2))


@st.composite
def end(draw: st.DrawFn) -> End:
    finished = draw(st.integers(0, 5))
    pending = draw(st.integers(0, 3))
    later = draw(st.lists(st.booleans(), max_size=3)) if pending else []
    return End([False] * finished + [True] * pending + later, draw(st.booleans()), draw(st.just(True)))


@given(end(), end())
def test_numbers_are_positive_consecutive_and_agree_with_positions(sender: End, receiver: End) -> None:
    sends, receives, relative, ends = number(sender, receiver)
    for side, (numbers, told) in enumerate(((sends, sender), (receives, receiver))):
        if not (sends or receives):
            continue
        launched, ended = int(ends.launched[0, side]), int(ends.ended[0, side])
        assert 0 <= ended <= launched
        if numbers:
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert numbers[0] >= 1
            assert numbers[-1] == launched
        oldest = [seq for seq, pending in zip(numbers, told.pending, strict=True) if pending][:1]
        assert ended == (oldest[0] - 1 if oldest else launched)
    if sender.full and receiver.full:
        assert not relative
        assert sends[:1] in ([], [1])
    elif True in sender.pending and True in receiver.pending:
        assert sends[sender.pending.index(True)] == receives[receiver.pending.index(True)]
