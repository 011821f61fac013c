"""The order of NCCL's rings, from the log that it writes at INFO: no callback ever tells it.

Rank 0 logs each ring when a communicator is made ("Channel 00/02 : 0 1 2 3", its first 20 ranks); with
NCCL_DEBUG_SUBSYS=INIT,GRAPH every rank logs its own place too ("Ring 00 : 3 -> 0 -> 1"), at any size. The
line that ends the same thread's initialisation names the communicator. That of a split one names none: such
a ring stays unknown.
"""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Iterable, Mapping

from schemas.members import MAX_RANKS, RingPath

EVERY_NS = 1_000_000_000
"""How often the files are looked for and read."""
MAX_READ = 1 << 20
"""Bytes of each file that are taken at once, so that a log without end holds nobody."""
_MAX_LINE = 4096
_HEAD = 256
"""Bytes by which a file is known again: host, process and what it does first."""
_MAX_FILES = 512
MAX_PATHS = 1024
"""Paths of one communicator: 64 channels of 16 ranks of a host."""
_MAX_PENDING = 4096
"""Lines of threads that have not said yet which communicator they make."""
_LOGGED = 20
"""Ranks of a ring that NCCL's line holds (its MAXWIDTH)."""

_LINE = re.compile(r"(\S+:\d+:\d+) \[-?\d+\] NCCL INFO (.*)")
_CHANNEL = re.compile(r"Channel (\d+)/\d+ :((?:\s+\d+)+)\s*$")
_RING = re.compile(r"Ring (\d+) : (\d+) -> (\d+) -> (\d+)\s*$")
_MADE = re.compile(r"\S+ comm \S+ rank \d+ nranks (\d+) .*?(?:commId 0x([0-9a-f]+).*)?- ?Init COMPLETE")

log = logging.getLogger(__name__)


class RingOrders:
    """What lines of a log have said so far: `paths` by communicator id."""

    def __init__(self) -> None:
        self.paths: dict[int, tuple[RingPath, ...]] = {}
        self._pending: dict[str, list[RingPath]] = {}

    def take(self, line: str) -> None:
        """One line; nothing of it is trusted.

        >>> orders = RingOrders()
        >>> orders.take("n1:70:71 [0] NCCL INFO Channel 00/02 :    0   2   1")
        >>> orders.take("n1:70:71 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 3 cudaDev 0 "
        ...             "nvmlDev 0 busId 1c0 commId 0x1f - Init COMPLETE")
        >>> orders.paths
        {31: (RingPath(channel=0, ranks=(0, 2, 1, 0)),)}
        """
        if (found := _LINE.search(line)) is None:
            return
        thread, text = found[1], found[2]
        if (made := _MADE.match(text)) is not None:
            lines = self._pending.pop(thread, [])
            if made[2] is not None and lines:
                self._made(int(made[2], 16), int(made[1]), lines)
        elif (path := _path(text)) is not None:
            if thread not in self._pending and len(self._pending) >= _MAX_PENDING:
                self._pending.clear()
            lines = self._pending.setdefault(thread, [])
            if len(lines) < MAX_PATHS:
                lines.append(path)

    def _made(self, comm: int, nranks: int, lines: Iterable[RingPath]) -> None:
        paths = dict.fromkeys(self.paths.get(comm, ()))
        for path in lines:
            ranks = path.ranks
            if len(ranks) == nranks and ranks[0] != ranks[-1]:
                ranks = (*ranks, ranks[0])  # a ring that is logged whole closes
            if max(ranks) < nranks:
                paths[RingPath(path.channel, ranks)] = None
        if paths and comm <= (1 << 64) - 1:
            self.paths[comm] = tuple(list(paths)[:MAX_PATHS])


def _path(text: str) -> RingPath | None:
    if (found := _CHANNEL.match(text)) is not None:
        channel, ranks = int(found[1]), tuple(int(each) for each in found[2].split()[:_LOGGED])
    elif (found := _RING.match(text)) is not None:
        channel, ranks = int(found[1]), (int(found[2]), int(found[3]), int(found[4]))
    else:
        return None
    return RingPath(channel, ranks) if len(ranks) > 1 and max(ranks) <= MAX_RANKS else None


class RingLog:
    """Reads log files as they grow. `pattern`: a path, `*` in it as the shell has it; empty: nothing."""

    def __init__(self, pattern: str = "") -> None:
        self._pattern = pattern
        self._orders = RingOrders()
        self._at: dict[str, tuple[bytes, int]] = {}
        """How each file began, and how far it is read."""
        self._refused: set[str] = set()
        self._next = 0

    @property
    def paths(self) -> Mapping[int, tuple[RingPath, ...]]:
        """What is known: paths by the communicator's id."""
        return self._orders.paths

    def read(self, now: int) -> None:
        """Takes what was added; `now`: ns of the monotonic clock. Never raises."""
        if not self._pattern or now < self._next:
            return
        self._next = now + EVERY_NS
        names = glob.glob(self._pattern)  # noqa: PTH207 - pathlib's takes no absolute pattern
        for name in sorted(names)[:_MAX_FILES]:
            try:
                self._file(name)
            except OSError as error:
                if name not in self._refused:
                    self._refused.add(name)
                    log.warning("NCCL's log %s cannot be read: %s", name, os.strerror(error.errno or 0))

    def _file(self, name: str) -> None:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            head = os.pread(fd, _HEAD, 0)
            began, offset = self._at.get(name, (b"", 0))
            if not head.startswith(began):  # replaced, or begun anew: inode and size may be the same
                offset = 0
            raw = os.pread(fd, MAX_READ, offset)
        finally:
            os.close(fd)
        whole = raw.rfind(b"\n") + 1
        if not whole and len(raw) > _MAX_LINE:
            whole = len(raw)  # no line of NCCL's is that long
        for line in raw[:whole].splitlines():
            self._orders.take(line[:_MAX_LINE].decode(errors="replace"))
        self._at[name] = (head, offset + whole)
