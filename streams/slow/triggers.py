"""When a job is slow: its pace against what is usual, second by second.

Three tests.

`interval`, the paper's: operations come at twice the usual interval, in most of the last windows.

`throughput`, the paper's: one kind of operation of one communicator takes twice its usual time on the member
that waits for nobody, in several windows in a row, and that costs the job COST of its time.

`drift`, a change-point test (CUSUM) for what is less than that: what the job's operations take longer than
usual, beyond a slack, is added up; what they take less is taken off, down to nothing. It triggers at
`evidence`, or where the job is noisy at as much as noise would not reach in a year: for steps of standard
deviation s and a slack k the sum exceeds h by chance with exp(−2kh/s²) at each attempt.

The pace of a job is one number a window: the middle of what its kinds of operation take longer than usual,
weighed by their operations. In a job that is slow they all are, since each step has the same operations.
Where only some come less often, a step has another number of them (a batch size was changed), and the job is
not slow.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mycroft.settings import Settings
from schemas.records import RATE, UNKNOWN_US, Records
from streams.slow.baselines import CLIP, MEMORY, OTHER_WINDOWS, SKIPPED, Baselines

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

RARE = 18.0
"""A false alarm once in e^18 attempts: one a second, that is two years."""
SPREAD_TO_DEVIATION = 1.25
"""Of a normal distribution: standard deviation ÷ mean distance."""
BLOCK = 10
"""Windows whose mean shows noise that lasts: uneven lengths come in spells."""
BLOCKS = 7
"""Blocks whose first and last are compared: a minute apart."""
SETTLED = 600
"""Windows after which the pace's own mean stays: it only corrects what the middle of many means is off."""
COST = 0.05
"""What takes less than a twentieth of the job's time is worth no alert."""
SURE = 6.0
"""Mean distances from the usual that half a throughput must also be: small operations vary by themselves."""
OVER_WINDOWS = 20
"""A job that was within its slack on average over so many windows is slow no more."""


@dataclass(frozen=True)
class Limits:
    """The thresholds (see mycroft.settings)."""

    warmup_s: float = 120.0
    interval: float = math.log(2.0)
    throughput: float = math.log(2.0)
    windows: int = 3
    slack: float = 0.05
    evidence: float = 1.0
    accept_s: float = 1800.0

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """As set."""
        return cls(
            settings.slow_warmup_s, math.log(settings.slow_interval_factor),
            -math.log(settings.slow_throughput_factor), settings.slow_windows,
            math.log1p(settings.slow_slack), settings.slow_evidence, settings.slow_accept_s,
        )  # fmt: skip


@dataclass(frozen=True)
class Slow:
    """A job is slow.

    `since`: whole second of broker time. `factor`: what its operations take by now, times the usual.
    `rows`: RATE rows that say so, `usual_us` what is usual of each.
    """

    trigger: str
    since: int
    second: int
    factor: float
    rows: Records
    usual_us: F64


@dataclass(frozen=True)
class Kept:
    """What is kept of a job over a restart: BASELINE records, its pace, and what is slow."""

    rows: Records
    pace: dict[str, float]
    slow: tuple[str, int, float] | None


@dataclass
class _Pace:
    """The job's pace itself: its mean and noise, and the evidence against it."""

    judged: bool = False
    """Whether most of what the job does had been learned for long enough, once."""
    strange: int = 0
    """Windows in a row in which it had not."""
    n: int = 0
    usual: float = 0.0
    spread: float = 0.0
    former: float = 0.0
    block: list[float] = field(default_factory=list)
    blocks: deque[float] = field(default_factory=lambda: deque(maxlen=BLOCKS))
    block_spread: float = 0.0
    block_n: int = 0
    evidence: float = 0.0
    began: int = 0
    """Second in which the evidence was last nothing."""
    last: deque[float] = field(default_factory=lambda: deque(maxlen=OVER_WINDOWS))

    def learn(self, value: float) -> None:
        """One window of a healthy job."""
        away = min(max(value - self.usual, -CLIP), CLIP)
        self.n += 1
        if self.n <= SETTLED:
            self.usual += away / self.n
        # By differences, so that a drift is not taken for noise.
        step = 1 / min(self.n, MEMORY)
        self.spread += step * (abs(away - self.former) / math.sqrt(2) - self.spread)
        self.former = away
        self.block.append(away)
        if len(self.block) == BLOCK:
            self.blocks.append(sum(self.block) / BLOCK)
            self.block.clear()
            if len(self.blocks) == BLOCKS:
                self.block_n += 1
                lasting = abs(self.blocks[-1] - self.blocks[0]) / math.sqrt(2)
                self.block_spread += (lasting - self.block_spread) / min(self.block_n, MEMORY // BLOCK)

    def deviation(self) -> float:
        """Standard deviation of a window's pace as it adds up over many."""
        lasting = self.block_spread * math.sqrt(BLOCK)
        return SPREAD_TO_DEVIATION * max(self.spread, lasting)


class Triggers:
    """One attempt of a job; `kept` from before a restart of the worker."""

    def __init__(self, limits: Limits, kept: Kept | None = None) -> None:
        self.limits = limits
        self.baselines = Baselines()
        self._pace = _Pace()
        self._low_at = 0
        """When half the throughput was last seen."""
        self.slow: Slow | None = None
        """What has triggered and is not over."""
        if kept is not None:
            # Rows come from read-only bytes.
            self.baselines.rows = kept.rows.copy()
            pace = kept.pace
            self._pace = _Pace(
                bool(pace["judged"]), 0, int(pace["n"]), pace["usual"], pace["spread"],
                block_spread=pace["block_spread"], block_n=int(pace["block_n"]), evidence=pace["evidence"],
                began=int(pace["began"]),
            )  # fmt: skip
            if kept.slow:
                trigger, since, factor = kept.slow
                self.slow = Slow(trigger, since, since, factor, RATE.empty(0), np.zeros(0))

    def kept(self) -> Kept:
        """What a worker that starts needs in order to go on."""
        pace = self._pace
        slow = self.slow
        return Kept(
            self.baselines.rows,
            {
                "judged": pace.judged, "n": pace.n, "usual": pace.usual, "spread": pace.spread,
                "block_spread": pace.block_spread, "block_n": pace.block_n, "evidence": pace.evidence,
                "began": pace.began,
            },
            None if slow is None else (slow.trigger, slow.since, slow.factor),
        )  # fmt: skip

    def look(self, rates: Records, second: int, *, blamed: bool = False) -> Slow | None:
        """Take in the RATE rows of one window, unique by their key; what is slow now, or None.

        `blamed`: somebody was found to be behind what is slow already.
        """
        if not len(rates):
            return self.slow
        base = self.baselines
        at = base.match(rates, second)
        usable = base.shaped(at, rates["bytes"].astype(np.float64), second)
        paced = usable & (rates["interval_n"] > 0)
        interval = np.log(
            np.maximum(rates["interval_sum_us"], 1) / np.maximum(rates["interval_n"], 1).astype(np.float64)
        )
        timed = usable & (rates["transfer_us"] != UNKNOWN_US)
        transfer = np.log(np.maximum(rates["transfer_us"].astype(np.float64), 1))
        late, judged = self._late(at, interval, paced, rates, second)
        self._pace.strange = 0 if judged else self._pace.strange + 1
        if self._pace.strange == OTHER_WINDOWS and self._pace.judged:
            # Most of what the job does is new: it has another shape.
            self._pace = _Pace()
        self._pace.judged |= judged
        low = self._low(at, transfer, timed, rates, second)
        found = self._judge(late, low, at, rates, second, blamed)
        # Not to learn from windows that merely look slow would make the usual creep towards the fast ones.
        if found is None:
            base.learn(at[paced], interval[paced], "interval", "n")
            base.learn(at[timed], transfer[timed], "transfer", "timed")
            if late is not None and self._pace.evidence <= self._threshold() / 2:
                self._pace.learn(late)
        self.slow = found
        return found

    def _threshold(self) -> float:
        noise = self._pace.deviation() ** 2
        return max(self.limits.evidence, RARE * noise / (2 * self.limits.slack))

    def _late(
        self, at: I64, interval: F64, paced: npt.NDArray[np.bool_], rates: Records, second: int
    ) -> tuple[float | None, bool]:
        """The job's pace: log of times the usual, None where nothing is known; whether to judge by it."""
        rows = self.baselines.rows
        weight = rates["interval_n"].astype(np.float64)
        ready = paced & self.baselines.ready(at, "n", second, self.limits.warmup_s)
        judged = bool(weight[ready].sum() > weight.sum() / 2)
        known = ready if judged else paced & (rows["n"][at] > SKIPPED)
        if not known.any():
            return None, judged
        away = interval[known] - rows["interval"][at[known]]
        order = np.argsort(away)
        half = np.searchsorted(np.cumsum(weight[known][order]), weight[known].sum() / 2)
        return float(away[order][half]), judged

    def _low(
        self, at: I64, transfer: F64, timed: npt.NDArray[np.bool_], rates: Records, second: int
    ) -> npt.NDArray[np.bool_]:
        """Which rows have had half the throughput for several windows."""
        rows = self.baselines.rows
        away = transfer - rows["transfer"][at]
        known = timed & self.baselines.ready(at, "timed", second, self.limits.warmup_s)
        excess = (np.exp(transfer) - np.exp(rows["transfer"][at])) * rates["n"]
        low = known & (away >= self.limits.throughput) & (away >= SURE * rows["transfer_spread"][at])
        low &= excess >= COST * rates["length_us"]
        rows["low"][at] = np.where(low, rows["low"][at] + 1, np.where(timed, 0, rows["low"][at]))
        found: npt.NDArray[np.bool_] = low & (rows["low"][at] >= self.limits.windows)
        return found

    def _judge(
        self, late: float | None, low: npt.NDArray[np.bool_], at: I64, rates: Records, second: int,
        blamed: bool,
    ) -> Slow | None:  # fmt: skip
        pace, limits = self._pace, self.limits
        if late is not None and pace.judged and not pace.strange:
            away = late - pace.usual
            pace.last.append(away)
            pace.evidence = max(0.0, pace.evidence + min(max(away, -CLIP), CLIP) - limits.slack)
            if pace.evidence == 0.0:
                pace.began = second
        if low.any():
            self._low_at = second
        trigger = self._trigger(low)
        if self.slow is not None:
            return self._lasting(trigger, low, at, rates, second, blamed)
        if not trigger:
            return None
        since = pace.began + 1 if trigger != "throughput" else second - limits.windows + 1
        return self._told(trigger, since, low, at, rates, second)

    def _trigger(self, low: npt.NDArray[np.bool_]) -> str:
        pace, limits = self._pace, self.limits
        recent = sorted(list(pace.last)[-2 * limits.windows + 1 :])
        if len(recent) == 2 * limits.windows - 1 and recent[limits.windows - 1] >= limits.interval:
            return "interval"
        if pace.evidence > self._threshold():
            return "drift"
        return "throughput" if low.any() else ""

    def _lasting(
        self, trigger: str, low: npt.NDArray[np.bool_], at: I64, rates: Records, second: int, blamed: bool
    ) -> Slow | None:
        """What is slow already: still, no more, or usual by now."""
        assert self.slow is not None
        pace = self._pace
        over = (
            len(pace.last) == OVER_WINDOWS
            and float(np.clip(pace.last, -CLIP, CLIP).mean()) <= self.limits.slack
        )
        if over and second - self._low_at >= OVER_WINDOWS:
            pace.evidence = 0.0
            return None
        if not blamed and second - self.slow.since >= self.limits.accept_s:
            self.baselines.forget(np.arange(len(self.baselines.rows)), second)
            self._pace = _Pace()
            return None
        return self._told(trigger or self.slow.trigger, self.slow.since, low, at, rates, second)

    def _told(
        self, trigger: str, since: int, low: npt.NDArray[np.bool_], at: I64, rates: Records, second: int
    ) -> Slow:
        base = self.baselines.rows
        if trigger == "throughput":
            chosen, name = np.flatnonzero(low), "transfer"
            if not len(chosen) and self.slow is not None:
                return self.slow
            factor = float(np.median(rates["transfer_us"][chosen] / np.exp(base["transfer"][at[chosen]])))
        else:
            chosen, name = np.flatnonzero(rates["interval_n"] > 0), "interval"
            factor = math.exp(float(np.median(list(self._pace.last)[-BLOCK:] or [0.0])))
        return Slow(
            trigger, since, second, factor, rates[chosen], np.exp(base[name][at[chosen]]).astype(np.float64)
        )
