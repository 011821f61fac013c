"""Windows: records folded by device, and whole windows closed, a second of many ranks at a time."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from schemas.records import COLL
from streams.compile import compile_kernels
from streams.slow.fold import folded
from streams.slow.windows import Windows
from tests.paced_jobs import ATTEMPT, BEGAN_S, JOB, PacedJob, Second

SECONDS = 20


def main() -> None:
    """Measure and print."""
    compile_kernels()
    table = Table(title="sums of hosts to windows; one core")
    for column in ("ranks", "records a second", "kernel alone", "whole window"):
        table.add_column(column, justify="right")
    for replicas in (8, 32, 128):
        job = PacedJob(data=replicas)
        told = [list(job.flushes(second, Second())) for second in range(SECONDS)]
        rows = [COLL.joined(message.sections[COLL.name] for message in flushes) for flushes in told]
        records = sum(len(each) for each in rows)
        for each in rows:
            folded(each)
        began = time.perf_counter()
        for each in rows:
            folded(each)
        kernel_s = time.perf_counter() - began
        windows = Windows(JOB, ATTEMPT, 0)
        began = time.perf_counter()
        closed = 0
        for second, flushes in enumerate(told):
            for message in flushes:
                windows.take(message, BEGAN_S + second + 1.0)
            closed += len(list(windows.close(BEGAN_S + second + 1.0)))
        whole_s = time.perf_counter() - began
        assert closed >= SECONDS - 3
        table.add_row(
            f"{job.ranks:,}", f"{records / SECONDS:,.0f}", f"{records / kernel_s / 1e6:.1f} M/s",
            f"{records / whole_s / 1e6:.2f} M/s",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
