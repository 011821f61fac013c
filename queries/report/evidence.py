"""What the store still holds of an incident: who waited for whom, the flows that stood, what the ranks did.

Incidents are kept longer than records: what is gone is empty here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from clickhouse_connect.driver.client import Client

from queries.report.chain import Edge, Place
from queries.report.timeline import MAX_LANES, Operation
from schemas.ids import parse_hex_id
from schemas.incidents import Incident

MAX_FLOWS = 8
"""Of one operation, the ends that a reader is shown."""
MAX_OPERATIONS = 4000
"""Far more than one page can draw; a limit for what is fetched."""
LEAD_S = 20
"""The timeline begins so long before the first stalled launch."""
_ENDINGS = ("dead", "stopped", "silent")
_ENDING_OF = {"process-dead": "dead", "process-stopped": "stopped", "host-silent": "silent"}
"""Why a member of an operation does nothing any more. When a job that stalls is ended, that is said of all
its members for a while; only verdicts that speak of it themselves rest on it."""
_FOREVER = 1 << 62


@dataclass(frozen=True)
class Flow:
    """One end of a flow as it stood last: `counters` are its steps by name, `total` how many there are."""

    operation: str
    rank: int
    peer: int
    channel: int
    direction: str
    total: int
    counters: tuple[tuple[str, int], ...]
    quiet_s: float


@dataclass(frozen=True)
class Evidence:
    """All of it; times are seconds since the epoch by the clock of the rank's host."""

    edges: tuple[Edge, ...]
    flows: tuple[Flow, ...]
    operations: tuple[Operation, ...]
    """Of at most MAX_LANES ranks: who is named, then who waits."""
    ranks: int
    """How many the attempt has."""


@dataclass(frozen=True)
class _Scope:
    """The attempt, who is named, and names for what has ids only."""

    job: int
    attempt: int
    named: tuple[int, ...]
    ranks: Mapping[int, Place]
    seats: Mapping[tuple[int, int], int | None]
    communicators: Mapping[int, str]


def gather(client: Client, incident: Incident) -> Evidence:
    """Ask the store; raises ClickHouse's errors."""
    scope = _scope(client, incident)
    if scope is None:
        return Evidence((), (), (), 0)
    waits = _waits(client, scope, incident)
    edges = tuple(_edge(scope, row) for row in waits)
    operations = _operations(client, scope, _told_of(scope, waits), incident.since or incident.detected)
    return Evidence(edges, _flows(client, scope, waits), operations, len(scope.ranks))


def _rows(client: Client, sql: str, **parameters: object) -> list[dict[str, Any]]:
    return list(client.query(sql, parameters=parameters).named_results())


def _scope(client: Client, incident: Incident) -> _Scope | None:
    rows = _rows(
        client,
        "SELECT job, attempt, comm, name, rank, dev, world_rank, host FROM nccl.members FINAL "
        "WHERE job_name = {job:String} AND attempt_name = {attempt:String}",
        job=incident.job,
        attempt=incident.attempt,
    )
    if not rows:
        return None
    named = [node.dev for node in (*incident.culprits, *incident.candidates) if node.dev is not None]
    return _Scope(
        int(rows[0]["job"]),
        int(rows[0]["attempt"]),
        tuple(parse_hex_id(dev) for dev in named),
        {row["dev"]: Place(row["world_rank"], row["host"]) for row in rows},
        {(row["comm"], row["rank"]): row["world_rank"] for row in rows},
        {row["comm"]: row["name"] or f"communicator {row['comm']:016x}" for row in rows},
    )


def _waits(client: Client, scope: _Scope, incident: Incident) -> list[dict[str, Any]]:
    """The waits that the verdict rests on; each partition says its own.

    Those of the last epoch before the incident closed in which somebody waited for a named one for a reason
    of the verdict's kind, or for any.
    """
    closed = incident.closed
    until = int(datetime.fromisoformat(closed).timestamp()) + 1 if closed else _FOREVER
    ending = _ENDING_OF.get(incident.category)
    return _rows(
        client,
        """
        WITH last AS
        (
            SELECT argMax(epoch, (toString(reason) IN {reasons:Array(String)} = {wanted:UInt8}, epoch)) AS at
            FROM nccl.waits
            WHERE job = {job:UInt64} AND attempt = {attempt:UInt64} AND waiter_kind = 'operation'
                AND epoch <= {until:UInt64}
                AND (holder IN {named:Array(UInt64)} OR holder_peer IN {named:Array(UInt64)})
        )
        SELECT DISTINCT * EXCEPT (ingested, epoch)
        FROM nccl.waits
        WHERE job = {job:UInt64} AND attempt = {attempt:UInt64}
            AND (partition, epoch) IN
            (
                SELECT partition, max(epoch)
                FROM nccl.waits
                WHERE job = {job:UInt64} AND attempt = {attempt:UInt64}
                    -- Partitions speak each second, not all in the same one.
                    AND epoch BETWEEN (SELECT at FROM last) - 2 AND (SELECT at FROM last)
                GROUP BY partition
            )
        ORDER BY comm, seq, waiter_kind, waiter_rank, holder_rank, channel
        """,
        job=scope.job,
        attempt=scope.attempt,
        named=list(scope.named),
        until=until,
        reasons=list(_ENDINGS) if ending is None else [ending],
        wanted=int(ending is not None),
    )


def _edge(scope: _Scope, row: Mapping[str, Any]) -> Edge:
    def node(kind: str, number: int, peer: int) -> tuple[str, str]:
        if kind == "operation":
            return f"operation {number}", _operation(scope, row["comm"], row)
        if kind == "link":
            ends = " → ".join(scope.ranks.get(each, Place(None, None)).name for each in (number, peer))
            return f"link {number} {peer}", f"link {ends}"
        return f"{kind} {number}", scope.ranks[number].name if number in scope.ranks else kind

    waiter, waiter_name = node(row["waiter_kind"], row["waiter"], 0)
    holder, holder_name = node(row["holder_kind"], row["holder"], row["holder_peer"])
    named = row["holder"] in scope.named or row["holder_peer"] in scope.named
    return Edge(waiter, waiter_name, holder, holder_name, row["reason"].replace("_", " "), named)


def _operation(scope: _Scope, comm: int, row: Mapping[str, Any]) -> str:
    """`AllReduce 118 of tp-1`, as NCCL writes its operations."""
    func = "".join(part.capitalize() for part in row["func"].split("_"))
    return f"{func} {row['seq']} of {scope.communicators.get(comm, f'communicator {comm:016x}')}"


_SENDER = ("ready", "transmitted", "done")
_RECEIVER = ("posted", "received", "flushed", "consumed")


def _flows(client: Client, scope: _Scope, waits: list[dict[str, Any]]) -> tuple[Flow, ...]:
    """Both ends of the flows that a named one holds; where it has none itself, those of its operation."""
    held = [
        row for row in waits
        if row["waiter_kind"] == "operation"
        and (row["holder"] in scope.named or row["holder_peer"] in scope.named)
    ]  # fmt: skip
    if not held:
        return ()
    # What has counters of its own says most.
    lead = max(held, key=lambda row: (row["total"] > 0, row["holder_kind"] == "link"))
    ranks = sorted(
        {rank for row in held for rank in (row["holder_rank"], row["holder_peer_rank"]) if rank >= 0}
    )
    rows = _rows(
        client,
        f"""
        SELECT
            comm, rank, peer, channel, direction, func, seq, max(total) AS total,
            maxIf(quiet_us, quiet_us != 4294967295) AS still_us,
            {", ".join(f"max({name}) AS {name}" for name in (*_SENDER, *_RECEIVER))},
            rank IN {{ranks:Array(UInt32)}} OR peer IN {{ranks:Array(Int32)}} AS near,
            channel = {{channel:Int16}} AS same, comm = {{comm:UInt64}} AND seq = {{seq:UInt64}} AS leads
        FROM nccl.flows
        WHERE job = {{job:UInt64}} AND attempt = {{attempt:UInt64}} AND kind IN ('state', 'orphan')
            AND (comm, seq) IN {{held:Array(Tuple(UInt64, UInt64))}}
        GROUP BY comm, rank, peer, channel, direction, func, seq
        ORDER BY leads DESC, comm, seq, same DESC, near DESC, channel, least(rank, peer),
            greatest(rank, peer), direction
        LIMIT {{limit:UInt32}}
        """,
        job=scope.job, attempt=scope.attempt, comm=lead["comm"], seq=lead["seq"], channel=lead["channel"],
        held=sorted({(row["comm"], row["seq"]) for row in held}),
        ranks=ranks, limit=MAX_FLOWS,
    )  # fmt: skip
    # Whoever has launched nothing may hold several operations, of which not all show flows: one says enough.
    return tuple(
        _flow(scope, row) for row in rows if (row["comm"], row["seq"]) == (rows[0]["comm"], rows[0]["seq"])
    )


def _flow(scope: _Scope, row: Mapping[str, Any]) -> Flow:
    names = _SENDER if row["direction"] == "send" else _RECEIVER
    world = {rank: scope.seats.get((row["comm"], rank)) for rank in (row["rank"], row["peer"])}
    rank, peer = (own if (own := world[each]) is not None else each for each in (row["rank"], row["peer"]))
    return Flow(
        _operation(scope, row["comm"], row),
        rank, peer, row["channel"], row["direction"], row["total"],
        tuple((name, row[name]) for name in names), row["still_us"] / 1e6,
    )  # fmt: skip


def _told_of(scope: _Scope, waits: list[dict[str, Any]]) -> list[int]:
    """The devices that the timeline shows: a job may have thousands that all do the same."""
    waiting = {row["waiter"] for row in waits if row["waiter_kind"] == "device"}

    def first(dev: int) -> tuple[bool, bool, int]:
        rank = scope.ranks[dev].rank
        return dev not in scope.named, dev not in waiting, 1 << 31 if rank is None else rank

    return sorted(scope.ranks, key=first)[:MAX_LANES]


def _operations(client: Client, scope: _Scope, devs: list[int], since: str) -> tuple[Operation, ...]:
    """Their operations from LEAD_S before the first stalled launch on; one that never ended is open."""
    rows = _rows(
        client,
        """
        SELECT
            dev, comm, func, seq, any(coll.launched) AS began, max(visibility != 'launch') AS seen,
            maxIf(end_us, kind = 'done' AND end_us != 4294967295) AS took_us,
            took_us > 0 AS ended,
            maxIf(coll.age_us, coll.age_us != 4294967295) AS open_us
        FROM nccl.coll AS coll
        WHERE job = {job:UInt64} AND attempt = {attempt:UInt64} AND kind IN ('done', 'state', 'orphan')
            AND dev IN {devs:Array(UInt64)}
            AND launched >= parseDateTime64BestEffort({since:String}, 6) - toIntervalSecond({lead:UInt32})
        GROUP BY dev, comm, func, seq
        -- Dumps do not say how long an operation has been open.
        HAVING ended OR open_us > 0
        ORDER BY began DESC
        LIMIT {limit:UInt32}
        """,
        job=scope.job, attempt=scope.attempt, devs=devs, since=since, lead=LEAD_S, limit=MAX_OPERATIONS,
    )  # fmt: skip
    return tuple(
        Operation(
            scope.ranks.get(row["dev"], Place(None, None)),
            row["dev"] in scope.named,
            _operation(scope, row["comm"], row),
            row["began"].timestamp(),
            (row["took_us"] if row["ended"] else row["open_us"]) / 1e6,
            bool(row["ended"]),
            bool(row["seen"]),
        )
        for row in rows
    )
