"""Which messages are stored together, such that every message is stored once whatever crashes when.

A *range* is a run of offsets of one partition, stored in one go under one token. ClickHouse drops an insert
whose token it has seen. So the same range, cut at the same offsets, may be stored twice without harm; the
same messages cut otherwise may not. The offsets of the cut must therefore outlive a crash:

    commit offset = first, metadata {"topic": id, "last": last, "at": time}     the intent
    insert under the token "id:partition:first-last"
    commit offset = last + 1, metadata {"topic": id}                            done

    crash before the intent   nothing was inserted; what is read again may be cut anywhere
    crash after it            the intent says where to cut, and the token makes the insert harmless
    crash after done          the next range begins behind this one

The topic's id stands in the token and in every commit, since offsets mean nothing in another topic of the
same name, be it one that was made anew or the embedded broker's after a restart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

Gap = tuple[int, int]
"""First missing offset, how many are missing."""


@dataclass(frozen=True)
class Intent:
    """What was to be stored when the process ended: offsets up to `last`, at `at` seconds."""

    last: int
    at: int


@dataclass(frozen=True)
class Range:
    """Messages first..last of one partition; `messages` are (offset, value), `gaps` what is missing.

    `at` is the time of ingestion of all its rows, in seconds.
    """

    topic: str
    partition: int
    topic_id: str
    first: int
    last: int
    at: int
    messages: tuple[tuple[int, bytes | None], ...]
    gaps: tuple[Gap, ...] = ()

    @property
    def token(self) -> str:
        """The same for the same messages cut at the same offsets, and for nothing else."""
        return f"{self.topic_id}:{self.partition}:{self.first}-{self.last}"

    @property
    def intent(self) -> str:
        """Metadata of the commit before the insert."""
        return json.dumps({"topic": self.topic_id, "last": self.last, "at": self.at}, separators=(",", ":"))

    @property
    def done(self) -> str:
        """Metadata of the commit after the insert."""
        return json.dumps({"topic": self.topic_id}, separators=(",", ":"))


@dataclass
class Cursor:
    """One partition as it is read: `position` is the next offset to store, `intent` what must come first.

    `compacted` topics have holes by nature; in others a hole is a loss. `size` is what it holds, in bytes,
    `caught_up` whether the broker has nothing more for now.
    """

    topic: str
    partition: int
    topic_id: str
    position: int
    intent: Intent | None = None
    compacted: bool = False
    caught_up: bool = False
    size: int = 0
    _messages: list[tuple[int, bytes | None]] = field(default_factory=list)
    _reached: int = 0

    def add(self, offset: int, value: bytes | None) -> None:
        """Takes the next message."""
        if not self._messages and self.intent is None and offset < self.position:
            self.position = offset  # the broker has lost its tail and gives these offsets out again
        self._messages.append((offset, value))
        self._reached = offset + 1
        self.caught_up = False
        self.size += len(value or b"")

    def at_end(self, offset: int) -> None:
        """Notes that there is nothing before `offset` that has not been added."""
        self._reached = max(self._reached, offset)
        self.caught_up = True

    def cut(self, now: int) -> Range | None:
        """The range to store next, None where there is none yet; `now` in seconds.

        With an intent it is exactly that one, and only once all of it has been read.
        """
        if self.intent is not None:
            if self._reached <= self.intent.last:
                return None
            last, at = self.intent.last, self.intent.at
        elif self._messages:
            last, at = self._messages[-1][0], now
        else:
            return None
        taken = tuple(message for message in self._messages if message[0] <= last)
        gaps = () if self.compacted else _gaps(self.position, last, [offset for offset, _ in taken])
        cut = Range(self.topic, self.partition, self.topic_id, self.position, last, at, taken, gaps)
        self._messages = self._messages[len(taken) :]
        self.size = sum(len(value or b"") for _, value in self._messages)
        self.position, self.intent = last + 1, None
        return cut


def start(
    committed: int | None, metadata: str | None, topic_id: str, oldest: int
) -> tuple[int, Intent | None]:
    """Where reading begins, by what the group has committed, and the intent to make good first.

    `committed` is None where nothing is, `oldest` the first offset then. What was committed for another
    topic of that name does not count.
    """
    said = _said(metadata)
    if committed is None or said.get("topic", topic_id) != topic_id:
        return oldest, None
    last, at = said.get("last"), said.get("at")
    if isinstance(last, int) and isinstance(at, int) and last >= committed:
        return committed, Intent(last, at)
    return committed, None


def _said(metadata: str | None) -> dict[str, object]:
    try:
        said = json.loads(metadata or "{}")
    except ValueError:  # somebody moved the group by hand, with a remark
        return {}
    return said if isinstance(said, dict) else {}


def _gaps(first: int, last: int, offsets: list[int]) -> tuple[Gap, ...]:
    found, expected = [], first
    for offset in [*offsets, last + 1]:
        if offset > expected:
            found.append((expected, offset - expected))
        expected = offset + 1
    return tuple(found)
