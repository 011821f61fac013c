"""The matrix as a table: a line for each fault, topology and network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from benchmarks.matrix.cells import Cell
from benchmarks.matrix.score import Score

_COLUMNS = (
    "fault", "topology", "network", "trials", "named", "offered", "category", "candidates", "median s",
    "worst s", "wrongly accused",
)  # fmt: skip


def table(results: Sequence[tuple[Cell, Score]]) -> str:
    """Markdown. `named` and `offered` are of all trials: the culprit named, or among candidates."""
    groups: defaultdict[tuple[str, str, str], list[Score]] = defaultdict(list)
    for cell, score in results:
        groups[f"{cell.fault} {cell.severity}".strip(), cell.topology, cell.network].append(score)
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += [_line(name, scores) for name, scores in groups.items()]
    if results:
        lines.append(_line(("all", "", ""), [score for _, score in results]))
    return "\n".join(lines)


def _line(name: tuple[str, str, str], scores: Sequence[Score]) -> str:
    times = [score.seconds for score in scores if score.seconds is not None]
    offered = [score.candidates for score in scores if score.offered]
    columns = [
        *name, len(scores), sum(score.named for score in scores),
        sum(score.offered and not score.named for score in scores),
        sum(score.right_category for score in scores), max(offered, default=0),
        f"{median(times):.1f}" if times else "–", f"{max(times):.1f}" if times else "–",
        sum(bool(score.wrong) for score in scores),
    ]  # fmt: skip
    return "| " + " | ".join(str(column) for column in columns) + " |"
