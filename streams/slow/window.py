"""What is known of one job in one span of time, as the localiser of slowness gets it.

Both arrays only hold sums, so spans that follow one another are merged by adding up. `lags` says how each
device fared in the operations, `flows` in which state each of its flows spent its time.

`flows` are FLOW records of kind SUM, one for each (comm, dev, carrier, peer, direction, channel):

    field       sender                                      receiver
    gpu_us      NotReady: its GPU has not filled the step    its GPU has not taken what arrived
    credit_us   the peer gives no credit                     0
    net_us      in the network until sent                    posted, waiting for data
    flush_us    0                                            flushing
    n, bytes    operations and payload                       the same
    done        steps sent                                   0
    consumed    0                                            steps taken
    no_credit   polls at which the peer gave none            0

Times are head-of-line: at each moment a flow is in one state, so they add up to at most the time that it was
open. Channel -1 stands for all channels that do not differ from their siblings; a channel that does has a
row of its own and is not in the common one. `func` is ANY: a host sums its flows over all operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.records import FLOW, LAG, UNKNOWN_US, Records, RecordType
from streams.grouping import groups_of

CONNECTING = 3
"""In its first operations NCCL connects: the first so many of each func in a communicator are not looked at
one by one. They still are in the sums of hosts."""
LAG_KEY = ("comm", "dev", "func", "size_class", "algo", "proto")
FLOW_KEY = ("comm", "dev", "carrier", "peer", "direction", "channel")
_LAG_SUMS = (
    "n", "timed", "bytes", "duration_sum_us", "interval_sum_us", "interval_n", "singles", "api_sum_us",
    "first_sum_us", "first_n", "kernel_sum_us", "kernel_n", "run_sum_us", "run_n", "gap_sum_us", "gap_n",
    "joined", "last", "waited_sum_us", "held_sum_us", "start_lag_sum_us", "end_lag_sum_us",
)  # fmt: skip
_FLOW_SUMS = (
    "n", "total", "ready", "transmitted", "done", "posted", "received", "flushed", "consumed", "no_credit",
    "bytes", "gpu_us", "credit_us", "net_us", "flush_us",
)  # fmt: skip
_U32_MAX = np.uint64(0xFFFF_FFFF)


@dataclass(frozen=True)
class Window:
    """One span of one attempt of a job, over all communicators that were heard of."""

    job: int
    attempt: int
    start_ns: int
    """Begin, ns of broker time."""
    length_us: int
    lags: Records
    """LAG records, unique by LAG_KEY, shape (L,)."""
    flows: Records
    """FLOW records of kind SUM, unique by FLOW_KEY, shape (F,); each host sums over about 5 s."""
    silent: tuple[str, ...] = ()
    """Hosts whose part is missing: what they did not say is not known."""

    @property
    def seconds(self) -> float:
        """Length, s."""
        return self.length_us / 1e6


def merged(windows: Sequence[Window]) -> Window:
    """Windows of one job as one that spans them all; at least one is needed."""
    start = min(window.start_ns for window in windows)
    end = max(window.start_ns + window.length_us * 1000 for window in windows)
    lags = added_lags(window.lags for window in windows)
    length_us = (end - start) // 1000
    lags["start"], lags["length_us"] = start, min(length_us, int(_U32_MAX))
    silent = tuple(sorted({host for window in windows for host in window.silent}))
    flows = added_flows(window.flows for window in windows)
    return Window(windows[0].job, windows[0].attempt, start, length_us, lags, flows, silent)


def added_lags(parts: Iterable[Records]) -> Records:
    """LAG records with those of equal LAG_KEY added up."""
    rows = LAG.joined(parts)
    found, group = _added(LAG, rows, LAG_KEY, _LAG_SUMS)
    longest = np.zeros(len(found), np.uint64)
    known = rows["duration_max_us"] != UNKNOWN_US
    np.maximum.at(longest, group[known], rows["duration_max_us"][known].astype(np.uint64))
    found["duration_max_us"] = np.where(found["timed"] > 0, longest, UNKNOWN_US)
    np.maximum.at(found["channels"], group, rows["channels"])
    return found


def added_flows(parts: Iterable[Records]) -> Records:
    """FLOW sums with those of equal FLOW_KEY added up."""
    return _added(FLOW, FLOW.joined(parts), FLOW_KEY, _FLOW_SUMS)[0]


def _added(
    record: RecordType, rows: Records, key: Sequence[str], sums: Sequence[str]
) -> tuple[Records, npt.NDArray[np.int64]]:
    group, first = groups_of([rows[name] for name in key])
    found: Records = rows[first].copy()
    for name in sums:
        total = np.zeros(len(first), np.uint64)
        np.add.at(total, group, rows[name].astype(np.uint64))
        # Saturates where the field is narrower than the sum.
        found[name] = total if record.dtype[name].itemsize == 8 else np.minimum(total, _U32_MAX)
    return found, group
