"""The notes of a run as signals to its processes."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from collectors.replay.trace import Line

MS: Final = 1_000_000
STOPPED_NS: Final = 83 * MS  # "stopped 80 % of the time": of every period
PERIOD_NS: Final = 105 * MS
_SILENCE_NS: Final = 50 * MS  # a process that runs again after a stop has been silent for at least this
_DELIVERY_NS: Final = 5 * MS  # callbacks may follow the note of a stop until the signal arrives


@dataclass(frozen=True, order=True)
class Signal:
    """Send `signal` to rank `p` at `t` ns of the run; `line` is the note's number among the lines."""

    t: int
    p: int
    signal: int
    line: int


def signals(lines: list[Line]) -> list[Signal]:
    """The signals that make the notes real, in time order.

    A SIGCONT comes no later than the process's first callback after the stop: notes are written late on a
    busy host. "Stopped 80 % of the time" is taken from the silences of the process where it had any.
    """
    found: list[Signal] = []
    for number, line in enumerate(lines):
        if line["cb"] != "note":
            continue
        what, p, t = line["what"], line["p"], line["t"]
        if what == "SIGKILL":
            found.append(Signal(t, p, signal.SIGKILL, number))
        elif what == "SIGSTOP":
            found.append(Signal(t, p, signal.SIGSTOP, number))
        elif what == "SIGCONT":
            stopped = max((s.t for s in found if s.p == p and s.signal == signal.SIGSTOP), default=t)
            awake = [call for call in _calls(lines, p) if call > stopped + _DELIVERY_NS]
            found.append(Signal(min([t, *awake]), p, signal.SIGCONT, number))
        elif what.startswith("stopped 80 %"):
            found += _mostly_stopped(lines, number)
    return sorted(found)


def _calls(lines: Iterable[Line], p: int) -> list[int]:
    return [line["t"] for line in lines if line["p"] == p and line["cb"] not in ("note", "end")]


def _mostly_stopped(lines: list[Line], number: int) -> list[Signal]:
    """Stops from a note to the end of its process or of the run."""
    p, since = lines[number]["p"], lines[number]["t"]
    ends = [
        line["t"]
        for line in lines
        if line["t"] > since and line["cb"] in ("note", "end") and line["p"] in (p, -1)
    ]
    until = min(ends, default=lines[-1]["t"])
    times = [since, *(t for t in _calls(lines, p) if since < t < until), until]
    silences = [(a, b) for a, b in pairwise(times) if b - a > _SILENCE_NS]
    if not silences:
        starts = range(since, until, PERIOD_NS)
        silences = [(start, min(start + STOPPED_NS, until)) for start in starts]
    return [
        Signal(t, p, what, number)
        for start, end in silences
        for t, what in ((start, signal.SIGSTOP), (end, signal.SIGCONT))
    ]
