"""What the store says about incidents and verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from schemas.incidents import Incident, decode_incident


@dataclass(frozen=True)
class StoredVerdict:
    """A judged snapshot as the store has it."""

    incidents: tuple[str, ...]
    missing: tuple[int, ...]
    lost: int


def verdict(client: Client, job: str, attempt: str) -> StoredVerdict | None:
    """The verdict on an attempt, None while there is none."""
    rows = client.query(
        "SELECT incidents, missing, lost FROM nccl.verdicts FINAL "
        "WHERE job = {job:String} AND attempt = {attempt:String}",
        parameters={"job": job, "attempt": attempt},
    ).result_rows
    if not rows:
        return None
    ids, missing, lost = rows[0]
    return StoredVerdict(tuple(ids), tuple(missing), int(lost))


def incidents(
    client: Client,
    *,
    job: str | None = None,
    attempt: str | None = None,
    open_only: bool = False,
    limit: int = 100,
) -> list[Incident]:
    """Incidents in their latest revision, the newest first."""
    wanted = {"job": job, "attempt": attempt, "state": "open" if open_only else None}
    given = {name: value for name, value in wanted.items() if value is not None}
    where = " AND ".join(f"{name} = {{{name}:String}}" for name in given) or "1"
    rows = client.query(
        f"SELECT incident FROM nccl.incidents FINAL WHERE {where} ORDER BY detected DESC, id LIMIT {limit:d}",
        parameters=given,
    ).result_rows
    return [decode_incident(row[0]) for row in rows]


def by_prefix(client: Client, prefix: str) -> list[Incident]:
    """Incidents whose id begins with the given hex digits."""
    rows = client.query(
        "SELECT incident FROM nccl.incidents FINAL "
        "WHERE startsWith(id, {prefix:String}) ORDER BY id LIMIT 20",
        parameters={"prefix": prefix.lower()},
    ).result_rows
    return [decode_incident(row[0]) for row in rows]
