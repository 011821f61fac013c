"""Which job, attempt, process and device a file speaks of.

Every host decides alone, from the environment that the plugin copied, so all rules use only what is equal on
all hosts of a job. In order:

| | job's name | attempt |
|---|---|---|
| by setting | MYCROFT_JOB | MYCROFT_ATTEMPT |
| Slurm | slurm-[CLUSTER-]JOBID.STEPID | SLURM_JOB_START_TIME, requeues, torchrun's restarts |
| torchrun | torchrun-[NAMESPACE-]RUN_ID | restarts, and a hash of run id and rendezvous |
| others | pbs-, lsf-, pmix-ID | a hash of the id |
| rendezvous | at-MASTER_ADDR:MASTER_PORT | a hash of it |
| none | unnamed-HOST-UID | first process start on this host: no other host can agree |

An attempt's id is a time in ns where all hosts know one. Where they know only counters and names it is
`restarts × 2^46 + hash`, below 2^58, which no clock of today shows: later restarts are larger, unrelated
starts merely differ. Readers close what an older attempt left by comparing ids and times, so one that is too
small closes nothing by mistake.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from collectors.jobs import check_job_name
from schemas.ids import hash64, job_id

_HASH_BITS = 46
_MAX_RESTARTS = (1 << 12) - 1
_PLAUSIBLE_START_S = 1_000_000_000
"""2001: a start time below this is none."""
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})
_WORLD_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")

Environment = Mapping[str, str]


@dataclass(frozen=True)
class Job:
    """A job and one start of it; `named` is false where nothing tells the job from others on this host."""

    name: str
    id: int
    attempt: str
    attempt_id: int
    named: bool = True


def job_of(environment: Environment, host: str, uid: int, started_ns: int) -> Job:
    """The job that a process with this environment belongs to.

    `started_ns` is the start of the process, used only where nothing else is known. Placeholders and names
    that cannot be printed count as absent.
    """
    name = job_name(environment, host)
    named = name is not None
    name = name or f"unnamed-{host}-{uid}"
    attempt, attempt_id = _attempt(environment, name, started_ns if not named else None)
    return Job(name, job_id(name), attempt, attempt_id, named)


def world_rank(environment: Environment) -> int | None:
    """Rank of the process among all of the job, where a launcher tells it."""
    return next(
        (rank for name in _WORLD_RANKS if (rank := _natural(environment.get(name))) is not None), None
    )


def process_id(host: str, namespace: int, pid: int, started_ns: int) -> int:
    """64-bit id of one process instance.

    `pid` is the one that the process has in its own PID namespace, so the id does not depend on where the
    collector runs; the start time tells a reused pid apart.
    """
    return hash64("proc", host, namespace, pid, started_ns)


def device_id(process: int, gpu: int) -> int:
    """64-bit id of one GPU of one process instance; `gpu` −1 where the process does not tell."""
    return hash64("dev", process, gpu)


def job_name(environment: Environment, host: str) -> str | None:
    """The name that a process with this environment gives its job, None where nothing names it."""
    if (own := _name(environment, "MYCROFT_JOB")) is not None:
        return own
    if (slurm := _name(environment, "SLURM_JOB_ID", "SLURM_JOBID")) is not None:
        array = _name(environment, "SLURM_ARRAY_JOB_ID")
        task = _name(environment, "SLURM_ARRAY_TASK_ID")
        number = f"{array}_{task}" if array and task else slurm
        return (
            _joined("slurm", _name(environment, "SLURM_CLUSTER_NAME"), number)
            + "."
            + (_name(environment, "SLURM_STEP_ID", "SLURM_STEPID") or "0")
        )
    namespace = _name(environment, "MYCROFT_NAMESPACE", "POD_NAMESPACE")
    for prefix, variable in (
        ("torchrun", "TORCHELASTIC_RUN_ID"),
        ("pbs", "PBS_JOBID"),
        ("lsf", "LSB_JOBID"),
        ("pmix", "PMIX_NAMESPACE"),
    ):
        if (found := _name(environment, variable)) is not None:
            return _joined(prefix, namespace, found)
    address, port = _name(environment, "MASTER_ADDR"), _name(environment, "MASTER_PORT")
    if address is None or port is None:
        return None
    where = f"{host}-{address}" if address in _LOCAL else address
    return _joined("at", namespace, f"{where}:{port}")


def _attempt(environment: Environment, job: str, started_ns: int | None) -> tuple[str, int]:
    """Name and id. `started_ns` is given for jobs that no other host can know of."""
    restarts = sum(
        _natural(environment.get(name)) or 0 for name in ("SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT")
    )
    if (own := _name(environment, "MYCROFT_ATTEMPT")) is not None:
        number = _natural(own)
        if number is not None and number >= _PLAUSIBLE_START_S * 10**9:
            return own, min(number, (1 << 63) - 1)
        return own, _counted(number or 0, "own", job, own)
    begun = _natural(environment.get("SLURM_JOB_START_TIME"))
    if begun is not None and _PLAUSIBLE_START_S <= begun < 1 << 33:
        # A nanosecond a restart: the order holds and the time stays right.
        return f"{begun}.{restarts}", begun * 10**9 + restarts
    if started_ns is not None:
        return str(started_ns), started_ns
    parts = [
        environment.get(name, "")
        for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    ]
    identity = _counted(restarts, "attempt", job, *parts)
    return f"{restarts}.{identity % (1 << _HASH_BITS):012x}", identity


def _counted(restarts: int, *parts: str) -> int:
    return (min(restarts, _MAX_RESTARTS) << _HASH_BITS) + (hash64(*parts) % (1 << _HASH_BITS) or 1)


def _name(environment: Environment, *variables: str) -> str | None:
    """The first of these variables that holds a name and no placeholder."""
    for variable in variables:
        try:
            return check_job_name(environment[variable])
        except (KeyError, ValueError):
            continue
    return None


def _joined(*parts: str | None) -> str:
    return "-".join(part for part in parts if part)[:200]


def _natural(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > math.ceil(64 * math.log10(2)):
        return None
    return int(text)
