"""What the numbers of flushes tell of those that never came."""

from __future__ import annotations

from streams.sink.losses import DROPS, SEQUENCE_GAP, Loss, Numbered, Sources


def told(*flushes: tuple[str, int, int], limit: int = 100) -> list[Loss]:
    sources = Sources(limit)
    return [loss for flush in flushes for loss in sources.losses(Numbered(*flush))]


def test_nothing_is_lost_where_numbers_follow_each_other() -> None:
    assert told(("h", 0, 0), ("h", 1, 0), ("h", 2, 0)) == []


def test_what_came_before_the_first_flush_is_not_known() -> None:
    assert told(("h", 50, 9), ("h", 51, 9)) == []


def test_numbers_left_out_are_flushes_that_never_came() -> None:
    assert told(("h", 3, 0), ("h", 7, 0)) == [Loss("h", SEQUENCE_GAP, 4, 3)]


def test_a_rise_of_drops_is_told_once_with_where_it_began() -> None:
    assert told(("h", 0, 5), ("h", 1, 12), ("h", 2, 12)) == [Loss("h", DROPS, 5, 7)]


def test_a_gap_and_drops_are_two_losses() -> None:
    assert told(("h", 0, 0), ("h", 2, 1)) == [Loss("h", SEQUENCE_GAP, 1, 1), Loss("h", DROPS, 0, 1)]


def test_sources_count_for_themselves() -> None:
    assert told(("a", 0, 0), ("b", 7, 3), ("a", 1, 0), ("b", 8, 3)) == []


def test_a_source_that_starts_again_counts_from_0() -> None:
    assert told(("h", 900, 40), ("h", 0, 55), ("h", 1, 55)) == []
    assert told(("h", 900, 40), ("h", 0, 0), ("h", 1, 2)) == [Loss("h", DROPS, 0, 2)]


def test_the_first_flushes_of_a_source_that_starts_again_may_be_lost_too() -> None:
    assert told(("h", 900, 0), ("h", 3, 0)) == [Loss("h", SEQUENCE_GAP, 0, 3)]


def test_the_same_number_again_is_no_loss() -> None:
    assert told(("h", 5, 0), ("h", 5, 0), ("h", 6, 0)) == []


def test_of_too_many_sources_the_one_silent_for_longest_is_forgotten() -> None:
    flushes = (("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("c", 0, 0), ("b", 9, 0), ("a", 3, 0))
    # c pushed b out, and b's return pushed a out: neither gap can be known any more.
    assert told(*flushes, limit=2) == []
    assert told(*flushes, limit=3) == [Loss("b", SEQUENCE_GAP, 1, 8), Loss("a", SEQUENCE_GAP, 2, 1)]
