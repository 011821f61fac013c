"""What is usual: a robust mean of each kind of operation, slow to move.

Values are logarithms, so that a part is a difference. The mean is one of Huber's: a value counts as at most
CLIP away from it, the measure by which the change-point test adds up evidence too, so in a job that does
not change what is added up has mean nothing, however skewed its values are. Each window counts as much as
each other for MEMORY windows; what is slow today is compared with the days before. While a job is slow
nothing is learned (the caller does not call `learn`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from schemas.records import BASELINE, Records
from streams.grouping import groups_of

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CLIP = 0.35
"""A window that is over 40 % off tells no more than one that is just so: a pause is one such window."""
OTHER_PHASE = 0.1
"""What a window that is so far off counts: an evaluation is faster, and not what training is measured by."""
MEMORY = 3 * 86_400
"""Windows: a drift of 10 % a day has to show, so yesterday must not be forgotten today."""
YOUNG, STEADY = 60, 600
"""After its first minute a mean moves as slowly as one of ten: a tenth more has to show for minutes."""
SKIPPED = 3
"""Windows of each kind that are not learned from: NCCL connects lazily."""
OTHER_BYTES = 0.2
"""A payload that is so much larger or smaller, as a logarithm, is another shape of the job: a sequence
length or a batch size was changed."""
OTHER_WINDOWS = 10
"""After so many windows of another shape what was usual before is forgotten."""

KEY = ("comm", "func", "size_class", "algo", "proto")


class Baselines:
    """The kinds of operation of one job, as BASELINE records."""

    def __init__(self) -> None:
        self.rows: Records = BASELINE.empty(0)

    def match(self, rates: Records, second: int) -> I64:
        """The place of each RATE row's kind in `rows`, shape (rows,); new kinds are added."""
        keys = [np.concatenate([self.rows[name], rates[name]]) for name in KEY]
        group, example = groups_of(keys)
        known = len(self.rows)
        fresh = example[known:] if known else example
        new = BASELINE.empty(len(fresh))
        for name in ("job", "attempt", *KEY):
            new[name] = rates[name][fresh - known]
        new["since"] = second
        self.rows = BASELINE.joined([self.rows, new])
        at = group[known:]
        self.rows["seen"][at] = second
        return at

    def shaped(self, at: I64, payload: F64, second: int) -> Bools:
        """Which rows have the payload that is usual; kinds that have changed for good begin anew."""
        rows = self.rows
        usual = rows["bytes"][at]
        first = usual == 0
        rows["bytes"][at[first]] = payload[first]
        off = np.abs(np.log(np.maximum(payload, 1) / np.maximum(np.where(first, payload, usual), 1)))
        odd = off > OTHER_BYTES
        rows["odd"][at] = np.where(odd, rows["odd"][at] + 1, 0)
        changed = rows["odd"][at] >= OTHER_WINDOWS
        if changed.any():
            self.forget(at[changed], second)
            rows["bytes"][at[changed]] = payload[changed]
        found: Bools = ~odd
        return found

    def forget(self, at: I64, second: int) -> None:
        """These kinds begin anew."""
        for name in ("odd", "low", "n", "timed", "bytes", "interval", "transfer"):
            self.rows[name][at] = 0
        self.rows["interval_spread"][at] = self.rows["transfer_spread"][at] = 0
        self.rows["since"][at] = second

    def learn(self, at: I64, values: F64, name: str, count: str) -> None:
        """Move the mean `name` of these kinds (each at most once) towards their values."""
        rows = self.rows
        n = rows[count][at].astype(np.float64)
        begun = n > SKIPPED
        usual = np.where(begun, rows[name][at], values)
        away = np.clip(values - usual, -CLIP, CLIP)
        learned = np.maximum(n - SKIPPED, 0) + 1
        # What a young job does next is judged, not taken for what is usual.
        step = 1 / np.where(learned <= YOUNG, learned, np.clip(learned, STEADY, MEMORY))
        step = np.where(np.abs(away) < CLIP, step, step * OTHER_PHASE)
        rows[name][at] = usual + step * away
        spread = rows[f"{name}_spread"][at]
        rows[f"{name}_spread"][at] = np.where(begun, spread + step * (np.abs(away) - spread), 0)
        rows[count][at] += 1

    def ready(self, at: I64, count: str, second: int, warmup_s: float) -> Bools:
        """Which kinds have been learned for long enough."""
        rows = self.rows
        found: Bools = (rows[count][at] > 2 * SKIPPED) & (second - rows["since"][at] >= warmup_s)
        return found
