"""How far the rings were read, for the collector that comes next: a small file beside those of the plugin.

A collector that is started again reads the ring of a living process from its oldest record, since positions
and usual durations depend on what is there. What its predecessor had told of it must be neither sent nor
summed again. So a collector notes for each process which records Kafka has: those whose sums still collect in
memory, wait in the backlog or are on their way do not count. After a clean stop the note is exact. After a
kill it lags by what was delivered since it was last written, which is told twice; nothing is left out.

The file is this module's alone, and believed only where the collector's own user wrote it.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

NAME = "collector.cursor"
"""No name that discovery takes for a file of the plugin."""
VERSION = 1
MAX_BYTES = 1 << 20
_MOST = 1 << 62
_TEMPORARY = NAME + ".new"
_WRITE_NS = 950_000_000
"""The file is written at most so often: each second, and ticks are not exact."""

log = logging.getLogger(__name__)


class Who(NamedTuple):
    """One file of the plugin: its name holds pid, start and a nonce, so nobody else's ever matches."""

    name: str
    inode: int


@dataclass(frozen=True)
class Position:
    """What is known to have been told of one process.

    Records of its ring before number `told` were sent, as far as the budget went, and operations among them
    summed; flows among those before `summed`, never beyond `told`, were summed too. `drops` are the events
    that its plugin could not take, as far as Cursor.lost contains them.
    """

    told: int = 0
    summed: int = 0
    drops: int = 0


NOTHING_TOLD = Position()


@dataclass(frozen=True)
class Cursor:
    """What a collector leaves to the next: by process what was told, and how many records were lost in all.

    `lost` counts up to each process's `summed`: what was lost later will be found lost again.
    """

    lost: int = 0
    positions: Mapping[Who, Position] = field(default_factory=dict)


class Unreadable(ValueError):
    """A cursor file that is not to be believed; the text says why."""


def encode(cursor: Cursor) -> bytes:
    """The cursor as the bytes of its file."""
    processes = [
        {"file": who.name, "inode": who.inode, "told": each.told, "summed": each.summed, "drops": each.drops}
        for who, each in cursor.positions.items()
    ]
    text = json.dumps(
        {"version": VERSION, "lost": cursor.lost, "processes": processes}, separators=(",", ":")
    )
    return text.encode()


def decode(raw: bytes) -> Cursor:
    """The cursor in the bytes of a file. Raises Unreadable: one number that cannot be is enough."""
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Unreadable("it is cut or garbage") from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise Unreadable("it is of another version")
    rows = found.get("processes")
    if not isinstance(rows, list):
        raise Unreadable("it names no processes")
    positions: dict[Who, Position] = {}
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("file"), str):
            raise Unreadable("a process of it has no file")
        who = Who(row["file"], _number(row, "inode"))
        each = Position(*(_number(row, name) for name in ("told", "summed", "drops")))
        if who in positions or each.summed > each.told:
            raise Unreadable(f"what it says of {who.name!r} contradicts itself")
        positions[who] = each
    return Cursor(_number(found, "lost"), positions)


def _number(row: dict[str, Any], name: str) -> int:
    value = row.get(name)
    if type(value) is not int or not 0 <= value < _MOST:
        raise Unreadable(f"its {name} is no number that can be")
    return value


class Progress:
    """What has been told so far, and of that what Kafka has. Pure; for one thread.

    Flushes are numbered in the order in which they are queued; the caller says up to which all are delivered.
    """

    def __init__(self, before: Cursor) -> None:
        """`before` is what the predecessor left."""
        self.delivered = before
        self._latest = before
        self._waiting: deque[tuple[int, Cursor]] = deque()

    def of(self, who: Who) -> Position:
        """What is known to have been told of a process."""
        return self.delivered.positions.get(who, NOTHING_TOLD)

    def note(
        self, number: int, read: Mapping[Who, tuple[int, int]], present: Set[Who], summed: bool, lost: int
    ) -> None:
        """All that was read so far is told in the flushes up to `number`, sums of flows only if `summed`.

        `read`: by process the number of the next record of its ring, and its plugin's drops. `present`: all
        files that there are. `lost`: all records lost so far, those drops among them.
        """
        positions = {who: each for who, each in self._latest.positions.items() if who in present}
        for who, (next_record, drops) in read.items():
            before = positions.get(who, NOTHING_TOLD)
            told = max(next_record, before.told)  # what was told before is still being read
            positions[who] = (
                Position(told, told, drops) if summed else Position(told, before.summed, before.drops)
            )
        self._latest = Cursor(lost if summed else self._latest.lost, positions)
        self._waiting.append((number, self._latest))

    def settle(self, number: int) -> None:
        """Flushes up to `number` have been delivered."""
        found = self.delivered
        while self._waiting and self._waiting[0][0] <= number:
            found = self._waiting.popleft()[1]
        if found != self.delivered:
            self.delivered = found


class CursorFile:
    """The file in one directory. Whatever is wrong with it is said once; the collector goes on without."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written = Cursor()
        self._next = 0
        self._said = False

    def load(self) -> Cursor:
        """What the predecessor left; an empty cursor where it left nothing that can be believed."""
        found = Cursor()
        try:
            raw = _read(self._directory / NAME)
            if raw is not None:
                found = decode(raw)
        except (Unreadable, OSError) as error:
            reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else error
            log.warning(
                "%s is not used: %s; what the rings hold of running jobs is told again",
                self._directory / NAME, reason,
            )  # fmt: skip
        self._written = found
        return found

    def save(self, cursor: Cursor, now: int, last: bool = False) -> None:
        """Writes what has changed, at most once a second, `last` at once; `now` is ns of the monotonic clock.

        A cursor without processes is of no use to anybody: its file is removed.
        """
        if cursor is self._written or (now < self._next and not last):
            return
        self._next = now + _WRITE_NS
        try:
            if cursor.positions:
                _replace(self._directory, encode(cursor))
            else:
                (self._directory / NAME).unlink(missing_ok=True)
            self._written, self._said = cursor, False
        except OSError as error:
            if not self._said:
                log.warning(
                    "%s cannot be written: %s; a collector that follows tells again what the rings hold",
                    self._directory / NAME, os.strerror(error.errno or 0),
                )  # fmt: skip
            self._said = True


def _read(path: Path) -> bytes | None:
    """The file's bytes, None where there is none. Raises OSError, Unreadable where it may be another's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise Unreadable("it is not a regular file of one name")
        if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Unreadable("another user may have written it")
        raw = os.read(fd, MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(raw) > MAX_BYTES:
        raise Unreadable(f"it is larger than {MAX_BYTES} bytes")
    return raw


def _replace(directory: Path, raw: bytes) -> None:
    """Puts the bytes in the file's place, whole or not at all, readable by its owner. Raises OSError."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(_TEMPORARY, flags, 0o600, dir_fd=folder)
        except FileExistsError:  # of one that was killed while it wrote
            os.unlink(_TEMPORARY, dir_fd=folder)
            fd = os.open(_TEMPORARY, flags, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as file:
            file.write(raw)
        os.rename(_TEMPORARY, NAME, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
