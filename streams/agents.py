"""What a worker does with each message and each second: carries, sends, acknowledges; decides nothing.

Snapshots gather per trace partition, cases per partition of nccl.waits. A `step` sends what can be sent, as
soon as it can and at least once a second. Nothing is acknowledged before what follows from it has been taken
by the broker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias, TypeVar

import faust

from mycroft.settings import Settings
from schemas.deadletters import DeadLetter, encode_dead_letter
from schemas.envelope import Envelope, MessageKind, decode, encode, split
from schemas.ids import hex_id
from schemas.incidents import Incident, iso_time
from schemas.malformed import Malformed
from schemas.members import decode_members
from schemas.records import WAIT
from schemas.topics import ALERTS, BASELINES, DEAD, TRACE, VERDICTS, WAITS, Topic
from schemas.verdicts import Verdict, encode_verdict
from streams import facts as facts_of
from streams.clock import BrokerClock
from streams.diagnosis import diagnose
from streams.epochs import Case, EpochBoard, epoch_body
from streams.guard import guarded
from streams.incidentlog import changes, live_changes, read_incidents
from streams.live.board import LiveBoard
from streams.live.cases import LiveCase, LiveCases
from streams.live.recall import RECALL_S, read_announcements
from streams.live.watch import epochs, found_in
from streams.report import Occasion, incidents, knowledge
from streams.severity import Rules
from streams.slow.cases import SlowCase, SlowCases
from streams.slow.diagnosis import found_in as slow_found_in
from streams.slow.keeping import messages, read_kept
from streams.slow.triggers import Kept, Limits, Slow
from streams.slow.watch import SlowBoard
from streams.snapshots import Snapshot, SnapshotBoard, belongs, judge
from streams.topics import partitions

log = logging.getLogger(__name__)

KEEP_S = 10.0
"""What is usual is written down so often: as much is learned anew after a restart."""

T = TypeVar("T")

_WRITTEN = (ALERTS, BASELINES, DEAD, VERDICTS, WAITS)

Event: TypeAlias = "faust.EventT[bytes]"


class Worker:
    """State of one worker, and what it does with each message and each second."""

    def __init__(self, app: faust.App, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.trace_partitions = partitions(settings.kafka, TRACE.name)
        self.waits_partitions = partitions(settings.kafka, WAITS.name)
        self.clock = BrokerClock()
        self.rules = Rules.of(settings)
        self.topics = {topic.name: raw_topic(app, topic) for topic in _WRITTEN}
        self.wake = asyncio.Event()
        """Set when a step may have something to do before the second is over."""
        self.clear()

    def clear(self) -> None:
        """Forget everything: the partitions are assigned anew and read from the committed offsets."""
        self.snapshots: defaultdict[int, SnapshotBoard[Event]] = defaultdict(SnapshotBoard)
        self.epochs: defaultdict[int, EpochBoard[Event]] = defaultdict(
            lambda: EpochBoard(
                snapshot_timeout_s=self.settings.snapshot_timeout_s,
                epoch_timeout_s=self.settings.epoch_timeout_s,
            )
        )
        self.live: defaultdict[int, LiveBoard] = defaultdict(LiveBoard)
        self.cases: defaultdict[int, LiveCases] = defaultdict(
            lambda: LiveCases(self.trace_partitions, self.settings.epoch_timeout_s)
        )
        self.slow_boards: dict[int, SlowBoard] = {}
        self.slow_cases: defaultdict[int, SlowCases] = defaultdict(
            lambda: SlowCases(Limits.of(self.settings))
        )
        self.usual: dict[tuple[int, int], Kept] | None = None
        """What was usual of each job when this worker began."""
        self.usual_kept = time.monotonic()
        self.last_found: dict[str, float] = {}
        """When each open incident of a running job was last found, in seconds of time.monotonic()."""
        self.log: dict[str, Incident] | None = None
        self.recalled = False
        """Whether what was announced before this worker had its partitions is known."""

    async def send(
        self, topic: Topic, value: bytes, *, key: bytes | None = None, partition: int | None = None
    ) -> None:
        """Send and wait until the broker has it."""
        await (await self.topics[topic.name].send(key=key, value=value, partition=partition))

    async def aside(self, events: list[Event], stage: str, reason: str) -> None:
        """Put messages that could not be handled on nccl.dead."""
        for event in events:
            await self._aside(event.message, stage, reason)

    async def _aside(self, message: Any, stage: str, reason: str) -> None:
        letter = DeadLetter(
            message.topic, message.partition, message.offset, stage, reason, message.value or b""
        )
        await self.send(DEAD, encode_dead_letter(letter))

    async def members(self, event: Event) -> bool:
        """Take in an announcement; returns whether the event is kept for later acknowledgement."""
        announcement = decode_members(event.message.value or b"")
        partition = event.message.partition
        if not belongs(announcement, partition, self.trace_partitions):
            raise Malformed(
                f"communicator {hex_id(announcement.comm)} does not belong into partition {partition}"
            )
        if not announcement.imported:
            self.live[partition].announce(announcement)
            self.slow_board(partition).announce(announcement)
            return False
        self.snapshots[partition].announce(announcement, event)
        return True

    async def trace(self, event: Event) -> bool:
        """Take in a message of records."""
        board = self.snapshots[event.message.partition]
        board.at(event.message.offset)
        message = decode(event.message.value or b"")
        if message.kind == MessageKind.FLUSH:
            self.live[event.message.partition].take(message, event.message.timestamp)
            self.slow_board(event.message.partition).take(message, event.message.timestamp)
            return False
        if message.kind not in (MessageKind.IMPORT, MessageKind.END):
            raise Malformed(f"{message.kind.name} messages do not belong on {TRACE.name}")
        kept = board.take(message, event, time.monotonic())
        if message.kind == MessageKind.END:
            self.wake.set()
        return kept

    async def waits(self, event: Event) -> bool:
        """Take in an epoch or a marker."""
        message = decode(event.message.value or b"")
        board = self.epochs[event.message.partition]
        cases = self.cases[event.message.partition]
        if message.kind == MessageKind.LIVE_EPOCH:
            cases.take(message, event.message.timestamp)
            return False
        if message.kind == MessageKind.WINDOW:
            self.slow_cases[event.message.partition].take(message, event.message.timestamp)
            return False
        if message.kind == MessageKind.EPOCH:
            board.report(message, event, time.monotonic())
            self.wake.set()
            return True
        if message.kind != MessageKind.MARKER:
            raise Malformed(f"{message.kind.name} messages do not belong on {WAITS.name}")
        self.clock.observe(event.message.timestamp)
        board.mark(message.partition, time.monotonic())
        cases.mark(message.partition, time.monotonic())
        if cases.over(time.monotonic()):
            self.wake.set()
        return False

    async def step(self, tick: bool) -> None:
        """Send the epochs of whole snapshots, at a tick those of running jobs; judge what can be judged."""
        if tick and not self.recalled:
            await self._recall()
        epoch = int(self.clock.now())
        assigned = sorted(tp.partition for tp in self.app.consumer.assignment() if tp.topic == TRACE.name)
        for partition in assigned:
            for snapshot in self.snapshots[partition].settled(time.monotonic()):
                await self._guarded(
                    partial(self.report, partition, epoch, snapshot), snapshot.tokens, "watch", snapshot.job
                )
                self.snapshots[partition].drop(snapshot)
            if tick:
                await self._guarded(partial(self.watch, partition, epoch), [], "watch", 0)
                await self._guarded(partial(self.pace, partition), [], "watch", 0)
                marker = encode(Envelope(MessageKind.MARKER, epoch=epoch, partition=partition))
                targets = range(self.waits_partitions)
                await asyncio.gather(*(self.send(WAITS, marker, partition=target) for target in targets))
        for board in list(self.epochs.values()):
            for case in board.ready(time.monotonic()):
                await self._guarded(partial(self.judge, board, case), case.tokens, "diagnose", case.job)
                board.drop(case)
        for cases in list(self.cases.values()):
            for running in cases.close() if cases.over(time.monotonic()) else ():
                await self._guarded(partial(self.judge_live, running), [], "diagnose", running.job)

        if tick:
            for slow_cases in list(self.slow_cases.values()):
                await self._guarded(partial(self.judge_pace, slow_cases), [], "diagnose", 0)
            if time.monotonic() - self.usual_kept >= KEEP_S:
                self.usual_kept = time.monotonic()
                await self._guarded(self.keep, [], "diagnose", 0)

    async def _recall(self) -> None:
        """Learn who is in the communicators of running jobs."""
        since = self.clock.now() - RECALL_S
        for partition, announcement in await in_thread(read_announcements, self.settings.kafka, since):
            self.live[partition].recall(announcement)
        self.recalled = True

    async def _guarded(
        self, step: Callable[[], Awaitable[None]], events: list[Event], stage: str, job: int
    ) -> None:
        """Run a step and acknowledge what it rests on, whether it succeeded or was set aside."""
        await guarded(step, partial(self.aside, events, stage), f"{stage} of job {hex_id(job)}")
        for event in events:
            event.ack()

    async def report(self, partition: int, epoch: int, snapshot: Snapshot[Event]) -> None:
        """Send the waits of a whole snapshot to the judge of its job."""
        assert snapshot.end is not None
        judged = await in_thread(
            judge, snapshot.announcements.values(), snapshot.batches.values(), snapshot.job, snapshot.attempt
        )
        if judged.stray:
            log.warning("%s: %d records of unknown communicators or ranks", snapshot.end.job, judged.stray)
        judged.waits["epoch"], judged.waits["partition"] = epoch, partition
        body = epoch_body(snapshot.end, facts_of.encode(judged.facts), snapshot.missing())
        message = Envelope(
            MessageKind.EPOCH, snapshot.job, snapshot.attempt, epoch=epoch, partition=partition,
            sections={WAIT.name: judged.waits}, body=body,
        )  # fmt: skip
        for part in split(message):
            await self._to_judge(part)

    async def watch(self, partition: int, epoch: int) -> None:
        """Send the waits of all running jobs of one trace partition to their judges."""
        said = partial(epochs, self.live[partition], partition, epoch, self.clock.now())
        for message in await in_thread(lambda: list(said())):
            await self._to_judge(message)

    def slow_board(self, partition: int) -> SlowBoard:
        """The windows of one trace partition."""
        return self.slow_boards.setdefault(partition, SlowBoard(partition))

    async def pace(self, partition: int) -> None:
        """Send the windows of one trace partition that are over to the judges of their jobs."""
        told = partial(self.slow_board(partition).messages, self.clock.now())
        for message in await in_thread(lambda: list(told())):
            await self._to_judge(message)

    async def judge_pace(self, cases: SlowCases) -> None:
        """Tell what is slow, or is slow no more, in the jobs of one partition of nccl.waits."""
        if self.usual is None:
            self.usual = await in_thread(read_kept, self.settings.kafka)
        if not cases.restored:
            cases.restore(self.usual)
        latest: dict[int, tuple[SlowCase, Slow | None]] = {}
        for case, _, slow in await in_thread(lambda: list(cases.looks(self.clock.now()))):
            latest[id(case)] = case, slow
        for case, slow in latest.values():
            found = await in_thread(slow_found_in, case, slow)
            told = live_changes(
                await self._known(), found, case.name, case.attempt_name, self.last_found, time.monotonic(),
                iso_time(time.time_ns()), "slow",
            )  # fmt: skip
            await self._tell(told)

    async def keep(self) -> None:
        """Write down what is usual of each job, so that a worker that starts need not learn it anew."""
        for cases in self.slow_cases.values():
            for case in cases.running():
                for key, message in messages(case.job, case.attempt, case.looked, case.triggers.kept()):
                    await self.send(BASELINES, encode(message), key=key)

    async def _to_judge(self, message: Envelope) -> None:
        """Send an epoch to where its job is judged."""
        where = message.job % self.waits_partitions
        await self.send(WAITS, encode(message), key=hex_id(message.job).encode(), partition=where)

    async def _known(self) -> dict[str, Incident]:
        """The incidents on the alerts topic."""
        if self.log is None:
            self.log = await in_thread(read_incidents, self.settings.kafka)
        return self.log

    async def _tell(self, incidents: list[Incident]) -> None:
        """Put revisions of incidents on the alerts topic."""
        for incident in incidents:
            await self.send(ALERTS, json.dumps(incident.to_json()).encode(), key=incident.job.encode())
            (await self._known())[incident.id] = incident

    async def judge_live(self, case: LiveCase) -> None:
        """Tell what has changed with one running job."""
        found = await in_thread(found_in, case, self.clock.now(), self.rules)
        told = live_changes(
            await self._known(), found, case.name, case.attempt_name, self.last_found, time.monotonic(),
            iso_time(time.time_ns()),
        )  # fmt: skip
        await self._tell(told)

    async def judge(self, board: EpochBoard[Event], case: Case[Event]) -> None:
        """Diagnose one case and tell the world."""
        if case.end is None:
            raise Malformed("its epochs name no snapshot")
        now = time.time_ns()
        occasion = Occasion(
            case.end.job, case.end.attempt, case.job, case.attempt, now, case.end.blind,
            case.missing(), board.unread(case.missing(), time.monotonic()), sum(case.losses.values()),
        )  # fmt: skip
        found = await in_thread(_diagnose, occasion, case)
        told = changes(
            await self._known(), found, case.end.job, case.end.attempt, iso_time(case.attempt), iso_time(now)
        )
        await self._tell(told)
        verdict = Verdict(
            case.end.job, case.end.attempt, hex_id(case.end.snapshot), case.epoch(), iso_time(now),
            tuple(incident.id for incident in found), occasion.missing, occasion.lost,
        )  # fmt: skip
        await self.send(VERDICTS, encode_verdict(verdict), key=case.end.job.encode())
        log.info("%s %s: %d incidents", case.end.job, case.end.attempt, len(found))


def _diagnose(occasion: Occasion, case: Case[Any]) -> list[Incident]:
    waits = case.waits()
    known = knowledge(waits, case.facts, occasion, case.end)
    findings = diagnose(waits, known=known, incomplete=occasion.incomplete, precedence=case.facts.precedence)
    return incidents(occasion, case.facts, findings)


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Run a long computation off the event loop, so that the worker keeps its place in the group."""
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


def raw_topic(app: faust.App, topic: Topic) -> Any:
    """The topic as Faust has it, keys and values as bytes."""
    return app.topic(
        topic.name, key_type=bytes, key_serializer="raw", value_type=bytes, value_serializer="raw"
    )
