"""One incident: verdict, chain, counters of both ends of the flows that stand, evidence."""

from __future__ import annotations

from queries.grafana.panels import (
    SEVERITY_COLOURS,
    Json,
    coloured,
    dashboard,
    linked,
    panel,
    series,
    table,
    target,
    variable,
)

INCIDENT = variable(
    "incident",
    "Incident",
    "The newest first.",
    "SELECT id AS __value, concat(formatDateTime(detected, '%F %T'), ' ', job, ': ', category) AS __text "
    "FROM nccl.incidents FINAL ORDER BY detected DESC LIMIT 200",
)

_VERDICT = """
    SELECT summary, severity, category, confidence, state, job, attempt, waiting, since, detected, closed, revision
    FROM nccl.incidents FINAL
    WHERE id = ${incident:sqlstring}
"""

_LINES = """
    SELECT number, line
    FROM nccl.incidents FINAL
    ARRAY JOIN JSONExtract(incident, '{field}', 'Array(String)') AS line, arrayEnumerate(JSONExtract(incident, '{field}', 'Array(String)')) AS number
    WHERE id = ${{incident:sqlstring}}
    ORDER BY number
"""

# Single values, which ClickHouse works out once for a query however often they stand in it; named subqueries
# it repeats.
_SCOPE = """
    WITH
        (
            SELECT argMax((job, attempt, incident, category, closed), revision)
            FROM nccl.incidents WHERE id = ${incident:sqlstring}
        ) AS told,
        arrayMap(
            node -> reinterpretAsUInt64(reverse(unhex(node.dev))),
            arrayConcat(
                JSONExtract(ifNull(told.3, ''), 'culprits', 'Array(Tuple(dev String))'),
                JSONExtract(ifNull(told.3, ''), 'candidates', 'Array(Tuple(dev String))'))) AS named,
        (SELECT any((job, attempt)) FROM nccl.members WHERE job_name = told.1 AND attempt_name = told.2) AS life,
        -- When a job that stalls is ended all its members are dead or silent for a while: only of some verdicts
        -- that is what they rest on (queries/report/evidence.py).
        multiIf(
            told.4 = 'process-dead', 'dead', told.4 = 'process-stopped', 'stopped', told.4 = 'host-silent', 'silent',
            '') AS ending,
        (
            SELECT argMax(epoch, (if(ending = '', reason NOT IN ('dead', 'stopped', 'silent'), reason = ending), epoch))
            FROM nccl.waits
            WHERE job = life.1 AND attempt = life.2 AND waiter_kind = 'operation'
                AND (has(named, holder) OR has(named, holder_peer))
                AND (told.5 IS NULL OR epoch <= toUnixTimestamp(told.5) + 1)
        ) AS last,
        (
            SELECT groupArray(spoke)
            FROM
            (
                SELECT (partition, max(epoch)) AS spoke FROM nccl.waits
                WHERE job = life.1 AND attempt = life.2 AND epoch BETWEEN last - 2 AND last
                GROUP BY partition
            )
        ) AS spoken,
        places AS
        (
            SELECT comm, dev, name,
                concat('rank ', toString(ifNull(world_rank, rank)), if(host IS NULL, '', concat(' on ', host))) AS title
            FROM nccl.members
            WHERE job = life.1 AND attempt = life.2
        ),
        waits AS
        (
            SELECT DISTINCT * EXCEPT (ingested, epoch)
            FROM nccl.waits
            WHERE job = life.1 AND attempt = life.2 AND epoch BETWEEN last - 2 AND last
                AND has(spoken, (partition, epoch))
        )
"""

# Thousands who wait alike and for whom nobody waits are one node.
_ENDS = (
    _SCOPE
    + """
    , ends AS
    (
        SELECT
            *,
            waiter_kind = 'device' AND waiter NOT IN (SELECT holder FROM waits WHERE holder_kind = 'device') AS alike,
            if(alike, concat('waiting ', toString(holder), ' ', toString(reason)),
                concat(toString(waiter_kind), ' ', toString(waiter))) AS source,
            if(holder_kind = 'link', concat('link ', toString(holder), ' ', toString(holder_peer)),
                concat(toString(holder_kind), ' ', toString(holder))) AS target,
            concat(toString(waits.func), ' ', toString(waits.seq)) AS operation
        FROM waits
    )
"""
)

_EDGES = (
    _ENDS
    + """
    SELECT DISTINCT
        concat(source, '>', target, ' ', toString(reason)) AS id, source, target,
        replaceAll(toString(reason), '_', ' ') AS mainstat
    FROM ends
    ORDER BY id
    LIMIT 2000
"""
)

# Both ends of each wait in one go. An operation's communicator has the name that its other end, a device, is in.
_NODES = (
    _ENDS
    + """
    SELECT
        id,
        if(uniqExact(who) > 1 AND any(alike), concat(toString(uniqExact(who)), ' ranks'), any(title)) AS title,
        argMax(subtitle, cause) AS subtitle,
        if(max(cause), 'red', if(any(kind) = 'operation', 'gray', 'blue')) AS color
    FROM
    (
        SELECT
            end.1 AS id, end.2 AS who, end.3 AS kind, end.4 AS alike, end.5 AS cause,
            multiIf(
                kind = 'operation', operation,
                kind = 'link', concat(places.title, ' → ', other.title),
                places.title) AS title,
            if(kind = 'operation', places.name, end.6) AS subtitle
        FROM
        (
            SELECT
                comm, operation, holder_peer,
                holder_kind != 'operation' AND (has(named, holder) OR has(named, holder_peer)) AS guilty,
                arrayJoin([
                    (source, waiter, toString(waiter_kind), alike, toUInt8(0), 'waits', holder),
                    (target, holder, toString(holder_kind), toUInt8(0), guilty, 'holds', waiter)]) AS end
            FROM ends
        ) AS both
        LEFT JOIN places ON places.comm = both.comm AND places.dev = if(end.3 = 'operation', end.7, end.2)
        LEFT JOIN places AS other ON other.comm = both.comm AND other.dev = if(end.3 = 'link', holder_peer, 0)
    )
    GROUP BY id
    ORDER BY max(cause) DESC, id
    LIMIT 2000
"""
)

_COUNTERS = (
    _SCOPE
    + """
    , held AS
    (
        SELECT comm, seq, channel, total, holder_kind FROM waits
        WHERE waiter_kind = 'operation' AND (has(named, holder) OR has(named, holder_peer))
    ),
    shown AS
    (
        SELECT comm, seq, min(channel) AS first, uniqExact(rank) AS ends FROM nccl.flows
        WHERE job = life.1 AND (comm, seq) IN (SELECT comm, seq FROM held)
        GROUP BY comm, seq
    ),
    -- Whoever has launched nothing has no flow of its own: those show it that wait for it, the fewer the clearer.
    (
        SELECT argMin((comm, seq, if(channel < 0, first, channel)), (total = 0, holder_kind != 'link', ends, channel))
        FROM held JOIN shown USING (comm, seq)
    ) AS guilty
    SELECT time, concat('rank ', toString(rank), if(direction = 'send', ' → ', ' ← '), 'rank ', toString(peer), ' ', counter.1) AS name,
        counter.2 AS steps
    FROM
    (
        SELECT flows.launched + toIntervalMicrosecond(flows.age_us) AS time, rank, peer, direction,
            if(direction = 'send', [('ready', ready), ('transmitted', transmitted), ('done', done)],
                [('posted', posted), ('received', received), ('consumed', consumed)]) AS counters
        FROM nccl.flows AS flows
        WHERE job = life.1 AND attempt = life.2 AND comm = guilty.1 AND seq = guilty.2 AND channel = guilty.3
            AND direction = '{direction}' AND kind IN ('state', 'done', 'orphan') AND age_us != 4294967295
    )
    ARRAY JOIN counters AS counter
    WHERE $__timeFilter(time)
    ORDER BY time, name
"""
)


def _lines(title: str, description: str, field: str, size: tuple[int, int]) -> Json:
    return table(title, description, _LINES.format(field=field), size)


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "mycroft-incident",
        "Mycroft: one incident",
        "Verdict, chain, counters and evidence. The same as a page: mycroft report ID -o incident.html.",
        [
            table(
                "Verdict", "Proven: its own records show it. Candidates: nothing recorded tells them apart.",
                _VERDICT, (24, 4), coloured("severity", SEVERITY_COLOURS),
                linked("job", "mycroft-job", "job", "this job"),
            ),
            panel(
                "nodeGraph", "Who waits for whom", "Devices wait in operations, operations for devices and links. "
                "Red: who is named. Ranks that wait alike are one node. As of the last second in which somebody waited for them.",
                [target(_NODES, ref="nodes"), target(_EDGES, ref="edges")], (24, 12),
            ),
            _lines("Chain", "Link by link, from the farthest victim to the cause.", "chain", (12, 7)),
            _lines("Evidence", "The records behind the verdict.", "evidence", (12, 7)),
            series(
                "Counters of the senders", "Steps of the flows of the operation that is held up, by the clock of the "
                "sender's host. A line that ends flat says where data stopped.",
                _COUNTERS.replace("{direction}", "send"), (12, 9), "none",
            ),
            series(
                "Counters of the receivers", "Steps of the same flows at their other ends, by the clock of the "
                "receiver's host.", _COUNTERS.replace("{direction}", "recv"), (12, 9), "none",
            ),
            _lines("Ruled out", "Who looks alike and is not the cause.", "ruled_out", (12, 6)),
            _lines("What would decide it", "What to look at next.", "would_decide", (12, 6)),
        ],
        variables=[INCIDENT],
    )  # fmt: skip
