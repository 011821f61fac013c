"""One job: who holds the others up, how fast each rank moves data, what is open."""

from __future__ import annotations

from queries.grafana.panels import (
    SEVERITY_COLOURS,
    Json,
    coloured,
    dashboard,
    heatmap,
    linked,
    series,
    table,
    variable,
)

JOB = variable(
    "job",
    "Job",
    "Jobs by name, those heard of last first.",
    "SELECT job_name FROM nccl.members WHERE ingested >= now() - toIntervalDay(30) "
    "GROUP BY job_name ORDER BY max(ingested) DESC LIMIT 500",
)

_OF_JOB = "job IN (SELECT job FROM nccl.members WHERE job_name = ${job:sqlstring})"
_PLACES = """
    (
        SELECT dev, any(world_rank) AS rank, any(host) AS host
        FROM nccl.members WHERE job_name = ${job:sqlstring} GROUP BY dev
    ) AS places
"""
_NAME = "concat('rank ', leftPad(toString(ifNull(places.rank, 0)), 5), ' ', ifNull(places.host, ''))"

_BLAME = f"""
    SELECT $__timeInterval(lags.start) AS time, {_NAME} AS name, sum(lags.held_sum_us) / 1e6 AS held_s
    FROM nccl.lags AS lags
    INNER JOIN {_PLACES} ON places.dev = lags.dev
    WHERE lags.{_OF_JOB} AND $__timeFilter(lags.start)
    GROUP BY time, name
    ORDER BY time, name
"""

_BANDWIDTH = f"""
    SELECT
        $__timeInterval(lags.start) AS time,
        {_NAME} AS name,
        1e6 * sum(lags.bytes * multiIf(
            lags.func = 'all_reduce', 2 * (lags.nranks - 1) / lags.nranks,
            lags.func IN ('all_gather', 'reduce_scatter', 'all_to_all'), (lags.nranks - 1) / lags.nranks,
            1)) / sum(lags.duration_sum_us) AS bandwidth
    FROM nccl.lags AS lags
    INNER JOIN {_PLACES} ON places.dev = lags.dev
    WHERE lags.{_OF_JOB} AND $__timeFilter(lags.start) AND lags.timed = lags.n AND lags.n > 0
    GROUP BY time, name
    HAVING sum(lags.duration_sum_us) > 0
    ORDER BY time, name
"""

_KIND = "concat(comms.name, ' ', toString(rates.func), ' ≤ ', formatReadableSize(exp2(rates.size_class)))"
_NAMED = """
    (
        SELECT comm, any(name) AS name FROM nccl.members WHERE job_name = ${job:sqlstring} GROUP BY comm
    ) AS comms ON comms.comm = rates.comm
"""

_INTERVAL = f"""
    SELECT
        $__timeInterval(rates.start) AS time,
        {_KIND} AS name,
        sum(rates.interval_sum_us) / sum(rates.interval_n) / 1e6 AS interval_s
    FROM nccl.rates AS rates
    INNER JOIN {_NAMED}
    WHERE rates.{_OF_JOB} AND $__timeFilter(rates.start)
    GROUP BY time, name
    HAVING sum(rates.interval_n) > 0
    ORDER BY time, name
"""

_SKEW = f"""
    SELECT $__timeInterval(rates.start) AS time, {_KIND} AS name, max(rates.start_skew_max_us) / 1e6 AS skew_s
    FROM nccl.rates AS rates
    INNER JOIN {_NAMED}
    WHERE rates.{_OF_JOB} AND $__timeFilter(rates.start) AND rates.joined > 0
    GROUP BY time, name
    ORDER BY time, name
"""

_WAITING = f"""
    SELECT toDateTime(epoch, 'UTC') AS time, toString(reason) AS name, uniqExact(op, holder, holder_peer) AS held
    FROM nccl.waits
    WHERE {_OF_JOB} AND $__timeFilter(ingested) AND waiter_kind = 'operation'
    GROUP BY time, name
    ORDER BY time, name
"""

_STANDING = f"""
    SELECT toDateTime(epoch, 'UTC') AS time, uniqExact(waiter) AS devices
    FROM nccl.waits
    WHERE {_OF_JOB} AND $__timeFilter(ingested) AND waiter_kind = 'device'
    GROUP BY time
    ORDER BY time
"""

_INCIDENTS = """
    SELECT id, state, severity, category, confidence, waiting, arrayStringConcat(hosts, ', ') AS hosts, detected,
        closed, summary
    FROM nccl.incidents FINAL
    WHERE job = ${job:sqlstring} AND (state = 'open' OR $__timeFilter(detected))
    ORDER BY state DESC, detected DESC
    LIMIT 200
"""

_PROCESSES = f"""
    SELECT
        places.rank AS rank, places.host AS host, last.pid AS pid,
        multiIf(NOT last.alive, 'gone', last.state IN ('T', 't'), 'stopped', last.state = 'Z', 'zombie', 'runs') AS what,
        last.at AS sampled, last.drops AS drops
    FROM
    (
        SELECT proc, argMax(dev, sampled) AS dev, argMax(pid, sampled) AS pid, argMax(alive, sampled) AS alive,
            char(argMax(procs.state, sampled)) AS state, max(drops) AS drops, max(sampled) AS at
        FROM nccl.procs AS procs
        WHERE {_OF_JOB} AND $__timeFilter(ingested)
        GROUP BY proc
    ) AS last
    LEFT JOIN {_PLACES} ON places.dev = last.dev
    ORDER BY what = 'runs', rank
    LIMIT 500
    SETTINGS join_use_nulls = 1
"""


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "mycroft-job",
        "Mycroft: one job",
        "Who holds the others up, how fast each rank moves data, what is open.",
        [
            table(
                "Incidents", "Open ones, and those detected in the time range.", _INCIDENTS, (24, 6),
                coloured("severity", SEVERITY_COLOURS), linked("id", "mycroft-incident", "incident", "this incident"),
            ),
            heatmap(
                "Blame", "Device-time that the others waited for this rank because it was the last to start. "
                "A row that stays dark red is the slow one; rows that change are load imbalance.",
                _BLAME, (12, 10), "s", "Reds",
            ),
            heatmap(
                "Bus bandwidth", "By nccl-tests' factors, of operations whose end is known, as this rank sees them: "
                "who waits for a slow one is as slow.",
                _BANDWIDTH, (12, 10), "Bps", "Viridis",
            ),
            series(
                "Time between operations", "From one launch to the next, by communicator and operation: its steps, "
                "where a step has one of them.",
                _INTERVAL, (12, 8), "s",
            ),
            series(
                "Launch skew", "From the first member's launch to the last one's, offsets of clocks removed: the largest "
                "of the operations that all members have told.", _SKEW, (12, 8), "s",
            ),
            series(
                "What holds operations up", "Causes that watch sees inside operations, each second, by reason.",
                _WAITING, (12, 8), "none", stacked=True,
            ),
            series(
                "Devices that stand", "How many devices stand in an operation that is called stalled.",
                _STANDING, (12, 8), "none",
            ),
            table(
                "Processes", "As their host told last in the time range. Drops: events that full tables could not take.",
                _PROCESSES, (12, 8),
                coloured("what", {"gone": "red", "zombie": "red", "stopped": "yellow", "runs": "green"}),
            ),
        ],
        variables=[JOB],
        of_job=True,
    )  # fmt: skip
