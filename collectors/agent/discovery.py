"""Whose files are there, and which of them may be read.

A file is `PID-START-NONCE.mycroft`. Anybody may have put anything into the directory, so a name decides
nothing: the file is opened without following links, has to be a regular file of an allowed owner with one
name, and its header has to agree with its name. Whatever is wrong is said once and the file is left alone.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collectors.agent import procfs
from collectors.agent.layout import HEADER, HEADER_BYTES, NotOurs, check_identity, offset_of, tables

_NAME = re.compile(r"(\d{1,10})-(\d{1,20})-([0-9a-f]{16})\.mycroft")


@dataclass(frozen=True)
class Identity:
    """One process instance, as its file tells; pid and namespace are the process's own."""

    pid: int
    start_ticks: int
    namespace: int
    nonce: int
    nonce_tag: int
    boot_id: str
    uid: int


@dataclass
class OpenFile:
    """A file of the plugin, open for reading. `inode` tells it from one that took its name later."""

    name: str
    fd: int
    inode: int
    size: int
    identity: Identity
    environment: dict[str, str]

    def close(self) -> None:
        """Gives the descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def names(directory: Path | int) -> list[str]:
    """Names that files of the plugin have, sorted; of a path or an open directory. Raises OSError."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))


def open_file(directory: int, name: str, owners: frozenset[int] | None = None) -> OpenFile:
    """Opens a file of the plugin, relative to an open directory.

    `owners`: user ids whose files are read; None for all. The file's owner has to be the user that its
    header names. Raises NotOurs with the reason.
    """
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotOurs("a symbolic link") from error
        raise NotOurs(f"cannot be opened: {os.strerror(error.errno or 0)}") from error
    try:
        return _checked(fd, name, owners)
    except BaseException:
        os.close(fd)
        raise


def _checked(fd: int, name: str, owners: frozenset[int] | None) -> OpenFile:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise NotOurs("not a regular file")
    if status.st_nlink > 1:
        raise NotOurs("it has another name too")
    if owners is not None and status.st_uid not in owners:
        raise NotOurs(f"it belongs to user {status.st_uid}, whose files are not read")
    raw = os.pread(fd, HEADER_BYTES, 0)
    if len(raw) < HEADER_BYTES:
        raise NotOurs(f"{len(raw)} bytes, shorter than a header")
    header = np.frombuffer(raw, HEADER)[0]
    check_identity(header, status.st_size)
    tables(header)
    found = _NAME.fullmatch(name)
    inside = (int(header["pid"]), int(header["start_ticks"]), int(header["nonce"]))
    if found is None or (int(found[1]), int(found[2]), int(found[3], 16)) != inside:
        raise NotOurs("its name and its header tell of different processes")
    if int(header["uid"]) != status.st_uid:
        raise NotOurs(f"it belongs to user {status.st_uid}, its header says {int(header['uid'])}")
    identity = Identity(
        inside[0], inside[1], int(header["pid_namespace"]), inside[2], int(header["nonce_tag"]),
        _uuid(bytes(header["boot_id"])), status.st_uid,
    )  # fmt: skip
    block = raw[offset_of(HEADER, "environment") :][: HEADER["environment"].itemsize]
    values = environment(block)
    if job := bytes(header["job"]).decode("utf-8", "replace"):
        values.setdefault("MYCROFT_JOB", job)
    return OpenFile(name, fd, status.st_ino, status.st_size, identity, values)


def environment(block: bytes) -> dict[str, str]:
    """KEY=VALUE entries, NUL-separated, up to an empty one; what is not one is passed over.

    >>> environment(b"A=1" + bytes(1) + b"x" + bytes(1) + b"B=2=3" + bytes(2) + b"C=4")
    {'A': '1', 'B': '2=3'}
    """
    found = {}
    for entry in block.split(b"\0"):
        if not entry:
            break
        key, equals, value = entry.decode("utf-8", "replace").partition("=")
        if equals and key:
            found[key] = value
    return found


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@dataclass(frozen=True)
class Life:
    """Whether a process lives: True, False, or None where this host does not let us see.

    `pid` is its number in the collector's PID namespace where known.
    """

    alive: bool | None
    pid: int | None = None
    status: procfs.Status | None = None


class Lives:
    """Finds processes in /proc; remembers the pid of those that have another one here."""

    def __init__(self, root: Path = procfs.PROC) -> None:
        self._root = root
        self._namespace = procfs.pid_namespace(root=root)
        self._boot = procfs.boot_id(root)
        self._here: dict[Identity, int | None] = {}

    def of(self, who: Identity) -> Life:
        """The life of a process.

        A process of an earlier boot is dead. One of this PID namespace is dead where its pid is free or was
        given to a later process. One of another namespace is looked for; once it has been seen, its going
        is its death, while one that was never seen stays unknown.
        """
        if self._boot and who.boot_id.strip("0-") and who.boot_id != self._boot:
            return Life(False)
        if who.namespace == self._namespace or not who.namespace:
            return self._at(who.pid, who)
        if self._here.get(who) is None:
            self._here[who] = procfs.find_pid(who.pid, who.namespace, who.start_ticks, self._root)
        here = self._here[who]
        return Life(None) if here is None else self._at(here, who)

    def forget(self, who: Identity) -> None:
        """A process whose file is gone."""
        self._here.pop(who, None)

    def _at(self, pid: int, who: Identity) -> Life:
        status = procfs.status(pid, self._root)
        if status is None:
            # A process that exists but cannot be read (hidepid) looks like none; signal 0 tells them apart.
            return Life(None, pid) if self._root == procfs.PROC and _exists(pid) else Life(False, pid)
        if status.start_ticks != who.start_ticks:
            return Life(False)
        return Life(not (status.ending and procfs.ended(pid, self._root)), pid, status)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
