"""Whether a worker kept up with a job that is over, as its own markers show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from schemas.envelope import MessageKind, decode
from schemas.malformed import Malformed
from schemas.topics import WAITS
from streams.kafka import read_messages

LAGGED_S: Final = 2.0
"""A worker looks at each partition twice a second: who does not for so long tells of a stall as much later,
or misses one that passes."""


def longest_pause(bootstrap: str, since: float, until: float) -> float:
    """The longest that some trace partition was not looked at between two moments of broker time, s.

    Raises BrokerUnreachable.
    """
    every = looks(bootstrap).values()
    return max((longest_gap(times, since, until) for times in every), default=until - since)


def looks(bootstrap: str) -> dict[int, set[float]]:
    """By trace partition, the moments of broker time at which a worker has looked at it.

    Raises BrokerUnreachable.
    """
    found: defaultdict[int, set[float]] = defaultdict(set)
    for message in read_messages(bootstrap, WAITS.name):
        try:
            said = decode(message.value() or b"")
        except Malformed:
            continue
        if said.kind == MessageKind.MARKER:
            found[said.partition].add(message.timestamp()[1] / 1e3)
    return dict(found)


def longest_gap(times: Iterable[float], since: float, until: float) -> float:
    """The longest stretch between two moments that holds none of `times`.

    >>> longest_gap([1.0, 4.0, 9.0], 2.0, 10.0), longest_gap([], 2.0, 10.0)
    (5.0, 8.0)
    """
    inside = sorted({since, until, *(time for time in times if since < time < until)})
    return max((later - earlier for earlier, later in pairwise(inside)), default=0.0)
