"""Collectives that were left out or launched in another order, where a ring over two hosts shows little."""

from __future__ import annotations

import pytest

from schemas.enums import Kind, Visibility
from tests.live_jobs import NOW, LiveJob, Told
from tests.rings import RingModel


def skipped(*launched: int, tp: int = 7, world: int = 8) -> LiveJob:
    """All stand in AllReduce 18 of the world, whose inner rank 1 does not progress. In its host these ranks
    launched operation 18 of tp as well, with these orders; rank 0 has not.
    """
    job = LiveJob({"tp": range(len(launched) + 1), "world": range(6)}, per_host=3)
    RingModel(range(6), job.host, frozen=1).run().tell(job, "world", 18)
    for rank, comm, row in job.colls:
        if rank in launched and comm == "world" and row["kind"] == Kind.STATE:
            row["order"] = world
    job.at(0, "tp", 17, 17)
    job.past(0, "tp")
    for rank in launched:
        job.stands(rank, "tp", 18, visibility=Visibility.LAUNCH)["order"] = tp
    return job


def test_of_two_that_launched_in_different_orders_either_may_be_wrong() -> None:
    """1 waits in tp for 0, which waits in the world for 1."""
    assert skipped(1).told() == [Told("deadlock", "candidates", (), (0, 1))]


def test_the_one_that_left_out_what_two_others_launched_is_named() -> None:
    assert skipped(1, 2).told() == [Told("deadlock", "likely", (0,))]


@pytest.mark.parametrize("launched", [(1,), (1, 2)])
def test_in_the_order_of_the_others_nothing_was_left_out(launched: tuple[int, ...]) -> None:
    """0 has not come to tp's operation yet, since the world's comes first."""
    told = skipped(*launched, tp=8, world=7).told()
    assert [(each.category, each.culprits) for each in told] == [("gpu-hang", ())]


def test_while_a_host_misses_its_turn_what_nothing_shows_is_not_told() -> None:
    """It may be gone, and then it is not those who can be seen."""
    job = skipped(1, tp=8, world=7)
    assert [each.category for each in job.told(now=NOW + 1.0)] == ["gpu-hang"]
    assert job.told(now=NOW + 2.0) == []
