"""What a trace partition remembers of running jobs, and for how long."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from schemas.enums import Flag, Func, Kind, Visibility
from schemas.envelope import Envelope, MessageKind
from schemas.records import COLL, PROC, Records, RecordType
from streams.live.attendance import Doing, operations
from streams.live.board import FORGET_S, LiveBoard
from streams.live.latest import F64, Latest
from streams.live.moment import UNKNOWN_S, Process, Sources, hear
from streams.membership import I64
from tests.live_jobs import NOW, LiveJob, proc_of
from tests.records import ATTEMPT_ID, JOB_ID

FOUR = {"dp": range(4)}


def said(rows: int, at: float, source: int) -> tuple[F64, I64]:
    return np.full(rows, at), np.full(rows, source)


def rows(*values: tuple[int, int, int]) -> np.ndarray:
    """`values`: comm, seq and age."""
    found = COLL.empty(len(values))
    for row, (comm, seq, age) in zip(found, values, strict=True):
        row["comm"], row["seq"], row["age_us"] = comm, seq, age
    return found


def test_the_last_row_of_a_key_stays() -> None:
    latest = Latest(COLL, ("comm", "seq"))
    latest.add(rows((1, 1, 10), (1, 2, 20)), *said(2, 5.0, 0))
    latest.add(rows((1, 1, 30), (1, 1, 40)), *said(2, 6.0, 1))
    assert not len(latest.rows), "not before it is settled"
    latest.settle()
    assert latest.rows["age_us"].tolist() == [20, 40]
    assert (latest.at.tolist(), latest.source.tolist()) == ([5.0, 6.0], [0, 1])
    latest.settle()
    assert latest.rows["age_us"].tolist() == [20, 40]


def test_rows_of_a_key_that_is_held() -> None:
    latest = Latest(COLL, ("comm", "seq"))
    latest.add(rows((1, 1, 0), (1, 2, 0), (2, 1, 0)), *said(3, 5.0, 0))
    latest.settle()
    assert latest.held(rows((2, 1, 7), (1, 2, 7), (3, 3, 7))).tolist() == [False, True, True]
    assert latest.held(rows()).tolist() == [False] * 3
    latest.keep(~latest.held(rows((1, 2, 0))))
    assert latest.rows["comm"].tolist() == [1, 2]
    assert not len(Latest(COLL, ("comm",)).held(rows((1, 1, 1))))


def standing(visibility: Visibility = Visibility.FLOWS) -> LiveJob:
    job = LiveJob(FOUR)
    for rank in range(4):
        job.stands(rank, "dp", 21, visibility=visibility)
        job.flow(rank, "dp", 21, (rank + 1) % 4, send=True)
    return job


def empty(source: str, sequence: int = 5) -> Envelope:
    return Envelope(MessageKind.FLUSH, JOB_ID, ATTEMPT_ID, source=source, sequence=sequence)


@pytest.mark.parametrize(
    ("visibility", "told_s"), [(Visibility.FLOWS, 2.5), (Visibility.KERNEL, 2.5), (Visibility.LAUNCH, 12.0)]
)
def test_what_is_not_told_any_more_has_ended(visibility: Visibility, told_s: float) -> None:
    """Of a host that speaks; what another one told stays as long as that one is silent."""
    board = standing(visibility).board()
    for later, left in ((told_s - 0.1, {0, 1, 2, 3}), (told_s + 0.1, {1, 2, 3})):
        board.take(empty("h000"), NOW + later)
        moment = board.moment(JOB_ID, ATTEMPT_ID, NOW + later)
        assert set(moment.states.rows["rank"].tolist()) == left


def test_flows_go_like_what_they_are_of() -> None:
    board = standing().board()
    board.take(empty("h000"), NOW + 2.6)
    assert set(board.moment(JOB_ID, ATTEMPT_ID, NOW + 2.6).flows.rows["rank"].tolist()) == {1, 2, 3}


def test_what_is_done_stands_no_more() -> None:
    job = standing()
    board = job.board()
    done = LiveJob(FOUR)
    done.coll(Kind.DONE, 1, "dp", Func.ALL_REDUCE, 21, None)
    board.take(done.flush("h001", 2), NOW + 0.1)
    moment = board.moment(JOB_ID, ATTEMPT_ID, NOW + 0.1)
    assert sorted(moment.states.rows["rank"].tolist()) == [0, 2, 3]
    assert moment.done["rank"].tolist() == [1]
    assert not len(board.moment(JOB_ID, ATTEMPT_ID, NOW + 3.2).done)


def test_sums_count_what_has_ended() -> None:
    job = LiveJob(FOUR)
    job.past(1, "dp", 2)
    board = job.board()
    board.take(job.flush("h001", 2), NOW)
    job.past(1, "dp", 1)
    board.take(job.flush("h001", 3), NOW)
    asked = np.concatenate([job.state(rank, "dp", 21) for rank in (0, 1)])
    for _ in range(2):
        assert board.moment(JOB_ID, ATTEMPT_ID, NOW).ended.of(asked).tolist() == [0, 7]


def test_numbers_that_are_missing_are_lost_messages() -> None:
    sources = Sources()
    first = sources.number("a")
    for sequence in (0, 1, 4, 5):
        sources.heard(first, NOW + sequence, sequence, drops=3)
    assert sources.lost_at == [NOW + 4]


def test_a_rise_of_what_a_host_has_dropped_is_a_loss_too() -> None:
    sources = Sources()
    first = sources.number("a")
    for sequence, drops in enumerate((3, 3, 7, 7)):
        sources.heard(first, NOW + sequence, sequence, drops)
    assert sources.lost_at == [NOW + 2]


def test_what_was_told_before_a_loss_is_no_proof_of_absence() -> None:
    """diagnosis-rules, 5: whose records were dropped has not "not launched"; until it has said so again."""
    job = LiveJob(FOUR)
    job.stands(0, "dp", 21, age=3.0)
    job.at(1, "dp", 20, 20)
    board = job.board()

    def seen() -> Doing:
        moment = board.moment(JOB_ID, ATTEMPT_ID, NOW)
        (operation,) = operations(moment, np.flatnonzero(moment.states.rows["rank"] == 0))
        return Doing(operation.doing[1])

    assert seen() == Doing.ABSENT
    board.take(replace(empty("h001"), sequence=9), NOW + 0.1)
    assert seen() == Doing.UNKNOWN
    board.take(replace(job.flush("h001"), sequence=10), NOW + 0.2)
    assert seen() == Doing.ABSENT


def test_a_collector_that_starts_again_has_lost_nothing() -> None:
    sources = Sources()
    first, second = sources.number("a"), sources.number("b")
    sources.heard(second, NOW, 17, 0)  # the first that is heard of it
    for sequence in (7, 0, 1):
        sources.heard(first, NOW, sequence, 0)
    assert sources.lost_at == [float("-inf")] * 2
    assert sources.number("b") == second


def test_hosts_are_heard_when_the_last_part_has_come() -> None:
    board = standing().board()
    board.take(replace(empty("h000"), part=0, parts=2), NOW + 4.0)
    moment = board.moment(JOB_ID, ATTEMPT_ID, NOW + 4.0)
    assert moment.sources.at[moment.sources.number("h000")] == NOW
    board.take(replace(empty("h000"), part=1, parts=2), NOW + 4.0)
    moment = board.moment(JOB_ID, ATTEMPT_ID, NOW + 4.0)
    assert moment.sources.at[moment.sources.number("h000")] == NOW + 4.0


def test_a_member_that_is_named_no_more_has_died_and_stays_one() -> None:
    job = LiveJob({"dp": range(4)}, per_host=2)
    board = job.board()
    announced = job.announcements()[0]
    board.announce(replace(announced, members=announced.members[:1]))
    moment = board.moment(JOB_ID, ATTEMPT_ID, NOW)
    assert not moment.members.silent.any()


def test_jobs_of_which_nothing_is_heard_are_forgotten() -> None:
    board = standing().board()
    assert board.jobs(NOW + FORGET_S) == [(JOB_ID, ATTEMPT_ID)]
    assert board.jobs(NOW + FORGET_S + 1) == []


def test_an_announcement_alone_is_no_job_that_runs() -> None:
    board = LiveBoard()
    for announcement in LiveJob(FOUR).announcements():
        board.announce(announcement)
    assert board.jobs(NOW) == []


def test_news_of_processes_are_passed_on_once() -> None:
    job = LiveJob({"dp": range(2)})
    board = job.board()
    told, ages = board.news(JOB_ID, ATTEMPT_ID, NOW + 0.25)
    assert sorted(told["proc"].tolist()) == sorted(proc_of(rank) for rank in range(2))
    assert ages == [250, 250]
    assert not len(board.news(JOB_ID, ATTEMPT_ID, NOW + 1)[0])


def process(at: float, before: Process | None, *, alive: bool = True, state: str = "S") -> Process:
    job = LiveJob({"dp": range(2)})
    known = {} if before is None else {proc_of(0): before}
    hear(known, job.process(0, alive=alive, state=state), [at])
    return known[proc_of(0)]


def test_a_death_is_of_when_it_was_first_told() -> None:
    one = process(10.0, None)
    dead = process(12.0, process(11.0, one, alive=False), alive=False)
    assert (one.died_at, dead.died_at, dead.alive) == (None, 11.0, False)
    assert (one.gone_since, dead.gone_since, process(11.0, None, alive=False).gone_since) == (
        UNKNOWN_S,
        10.0,
        11.0,
    )


def test_a_stop_and_its_end() -> None:
    one = process(10.0, None, state="T")
    still = process(11.0, one, state="t")
    goes_on = process(12.0, still)
    later = process(13.0, goes_on)
    assert (one.stopped_at, still.stopped_at, goes_on.stopped_at) == (10.0, 10.0, None)
    assert (goes_on.cont_at, later.cont_at) == (12.0, 12.0)
    again = process(14.0, later, state="T")
    assert (again.stopped_at, again.cont_at) == (14.0, 12.0)
    assert (still.gone_since, goes_on.gone_since, again.gone_since) == (10.0, UNKNOWN_S, 13.0)
    assert process(15.0, still, alive=False, state="T").stopped_at is None


def test_unknown_times_are_endless() -> None:
    row = PROC.empty(1)[0]
    row["quiet_us"], row["busy_us"] = 0xFFFF_FFFF, 2_000_000
    known: dict[int, Process] = {}
    hear(known, np.array([row]), [1.0])
    found = known[0]
    assert (found.quiet_s, found.busy_s) == (float("inf"), 2.0)


def doing(job: LiveJob, rank: int) -> Doing:
    """What a rank does in AllReduce 21 of dp, in which rank 0 stands."""
    moment = job.moment()
    (operation,) = operations(moment, np.flatnonzero(moment.states.rows["rank"] == 0))
    assert (operation.seq, operation.ranks) == (21, [0, 1, 2, 3])
    return Doing(operation.doing[rank])


@pytest.mark.parametrize(
    ("launched", "ended", "called", "flags", "wanted"),
    [
        (21, 21, 0, 0, Doing.PAST),
        (24, 23, 0, 0, Doing.PAST),
        (21, 20, 0, 0, Doing.LAUNCHED),
        (23, 20, 0, 0, Doing.LAUNCHED),
        (20, 20, 0, 0, Doing.ABSENT),
        (20, 20, 1, 0, Doing.CALLED),
        (18, 18, 1, 0, Doing.ABSENT),
        (20, 20, 0, Flag.FINALISED, Doing.LEFT),
        (20, 20, 0, Flag.ABORTED, Doing.UNKNOWN),
    ],
)
def test_what_a_position_says(launched: int, ended: int, called: int, flags: int, wanted: Doing) -> None:
    job = LiveJob(FOUR)
    job.stands(0, "dp", 21)
    job.at(1, "dp", launched, ended, called=called, flags=flags)
    assert doing(job, 1) == wanted


@pytest.mark.parametrize(
    ("kind", "current", "flags", "wanted"),
    [
        (Kind.STATE, 1, 0, Doing.STANDS),
        (Kind.STATE, 2, 0, Doing.MAY_STAND),
        (Kind.ORPHAN, 1, Flag.DIED, Doing.STANDS),
        (Kind.ORPHAN, 1, Flag.OVERWRITTEN, Doing.UNKNOWN),
    ],
)
def test_what_a_state_says(kind: Kind, current: int, flags: int, wanted: Doing) -> None:
    job = LiveJob(FOUR)
    job.stands(0, "dp", 21)
    row = job.stands(1, "dp", 21, current=current)
    row["kind"], row["flags"] = kind, flags
    assert doing(job, 1) == wanted


def test_nothing_to_go_by() -> None:
    job = LiveJob(FOUR)
    job.stands(0, "dp", 21)
    assert doing(job, 1) == Doing.UNKNOWN


def test_absence_needs_a_word_of_its_host_later_than_the_launch() -> None:
    """A flush within a second of the others' launch proves nothing."""
    job = LiveJob(FOUR, mute=["h001"])
    job.stands(0, "dp", 21, age=3.0)
    job.at(1, "dp", 20, 20)
    for spoke, wanted in ((NOW - 2.1, Doing.UNKNOWN), (NOW - 1.9, Doing.ABSENT)):
        board = job.board()
        board.take(job.flush("h001", 1), spoke)
        moment = board.moment(JOB_ID, ATTEMPT_ID, NOW)
        (operation,) = operations(moment, np.flatnonzero(moment.states.rows["rank"] == 0))
        assert operation.doing[1] == wanted


def test_a_pair_of_which_nothing_is_told_yet() -> None:
    """A rank that tells of its sends, and not of this one, may have it in a message to come."""
    job = LiveJob({"pp": range(2)})
    job.state(0, "pp", 3, func=Func.SEND, peer=1)
    job.at(1, "pp", 7, 7, func=Func.RECV)
    moment = job.moment()
    (operation,) = operations(moment, np.arange(1))
    assert (operation.pair, operation.doing) == ((0, 1), [Doing.STANDS, Doing.UNKNOWN])
    job.at(1, "pp", 2, 2, func=Func.RECV, peer=0)
    (operation,) = operations(job.moment(), np.arange(1))
    assert operation.doing == [Doing.STANDS, Doing.ABSENT]


def test_a_flush_that_comes_in_the_middle_of_a_look_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks in a thread of its own, while its event loop goes on hearing hosts."""
    job = standing()
    board = LiveBoard()
    for announcement in job.announcements():
        board.announce(announcement)
    board.take(job.flush("h000", 0), NOW)
    joined, late = RecordType.joined, [job.flush("h001", 0)]

    def interrupted(record: RecordType, parts: Iterable[Records]) -> Records:
        found = joined(record, parts)
        if late:
            board.take(late.pop(), NOW)
        return found

    monkeypatch.setattr(RecordType, "joined", interrupted)
    first = board.moment(JOB_ID, ATTEMPT_ID, NOW)
    assert not late
    assert set(first.states.rows["rank"].tolist()) == {0}, "what comes during a look counts in the next"
    second = board.moment(JOB_ID, ATTEMPT_ID, NOW)
    assert set(second.states.rows["rank"].tolist()) == {0, 1}
    assert set(second.positions.rows["rank"].tolist()) == {0, 1}


def test_what_is_recalled_is_older_than_what_was_heard() -> None:
    """A worker that takes over recalls who was announced before; it does not bring back who left since."""
    job = LiveJob({"dp": range(2)})
    (announcement, other) = job.announcements()
    newer = replace(announcement, library="NCCL 2.30.7")
    board = LiveBoard()
    board.announce(newer)
    board.recall(announcement)
    board.recall(other)
    board.take(job.flush("h000"), NOW)
    moment = board.moment(JOB_ID, ATTEMPT_ID, NOW)
    assert set(moment.announcements.values()) == {newer, other}
    board.announce(announcement)
    assert announcement in board.moment(JOB_ID, ATTEMPT_ID, NOW).announcements.values()
