"""A day of healthy training of 256 ranks through windows, baselines and triggers: how many false alarms.

python -m benchmarks.healthy_day [SECONDS] [SEED]; a whole day takes about half an hour of one core.
"""

from __future__ import annotations

import sys
import time

from streams.slow.triggers import Limits, Triggers
from tests.paced_jobs import PacedJob, healthy_day, watch


def main() -> int:
    """Simulate, print what was told; status 1 where anything was."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 86_400
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began = time.perf_counter()
    changes = watch(PacedJob(seed=seed), seconds, healthy_day(seconds), Triggers(Limits()))
    took = time.perf_counter() - began
    alarms = [change for change in changes if change.slow is not None]
    print(f"{seconds} s of 256 ranks in {took:.0f} s, {seconds / took:.0f} times as fast")
    print(f"{len(alarms)} incidents")
    for change in alarms:
        assert change.slow is not None
        print(f"  second {change.second}: {change.slow.trigger}, {change.slow.factor:.2f} times the usual")
    return int(bool(alarms))


if __name__ == "__main__":
    sys.exit(main())
