"""Numbers for sends and receives: the n-th send of a pair meets the n-th receive.

The recorder numbers them over all peers of a group, which two ends do not share. Where both ends' dumps go
back to the start, counting is exact. Otherwise the oldest operation that is still pending at either end is
taken for the same one: what is older has finished at both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Traffic:
    """N sends and receives of all ranks; those of one rank in launch order. All arrays of shape (N,)."""

    comm: I64
    sender: I64
    receiver: I64
    sends: Bools
    """Seen at the sender's end."""
    pending: Bools


@dataclass(frozen=True)
class Ends:
    """Both ends of P pairs. `launched` and `ended` are of shape (P, 2): sender's end, receiver's end."""

    comm: I64
    sender: I64
    receiver: I64
    launched: I64
    """Number of the last operation that this end has launched."""
    ended: I64
    """Number of the last one before this end's oldest pending operation."""
    relative: Bools
    """Aligned, not counted; shape (P,)."""


def align(traffic: Traffic, first: I64, known: Bools, full: Bools) -> tuple[I64, Bools, Ends]:
    """Numbers from 1 of each operation within its pair and direction.

    `first` is the first slot of each communicator, so that `first[comm] + rank` is a member's slot; `known`
    and `full`, one value per slot, say whether the member has a dump and whether that goes back to the start.
    Returns the numbers, whether they are relative (both of shape (N,)) and the ends of every pair.
    """
    keys = np.stack([traffic.comm, traffic.sender, traffic.receiver], axis=1)
    pairs, pair = np.unique(keys, axis=0, return_inverse=True)
    end = 2 * pair.reshape(-1) + ~traffic.sends
    size = np.bincount(end, minlength=2 * len(pairs))
    order = np.argsort(end, kind="stable")
    place = np.empty(len(end), np.int64)
    place[order] = np.arange(len(end)) - np.repeat(np.cumsum(size) - size, size)

    before = size.copy()  # operations older than the oldest pending one
    np.minimum.at(before, end[traffic.pending], place[traffic.pending])
    before = before.reshape(-1, 2)
    slots = first[pairs[:, :1]] + pairs[:, 1:]
    # An end without a dump contradicts nothing: the other one's count stands.
    exact = (full[slots] | ~known[slots]).all(axis=1)
    base = np.where(exact[:, None], before, before.max(axis=1, keepdims=True)) + 1
    shift = base - before
    launched = shift + size.reshape(-1, 2) - 1
    ends = Ends(pairs[:, 0], pairs[:, 1], pairs[:, 2], launched, base - 1, ~exact)
    return shift.reshape(-1)[end] + place, ~exact[end // 2], ends
