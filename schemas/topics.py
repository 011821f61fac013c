"""The Kafka topics: names, keys and who writes what where."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Topic:
    """One topic. `config` is what it is created with on a real broker."""

    name: str
    key: str
    value: str
    doc: str
    config: tuple[tuple[str, str], ...] = ()


_DAY_MS = str(24 * 3600 * 1000)
_BROKER_TIME = ("message.timestamp.type", "LogAppendTime")

TRACE = Topic(
    "nccl.trace",
    "none",
    "envelope",
    "records of hosts and imports, partition = comm mod partitions",
    (("retention.ms", _DAY_MS), _BROKER_TIME),
)
MEMBERS = Topic(
    "nccl.members",
    "comm and source",
    "JSON",
    "who is in a communicator, partitioned as in nccl.trace",
    (("cleanup.policy", "compact"), _BROKER_TIME),
)
WAITS = Topic(
    "nccl.waits",
    "job",
    "envelope",
    "per second and trace partition: the complete set of waits, then a marker",
    (("retention.ms", _DAY_MS), _BROKER_TIME),
)
ALERTS = Topic(
    "nccl.alerts",
    "job",
    "JSON",
    "incidents as they open, change and close (schemas/alert.schema.json)",
    (("retention.ms", str(7 * 24 * 3600 * 1000)), _BROKER_TIME),
)
VERDICTS = Topic(
    "nccl.verdicts",
    "job",
    "JSON",
    "one per judged snapshot: what was found, which partitions were missing",
    (("retention.ms", _DAY_MS), _BROKER_TIME),
)
BASELINES = Topic(
    "nccl.baselines",
    "job, attempt and part",
    "envelope",
    "what is usual of each running job, so that a worker that starts need not learn it anew",
    (("cleanup.policy", "compact"), _BROKER_TIME),
)
DEAD = Topic(
    "nccl.dead",
    "none",
    "JSON",
    "what could not be read or stored, with its origin and the reason",
    (("retention.ms", str(7 * 24 * 3600 * 1000)), _BROKER_TIME),
)

WORKER_GROUP = "mycroft"
"""Consumer group of the workers, and their Faust app's id."""

SINK_GROUP = "mycroft-sink"
"""Consumer group of the sinks."""

NOTIFY_GROUP = "mycroft-notify"
"""Consumer group of the notifiers to Alertmanager."""

TOPICS: tuple[Topic, ...] = (TRACE, MEMBERS, WAITS, ALERTS, VERDICTS, BASELINES, DEAD)


def partition_of(comm: int, partitions: int) -> int:
    """The partition of `nccl.trace` and `nccl.members` in which all ranks of a communicator meet."""
    return comm % partitions
