"""Which incidents are open, as the alerts topic itself tells it.

The topic is the log: an alert that is on it was sent, one that is not was not. A state of our own beside
it could disagree after a crash, and then an alert would be lost or sent twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from schemas.incidents import Incident, decode_incident
from schemas.malformed import Malformed
from schemas.topics import ALERTS
from streams.kafka import read_all
from streams.severity import SEVERITIES


def read_incidents(bootstrap: str) -> dict[str, Incident]:
    """The latest revision of every incident on the topic, by id. Blocks; raises BrokerError.

    What is no incident is passed over: the sink reports it.
    """
    known: dict[str, Incident] = {}
    for raw in read_all(bootstrap, ALERTS.name):
        try:
            incident = decode_incident(raw)
        except Malformed:
            continue
        if incident.id not in known or incident.revision >= known[incident.id].revision:
            known[incident.id] = incident
    return known


def changes(
    known: dict[str, Incident], found: Iterable[Incident], job: str, attempt: str, began: str, now: str
) -> list[Incident]:
    """What has to be sent so that the topic agrees with what was found of one attempt of a job.

    New incidents open; changed ones get a revision; those of this attempt that were not found again close,
    and so do those of the job that were detected before this attempt `began` (RFC 3339, UTC): they are of a
    former one. What is unchanged is not sent.
    """
    current = {incident.id: incident for incident in found}
    sent = []
    for incident in current.values():
        former = known.get(incident.id)
        if former is None:
            sent.append(incident)
            continue
        revised = replace(incident, revision=former.revision, detected=former.detected, since=former.since)
        if revised != former:
            sent.append(replace(revised, revision=former.revision + 1))
    for former in known.values():
        over = former.attempt == attempt or former.detected < began
        if former.job == job and former.state == "open" and former.id not in current and over:
            sent.append(replace(former, state="closed", closed=now, revision=former.revision + 1))
    return sent


CLOSE_S = 3.0
"""A live incident that was not found for so long is over: one look may miss what the next one shows."""


def live_changes(
    known: dict[str, Incident],
    found: Iterable[Incident],
    job: str,
    attempt: str,
    last_found: dict[str, float],
    at: float,
    now: str,
    kind: str = "stall",
) -> list[Incident]:
    """What has to be sent of a job that runs; `at` (s, any clock) is the moment at which `found` was found.

    A finding continues an open incident that names one of its devices, whatever it is called by now: a
    culprit that dies stays the same incident. A slowness of which nobody was known to be the cause is that of
    whoever is found to be, and one whose cause is found no more is still that one's. `last_found` is the
    caller's memory of when each was found; an incident that it does not know counts as found now, and so
    survives a restart.
    """
    open_ones = {
        each.id: each
        for each in known.values()
        if (each.job, each.attempt, each.state, each.kind) == (job, attempt, "open", kind)
    }
    sent = []
    for incident in found:
        former = open_ones.get(incident.id) or next(
            (each for each in open_ones.values() if _same(each, incident)), None
        )
        if former is None:
            # One that closed and comes back is a revision of it: whoever reads the topic keeps the highest.
            closed = known.get(incident.id)
            sent.append(incident if closed is None else replace(incident, revision=closed.revision + 1))
            last_found[incident.id] = at
            continue
        del open_ones[former.id]
        last_found[former.id] = at
        if _named(former) != _named(incident) and not _firmer(former, incident):
            # It comes and goes: what was said first stands while it lasts, but that it lasts makes it louder.
            louder = max(former.severity, incident.severity, key=SEVERITIES.index)
            told = replace(former, severity=louder)
        else:
            told = incident
        revised = replace(
            told, id=former.id, revision=former.revision, detected=former.detected, since=former.since
        )
        if _gist(revised) != _gist(former) or _many_more(former, revised):
            sent.append(replace(revised, revision=former.revision + 1))
    for former in open_ones.values():
        if at - last_found.setdefault(former.id, at) >= CLOSE_S:
            sent.append(replace(former, state="closed", closed=now, revision=former.revision + 1))
            del last_found[former.id]
    return sent


def _same(former: Incident, incident: Incident) -> bool:
    """Whether a finding may be what an incident tells of."""
    named, found = _named(former), _named(incident)
    return bool(named & found) or (former.kind == "slow" and not (named and found))


def _firmer(former: Incident, incident: Incident) -> bool:
    """Whether a finding says more than an incident did: somebody, fewer candidates, a culprit, a death, or
    more of those who take part.
    """
    if former.kind == "slow" and not (_named(former) and _named(incident)):
        return not _named(former)
    if incident.category == "outside-nccl" and former.category in ("late-launch", "outside-nccl"):
        return _named(incident) > _named(former)  # more of those who wait for one another
    if incident.confidence == former.confidence == "candidates":
        return _named(incident) < _named(former)
    rank = ("candidates", "likely", "proven").index
    return rank(incident.confidence) > rank(former.confidence)


def _named(incident: Incident) -> set[str]:
    return {node.dev for node in (*incident.culprits, *incident.candidates) if node.dev is not None}


def _many_more(former: Incident, incident: Incident) -> bool:
    """Whether twice as many wait as was told: the first to be stuck are told of before all others are."""
    return incident.waiting >= 2 * max(former.waiting, 1)


def _gist(incident: Incident) -> tuple[object, ...]:
    """What is worth a new revision: the words of a chain change with every sample, its meaning seldom."""
    return (
        incident.category, incident.severity, incident.confidence, incident.state,
        tuple(sorted(node.dev or "" for node in incident.culprits)),
        tuple(sorted(node.dev or "" for node in incident.candidates)),
    )  # fmt: skip
