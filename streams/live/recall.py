"""Who is in the communicators of running jobs, for a worker that begins in the middle of them.

Hosts announce their members each minute. What was announced before a worker took a partition over was read,
and acknowledged, by the former one.
"""

from __future__ import annotations

from schemas.malformed import Malformed
from schemas.members import Announcement, decode_members
from schemas.topics import MEMBERS
from streams.kafka import read_messages

RECALL_S = 180.0
"""Three announcements: who has not been announced for so long is of a job, or on a host, that is no more."""


def read_announcements(bootstrap: str, since: float) -> list[tuple[int, Announcement]]:
    """The latest announcement of each host for each communicator, with its partition.

    `since`: broker time from which they count, s. Imports are left out. Raises BrokerError.
    """
    found: dict[tuple[int, str, int], tuple[int, Announcement]] = {}
    for message in read_messages(bootstrap, MEMBERS.name):
        if message.timestamp()[1] / 1e3 < since:
            continue
        try:
            said = decode_members(message.value() or b"")
        except Malformed:  # the worker that read it first has set it aside
            continue
        if not said.imported:
            found[said.comm, said.source, said.attempt_id] = (message.partition() or 0, said)
    return list(found.values())
