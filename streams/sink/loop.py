"""The sink's loop: reads, stores ranges, commits (the protocol stands in ranges.py).

It never leaves its group because ClickHouse is away: it stops fetching, keeps polling and tries again. What
a message is worth is decided in rows.py; here one that cannot be read, or that the store refuses, is set
aside in nccl.dead and the rest goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from mycroft.settings import Settings
from schemas.deadletters import DeadLetter, encode_dead_letter
from schemas.malformed import Malformed
from schemas.topics import DEAD, SINK_GROUP, TOPICS
from streams.kafka import (
    ANSWER_TIMEOUT_S,
    BrokerError,
    BrokerUnreachable,
    consumer,
    error_of,
    is_embedded,
    metadata,
    producer,
)
from streams.sink.losses import Loss, Sources, offset_gaps
from streams.sink.ranges import Cursor, Range, start
from streams.sink.rows import STAGE, Rows, dead_rows, decode_message, loss_rows
from streams.sink.store import RowsRefused, Store, StoreAway
from streams.topics import ensure_topics, topic_ids

LINGER_S = 0.5
"""How long a message may wait for others: readers of the tables wait as long."""
INSERTS_PER_S = 50
"""With very many partitions the linger grows: ClickHouse must merge the parts that inserts make."""
EAGER_BYTES = 512 * 1024
"""This much is stored without lingering where the broker has no more: its writer may wait for our lag."""
MAX_BYTES = 32 * 1024 * 1024
"""Never more than this in memory, beside what librdkafka has fetched ahead."""

REFUSED_WINDOW = 1000
REFUSED_LIMIT = 500
"""Of a partition's last REFUSED_WINDOW messages; more than that is a wrong table, not wrong messages."""

_POLL_S = 0.1
_BATCH = 500
_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 5.0
_MAX_POLL_INTERVAL_MS = (
    15 * 60 * 1000
)  # one insert may take the store's read time-out, and more than one fails
_PAYLOAD_LIMIT = 600 * 1024  # in base64 and JSON that stays below the broker's usual limit of 1 MB

_COMPACTED = frozenset(topic.name for topic in TOPICS if ("cleanup.policy", "compact") in topic.config)
_ORDER = {topic.name: place for place, topic in enumerate(TOPICS)}

log = logging.getLogger(__name__)


class TooManyRefused(RuntimeError):
    """The store refuses most of what a partition brings; the text is one line."""


class _Reassigned(Exception):
    """Partitions changed hands: what is in hand is somebody's, maybe ours, to read again."""


class _Stopping(Exception):
    """Told to stop while waiting."""


def run_sink(settings: Settings, stop: threading.Event) -> None:
    """Stores everything until `stop` is set; then stores what it holds and leaves the group.

    Blocks. Waits for Kafka and ClickHouse wherever they are away. Raises BrokerError where Kafka refuses
    its work and TooManyRefused where the store does.
    """
    while not stop.is_set():
        try:
            ensure_topics(settings)
        except BrokerUnreachable as error:
            log.warning("%s (trying again)", error)
        else:
            Sink(settings, stop).run()


class Sink:
    """One member of the group."""

    def __init__(self, settings: Settings, stop: threading.Event) -> None:
        self._bootstrap = settings.kafka
        self._stop = stop
        self._store = Store(settings.clickhouse)
        self._letters = producer(settings.kafka, "sink", message_timeout_ms=0)
        self._consumer: Consumer = consumer(
            settings.kafka,
            "sink",
            SINK_GROUP,
            enable_partition_eof=True,
            max_poll_interval_ms=_MAX_POLL_INTERVAL_MS,
            queued_max_messages_kbytes=MAX_BYTES // 1024,
        )
        self._cursors: dict[tuple[str, int], Cursor] = {}
        self._sources: dict[tuple[str, int], Sources] = {}
        self._refused: dict[tuple[str, int], deque[int]] = {}
        self._assignments = 0
        self._paused = False
        self._flushed = time.monotonic()

    def run(self) -> None:
        """See run_sink."""
        names = [topic.name for topic in TOPICS]
        self._consumer.subscribe(names, on_assign=self._on_assign, on_revoke=self._drop, on_lost=self._drop)
        try:
            while not self._stop.is_set():
                self._poll(_POLL_S)
                if self._due():
                    self._flush()
            self._flush()
        except _Stopping:
            log.warning("stopped while waiting; what was not stored is read again at the next start")
        finally:
            self._consumer.close()
            self._store.close()

    # -- reading

    def _poll(self, timeout_s: float) -> None:
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        for message in (first, *self._consumer.consume(_BATCH, 0)):
            self._take(message)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if error.fatal():
                raise BrokerError(f"Kafka at {self._bootstrap}: {error.str()}")
            log.warning("Kafka at %s: %s", self._bootstrap, error.str())
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        cursor = self._cursors.get((topic, partition))
        if cursor is None:  # fetched before the partition went away
            return
        if error is not None:
            cursor.at_end(offset)
            return
        value = message.value()
        cursor.add(offset, None if value is None else bytes(value))

    def _due(self) -> bool:
        now = time.monotonic()
        cursors = self._cursors.values()
        size = sum(cursor.size for cursor in cursors)
        linger = max(LINGER_S, len(self._cursors) / INSERTS_PER_S)
        if size >= MAX_BYTES or now - self._flushed >= linger:
            return True
        return (
            size >= EAGER_BYTES
            and now - self._flushed >= linger / 5
            and all(cursor.caught_up for cursor in cursors)
        )

    # -- storing

    def _flush(self) -> None:
        """Stores what has been read so far, as one range of each partition."""
        self._flushed = time.monotonic()
        now = int(time.time())
        ranges = [cut for cursor in self._cursors.values() if (cut := cursor.cut(now))]
        if not ranges:
            return
        # Whoever reads a verdict looks for its incidents next.
        ranges.sort(key=lambda cut: _ORDER[cut.topic])
        assignments = self._assignments
        try:
            self._commit([_where(cut, cut.first, cut.intent) for cut in ranges], assignments)
            for cut in ranges:
                self._store_range(cut, assignments)
            self._commit([_where(cut, cut.last + 1, cut.done) for cut in ranges], assignments)
        except _Reassigned:
            log.info("partitions changed hands while storing; %d ranges are read again", len(ranges))
        finally:
            self._resume()

    def _store_range(self, cut: Range, assignments: int) -> None:
        unread: list[DeadLetter] = []
        refused: list[DeadLetter] = []
        tables: dict[str, list[tuple[int, Rows]]] = {}
        losses = offset_gaps(cut.gaps)
        sources = self._sources.setdefault((cut.topic, cut.partition), Sources())
        for offset, value in cut.messages:
            letter = DeadLetter(cut.topic, cut.partition, offset, STAGE, "", value or b"")
            try:
                decoded = decode_message(cut.topic, value, cut.at)
            except Malformed as error:
                unread.append(replace(letter, reason=str(error)))
                continue
            for rows in decoded.rows:
                tables.setdefault(rows.table, []).append((offset, rows))
            if decoded.numbered is not None:
                losses += sources.losses(decoded.numbered)
            if decoded.refused is not None:
                self._count(cut, offset)
                refused.append(
                    replace(letter, reason=decoded.refused.reason, payload=decoded.refused.payload)
                )
        values = dict(cut.messages)
        for parts in tables.values():
            for offset, reason in self._insert(cut.token, parts, assignments):
                self._count(cut, offset)
                payload = values[offset] or b""
                refused.append(DeadLetter(cut.topic, cut.partition, offset, STAGE, reason, payload))
        if losses:
            log.warning("%s partition %d: lost: %s", cut.topic, cut.partition, _words(losses))
            rows = loss_rows(cut.topic, cut.partition, losses, cut.at)
            list(self._insert(cut.token, [(cut.first, rows)], assignments))
        self._bury(cut, [*unread, *refused], assignments)

    def _insert(
        self, token: str, parts: list[tuple[int, Rows]], assignments: int
    ) -> Iterator[tuple[int, str]]:
        """Stores rows of one table, given by the offset of their message; yields what is refused and why.

        Refused rows are searched for by halves, each half under a token of its own.
        """
        joined = replace(parts[0][1], data=b"".join(rows.data for _, rows in parts))
        try:
            self._patiently(lambda: self._store.insert(joined, token), assignments)
        except RowsRefused as error:
            if len(parts) == 1:
                yield parts[0][0], str(error)
                return
            middle = len(parts) // 2
            for half in (parts[:middle], parts[middle:]):
                yield from self._insert(f"{token}/{half[0][0]}-{half[-1][0]}", half, assignments)

    def _count(self, cut: Range, offset: int) -> None:
        """Notes a message that the store refuses. Raises TooManyRefused."""
        recent = self._refused.setdefault((cut.topic, cut.partition), deque(maxlen=REFUSED_LIMIT + 1))
        recent.append(offset)
        if len(recent) > REFUSED_LIMIT and max(recent) - min(recent) < REFUSED_WINDOW:
            raise TooManyRefused(
                f"ClickHouse refuses {len(recent)} of the last {REFUSED_WINDOW} messages of {cut.topic} "
                f"partition {cut.partition}: do its tables and this version of Mycroft belong together?"
            )

    def _bury(self, cut: Range, letters: list[DeadLetter], assignments: int) -> None:
        """Rows in nccl.dead, once; and messages for whoever follows the topic, at least once.

        What came from that topic is not sent there again.
        """
        if not letters:
            return
        letters = [_within_limit(letter) for letter in letters]
        log.warning(
            "%s partition %d: %d messages go to %s, the first at offset %d: %s",
            cut.topic, cut.partition, len(letters), DEAD.name, letters[0].offset, letters[0].reason,
        )  # fmt: skip
        parts = [(letter.offset, dead_rows([letter], cut.at)) for letter in letters]
        for offset, reason in self._insert(f"{cut.token}:dead", parts, assignments):
            log.error(
                "%s partition %d offset %d cannot be kept: %s", cut.topic, cut.partition, offset, reason
            )
        if cut.topic == DEAD.name:
            return
        for letter in letters:
            self._letters.produce(DEAD.name, encode_dead_letter(letter), on_delivery=_delivered)
        while self._letters.flush(_POLL_S):
            self._idle(0, assignments)

    # -- waiting

    def _commit(self, offsets: list[TopicPartition], assignments: int) -> None:
        """Commits, waiting for a broker that is away. Raises _Reassigned where the group has moved on."""
        delay = _FIRST_BACKOFF_S
        while True:
            try:
                self._check(assignments)
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as exception:
                error = error_of(exception)
                log.warning("commit at %s: %s (trying again)", self._bootstrap, error.str())
                self._idle(delay, assignments)
                delay = min(2 * delay, _LAST_BACKOFF_S)
            else:
                return

    def _patiently(self, action: Callable[[], None], assignments: int) -> None:
        """Does it, waiting for a store that is away."""
        delay = _FIRST_BACKOFF_S
        told = False
        while True:
            try:
                action()
            except StoreAway as error:
                if not told:
                    log.warning("%s (waiting; Kafka keeps what comes)", error)
                    told = True
                self._idle(delay, assignments)
                delay = min(2 * delay, _LAST_BACKOFF_S)
            else:
                break
        if told:
            log.warning("ClickHouse is back")

    def _idle(self, seconds: float, assignments: int) -> None:
        """Lets time pass as a living member of the group that fetches nothing."""
        if assigned := self._consumer.assignment():
            self._consumer.pause(assigned)
            self._paused = True
        until = time.monotonic() + seconds
        while True:
            self._poll(max(0.0, min(_POLL_S, until - time.monotonic())))
            self._check(assignments)
            if self._stop.is_set():
                raise _Stopping
            if time.monotonic() >= until:
                return

    def _resume(self) -> None:
        if self._paused:
            self._consumer.resume(self._consumer.assignment())
            self._paused = False

    def _check(self, assignments: int) -> None:
        if assignments != self._assignments:
            raise _Reassigned

    # -- the group

    def _on_assign(self, client: Consumer, assigned: list[TopicPartition]) -> None:
        """Begins each partition where the group's commits say."""
        self._drop(client, assigned)
        began = self._from_kafka(lambda: self._begin(assigned))
        self._cursors = {(cursor.topic, cursor.partition): cursor for cursor in began}
        client.assign([TopicPartition(*key, cursor.position) for key, cursor in self._cursors.items()])
        # A partition that was paused when it went away comes back paused.
        client.resume(client.assignment())

    def _begin(self, assigned: list[TopicPartition]) -> list[Cursor]:
        ids = topic_ids(self._bootstrap, sorted({part.topic for part in assigned}))
        embedded = is_embedded(metadata(self._consumer, self._bootstrap))
        cursors = []
        for part in self._consumer.committed(assigned, timeout=ANSWER_TIMEOUT_S):
            # What the embedded broker has dropped before we came was never seen by anybody: it is a loss.
            # Elsewhere it is retention, and we are new here.
            oldest = 0
            if not embedded:
                oldest, _ = self._consumer.get_watermark_offsets(part, timeout=ANSWER_TIMEOUT_S)
            committed = part.offset if part.offset >= 0 else None
            topic_id = ids[part.topic]
            position, intent = start(committed, part.metadata, topic_id, oldest)
            compacted = part.topic in _COMPACTED and not embedded
            cursors.append(Cursor(part.topic, part.partition, topic_id, position, intent, compacted))
        return cursors

    def _from_kafka(self, ask: Callable[[], list[Cursor]]) -> list[Cursor]:
        """Asks until Kafka answers. The group waits meanwhile: librdkafka keeps the membership alive."""
        delay = _FIRST_BACKOFF_S
        while not self._stop.is_set():
            try:
                return ask()
            except (KafkaException, BrokerError) as error:
                log.warning("positions at %s: %s (trying again)", self._bootstrap, error)
            self._stop.wait(delay)
            delay = min(2 * delay, _LAST_BACKOFF_S)
        return []

    def _drop(self, _client: Consumer, _partitions: Iterable[TopicPartition]) -> None:
        """Forgets what was read and not stored: whoever gets the partitions reads it again."""
        self._assignments += 1
        self._cursors, self._sources = {}, {}


def _where(cut: Range, offset: int, said: str) -> TopicPartition:
    return TopicPartition(cut.topic, cut.partition, offset, said)


def _words(losses: list[Loss]) -> str:
    few = [f"{loss.missing} {loss.what} from {loss.first} {loss.source}".rstrip() for loss in losses[:5]]
    return "; ".join(few) + ("; …" if len(losses) > len(few) else "")


def _within_limit(letter: DeadLetter) -> DeadLetter:
    if len(letter.payload) <= _PAYLOAD_LIMIT:
        return letter
    reason = f"{letter.reason} (of {len(letter.payload)} bytes the first {_PAYLOAD_LIMIT} are kept)"
    return replace(letter, reason=reason, payload=letter.payload[:_PAYLOAD_LIMIT])


def _delivered(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        log.error("a dead letter did not reach %s: %s; its row is in the store", DEAD.name, error.str())
