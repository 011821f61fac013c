"""Communicators and flows: bandwidth by size, algorithm and protocol; what each flow waited for."""

from __future__ import annotations

from queries.grafana.job import JOB
from queries.grafana.panels import Json, column, dashboard, series, table, variable

COMM = variable(
    "comm",
    "Communicator",
    "Of this job, by name.",
    "SELECT DISTINCT name FROM nccl.members WHERE job_name = ${job:sqlstring} AND name != '' ORDER BY name LIMIT 500",
    every=True,
)

_COMMS = """
    (
        SELECT job, comm, any(members.name) AS name FROM nccl.members AS members
        WHERE job_name = ${job:sqlstring} AND (${comm:sqlstring} = '' OR members.name = ${comm:sqlstring})
        GROUP BY job, comm
    ) AS comms
"""

_FACTOR = """multiIf(
        sums.func = 'all_reduce', 2 * (sums.nranks - 1) / sums.nranks,
        sums.func IN ('all_gather', 'reduce_scatter', 'all_to_all'), (sums.nranks - 1) / sums.nranks,
        1)"""
_TIMED = "sums.kind = 'sum' AND sums.duration_max_us != 4294967295 AND sums.duration_sum_us > 0"

_BY_SIZE = f"""
    SELECT
        comms.name AS communicator,
        toString(sums.func) AS func,
        exp2(ceil(log2(greatest(sums.bytes / sums.n, 1)))) AS up_to_bytes,
        toString(sums.algo) AS algo,
        toString(sums.proto) AS proto,
        round(sum(sums.n) / uniqExact(sums.dev)) AS operations,
        1e6 * sum(sums.bytes * {_FACTOR}) / sum(sums.duration_sum_us) AS bus_bandwidth,
        sum(sums.duration_sum_us) / sum(sums.n) / 1e6 AS mean_s,
        max(sums.duration_max_us) / 1e6 AS worst_s
    FROM nccl.coll AS sums
    INNER JOIN {_COMMS} ON comms.job = sums.job AND comms.comm = sums.comm
    WHERE {_TIMED} AND $__timeFilter(sums.ingested)
    GROUP BY communicator, func, up_to_bytes, algo, proto
    ORDER BY communicator, func, up_to_bytes
    LIMIT 500
"""

_OVER_TIME = f"""
    SELECT
        $__timeInterval(rates.start) AS time,
        concat(comms.name, ' ', toString(rates.func), ' ≤ ', formatReadableSize(exp2(rates.size_class)), ' ',
            toString(rates.algo), ' ', toString(rates.proto)) AS name,
        avg(rates.busbw) AS bandwidth
    FROM nccl.rates AS rates
    INNER JOIN {_COMMS} ON comms.job = rates.job AND comms.comm = rates.comm
    WHERE rates.busbw > 0 AND $__timeFilter(rates.start)
    GROUP BY time, name
    ORDER BY time, name
"""

_FLOWS = f"""
    SELECT
        comms.name AS communicator,
        flows.rank AS sender,
        flows.peer AS receiver,
        if(flows.channel < 0, 'all alike', toString(flows.channel)) AS channel,
        sum(flows.bytes) AS bytes,
        sum(flows.gpu_us) / 1e6 AS gpu_s,
        sum(flows.credit_us) / 1e6 AS credit_s,
        sum(flows.net_us) / 1e6 AS network_s,
        sum(flows.no_credit) AS no_credit
    FROM nccl.flows AS flows
    INNER JOIN {_COMMS} ON comms.job = flows.job AND comms.comm = flows.comm
    WHERE flows.kind = 'sum' AND flows.direction = 'send' AND $__timeFilter(flows.ingested)
    GROUP BY communicator, sender, receiver, channel
    ORDER BY network_s + credit_s + gpu_s DESC
    LIMIT 200
"""

_WAITED = f"""
    SELECT $__timeInterval(flows.ingested) AS time, wait.1 AS name, sum(wait.2) / 1e6 AS waited_s
    FROM nccl.flows AS flows
    INNER JOIN {_COMMS} ON comms.job = flows.job AND comms.comm = flows.comm
    ARRAY JOIN [('GPU', flows.gpu_us), ('credit', flows.credit_us), ('network', flows.net_us)] AS wait
    WHERE flows.kind = 'sum' AND flows.direction = 'send' AND $__timeFilter(flows.ingested)
    GROUP BY time, name
    ORDER BY time, name
"""


def build() -> Json:
    """The dashboard."""
    return dashboard(
        "mycroft-communicators",
        "Mycroft: communicators and flows",
        "Bandwidth by size class, algorithm and protocol; what each flow waited for.",
        [
            series(
                "Bus bandwidth", "By nccl-tests' factors, of operations whose end is known, a second each.",
                _OVER_TIME, (12, 9), "Bps",
            ),
            series(
                "What senders waited for", "Head-of-line time of all senders: for the GPU to fill, for the peer's "
                "credit, in the network.", _WAITED, (12, 9), "s", stacked=True,
            ),
            table(
                "By size, algorithm and protocol", "Size classes are powers of two of an operation's payload.",
                _BY_SIZE, (24, 9), column("up_to_bytes", unit="bytes"), column("bus_bandwidth", unit="Bps"),
                column("mean_s", unit="s"), column("worst_s", unit="s"),
            ),
            table(
                "Flows", "Sender to receiver by rank within the communicator; a channel stands by itself where it "
                "differs from its siblings.", _FLOWS, (24, 10), column("bytes", unit="bytes"),
                *(column(name, unit="s") for name in ("gpu_s", "credit_s", "network_s")),
            ),
        ],
        variables=[JOB, COMM],
        of_job=True,
    )  # fmt: skip
