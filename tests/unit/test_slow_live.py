"""Running jobs that become slow, the whole way that a worker goes, from flushes to incidents.

Four ranks on four hosts run one AllReduce after the other: each computes for COMPUTE_S and launches, and all
end together TRANSFER_S after the last launch. All of it is made of times by arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collectors.agent.summarise import coll_sums
from schemas.enums import Algo, DataType, Func, Kind, Proto, Visibility
from schemas.envelope import Envelope, MessageKind, decode, encode
from schemas.incidents import Incident
from schemas.members import Announcement, Member
from schemas.records import COLL, UNKNOWN_US, Records
from streams.incidentlog import live_changes
from streams.slow.cases import SlowCases
from streams.slow.diagnosis import found_in
from streams.slow.keeping import gathered, messages
from streams.slow.triggers import Limits
from streams.slow.watch import DETAIL_S, SlowBoard
from tests.records import dev_of

JOB, ATTEMPT, COMM, RANKS = 11, 22, 7, 4
BEGAN_S = 1_700_000_000
COMPUTE_S, TRANSFER_S = 0.095, 0.005
LIMITS = Limits(warmup_s=40)
FROM = 80
"""Second in which it becomes slow."""

Late = Callable[[int, int], float]
"""By how many s a rank computes longer, of second and rank."""


def late_rank(rank: int, by_s: float, until: int = 10**9) -> Late:
    return lambda second, each: by_s if each == rank and FROM <= second < until else 0.0


def all_late(by_s: float) -> Late:
    return lambda second, _: by_s if second >= FROM else 0.0


def flush(rank: int, rows: Records, at: float) -> Envelope:
    return Envelope(
        MessageKind.FLUSH, JOB, ATTEMPT, f"host-{rank}", through=int(at * 1e9),
        sections={COLL.name: COLL.joined([rows, coll_sums(rows)])},
    )  # fmt: skip


class SlowJob:
    """The job, its worker, and what is on the alerts topic."""

    def __init__(self, late: Late) -> None:
        self.late = late
        self.board, self.cases = SlowBoard(0), SlowCases(LIMITS)
        self.known: dict[str, Incident] = {}
        self.last_found: dict[str, float] = {}
        self.sent: list[tuple[int, Incident]] = []
        self.at_s, self.seq = 0.0, 0
        for rank in range(RANKS):
            member = Member(rank, dev_of(rank), rank, f"host-{rank}", None, 100 + rank, 0)
            self.board.announce(
                Announcement("job", JOB, "a", ATTEMPT, COMM, "world", f"host-{rank}", RANKS, RANKS, (member,))
            )

    def operations(self, second: int) -> list[Records]:
        """What each rank has finished by the end of a second, since the one before."""
        done: list[list[Records]] = [[] for _ in range(RANKS)]
        while True:
            launches = [self.at_s + COMPUTE_S + self.late(second, rank) for rank in range(RANKS)]
            end = max(launches) + TRANSFER_S
            if end > second + 1:
                return [COLL.joined(rows) for rows in done]
            self.seq += 1
            self.at_s = end
            for rank, launch in enumerate(launches):
                done[rank].append(self._row(rank, launch, end, second + 1))

    def _row(self, rank: int, launch: float, end: float, told: float) -> Records:
        row = COLL.empty(1)
        row["job"], row["attempt"], row["comm"], row["dev"] = JOB, ATTEMPT, COMM, dev_of(rank)
        row["rank"], row["nranks"], row["nnodes"], row["kind"], row["n"] = rank, RANKS, RANKS, Kind.DONE, 1
        row["func"], row["algo"], row["proto"] = Func.ALL_REDUCE, Algo.RING, Proto.SIMPLE
        row["visibility"], row["datatype"], row["peer"] = Visibility.FLOWS, DataType.FLOAT32, -1
        row["seq"], row["bytes"], row["count"], row["channels"] = self.seq, 1 << 20, 1 << 18, 1
        for name in ("api_us", "first_us", "kernel_start_us", "kernel_end_us", "quiet_us"):
            row[name] = UNKNOWN_US
        row["launched"] = BEGAN_S * 10**9 + round(launch * 1e9)
        row["end_us"], row["age_us"] = round((end - launch) * 1e6), round((told - launch) * 1e6)
        return row

    def restart(self) -> None:
        """Another worker takes over, with what is on the topics."""
        kept = [
            encode(each)
            for case in self.cases.running()
            for _, each in messages(case.job, case.attempt, case.looked, case.triggers.kept())
        ]
        self.cases = SlowCases(LIMITS)
        self.cases.restore(gathered(iter(kept)))
        self.last_found = {}

    def run(self, seconds: int, begin: int = 0) -> SlowJob:
        for second in range(begin, seconds):
            at = BEGAN_S + second + 1.0
            for rank, rows in enumerate(self.operations(second)):
                self.board.take(flush(rank, rows, at), at)
            for message in self.board.messages(at):
                self.cases.take(decode(encode(message)), at)
            for case, _, slow in self.cases.looks(at):
                found = found_in(case, slow)
                for incident in live_changes(
                    self.known, found, case.name, case.attempt_name, self.last_found, at, "now", "slow"
                ):
                    self.known[incident.id] = incident
                    self.sent.append((second, incident))
        return self

    @property
    def incidents(self) -> list[Incident]:
        return list(self.known.values())


def test_a_healthy_job_says_nothing() -> None:
    assert SlowJob(lambda *_: 0.0).run(FROM + 60).sent == []


def test_a_rank_that_launches_late_is_named_within_15_s() -> None:
    job = SlowJob(late_rank(2, 0.1)).run(FROM + 40)
    (incident,) = job.incidents
    assert (incident.kind, incident.category, incident.state) == ("slow", "late-launch", "open")
    assert [(node.rank, node.host) for node in incident.culprits] == [(2, "host-2")]
    assert incident.waiting == 3
    second, first = job.sent[0]
    assert FROM < second <= FROM + 15
    assert first.id == incident.id
    assert incident.since is not None
    assert incident.since[:19] in ("2023-11-14T22:14:40", "2023-11-14T22:14:41")  # 80 s after the begin


def test_it_is_closed_when_the_job_is_as_fast_as_before_and_its_revisions_count() -> None:
    job = SlowJob(late_rank(1, 0.1, until=FROM + 30)).run(FROM + 80)
    (incident,) = job.incidents
    assert incident.state == "closed"
    assert [node.rank for node in incident.culprits] == [1]
    assert [each.revision for _, each in job.sent] == list(range(1, len(job.sent) + 1))


def test_when_all_are_slower_nobody_is_accused() -> None:
    job = SlowJob(all_late(0.1)).run(FROM + 40)
    (incident,) = job.incidents
    assert (incident.kind, incident.category, incident.state) == ("slow", "unknown", "open")
    assert (incident.culprits, incident.candidates, incident.waiting) == ((), (), RANKS)
    assert "no rank is seen to make the others wait" in incident.summary
    # Computing and transfer took 0.1 s and take 0.2 s.
    assert "comes every 200 ms, usually 100 ms" in incident.evidence[0]
    assert "AllReduce of 1048576 bytes in world" in incident.evidence[0]


def test_a_worker_that_starts_goes_on_with_what_was_usual() -> None:
    """It names the rank at once: it need not learn for another LIMITS.warmup_s what is usual."""
    job = SlowJob(late_rank(2, 0.1)).run(FROM - 5)
    job.restart()
    job.run(FROM + 20, FROM - 5)
    (incident,) = job.incidents
    assert [node.rank for node in incident.culprits] == [2]


def test_an_open_incident_stays_the_same_over_a_restart_of_the_worker() -> None:
    job = SlowJob(late_rank(2, 0.1, until=FROM + 45)).run(FROM + 20)
    (before,) = job.incidents
    job.restart()
    job.run(FROM + 30, FROM + 20)
    (after,) = job.incidents
    assert (before.id, after.id, after.state) == (before.id, before.id, "open")
    job.run(FROM + 80, FROM + 30)
    (over,) = job.incidents
    assert (over.id, over.state) == (before.id, "closed")


def test_what_is_kept_in_another_version_is_learned_anew() -> None:
    job = SlowJob(late_rank(2, 0.1)).run(FROM)
    (case,) = job.cases.running()
    (message,) = [each for _, each in messages(JOB, ATTEMPT, case.looked, case.triggers.kept())]
    assert message.body is not None
    other = replace(message, body={**message.body, "version": 99})
    assert gathered(iter([encode(message)])).keys() == {(JOB, ATTEMPT)}
    assert gathered(iter([encode(message), encode(other), b"?"])) == {}


def test_details_come_every_few_seconds_and_rates_each_second() -> None:
    job = SlowJob(lambda *_: 0.0)
    kinds = []
    for second in range(21):
        at = BEGAN_S + second + 1.0
        for rank, rows in enumerate(job.operations(second)):
            sections = {COLL.name: COLL.joined([rows, coll_sums(rows)])}
            job.board.take(
                Envelope(
                    MessageKind.FLUSH, JOB, ATTEMPT, f"host-{rank}", through=int(at * 1e9), sections=sections
                ),
                at,
            )
        kinds += [(message.epoch, "lag" in message.sections) for message in job.board.messages(at)]
    epochs = [epoch for epoch, _ in kinds]
    assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
    assert [epoch for epoch, detailed in kinds if detailed] == [
        epoch for epoch in epochs if (epoch + 1) % DETAIL_S == 0
    ]
