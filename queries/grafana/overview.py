"""Jobs overview: what is wrong, which jobs are seen, who fell silent."""

from __future__ import annotations

from queries.grafana.panels import (
    BLUE,
    GREEN,
    RED,
    SEVERITY_COLOURS,
    YELLOW,
    Json,
    coloured,
    column,
    dashboard,
    linked,
    series,
    stat,
    table,
)

_OPEN = """
    SELECT count() AS open
    FROM nccl.incidents FINAL
    WHERE state = 'open' AND severity = '{severity}'
"""

_INCIDENTS = """
    SELECT id, severity, category, confidence, job, waiting, arrayStringConcat(hosts, ', ') AS hosts, detected, summary
    FROM nccl.incidents FINAL
    WHERE state = 'open'
    ORDER BY indexOf(['critical', 'warning', 'notice'], severity), detected DESC
    LIMIT 200
"""

_JOBS = """
    SELECT
        seen.job_name AS job,
        seen.attempt AS attempt,
        seen.ranks AS ranks,
        seen.hosts AS hosts,
        wrong.open AS open_incidents,
        dateDiff('second', heard.at, now()) AS silent_s
    FROM
    (
        SELECT members.job AS job, any(members.job_name) AS job_name, any(members.attempt_name) AS attempt,
            uniqExact(members.dev) AS ranks, uniqExact(members.host) AS hosts
        FROM nccl.members AS members
        WHERE (members.job, members.attempt) IN
        (
            SELECT job, max(attempt)
            FROM nccl.members
            WHERE ingested >= $__fromTime - toIntervalDay(1)
            GROUP BY job
        )
        GROUP BY members.job
    ) AS seen
    LEFT JOIN
    (
        SELECT job, countIf(state = 'open') AS open FROM nccl.incidents FINAL GROUP BY job
    ) AS wrong ON wrong.job = seen.job_name
    LEFT JOIN
    (
        SELECT job, max(ingested) AS at FROM nccl.procs WHERE $__timeFilter(ingested) GROUP BY job
    ) AS heard ON heard.job = seen.job
    ORDER BY open_incidents DESC, job
    LIMIT 500
    SETTINGS join_use_nulls = 1
"""

_OVER_TIME = """
    SELECT $__timeInterval(detected) AS time, category, count() AS incidents
    FROM nccl.incidents FINAL
    WHERE $__timeFilter(detected)
    GROUP BY time, category
    ORDER BY time
"""


def build() -> Json:
    """The dashboard."""
    counts = [
        stat(
            f"Open: {severity}", "Incidents that are open now, whatever the time range.",
            _OPEN.format(severity=severity), (8, 4), "none", [(None, GREEN), (1, colour)],
        )
        for severity, colour in (("critical", RED), ("warning", YELLOW), ("notice", BLUE))
    ]  # fmt: skip
    return dashboard(
        "mycroft-jobs",
        "Mycroft: jobs",
        "What is wrong now, and which jobs are seen.",
        [
            *counts,
            table(
                "Open incidents",
                "The loudest first. The id leads to the chain, the counters and the evidence.",
                _INCIDENTS,
                (24, 9),
                coloured("severity", SEVERITY_COLOURS),
                linked("id", "mycroft-incident", "incident", "this incident"),
                linked("job", "mycroft-job", "job", "this job"),
                column("waiting", custom__width=80),
                column("summary", custom__minWidth=400),
            ),
            table(
                "Jobs",
                "Latest attempt of each job that was announced in the last day before the range or later. "
                "Silent: since a process of it was last told of; empty for jobs known by dumps only.",
                _JOBS,
                (12, 9),
                linked("job", "mycroft-job", "job", "this job"),
                column("silent_s", unit="s"),
            ),
            series(
                "Incidents by category",
                "When they were detected.",
                _OVER_TIME,
                (12, 9),
                "none",
                stacked=True,
            ),
        ],
        since="now-24h",
    )
