"""Whether a cause of slowness is there all the time, comes and goes, or was there once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from streams.slow.blame import SHARE
from streams.slow.findings import Finding, Stage
from streams.slow.stages import Stages, stages
from streams.slow.window import Window, merged
from streams.slow.windows import WINDOW_S

MOST: Final = 2 / 3
"""A cause that is there in so many of the windows is there all the time: some hold no operation of it."""
FLOWS_S: Final = 5
"""Hosts sum flows over so long, each from a second of its own on: less does not hold all of them."""
FEWEST: Final = 3
"""Of fewer windows none could be told from another."""


class Pattern(Enum):
    """How a cause is spread over the windows in which it was looked for; the value is how it reads."""

    PERSISTENT = "all the time"
    PERIODIC = "now and then"
    ONCE = "once"
    UNKNOWN = "for how long cannot be told yet"


def pattern(windows: Sequence[Window], finding: Finding) -> Pattern:
    """The pattern of what a finding of all these windows, of whichever partitions, rests on."""
    by_operation = finding.measures[0].stage in (Stage.LAUNCH, Stage.STREAM)
    spans = _spans(windows, WINDOW_S if by_operation else FLOWS_S)
    there = np.array([_share(span, finding) >= SHARE for span in spans], np.bool_)
    if len(there) < FEWEST:
        return Pattern.UNKNOWN
    if there.mean() >= MOST:
        return Pattern.PERSISTENT
    begins = np.count_nonzero(there[1:] & ~there[:-1]) + int(there[0])
    return Pattern.PERIODIC if begins > 1 else Pattern.ONCE


def _spans(windows: Sequence[Window], seconds: int) -> list[Window]:
    """Windows merged to spans of so long, in the order of time."""
    spans: defaultdict[int, list[Window]] = defaultdict(list)
    begin = min(window.start_ns for window in windows)
    for window in windows:
        spans[(window.start_ns - begin) // (seconds * 1_000_000_000)].append(window)
    return [merged(spans[number]) for number in sorted(spans)]


def _share(window: Window, finding: Finding) -> float:
    """What the largest stage of a finding cost in one window, as a part of it."""
    measure = finding.measures[0]
    # Clocks were doubted when the finding was made: here all count as one host's.
    found = stages(window, dict.fromkeys(window.lags["dev"].tolist(), "one"))
    values = _excess(found, measure.stage)
    return values.get((measure.dev, measure.peer), 0.0) / window.seconds


def _excess(found: Stages, stage: Stage) -> Mapping[tuple[int, int], float]:
    if stage in (Stage.LAUNCH, Stage.STREAM):
        own: npt.NDArray[np.float64] = found.launch_s if stage is Stage.LAUNCH else found.stream_s
        return {(dev, 0): lost for dev, lost in zip(found.dev.tolist(), own.tolist(), strict=True)}
    flows = {Stage.GPU: found.gpu, Stage.PROXY: found.proxy}.get(stage, found.wires)
    peers = flows.peer.tolist() if stage is not Stage.PROXY else [0] * len(flows.peer)
    values: dict[tuple[int, int], float] = {}
    for dev, peer, lost in zip(flows.dev.tolist(), peers, flows.excess_s.tolist(), strict=True):
        values[dev, peer] = max(lost, values.get((dev, peer), 0.0))
    return values
