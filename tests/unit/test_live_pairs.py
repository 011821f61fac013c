"""Sends, receives and all-to-alls of running jobs: flushes of the hosts in, incidents out."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.enums import Func, Visibility
from tests.live_jobs import LiveJob, Told, pairs


def test_a_link() -> None:
    (told,) = pairs((0, 1, (8, 8, 6), (10, 6, 6))).told()
    assert (told.category, {*told.culprits, *told.candidates}) == ("link", {0, 1})


def test_a_nic() -> None:
    """Links that share a host are that host's."""
    dead = (8, 8, 6), (10, 6, 6)
    assert pairs((1, 0, *dead), (1, 2, *dead)).told() == [Told("link", "likely", (1,))]


def test_a_lost_credit() -> None:
    """With credits ready > transmitted is the link, both ends: the credit may be lost."""
    (told,) = pairs((0, 1, (7, 6, 6), (10, 6, 6)), no_credit=50_000).told()
    assert (told.category, {*told.culprits, *told.candidates}) == ("link", {0, 1})


def test_without_credits_it_is_the_sender() -> None:
    assert pairs((0, 1, (8, 6, 6), (10, 6, 6))).told() == [Told("nic-send", "likely", (0,))]


def test_a_receiver_that_does_not_post() -> None:
    assert pairs((0, 1, (8, 6, 6), (6, 6, 6))).told() == [Told("proxy", "likely", (1,))]


def test_a_pair_whose_receiver_takes_nothing() -> None:
    assert pairs((0, 1, (14, 14, 14), (14, 14, 6))).told() == [Told("gpu-hang", "likely", (1,))]


def sent(received: int) -> LiveJob:
    """0 has ended a send of two steps to 1, of which so many have come; 1 has taken none of them."""
    job = LiveJob({"pp": range(4)})
    job.at(0, "pp", 9, 9, func=Func.SEND, peer=1)
    job.at(1, "pp", 9, 8, func=Func.RECV, peer=0)
    job.state(1, "pp", 9, func=Func.RECV, peer=0)
    job.flow(
        1, "pp", 9, 0, send=False, func=Func.RECV, total=2, posted=2, received=received, flushed=received
    )
    return job


def test_what_a_sender_has_ended_and_has_not_come_is_on_the_link() -> None:
    """Over sockets a send of few steps ends in the sender's kernel, whatever becomes of it."""
    (told,) = sent(0).told()
    assert (told.category, {*told.culprits, *told.candidates}) == ("link", {0, 1})


def test_what_a_sender_has_ended_and_has_come_waits_for_the_gpu_that_takes_it() -> None:
    (told,) = sent(2).told()
    assert (told.category, {*told.culprits, *told.candidates}) == ("gpu-hang", {1})


def exchange(job: LiveJob, ranks: Sequence[int]) -> LiveJob:
    """All four ranks have launched an all-to-all, with what each sends to itself; these stand in it."""
    for rank in range(4):
        for peer in range(4):
            for func in (Func.SEND, Func.RECV):
                job.at(rank, "ep", 9, 8, func=func, peer=peer)
                if rank in ranks:
                    seen = Visibility.LAUNCH if rank == peer else Visibility.FLOWS
                    job.state(rank, "ep", 9, func=func, peer=peer, visibility=seen)
    return job


def test_what_a_rank_sends_to_itself_is_no_sign_of_its_gpu() -> None:
    """It is copied by the kernel of the whole exchange. Rank 2 is in an AllReduce that the others launched
    after the exchange.
    """
    job = exchange(LiveJob({"ep": range(4), "dp": range(4)}), (0, 1, 3))
    job.stands(2, "dp", 14)
    for rank in (0, 1, 3):
        job.at(rank, "dp", 14, 13)
        job.past(rank, "dp")
    assert job.told() == [Told("deadlock", "proven", (), (0, 1, 2, 3))]


def test_what_a_rank_sends_to_itself_counts_after_a_while_if_nothing_else_tells() -> None:
    """The others have left the exchange and wait for rank 1, of which only its own copy is left."""
    for age, wanted in ((4.5, []), (5.5, [Told("gpu-hang", "candidates", (), (1,))])):
        job = LiveJob({"ep": range(4), "dp": range(4)})
        for rank in (0, 2, 3):
            job.stands(rank, "dp", 14)
        job.at(1, "dp", 14, 13)
        job.past(1, "dp")
        for func in (Func.SEND, Func.RECV):
            job.at(1, "ep", 9, 8, func=func, peer=1)
            job.state(1, "ep", 9, func=func, peer=1, visibility=Visibility.LAUNCH, age=age)
        assert job.told() == wanted


def test_a_gpu_that_takes_nothing_of_an_exchange() -> None:
    job = exchange(LiveJob({"ep": range(4)}), range(4))
    job.flow(0, "ep", 9, 1, send=True, func=Func.SEND, ready=14, transmitted=14, done=14)
    job.flow(1, "ep", 9, 0, send=False, func=Func.RECV, posted=14, received=14, flushed=14, consumed=6)
    assert job.told() == [Told("gpu-hang", "likely", (1,))]


def test_a_rank_that_is_its_collectives_root_stands_in_it_all_the_same() -> None:
    """NCCL gives collectives without a root the first rank; here only first ranks wait for the stuck pair."""
    job = LiveJob({"tp": (2, 3), "dp-0": (0, 2), "dp-1": (1, 3)}, per_host=2)
    for rank in (0, 1):
        job.stands(rank, f"dp-{rank}", 7)
        job.at(rank + 2, f"dp-{rank}", 6, 6)
        job.past(rank + 2, f"dp-{rank}")
        job.stands(rank + 2, "tp", 9, visibility=Visibility.LAUNCH)
    assert job.told() == [Told("gpu-hang", "candidates", (), (2, 3))]
