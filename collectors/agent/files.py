"""Which processes are traced just now: comes, goes, refuses, removes.

A file that cannot be read is refused, said once, and looked at again from time to time: it may be one that is
just being made. The file of a dead process stays until what it held has been delivered and for a while
longer, so that the others hear of the death more than once.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from collectors.agent import procfs
from collectors.agent.cursor import NOTHING_TOLD, Position, Who
from collectors.agent.discovery import Lives, OpenFile, names, open_file
from collectors.agent.groups import stacked
from collectors.agent.layout import NotOurs, Raw
from collectors.agent.metrics import Metrics
from collectors.agent.native import Verdict
from collectors.agent.process import Traced
from collectors.agent.ring import NOTHING, Drained
from collectors.agent.snapshot import Failed, HostReader, Snapshot
from collectors.agent.translate import COMM_FACTS

MAX_PROCESSES = 512
MAX_NAMES = 4 * MAX_PROCESSES
"""Names that a scan looks at: anybody may make any number of them."""
MAX_REFUSALS_SAID = 20
_RETRY_NS = 1_000_000_000
_SAY_AFTER_NS = 2_000_000_000
"""A file without its magic is being made: said only when it stays so."""
_KEEP_NS = 600_000_000_000
"""The file of a dead process goes after so long even if Kafka is away all the time: others need room."""

log = logging.getLogger(__name__)

_T = TypeVar("_T")


@dataclass
class _Refused:
    reason: str
    first: int
    tried: int
    inode: int
    said: bool = False


@dataclass(frozen=True)
class Readings:
    """What one tick read: the processes, their tables, what their rings held, COMM_FACTS of all slots."""

    traced: list[Traced]
    snapshot: Snapshot
    drained: list[Drained]
    facts: Raw

    def __len__(self) -> int:
        return len(self.traced)


def identities(communicators: Raw) -> npt.NDArray[np.uint64]:
    """What changes when a communicator comes, goes or becomes known, shape (slots, 5)."""
    parts = [communicators[name] for name in ("generation", "state", "comm_id")]
    rank, launched = communicators["rank"].view(np.uint32), communicators["launches"] > 0
    return np.stack([*parts, rank, launched], axis=1).astype(np.uint64)


class DirectoryTaken(RuntimeError):
    """Another collector reads the directory; the text is one line."""


class Files:
    """The files of one directory. Times are ns of the monotonic clock.

    `known` says what an earlier collector has told of a process, when its file is opened.
    """

    def __init__(
        self,
        directory: Path,
        host: str,
        metrics: Metrics,
        linger_ns: int,
        proc: Path = procfs.PROC,
        owners: frozenset[int] | None = None,
        known: Callable[[Who], Position] = lambda _: NOTHING_TOLD,
    ) -> None:
        self._directory, self._host, self._metrics, self._owners = directory, host, metrics, owners
        self._linger_ns, self._known = linger_ns, known
        self._lives = Lives(proc)
        self._boot_ns = procfs.boot_time_ns(proc) or 0
        self._refused: dict[str, _Refused] = {}
        self._done: dict[str, int] = {}
        self._fd = -1
        self._absent = False
        self._names: frozenset[str] = frozenset()
        self._crowded = False
        self._refusals = 0
        self._reader = HostReader()
        self._joined: Raw = np.empty(0, COMM_FACTS)
        self._joined_of: list[int] = []
        self._identity = np.zeros((0, 5), np.uint64)
        self._lived_at = -1
        self.traced: dict[str, Traced] = {}
        """By file name."""
        self.present: frozenset[Who] = frozenset()
        """What may be files of the plugin, read or not, as of the last scan."""

    @property
    def held(self) -> bool:
        """Whether the directory is there, and this collector's alone."""
        return self._fd >= 0

    def take(self) -> None:
        """Opens the directory for this collector alone, if it is there.

        The lock lasts as long as the directory does: one that is removed and made again is taken again.
        Raises DirectoryTaken, and OSError where it cannot be read.
        """
        if self._fd >= 0:
            return
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise DirectoryTaken(
                f"another collector reads {self._directory} (or something else holds its lock, see lslocks): "
                "one a host is enough"
            ) from error
        self._fd = fd

    def scan(self, now: int) -> None:
        """Opens what is new and lets go of what has gone or was replaced. Raises DirectoryTaken."""
        present = self._present()
        self.present = frozenset(Who(name, inode) for name, (inode, _) in present.items())
        for name in [name for name in self.traced if name not in present]:
            log.info("%s: its file is gone", name)
            self.drop(name)
        self._refused = {name: known for name, known in self._refused.items() if name in self._names}
        if not self._refused:
            self._refusals = 0
        self._done = {
            name: inode for name, inode in self._done.items() if present.get(name, (0, 0))[0] == inode
        }
        for name, (inode, size) in present.items():
            traced = self.traced.get(name)
            if traced is not None and traced.file.inode == inode and size < traced.file.size:
                self.refuse(name, "it was cut while in use", now)
                traced = None
            if traced is not None and traced.file.inode != inode:
                log.warning("%s: another file has taken its name", name)
                self.drop(name)
                traced = None
            if traced is None and name not in self._done:
                self._open(name, inode, now)
        self._metrics.set("files_refused", len(self._refused))
        self._metrics.set("files_not_removable", len(self._done))

    def glance(self, now: int, age_ns: int) -> Verdict:
        """A first copy of what is in flight, and what it says: as HostReader.glance, or FAILED."""
        try:
            return self._reader.glance([each.reader for each in self.traced.values()], now, age_ns)
        except Failed:
            return Verdict.FAILED

    @property
    def heard(self) -> Raw:
        """When each process was last heard of, as of the last glance or reading (native.HEARD)."""
        return self._reader.heard

    def read(self, now: int, drain: bool = True, glanced: bool = False) -> Readings:
        """Reads every process, with what has finished if `drain` says so or a ring fills up.

        `glanced`: a glance was just taken, it is the first copy, and rings are left alone. Else they come
        first, so that what ends meanwhile is in flight, never missing. A file that turns out to be nonsense
        is refused from now on.
        """
        drained: dict[str, Drained] = {}
        while True:
            names, traced = list(self.traced), list(self.traced.values())
            readers = [each.reader for each in traced]
            try:
                if glanced:
                    drained = dict.fromkeys(names, NOTHING)
                else:
                    headers = self._reader.headers(readers)
                    self._drain(now, headers, drained, drain)
                    if len(self.traced) < len(names):
                        continue
                snapshot = self._reader.snapshot(now, glanced)
            except Failed as error:
                glanced = False
                for number, reason in error.reasons.items():
                    self.refuse(names[number], reason, now)
                continue
            return Readings(
                traced, snapshot, [drained[name] for name in names], self._facts(traced, snapshot)
            )

    def _drain(self, now: int, headers: Raw, drained: dict[str, Drained], wanted: bool) -> None:
        """What the rings of all processes hold into `drained`; refuses those that cannot be read."""
        for (name, each), header in zip(list(self.traced.items()), headers, strict=True):
            if name not in drained:
                found = self._guarded(name, now, partial(each.drain, header, wanted))
                if found is not None:
                    drained[name] = found

    def _facts(self, traced: list[Traced], snapshot: Snapshot) -> Raw:
        """COMM_FACTS of all slots of `snapshot.communicators`; most ticks only positions have changed."""
        raw, ids = snapshot.communicators, [each.id for each in traced]
        identity = identities(raw)
        if ids != self._joined_of or not np.array_equal(identity, self._identity):
            ends = np.cumsum(snapshot.comm_count).tolist()
            for each, end, count in zip(traced, ends, snapshot.comm_count.tolist(), strict=True):
                each.note(identity[end - count : end], raw[end - count : end])
            self._joined = stacked([each.facts for each in traced], COMM_FACTS).copy()
            self._joined_of, self._identity = ids, identity
        self._joined["moved_base"] = raw["moved_base"]
        return self._joined

    def live(self, now: int) -> None:
        """Looks who lives, once a tick, before `read`: what is read after a death is the last there is."""
        if now == self._lived_at:
            return
        self._lived_at = now
        for traced in self.traced.values():
            if traced.died_at is None:
                traced.life = self._lives.of(traced.file.identity)
                if traced.life.alive is False:
                    traced.died_at = now

    def remove(self, now: int, delivered: bool) -> None:
        """Removes the files of the dead that are read to the end, told of, delivered and old enough."""
        for name, traced in list(self.traced.items()):
            if traced.died_at is None or not traced.told_dead or not traced.drained:
                continue
            age = now - traced.died_at
            if age >= _KEEP_NS or (age >= self._linger_ns and delivered):
                self._remove(name, traced)

    def refuse(self, name: str, reason: str, now: int) -> None:
        """Do not read this file (any more)."""
        traced = self.traced.get(name)
        inode = traced.file.inode if traced is not None else self._refused[name].inode
        self.drop(name)
        self._refuse(name, inode, reason, now)

    def drop(self, name: str) -> None:
        """Let go of a file."""
        traced = self.traced.pop(name, None)
        if traced is not None:
            self._lives.forget(traced.file.identity)
            traced.file.close()

    def close(self) -> None:
        """Let go of all."""
        for name in list(self.traced):
            self.drop(name)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _present(self) -> dict[str, tuple[int, int]]:
        """Names of what may be files of the plugin, each with inode and size."""
        try:
            self.take()
            found = names(self._fd)
        except OSError as error:
            if not self._absent:
                why = os.strerror(error.errno or 0)
                log.info("%s: %s; waiting for a traced process to make it", self._directory, why)
            self._absent = True
            self._names = frozenset()
            return {}
        self._absent = False
        self._names = frozenset(found)
        if not found and os.fstat(self._fd).st_nlink == 0:  # removed; it may have been made again
            os.close(self._fd)
            self._fd = -1
        present: dict[str, tuple[int, int]] = {}
        for name in self._looked_at(found):
            try:
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                present[name] = (status.st_ino, status.st_size)
            except OSError:
                continue
        return present

    def _looked_at(self, found: list[str]) -> list[str]:
        """Of very many names, which anybody may make: what is read, then what is new, then the refused."""
        if len(found) <= MAX_NAMES:
            self._crowded = False
            return found
        if not self._crowded:
            log.warning(
                "%s: %d names, only %d are looked at: remove what is left over",
                self._directory, len(found), MAX_NAMES,
            )  # fmt: skip
            self._crowded = True
        return sorted(found, key=lambda name: (name not in self.traced, name in self._refused))[:MAX_NAMES]

    def _open(self, name: str, inode: int, now: int) -> None:
        known = self._refused.get(name)
        if known is not None and known.inode == inode and now - known.tried < _RETRY_NS:
            return

        def opened() -> Traced:
            if len(self.traced) >= MAX_PROCESSES:
                raise NotOurs(f"more than {MAX_PROCESSES} processes")
            file: OpenFile = open_file(self._fd, name, self._owners)
            try:
                return Traced(file, self._host, self._boot_ns, self._known(Who(name, file.inode)))
            except BaseException:
                file.close()
                raise

        traced = self._guarded(name, now, opened, inode)
        if traced is None:
            return
        traced.life = self._lives.of(traced.file.identity)
        if traced.life.alive is False:
            traced.died_at = now
        self._refused.pop(name, None)
        self.traced[name] = traced
        if not traced.job.named:
            log.warning("%s: its job has no name; set MYCROFT_JOB", name)

    def _guarded(self, name: str, now: int, do: Callable[[], _T], inode: int | None = None) -> _T | None:
        try:
            return do()
        except NotOurs as error:
            reason = str(error)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
        except Exception as error:  # whatever a hostile file makes of our arithmetic
            self._metrics.add("errors_total")
            log.exception("%s", name)
            reason = f"{type(error).__name__}: {error}"
        traced = self.traced.get(name)
        self.drop(name)
        self._refuse(name, traced.file.inode if traced is not None else inode or 0, reason, now)
        return None

    def _refuse(self, name: str, inode: int, reason: str, now: int) -> None:
        known = self._refused.get(name)
        if known is None or known.reason != reason or known.inode != inode:
            known = self._refused[name] = _Refused(reason, now, now, inode)
        known.tried = now
        if not known.said and (now - known.first >= _SAY_AFTER_NS or "magic" not in reason):
            known.said = True
            self._refusals += 1
            if self._refusals <= MAX_REFUSALS_SAID:
                log.warning("%s is not read: %s", name, reason)
            elif self._refusals == MAX_REFUSALS_SAID + 1:
                log.warning("%s: more files are not read, for reasons not said here", self._directory)

    def _remove(self, name: str, traced: Traced) -> None:
        inode = traced.file.inode
        self.drop(name)
        try:
            if os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_ino == inode:
                os.unlink(name, dir_fd=self._fd)
                self._metrics.add("files_removed_total")
        except OSError as error:
            self._done[name] = inode
            log.warning("%s cannot be removed: %s", name, os.strerror(error.errno or 0))
