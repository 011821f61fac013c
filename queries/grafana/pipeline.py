"""Pipeline health: how old what we know is, what was lost, what could not be read."""

from __future__ import annotations

from queries.grafana.panels import GREEN, RED, YELLOW, Json, column, dashboard, series, stat, table

SILENT_AFTER_S = 15
"""Collectors speak every second; the worker waits 3 s for them, a restart takes some."""

_SILENT = f"""
    SELECT count() AS silent
    FROM
    (
        SELECT places.host AS host, max(last.heard) AS heard, countIf(last.alive = 1) AS processes
        FROM
        (
            SELECT proc, argMax(dev, sampled) AS dev, argMax(alive, sampled) AS alive, max(procs.ingested) AS heard
            FROM nccl.procs AS procs
            WHERE procs.ingested >= now() - toIntervalDay(1)
            GROUP BY proc
        ) AS last
        INNER JOIN (SELECT dev, any(host) AS host FROM nccl.members GROUP BY dev) AS places ON places.dev = last.dev
        GROUP BY host
    )
    WHERE processes > 0 AND heard < now() - toIntervalSecond({SILENT_AFTER_S})
"""

_MISSING = """
    SELECT sum(missing) AS missing FROM nccl.losses WHERE $__timeFilter(seen) AND what != 'drops'
"""

_DEAD_COUNT = """
    SELECT count() AS dead FROM nccl.dead WHERE $__timeFilter(seen)
"""

_UNTOLD = """
    SELECT count() AS incomplete FROM nccl.verdicts FINAL
    WHERE $__timeFilter(judged) AND (notEmpty(missing) OR lost > 0)
"""

_AGE = """
    SELECT $__timeInterval(ingested) AS time, ifNull(places.host, 'unknown') AS name,
        quantile(0.9)(greatest(0, dateDiff('millisecond', toDateTime64(sampled, 3), toDateTime64(ingested, 3)))) / 1e3 AS age_s
    FROM nccl.procs AS procs
    LEFT JOIN (SELECT dev, any(host) AS host FROM nccl.members GROUP BY dev) AS places ON places.dev = procs.dev
    WHERE $__timeFilter(ingested)
    GROUP BY time, name
    ORDER BY time, name
"""

_ROWS = """
    SELECT time, name, rows / $__interval_s AS rows_per_s
    FROM
    (
        SELECT $__timeInterval(ingested) AS time, 'coll' AS name, count() AS rows FROM nccl.coll WHERE $__timeFilter(ingested) GROUP BY time
        UNION ALL
        SELECT $__timeInterval(ingested) AS time, 'flows' AS name, count() AS rows FROM nccl.flows WHERE $__timeFilter(ingested) GROUP BY time
        UNION ALL
        SELECT $__timeInterval(ingested) AS time, 'procs' AS name, count() AS rows FROM nccl.procs WHERE $__timeFilter(ingested) GROUP BY time
        UNION ALL
        SELECT $__timeInterval(ingested) AS time, 'waits' AS name, count() AS rows FROM nccl.waits WHERE $__timeFilter(ingested) GROUP BY time
    )
    ORDER BY time, name
"""

_HEARD = """
    SELECT places.host AS host, uniqExact(last.proc) AS processes, countIf(last.alive = 1) AS alive,
        max(last.heard) AS heard, dateDiff('second', max(last.heard), now()) AS silent_s, max(last.drops) AS drops
    FROM
    (
        SELECT proc, argMax(dev, sampled) AS dev, argMax(alive, sampled) AS alive, max(drops) AS drops, max(ingested) AS heard
        FROM nccl.procs
        WHERE $__timeFilter(ingested)
        GROUP BY proc
    ) AS last
    LEFT JOIN (SELECT dev, any(host) AS host FROM nccl.members GROUP BY dev) AS places ON places.dev = last.dev
    GROUP BY host
    ORDER BY silent_s DESC, host
    LIMIT 500
    SETTINGS join_use_nulls = 1
"""

_LOSSES = """
    SELECT what, source, topic, sum(missing) AS missing, count() AS times, max(seen) AS last_seen
    FROM nccl.losses
    WHERE $__timeFilter(seen)
    GROUP BY what, source, topic
    ORDER BY last_seen DESC
    LIMIT 200
"""

_DEAD = """
    SELECT topic, stage, reason, count() AS messages, max(seen) AS last_seen
    FROM nccl.dead
    WHERE $__timeFilter(seen)
    GROUP BY topic, stage, reason
    ORDER BY messages DESC
    LIMIT 200
"""


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "mycroft-pipeline",
        "Mycroft: pipeline health",
        "How old what we know is, what was lost, what could not be read.",
        [
            stat(
                "Silent collectors", f"Hosts with live processes that said nothing for {SILENT_AFTER_S} s.",
                _SILENT, (6, 4), "none", [(None, GREEN), (1, RED)],
            ),
            stat(
                "Messages lost", "Offsets and sequence numbers that never came, in the time range.",
                _MISSING, (6, 4), "none", [(None, GREEN), (1, YELLOW)],
            ),
            stat(
                "Dead letters", "Messages that could not be read or stored, in the time range.",
                _DEAD_COUNT, (6, 4), "none", [(None, GREEN), (1, YELLOW)],
            ),
            stat(
                "Incomplete verdicts", "Snapshots that were judged without all that was sent.",
                _UNTOLD, (6, 4), "none", [(None, GREEN), (1, YELLOW)],
            ),
            series(
                "Age of what is stored", "From sampling on the host to the row's time of ingestion, 9 of 10 rows, in "
                "whole seconds; the clock of a host that is off shows here.", _AGE, (12, 8), "s",
            ),
            series("Rows stored", "Rows a second, by table.", _ROWS, (12, 8), "rowsps"),
            table(
                "Hosts", "Drops: events that full tables and rings of a process could not take.", _HEARD, (12, 9),
                column("silent_s", unit="s"),
            ),
            table("Losses", "Drops are told by every partition: do not add them up.", _LOSSES, (12, 9)),
            table("Dead letters by reason", "The messages are in nccl.dead, as base64.", _DEAD, (24, 7)),
        ],
    )  # fmt: skip
