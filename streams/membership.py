"""Who belongs to which communicator, as flat arrays for the kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.ids import hash64
from schemas.members import Announcement, Member

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Membership:
    """Members of C communicators in CSR form; M slots in all.

    The slot of a member is `first[communicator] + rank`. A rank that nobody announced counts as silent, and
    its device is a hash of communicator and rank.
    """

    comm: U64
    """Ids, ascending, shape (C,)."""
    first: I64
    """First slot of each communicator, shape (C + 1,)."""
    dev: U64
    """Device of each slot, shape (M,)."""
    silent: npt.NDArray[np.bool_]
    """Nothing but its membership is known, shape (M,)."""

    def index(self, comm: U64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Position of each id in `comm` and whether it is there at all; shapes as the argument."""
        at = np.searchsorted(self.comm, comm)
        inside = at < len(self.comm)
        at = np.where(inside, at, 0).astype(np.int64)
        known = inside & (self.comm[at] == comm) if len(self.comm) else inside
        return at, known


def membership(announcements: Iterable[Announcement]) -> Membership:
    """Flatten announcements; several sources may each name a part of one communicator."""
    sizes: dict[int, int] = {}
    members: dict[int, dict[int, Member]] = {}
    for announcement in announcements:
        sizes[announcement.comm] = max(sizes.get(announcement.comm, 0), announcement.nranks)
        slots = members.setdefault(announcement.comm, {})
        for member in announcement.members:
            if 0 <= member.rank < announcement.nranks:
                slots[member.rank] = member
    comms = sorted(sizes)
    first = np.zeros(len(comms) + 1, np.int64)
    np.cumsum([sizes[comm] for comm in comms], out=first[1:])
    dev = np.zeros(int(first[-1]), np.uint64)
    silent = np.ones(int(first[-1]), np.bool_)
    for comm, begin in zip(comms, first[:-1].tolist(), strict=True):
        for rank in range(sizes[comm]):
            known = members[comm].get(rank)
            dev[begin + rank] = known.dev if known else hash64("unannounced", comm, rank)
            silent[begin + rank] = known is None or known.silent
    return Membership(np.array(comms, np.uint64), first, dev, silent)
