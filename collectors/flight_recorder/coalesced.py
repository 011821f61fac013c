"""Coalesced calls: several operations launched as one.

The recorder writes one entry for each part, and never updates it, then one that closes the call and carries
the state of all. Parts and closing entry share a sequence number: `p2p_seq_id` for sends and receives (else
each has its own), `collective_seq_id` for collectives.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from collectors.flight_recorder.dumps import GroupStatus
from collectors.flight_recorder.entries import Entries
from schemas.enums import Func


def settle(entries: Entries, status: Mapping[int, GroupStatus]) -> tuple[Entries, npt.NDArray[np.uint64]]:
    """Entries without the closing ones, parts in the state of their call, collectives one row per number.

    Returns the rows, by ascending record_id, and for each the number of its group call (record_id + 1 of the
    call's first part), 0 outside one; shape (rows,).
    """
    number = np.where(entries["is_p2p"], entries["p2p"], entries["collective"])
    _, number = np.unique(number, return_inverse=True)
    keys = (number * len(entries) + entries["group"]) * 2 + entries["is_p2p"]
    _, first, call, members = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if (members == 1).all() and not entries["coalesced"].any():
        return entries, np.zeros(len(entries), np.uint64)

    rows = entries.copy()
    closing = rows["coalesced"]
    closed = np.zeros(len(members), np.bool_)
    closed[call[closing]] = True
    done = np.zeros(len(members), np.bool_)
    done[call[closing & rows["finished"]]] = True
    parts = members - np.bincount(call[closing], minlength=len(members))
    rows["finished"] |= done[call]

    # A dump of active entries drops a finished call's closing entry and keeps its parts for ever. In groups
    # that coalesce, a part without one is open only if the group has not completed its number.
    batches = np.isin(rows["group"], rows["group"][closing | (rows["is_p2p"] & (members[call] > 1))])
    completed = np.array(
        [status[pg].completed if pg in status else 0 for pg in rows["pg_id"].tolist()], np.int64
    )
    orphaned = rows["is_p2p"] & ~closing & batches & ~closed[call] & (rows["p2p"] <= completed)
    rows["finished"] |= orphaned

    begin = rows["record_id"][first].astype(np.uint64) + np.uint64(1)
    grouped = np.where((members > 1)[call], begin[call], np.uint64(0))
    _join_collectives(rows, call, parts)
    extra = ~rows["is_p2p"] & (parts[call] > 1) & (np.arange(len(rows)) != first[call])
    keep = ~extra & ~(closing & ((parts[call] > 0) | rows["is_p2p"]))
    return rows[keep], grouped[keep]


def _join_collectives(rows: Entries, call: npt.NDArray[np.int64], parts: npt.NDArray[np.int64]) -> None:
    """Makes the first row of each coalesced collective stand for all parts, in place."""
    for at in np.flatnonzero(parts > 1).tolist():
        members = np.flatnonzero((call == at) & ~rows["coalesced"])
        head = members[0]
        if rows["is_p2p"][head]:
            continue
        rows["count"][head] = rows["count"][members].sum()
        rows["finished"][head] = rows["finished"][members].all()
        if len(np.unique(rows["func"][members])) > 1:
            rows["func"][head] = Func.OTHER
