"""A training job as its collectors' sums tell of it, second by second, without processes: for long times.

256 ranks are tp 8 × pp 4 × dp 8 on 32 hosts, one a node of eight. A step has `micro_batches` forward and
backward passes with an AllReduce in each tensor group and a send to the next stage, then a ReduceScatter and
an AllGather in each data group. What a step takes is `step_s` times what `pace` says of that second; every
operation takes its time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from schemas.enums import Algo, DataType, Func, Kind, Proto, Visibility
from schemas.envelope import Envelope, MessageKind
from schemas.ids import hash64
from schemas.records import COLL, UNKNOWN_US, Records
from streams.slow.triggers import Slow, Triggers
from streams.slow.windows import Windows

JOB, ATTEMPT = 11, 22
BEGAN_S = 1_700_000_000
PER_HOST = 8


@dataclass(frozen=True)
class Second:
    """How the job is in one second. All are parts of what is usual."""

    pace: float = 1.0
    """Time of a step."""
    size: float = 1.0
    """Payload."""
    micro_batches: int = 8
    training: bool = True
    """Without it only the forward passes run: an evaluation."""
    working: bool = True
    """Without it nothing runs: a checkpoint."""
    transfer: float = 1.0
    """Time of each transfer in data groups."""


@dataclass
class PacedJob:
    """Flushes of all hosts of a job, a second at a time."""

    tensor: int = 8
    stages: int = 4
    data: int = 8
    step_s: float = 2.0
    noise: float = 0.03
    """Standard deviation of a step's time, as a part."""
    seed: int = 0
    micro_batches: int = 8
    _rng: np.random.Generator = field(init=False)
    _groups: Records = field(init=False)
    _left: npt.NDArray[np.float64] = field(init=False)
    _launched: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        rows = []
        for rank in range(self.ranks):
            place, stage, replica = (
                rank % self.tensor, rank // self.tensor % self.stages, rank // (self.tensor * self.stages)
            )  # fmt: skip
            rows.append(
                self._row(rank, f"tp-{stage}-{replica}", place, self.tensor, Func.ALL_REDUCE, 8 << 20)
            )
            if stage + 1 < self.stages:
                rows.append(self._row(rank, f"pp-{place}-{replica}", stage, self.stages, Func.SEND, 4 << 20))
            for func in (Func.REDUCE_SCATTER, Func.ALL_GATHER):
                rows.append(self._row(rank, f"dp-{place}-{stage}", replica, self.data, func, 64 << 20))
        self._groups = COLL.joined(rows)
        self._left = np.zeros(len(self._groups))
        self._launched = np.zeros(len(self._groups), np.int64)

    @property
    def ranks(self) -> int:
        return self.tensor * self.stages * self.data

    def _row(self, rank: int, comm: str, at: int, nranks: int, func: Func, size: int) -> Records:
        row = COLL.empty(1)
        row["job"], row["attempt"], row["comm"], row["dev"] = JOB, ATTEMPT, hash64("comm", comm), rank + 1
        row["rank"], row["nranks"], row["kind"], row["func"], row["peer"] = at, nranks, Kind.SUM, func, -1
        row["visibility"], row["datatype"] = Visibility.FLOWS, DataType.BFLOAT16
        row["algo"], row["proto"], row["bytes"] = Algo.RING, Proto.SIMPLE, size
        for name in (
            "api_us",
            "first_us",
            "end_us",
            "kernel_start_us",
            "kernel_end_us",
            "age_us",
            "quiet_us",
        ):
            row[name] = UNKNOWN_US
        return row

    def flushes(self, second: int, state: Second) -> Iterator[Envelope]:
        """What the hosts tell at the end of a second."""
        rows = self._groups.copy()
        step_s = self.step_s * state.pace * max(0.2, 1 + self.noise * float(self._rng.standard_normal()))
        tensor = rows["func"] == Func.ALL_REDUCE
        data = np.isin(rows["func"], (Func.REDUCE_SCATTER, Func.ALL_GATHER))
        # Operations of a step: each tensor group two for each micro batch, the stages one, the rest one.
        batches = state.micro_batches / self.micro_batches
        per_step = np.where(tensor, 2 * self.micro_batches, np.where(data, 1 / batches, self.micro_batches))
        if not state.training:
            # Half of the operations in a third of the time: a backward pass takes twice a forward one.
            per_step = np.where(data, 0, per_step * 1.5)
        if not state.working:
            per_step = np.zeros(len(rows))
        self._left += per_step / step_s
        n = np.floor(self._left)
        self._left -= n
        # Where in the second the last one was launched: as long ago as the next one is near.
        since = np.where(per_step > 0, self._left / np.maximum(per_step / step_s, 1e-9), 0.0)
        rows["n"] = n
        rows["bytes"] = (n * np.rint(rows["bytes"] * state.size)).astype(np.uint64)
        took = np.where(tensor, 2_000.0, np.where(data, 40_000.0 * state.transfer, 4_000.0))
        took = took * np.exp(0.1 * self._rng.standard_normal(len(rows)))
        for name in ("duration_p50_us", "duration_p90_us", "duration_p99_us", "duration_max_us"):
            rows[name] = took
        rows["duration_sum_us"] = n * took
        end_ns = (BEGAN_S + second + 1) * 10**9
        rows["launched"] = end_ns - np.rint((np.minimum(since, 0.999) + 1e-4) * 1e9).astype(np.int64)
        rows["launched"] = np.maximum(rows["launched"], self._launched + 1)
        self._launched = np.where(n > 0, rows["launched"], self._launched)
        rows = rows[n > 0]
        host = (rows["dev"] - 1) // PER_HOST
        for number in range(self.ranks // PER_HOST):
            yield Envelope(
                MessageKind.FLUSH, JOB, ATTEMPT, f"h{number}", through=end_ns,
                sections={COLL.name: rows[host == number]},
            )  # fmt: skip


@dataclass(frozen=True)
class Change:
    """A job began to be slow, or ended to be (`slow` is None), in a second since its begin."""

    second: int
    slow: Slow | None


def watch(
    job: PacedJob, seconds: int, state: Callable[[int], Second], triggers: Triggers,
) -> list[Change]:  # fmt: skip
    """All changes of a job that is watched for so long, through windows, baselines and triggers."""
    windows = Windows(JOB, ATTEMPT, 0)
    changes = []
    for second in range(seconds):
        at = BEGAN_S + second + 1.0
        for message in job.flushes(second, state(second)):
            windows.take(message, at)
        for closed in windows.close(at):
            number = closed.window.start_ns // 10**9
            was, slow = triggers.slow, triggers.look(closed.rates, number)
            if (was is None) != (slow is None):
                changes.append(Change(number - BEGAN_S, slow))
    return changes


def healthy_day(day_s: int) -> Callable[[int], Second]:
    """What varies in a healthy job over `day_s` seconds, by second: nothing of it is a fault.

    Warming by 3 % and cooling again over the day; lengths that are uneven in spells of some minutes, ±2 %; a
    checkpoint of 8 s every half hour; an evaluation of a minute every 50 minutes; a batch of twice as many
    micro batches from a third of the day on; inputs of twice the length from two thirds on, which take twice
    as long; a first minute that is slow. A shorter day has all of it as often, evaluations
    for at most a twentieth of the time.
    """
    scale = day_s / 86_400
    checkpoint, evaluation, spell = (max(60, int(each * scale)) for each in (1800, 3000, 900))

    def state(second: int) -> Second:
        warm = 1 + 0.015 * (1 - math.cos(2 * math.pi * second / day_s))
        uneven = 1 + 0.02 * math.sin(2 * math.pi * second / spell)
        longer = 2.0 if second >= 2 * day_s // 3 else 1.0
        return Second(
            pace=warm * uneven * longer * (3.0 if second < 60 else 1.0),
            size=longer,
            micro_batches=16 if second >= day_s // 3 else 8,
            training=second % evaluation < evaluation - min(60, evaluation // 20),
            working=second % checkpoint < checkpoint - 8,
        )

    return state
