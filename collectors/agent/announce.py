"""Who of this host is a member of which communicator: told each minute, and whenever it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from collectors.agent.process import Name, Traced
from schemas.members import Announcement, Member, RingPath

EVERY_NS = 60_000_000_000


class Announcer:
    """Remembers what was told. One call of `due` a tick."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._told: dict[bytes, Announcement] = {}
        self._versions: tuple[tuple[int, int], ...] = ()
        self._next = 0

    def due(
        self, traced: Iterable[Traced], now: int, rings: Mapping[int, tuple[RingPath, ...]]
    ) -> list[Announcement]:
        """What is to be announced now; ns of the monotonic clock. `rings`: known orders by communicator."""
        traced = list(traced)  # dead ones too: who is missing from a communicator has to have a name
        paths = sum(map(len, rings.values()))
        versions = ((0, paths), *((each.id, each.version) for each in traced))
        if versions == self._versions and now < self._next:
            return []
        self._versions = versions
        found = {each.key: each for each in announcements(traced, self._source, rings)}
        if now >= self._next:
            self._next = now + EVERY_NS
            fresh = list(found.values())
        else:
            fresh = [each for key, each in found.items() if self._told.get(key) != each]
        self._told = found
        return fresh


def announcements(
    traced: Iterable[Traced], source: str, rings: Mapping[int, tuple[RingPath, ...]]
) -> list[Announcement]:
    """One for each job, attempt and live communicator, with all ranks of this host."""
    found: dict[tuple[int, int, int], tuple[Traced, np.void, Name, list[Member]]] = {}
    for each in traced:
        for facts, name, member in each.members():
            place = (each.job.id, each.job.attempt_id, int(facts["comm"]))
            found.setdefault(place, (each, facts, name, []))[3].append(member)
    return [
        Announcement(
            job=each.job.name, job_id=job, attempt=each.job.attempt, attempt_id=attempt, comm=comm,
            name=name.name, source=source, nranks=int(facts["nranks"]), nnodes=int(facts["nnodes"]) or None,
            members=tuple(sorted(members, key=lambda member: member.rank)), library=name.library,
            rings=rings.get(comm, ()),
        )
        for (job, attempt, comm), (each, facts, name, members) in found.items()
    ]  # fmt: skip
