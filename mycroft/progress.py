"""Progress on standard error, for a person who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from collectors.flight_recorder.importer import Progress as Sent
from collectors.flight_recorder.snapshot import Snapshot
from mycroft.render import console

MAX_LINES = 10
"""Files and ranks told one by one; of more there is a count."""


@contextmanager
def sending(records: int) -> Iterator[Callable[[Sent], None]]:
    """A bar over so many records; yields what moves it."""
    done = TextColumn("{task.completed:,.0f} of {task.total:,.0f} records")
    waiting = TextColumn("{task.fields[waiting]}", markup=False)
    columns = (TextColumn("sending"), BarColumn(), done, waiting, TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=records, waiting="")

        def move(sent: Sent) -> None:
            behind = f"waiting for the readers of {sent.waiting}" if sent.waiting else ""
            bar.update(task, completed=sent.records, waiting=behind)

        yield move


def told(snapshot: Snapshot) -> list[str]:
    """What a reader of the dumps should know: files passed over, ranks of which nothing is known."""
    return [
        *_lines("passed over", dict(snapshot.skipped)),
        *_lines("silent", {f"rank {rank}": why for rank, why in snapshot.silent.items()}),
    ]


def _lines(title: str, reasons: dict[str, str]) -> list[str]:
    lines = [f"{title}: {name}: {why}" for name, why in list(reasons.items())[:MAX_LINES]]
    if len(reasons) > MAX_LINES:
        lines.append(f"{title}: and {len(reasons) - MAX_LINES} more")
    return lines
