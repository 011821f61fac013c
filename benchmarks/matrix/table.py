"""The matrix as tables: by what NCCL shows of each fault, and a line for each fault, topology and network."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from statistics import median

from benchmarks.matrix.cells import Cell
from benchmarks.matrix.score import Score

_COUNTS = (
    "trials", "went on", "named", "offered", "category", "candidates", "median s", "99 % s", "worst s",
    "wrongly accused",
)  # fmt: skip

Results = Sequence[tuple[Cell, Score]]


def table(results: Results) -> str:
    """A line for each fault, topology and network, in Markdown.

    `named` and `offered` are of all trials: the culprit named, or among candidates. `went on`: nothing was
    told of jobs that trained on after the fault.
    """
    return _table(results, ("fault", "topology", "network"), _place)


def by_visibility(results: Results) -> str:
    """A line for each fault with one rank a host, where NCCL shows every leg, and with several: Markdown."""
    return _table(results, ("fault", "ranks a host"), _visibility)


def _place(cell: Cell) -> tuple[str, ...]:
    return _fault(cell), cell.topology, cell.network


def _visibility(cell: Cell) -> tuple[str, ...]:
    return _fault(cell), "one" if cell.plan.ranks_per_host == 1 else "several"


def _fault(cell: Cell) -> str:
    return f"{cell.fault} {cell.severity}".strip()


def _table(results: Results, columns: tuple[str, ...], key: Callable[[Cell], tuple[str, ...]]) -> str:
    groups: defaultdict[tuple[str, ...], list[Score]] = defaultdict(list)
    for cell, score in results:
        groups[key(cell)].append(score)
    head = (*columns, *_COUNTS)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += [_line(name, scores) for name, scores in groups.items()]
    if results:
        everything = ("all", *("" for _ in columns[1:]))
        lines.append(_line(everything, [score for _, score in results]))
    return "\n".join(lines)


def _line(name: tuple[str, ...], scores: Sequence[Score]) -> str:
    times = sorted(score.seconds for score in scores if score.seconds is not None)
    offered = [score.candidates for score in scores if score.offered]
    columns = [
        *name, len(scores), sum(score.went_on for score in scores), sum(score.named for score in scores),
        sum(score.offered and not score.named for score in scores),
        sum(score.right_category for score in scores), max(offered, default=0),
        _seconds(median(times) if times else None), _seconds(_percentile(times, 99)),
        _seconds(times[-1] if times else None), sum(bool(score.wrong) for score in scores),
    ]  # fmt: skip
    return "| " + " | ".join(str(column) for column in columns) + " |"


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest value that `percent` of all do not exceed (nearest rank)."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else None


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
