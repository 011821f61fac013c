"""Which of the operations in flight have to be followed.

A job whose ranks share a host has hundreds of operations in flight of which nothing but the launch is ever
seen (NVLink): the plugin cannot tell when they ended. Of these only those matter that a device may stand in:
the first and the last of each communicator, and the first of each stream. Leaving the others out changes no
answer: who is first in its lane (stall.current) stays first, and what is neither is never told.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collectors.agent.groups import mixed

U64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


def edges(lane: U64, order: U64) -> tuple[Bools, Bools]:
    """Which are the first, and which the last, by `order` in their lane; arrays of one length.

    >>> first, last = edges(np.array([1, 1, 2, 1], np.uint64), np.array([5, 4, 9, 6], np.uint64))
    >>> first.tolist(), last.tolist()
    ([False, True, True, False], [False, False, True, True])
    """
    first, last = np.zeros(len(lane), np.bool_), np.zeros(len(lane), np.bool_)
    if len(lane):
        by = np.lexsort((order, lane))
        begins = np.append(True, lane[by][1:] != lane[by][:-1])
        first[by[begins]] = True
        last[by[np.append(begins[1:], True)]] = True
    return first, last


def heads(process: U64, comm: U64, stream: U64, order: U64, launch: U64) -> Bools:
    """Which of operations that show only their launch are to be followed; arrays of one length.

    `comm` names a communicator within its process, `launch` those that were launched together: they count as
    one, so all of a launch are heads where one is.
    """
    first, last = edges(mixed(process, comm), order)
    first_in_stream, _ = edges(mixed(process, stream), order)
    leading = first | first_in_stream
    together = mixed(process, launch)
    return last | np.isin(together, together[leading])
