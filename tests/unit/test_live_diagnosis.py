"""Running jobs as a whole: flushes of the hosts in, incidents out; right answers from diagnosis-rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import Flag, Func, Kind, Visibility
from schemas.envelope import Envelope, MessageKind
from streams.live.board import LiveBoard
from streams.live.cases import LiveCases
from tests.live_jobs import NOW, LiveJob, Told, judged, pairs
from tests.records import ATTEMPT_ID, JOB_ID
from tests.rings import RingModel

FOUR = {"dp": range(4)}


def late(rank: int = 2, **told: float) -> LiveJob:
    """A rank that never launched AllReduce 21, in which the three others stand."""
    job = LiveJob(FOUR)
    for other in range(4):
        if other == rank:
            job.at(other, "dp", 20, 20)
        else:
            job.stands(other, "dp", 21, **told)
    return job


def test_a_late_launch() -> None:
    assert late().told() == [Told("late-launch", "proven", (2,))]


def test_what_is_young_or_moves_is_no_stall() -> None:
    assert late(age=0.9, quiet=0.9).told() == []
    assert late(age=5.0, quiet=0.2).told() == []


def test_it_left_without_launching() -> None:
    job = late()
    job.at(2, "dp", 20, 20, flags=Flag.FINALISED)
    assert job.told() == [Told("late-launch", "proven", (2,))]


def test_an_aborted_communicator_makes_a_victim() -> None:
    job = late()
    job.at(2, "dp", 20, 20, flags=Flag.ABORTED)
    assert job.told() == []


def test_called_and_not_launched() -> None:
    job = late()
    job.at(2, "dp", 20, 20, called=1)
    assert job.told() == [Told("in-nccl-call", "proven", (2,))]


def test_a_job_that_connects() -> None:
    """The first operation of a communicator gets 10 s."""
    for age, wanted in ((9.0, []), (10.5, [Told("late-launch", "proven", (2,))])):
        job = LiveJob(FOUR)
        job.at(2, "dp", 0, 0)
        for rank in (0, 1, 3):
            job.at(rank, "dp", 1, 0)
            job.state(rank, "dp", 1, age=age, quiet=age)
        assert job.told() == wanted


def test_a_first_operation_that_has_moved_is_connected() -> None:
    job = LiveJob(FOUR)
    model = RingModel(range(4), job.host, frozen=2, stops_at=5).run()
    model.tell(job, "dp", 1)
    job.colls = [told for told in job.colls if told[2]["kind"] != Kind.SUM]
    assert job.told() == [Told("gpu-hang", "likely", (2,))]


def test_a_member_whose_host_has_not_spoken_yet() -> None:
    """The job was first heard of a moment ago: the host may be starting."""
    job = late()
    board = LiveBoard()
    for announcement in job.announcements():
        board.announce(announcement)
    for host in ("h000", "h001", "h003"):
        board.take(job.flush(host), NOW)
    assert judged([board]) == []


def test_a_host_that_does_not_speak_is_named_where_it_is_waited_for() -> None:
    """Hosts 2 and 5 are silent; only host 2 has members in an operation in which others stand."""
    job = LiveJob({"dp": range(4), "other": range(4, 8)}, mute=["h002", "h005"])
    for rank in (0, 1, 3):
        job.stands(rank, "dp", 21)
    for rank in (4, 6, 7):
        job.at(rank, "other", 20, 20)
    assert job.told() == [Told("host-silent", "likely", (2,))]


def test_when_no_host_is_heard_any_more_none_is_accused() -> None:
    """Kafka, or the collectors, were taken away from a job that stalled."""
    job = late()
    assert job.told() != []
    assert job.told(now=NOW + 6.0) == []


def dies(job: LiveJob, rank: int, **facts: object) -> LiveBoard:
    """A partition that hears now of what a process has become."""
    board = job.board(at=NOW - 3.0)
    job.process(rank, **facts)  # type: ignore[arg-type]
    return job.board(at=NOW, board=board)


def test_a_dead_process() -> None:
    """Its own operation stays open; what the others say about themselves is void."""
    job = LiveJob(FOUR)
    RingModel(range(4), job.host, frozen=2, stops_at=5).run().tell(job, "dp", 21)
    for _, _, row in (*job.colls, *job.flows):
        row["quiet_us"] = 1_500_000
    assert judged([dies(job, 2, alive=False)]) == [Told("process-dead", "proven", (2,))]


def test_a_stopped_process_and_one_that_goes_on() -> None:
    job = LiveJob(FOUR)
    RingModel(range(4), job.host, frozen=2, stops_at=5).run().tell(job, "dp", 21)
    for _, _, row in (*job.colls, *job.flows):
        row["quiet_us"] = 1_500_000
    stopped = dies(job, 2, state="T")
    cases = LiveCases(1, 3.0)
    assert judged([stopped], cases=cases) == [Told("process-stopped", "proven", (2,))]
    job.process(2, state="R")
    resumed = job.board(at=NOW + 1.0, board=stopped)
    # It counts as stopped for another quiet time: it has not had time yet to show that it moves.
    assert judged([resumed], now=NOW + 1.2, cases=cases) == [Told("process-stopped", "proven", (2,))]


def test_what_was_stopped_and_moves_is_not_accused() -> None:
    job = LiveJob(FOUR)
    RingModel(range(4), job.host, frozen=2, stops_at=5).run().tell(job, "dp", 21)
    stopped = dies(job, 2, state="T")
    job.process(2, state="R", quiet=0.1)
    for _, _, row in (*job.colls, *job.flows):
        row["quiet_us"] = 100_000
    assert judged([job.board(at=NOW + 2.0, board=stopped)], now=NOW + 2.0) == []


def test_the_death_of_a_victim_changes_nothing() -> None:
    """Rank 3 waits for 20 s by now and dies: that began nothing. For 2 s after it nothing new is said."""
    job = late(age=25.0, quiet=20.0)
    dead = dies(job, 3, alive=False)
    cases = LiveCases(1, 3.0)
    assert judged([dead], cases=cases) == []
    later = job.board(at=NOW + 2.5, board=dead)
    assert judged([later], now=NOW + 2.5, cases=cases) == [Told("late-launch", "proven", (2,))]


def test_a_later_death_of_the_culprit_is_told_at_once() -> None:
    job = late(age=25.0, quiet=20.0)
    (told,) = judged([dies(job, 2, alive=False)])
    assert (told.culprits, told.candidates) == ((2,), ())


def test_a_death_that_is_found_late_on_a_busy_host() -> None:
    """Rank 2 died 4 s ago, when the others came to rest; just before, its host had said that it lives."""
    job = LiveJob(FOUR)
    RingModel(range(4), job.host, frozen=2, stops_at=5).run().tell(job, "dp", 21)
    cases = LiveCases(1, 3.0)
    early = job.board(at=NOW - 4.2)
    judged([early], now=NOW - 4.2, cases=cases)
    job.process(2, alive=False)
    found = judged([job.board(at=NOW, board=early)], cases=cases)
    assert found == [Told("process-dead", "proven", (2,))]


def test_a_job_that_has_ended() -> None:
    job = late()
    for rank in range(4):
        job.process(rank, alive=False)
    assert job.told() == []


def test_a_carrier_that_is_dead() -> None:
    """PXN: rank 1's sends go through rank 0's process, which is no member of the communicator."""
    job = LiveJob({"tp": range(2), "pp": (1, 2)}, per_host=2)
    job.at(0, "tp", 5, 5)
    for rank, func, peer in ((1, Func.SEND, 2), (2, Func.RECV, 1)):
        job.at(rank, "pp", 9, 8, func=func, peer=peer)
        job.state(rank, "pp", 9, func=func, peer=peer, age=3.0, quiet=1.5)
    sent = {"ready": 4, "transmitted": 4, "done": 4}
    job.flow(1, "pp", 9, 2, send=True, func=Func.SEND, carrier=0, quiet=1.5, **sent)
    came = {"posted": 8, "received": 4, "flushed": 4, "consumed": 4}
    job.flow(2, "pp", 9, 1, send=False, func=Func.RECV, quiet=1.5, **came)
    assert job.told() == [Told("gpu-hang", "likely", (1,))]
    job.process(0, alive=False)
    assert job.told() == [Told("process-dead", "proven", (0,))]


def test_a_sink_that_moves_is_no_verdict() -> None:
    """All wait for rank 2, which has just moved."""
    job = LiveJob(FOUR)
    RingModel(range(4), job.host, frozen=2, stops_at=5).run().tell(job, "dp", 21)
    for rank, _, row in (*job.colls, *job.flows):
        if rank == 2:
            row["quiet_us"] = 100_000
    assert job.told() == []


def test_who_called_something_a_moment_ago_may_stand_in_it() -> None:
    """Its last callback is younger than what counts as a stall: where it stands is not told yet."""
    job = late()
    job.process(2, quiet=0.4)
    assert job.told() == []


def in_tensor_group(*, dp_moves: bool = False) -> LiveJob:
    """Two hosts of four: tensor groups inside, data groups across; host 1 hangs in its AllReduce 31."""
    comms = {f"tp{host}": range(4 * host, 4 * host + 4) for host in range(2)}
    job = LiveJob({**comms, **{f"dp{place}": (place, place + 4) for place in range(4)}}, per_host=4)
    for rank in range(8):
        tensor, data = f"tp{rank // 4}", f"dp{rank % 4}"
        job.past(rank, tensor)
        job.past(rank, data)
        job.at(rank, tensor, 31, 30)
        unseen = job.state(rank, tensor, 31, visibility=Visibility.LAUNCH, current=2)
        unseen["order"] = 100
        job.at(rank, data, 15, 14)
        job.state(rank, data, 15, current=2, visibility=Visibility.FLOWS)["order"] = 101
        after = (rank + 4) % 8
        filled = 2 if rank < 4 or dp_moves else 0
        counts = {"ready": filled, "transmitted": filled, "done": filled}
        job.flow(rank, data, 15, after, send=True, func=Func.ALL_REDUCE, **counts)
        there = 0 if rank < 4 else 2
        job.flow(rank, data, 15, after, send=False, posted=4, received=there, flushed=there)
    return job


def test_an_operation_within_a_host_hangs() -> None:
    """Every dp operation of that host is blocked before its kernel: the tensor group is the answer."""
    (told,) = in_tensor_group().told()
    assert (told.category, told.confidence) == ("gpu-hang", "candidates")
    assert told.candidates == (4, 5, 6, 7)


def test_late_behind_an_operation_that_is_not_seen() -> None:
    """Rank 6 launched tp 31, as all did, and never dp 15: its peers have gone on."""
    job = in_tensor_group()
    for rank in range(8):
        job.colls = [
            told
            for told in job.colls
            if not (told[0] == rank and rank != 2 and told[1].startswith("dp")) or told[2]["kind"] == Kind.SUM
        ]
        job.flows = []
        if rank != 2:
            job.at(rank, f"dp{rank % 4}", 14 if rank == 6 else 15, 14 if rank == 6 else 15)
    for rank, comm, row in job.colls:
        if comm.startswith("tp") and row["kind"] == Kind.STATE and rank != 6:
            row["current"] = 0
    (told,) = job.told()
    assert 6 in {*told.culprits, *told.candidates}
    assert told.culprits in ((6,), ())


def crossed(*, launched: bool) -> LiveJob:
    """Two communicators of two ranks, called in crossed order; `launched`: also the second call of each.

    What is queued a host tells only in the position.
    """
    job = LiveJob({"a": (0, 1), "b": (0, 1)})
    for rank, first, second in ((0, "a", "b"), (1, "b", "a")):
        job.stands(rank, first, 5)
        job.past(rank, second)
        job.at(rank, second, 5 if launched else 4, 4)
    return job


@pytest.mark.parametrize("launched", [False, True])
def test_a_deadlock_across_communicators(launched: bool) -> None:
    assert crossed(launched=launched).told() == [Told("deadlock", "proven", (), (0, 1))]


def test_several_faults_at_once() -> None:
    """A late rank, a stopped GPU and a dead link, each in a communicator of its own."""
    job = LiveJob({"a": range(4), "b": range(4, 8), "c": range(8, 12)})
    for rank in (0, 2, 3):
        job.stands(rank, "a", 21)
    job.at(1, "a", 20, 20)
    RingModel(range(4, 8), job.host, frozen=6, stops_at=9).run().tell(job, "b", 7)
    RingModel(range(8, 12), job.host, cut=9, cut_at=9).run().tell(job, "c", 3)
    told = {each.category: {*each.culprits, *each.candidates} for each in job.told()}
    # Positive evidence and absence stand beside one another.
    assert told == {"late-launch": {1}, "gpu-hang": {6}, "link": {9, 10}}


def test_a_wait_outside_nccl() -> None:
    """Two that are missing from the same operation may wait for one another elsewhere."""
    job = LiveJob(FOUR)
    for rank in (0, 1):
        job.stands(rank, "dp", 21)
    for rank in (2, 3):
        job.at(rank, "dp", 20, 20)
    assert job.told() == [Told("outside-nccl", "candidates", (), (2, 3))]


def test_three_that_are_each_the_only_one_missing_somewhere_may_wait_for_one_another() -> None:
    """A barrier of 1, 3 and 5: each pair waits for one of them, and none is guiltier than the others."""
    job = LiveJob({"tp-0": (0, 1), "tp-1": (2, 3), "tp-2": (4, 5)})
    for rank in (0, 2, 4):
        job.stands(rank, f"tp-{rank // 2}", 21)
        job.at(rank + 1, f"tp-{rank // 2}", 20, 20)
        job.past(rank + 1, f"tp-{rank // 2}")
    assert job.told() == [Told("outside-nccl", "candidates", (), (1, 3, 5))]


def test_two_that_are_held_in_one_unseen_operation_are_not_late_each_by_itself() -> None:
    """2 and 3 stand in an operation inside their host, which 0 and 1 have left for the next; each of the two
    is the only one for whom its next stage waits. One holds the other there, and nothing shows which.
    """
    job = LiveJob({"dp": range(4), "pp-2": (2, 6), "pp-3": (3, 7)}, per_host=4)
    for rank in (0, 1):
        job.stands(rank, "dp", 15, visibility=Visibility.LAUNCH)
    for rank in (2, 3):
        job.stands(rank, "dp", 14, visibility=Visibility.LAUNCH)
        job.at(rank, f"pp-{rank}", 30, 30)
        job.stands(rank + 4, f"pp-{rank}", 31)
    assert job.told() == [Told("outside-nccl", "candidates", (), (2, 3))]


def test_the_latest_of_a_chain() -> None:
    """0 waits for 1 in a, 1 for 2 in b, 2 for 3 in c: 3 is late."""
    job = LiveJob({"a": (0, 1), "b": (1, 2), "c": (2, 3)})
    for waiter, comm in ((0, "a"), (1, "b"), (2, "c")):
        job.stands(waiter, comm, 5)
        job.at(waiter + 1, comm, 4, 4)
        job.past(waiter + 1, comm)
    assert job.told() == [Told("late-launch", "proven", (3,))]


def _late_and_mismatched() -> LiveJob:
    """Rank 2 passed half the count in 20 and now lags by one in the same communicator."""
    job = late()
    for rank in range(4):
        job.coll(Kind.DONE, rank, "dp", Func.ALL_REDUCE, 20, None)["count"] = 512 if rank == 2 else 1024
    return job


def test_a_mismatch_stands_for_what_follows_from_it() -> None:
    assert _late_and_mismatched().told() == [Told("mismatch", "likely", (2,))]


def test_a_mismatch_of_two_names_both() -> None:
    job = LiveJob({"a": (0, 1)})
    for rank in (0, 1):
        job.coll(Kind.DONE, rank, "a", Func.ALL_REDUCE, 20, None)["count"] = 512 * (rank + 1)
    (told,) = job.told()
    assert (told.category, told.culprits, told.candidates) == ("mismatch", (), (0, 1))


def test_without_all_partitions_absence_names_candidates() -> None:
    """Who looks idle may wait in what is not here."""
    job = LiveJob({"a": (0, 1), "b": (1, 2)})
    for waiter, comm in ((0, "a"), (1, "b")):
        job.stands(waiter, comm, 5)
        job.at(waiter + 1, comm, 4, 4)
        job.past(waiter + 1, comm)
    parts = [["a"], ["b"]]
    assert job.told(parts) == [Told("late-launch", "proven", (2,))]
    assert job.told(parts, missing=[1]) == [Told("late-launch", "candidates", (), (1,))]
    assert job.told(parts, missing=[0]) == [Told("late-launch", "candidates", (), (2,))]


def test_with_kernel_channels_the_kernel_that_is_missing() -> None:
    job = LiveJob(FOUR)
    for rank in range(4):
        job.process(rank, tier=2)
        state = job.stands(rank, "dp", 21)
        if rank != 2:
            state["kernel_start_us"] = 100
    assert job.told() == [Told("gpu-hang", "likely", (2,))]


SCENES: dict[str, Callable[[], LiveJob]] = {
    "late": late,
    "crossed": lambda: crossed(launched=True),
    "tensor": in_tensor_group,
    "link": lambda: pairs((0, 1, (8, 8, 6), (10, 6, 6)), (2, 3, (8, 6, 6), (6, 6, 6))),
    "mismatch": _late_and_mismatched,
}


@settings(max_examples=25)
@given(st.sampled_from(sorted(SCENES)), st.data())
def test_partitions_change_nothing(name: str, data: st.DataObject) -> None:
    job = SCENES[name]()
    parts: list[list[str]] = [[], [], []]
    for comm in job.comms:
        parts[data.draw(st.integers(0, 2))].append(comm)
    assert job.told([part for part in parts if part]) == SCENES[name]().told()


@settings(max_examples=25)
@given(st.sampled_from(sorted(SCENES)), st.lists(st.floats(-3600, 3600), min_size=8, max_size=8))
def test_clocks_of_hosts_change_nothing(name: str, skews: list[float]) -> None:
    """Only broker times and ages are used."""
    wanted = SCENES[name]().told()
    job = SCENES[name]()
    for _, _, row in (*job.colls, *job.flows):
        row["launched"] += int(skews[int(row["rank"][0]) % 8] * 1e9)
    for rank, row in job.procs.items():
        row["sampled"] += int(skews[rank % 8] * 1e9)
    assert job.told() == wanted


@settings(max_examples=25)
@given(st.permutations(["h000", "h001", "h002", "h003"]), st.lists(st.floats(0, 0.9), min_size=4, max_size=4))
def test_the_order_in_which_hosts_speak_changes_nothing(hosts: list[str], delays: list[float]) -> None:
    job = LiveJob(FOUR)
    RingModel(range(4), job.host, frozen=1, stops_at=7).run().tell(job, "dp", 21)
    board = LiveBoard()
    for announcement in job.announcements():
        board.announce(announcement)
    board.take(Envelope(MessageKind.FLUSH, JOB_ID, ATTEMPT_ID, source=hosts[0]), NOW - 100)
    for host, delay in zip(hosts, delays, strict=True):
        board.take(job.flush(host, 1), NOW - delay)
    assert judged([board]) == [Told("gpu-hang", "likely", (1,))]
