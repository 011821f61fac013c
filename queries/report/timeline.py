"""What each rank did before and while the job stood, as bars in a lane a rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone

from queries.report.chain import Place

WIDTH, LANE_H, LABEL_W, AXIS_H = 900, 20, 150, 22
MAX_LANES = 24
"""Named ranks first; more do not fit on a page."""
MIN_BAR = 2
TICKS = 5

_HOW = {
    "done": "{:.3f} s",
    "stuck": "not ended after {:.3f} s",
    "unseen": "launched {:.3f} s ago; NCCL does not show its end",
}


@dataclass(frozen=True)
class Operation:
    """An operation of a rank: launch (s since the epoch, its host's clock), how long, and whether it ended.

    Of some only the launch can be seen (inner ranks of a mixed ring): that they did not end says nothing.
    """

    place: Place
    named: bool
    name: str
    launched: float
    lasted: float
    ended: bool
    seen: bool = True


@dataclass(frozen=True)
class Bar:
    """An operation: left and width in px, what it is; kind is done, stuck or unseen."""

    x: float
    width: float
    title: str
    kind: str


@dataclass(frozen=True)
class Lane:
    """A rank."""

    y: int
    name: str
    named: bool
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Timeline:
    """Lanes, and the ticks of the axis as (px, text); `left_out` ranks found no room."""

    height: int
    begin: str
    lanes: tuple[Lane, ...]
    ticks: tuple[tuple[float, str], ...]
    left_out: int


def lay_out(operations: Iterable[Operation], ranks: int) -> Timeline | None:
    """The lanes of these operations, of a job of so many ranks; None where there are none."""
    of_rank: defaultdict[tuple[bool, int, Place], list[Operation]] = defaultdict(list)
    for each in operations:
        rank = each.place.rank
        of_rank[not each.named, rank if rank is not None else 1 << 31, each.place].append(each)
    chosen = sorted(of_rank.items(), key=lambda item: item[0][:2])[:MAX_LANES]
    if not chosen:
        return None
    shown = [each for _, own in chosen for each in own]
    begin = min(each.launched for each in shown)
    span = max(max(each.launched + each.lasted for each in shown) - begin, 1e-6)
    scale = (WIDTH - LABEL_W) / span
    lanes = tuple(
        Lane(AXIS_H + number * LANE_H, key[2].name, not key[0], _bars(own, begin, scale))
        for number, (key, own) in enumerate(chosen)
    )
    ticks = tuple(
        (round(LABEL_W + (WIDTH - LABEL_W) * part / TICKS, 1), f"{span * part / TICKS:.2f} s")
        for part in range(TICKS)
    )
    moment = datetime.fromtimestamp(begin, timezone.utc)
    return Timeline(
        AXIS_H + len(lanes) * LANE_H,
        f"{moment:%Y-%m-%d %H:%M:%S}",
        lanes,
        ticks,
        ranks - len(chosen),
    )


def _bars(operations: list[Operation], begin: float, scale: float) -> tuple[Bar, ...]:
    bars = []
    for each in sorted(operations, key=lambda each: each.launched):
        kind = "done" if each.ended else "stuck" if each.seen else "unseen"
        title = f"{each.name}: {_HOW[kind].format(each.lasted)}"
        left = LABEL_W + (each.launched - begin) * scale
        bars.append(Bar(round(left, 1), max(round(each.lasted * scale, 1), MIN_BAR), title, kind))
    return tuple(bars)
