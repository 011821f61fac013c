"""A folder of dumps → a snapshot: everything one import has to say, ready to be sent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from collectors.flight_recorder.dumps import Folder, read_folder
from collectors.flight_recorder.errors import BadInput
from collectors.flight_recorder.groups import Communicator, dev_id, layout
from collectors.flight_recorder.records import convert
from collectors.jobs import check_job_name
from schemas.ids import hash64, hex_id, job_id
from schemas.members import IMPORT, Announcement, Member
from schemas.records import Records


@dataclass(frozen=True)
class Snapshot:
    """What a set of dumps says about one job at one moment."""

    id: int
    job: str
    job_id: int
    attempt: str
    attempt_id: int
    announcements: tuple[Announcement, ...]
    done: tuple[Records, ...]
    """Finished operations, one array per rank."""
    pending: Records
    positions: Records
    ranks: tuple[int, ...]
    """World ranks expected, ascending."""
    silent: Mapping[int, str]
    """Those of them of which nothing is known, and why."""
    skipped: Mapping[str, str]
    """Files passed over, and parts of them, and why."""
    blind: tuple[str, ...]
    through: int
    """Latest launch, ns."""

    @property
    def source(self) -> str:
        """Name of this import as a source of messages."""
        return f"{IMPORT}{hex_id(self.id)}"

    @property
    def records(self) -> int:
        """How many coll records there are."""
        return sum(len(rows) for rows in self.done) + len(self.pending) + len(self.positions)


def read_snapshot(folder: Path, job: str, attempt: str | None = None, now: int | None = None) -> Snapshot:
    """Reads every dump in a folder; nothing is sent.

    `now` (ns, default the clock's) becomes the attempt's id, so that a later import of the same dumps is a
    new attempt. Raises BadInput with one line that says what, where and what to do.
    """
    try:
        job = check_job_name(job)
        if attempt is not None:
            attempt = check_job_name(attempt, "attempt")
    except ValueError as error:
        raise BadInput(str(error)) from error
    found = read_folder(folder)
    now = time.time_ns() if now is None else now
    where = layout(found, job, now)
    converted = convert(found.dumps, where, job, job_id(job), now)
    unpaired = {
        f"rank {rank}: {count} sends or receives": "their peer is missing or the rank itself"
        for rank, count in converted.unpaired.items()
    }
    snapshot = Snapshot(
        id=hash64("snapshot", job, now), job=job, job_id=job_id(job),
        attempt=attempt if attempt is not None else f"import-{_utc(now)}", attempt_id=now, announcements=(),
        done=converted.done, pending=converted.pending, positions=converted.positions, ranks=where.expected,
        silent={rank: found.silent.get(rank, "no dump") for rank in where.silent},
        skipped=dict(found.skipped) | unpaired, blind=_blind(found), through=converted.through,
    )  # fmt: skip
    announcements = tuple(_announce(comm, found, snapshot) for comm in where.communicators)
    return replace(snapshot, announcements=announcements)


def _utc(now: int) -> str:
    moment = datetime.fromtimestamp(now / 1e9, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _blind(found: Folder) -> tuple[str, ...]:
    """gloo's recorder leaves out sends and receives: that none is there says nothing."""
    backends = frozenset().union(*(dump.backends for dump in found.dumps.values()))
    pairwise = any(np.any(dump.entries["is_p2p"]) for dump in found.dumps.values())
    return ("p2p",) if backends == {"gloo"} and not pairwise else ()


def _announce(comm: Communicator, found: Folder, snapshot: Snapshot) -> Announcement:
    members = tuple(
        Member(at, dev_id(snapshot.job, snapshot.attempt_id, rank), rank, silent=rank not in found.dumps)
        for at, rank in enumerate(comm.members)
    )
    libraries = {found.dumps[rank].library or "" for rank in comm.members if rank in found.dumps} - {""}
    return Announcement(
        job=snapshot.job, job_id=snapshot.job_id, attempt=snapshot.attempt, attempt_id=snapshot.attempt_id,
        comm=comm.id, name=comm.name, source=snapshot.source, nranks=comm.nranks, nnodes=None,
        members=members, blind=snapshot.blind, library=", ".join(sorted(libraries)) or None,
    )  # fmt: skip
