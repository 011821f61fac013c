"""Communicators of a job over tensor, pipeline, data and expert parallelism, in Megatron's order of ranks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from collectors.testbed.plan import Plan


@dataclass(frozen=True)
class Communicator:
    """`members`: world ranks in rank order. `pairs`: (from, to) of point-to-point, communicator's ranks."""

    name: str
    members: tuple[int, ...]
    algorithm: str = "ring"
    pairs: tuple[tuple[int, int], ...] = ()

    def identity(self, job: str) -> int:
        """64 bits that tell it from those of other jobs and starts."""
        digest = hashlib.blake2b(f"{job}\0{self.name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")


def coordinates(plan: Plan, rank: int) -> tuple[int, int, int]:
    """(tp, dp, pp) of a world rank: tp neighbours are next to each other, pipeline stages farthest apart.

    >>> coordinates(Plan(ranks=8, tp=2, pp=2), 5)
    (1, 0, 1)
    """
    return rank % plan.tp, rank // plan.tp % plan.dp, rank // (plan.tp * plan.dp)


def communicators(plan: Plan) -> list[Communicator]:
    """All of a job, those of one rank left out: world, then tp-*, pp-*, dp-*, ep-*, rare."""
    ranks = range(plan.ranks)
    at = {coordinates(plan, rank): rank for rank in ranks}
    tps, dps, pps = range(plan.tp), range(plan.dp), range(plan.pp)
    made = [Communicator("world", tuple(ranks), plan.algorithm)]
    groups = {
        "tp": [tuple(at[t, d, p] for t in tps) for p in pps for d in dps],
        "pp": [tuple(at[t, d, p] for p in pps) for d in dps for t in tps],
        "dp": [tuple(at[t, d, p] for d in dps) for p in pps for t in tps],
        "ep": [
            tuple(at[t, first + e, p] for e in range(plan.ep))
            for p in pps
            for first in range(0, plan.dp, plan.ep)
            for t in tps
        ],
    }
    for kind, members in groups.items():
        for number, group in enumerate(members):
            if len(group) > 1:
                algorithm = plan.algorithm if kind == "dp" else "ring"
                made.append(Communicator(f"{kind}-{number}", group, algorithm, _pairs(kind, len(group))))
    if plan.rare_every:
        made.append(Communicator("rare", tuple(ranks)))
    return made


def _pairs(kind: str, size: int) -> tuple[tuple[int, int], ...]:
    if kind == "pp":
        return tuple(pair for a in range(size - 1) for pair in ((a, a + 1), (a + 1, a)))
    if kind == "ep":
        return tuple((a, b) for a in range(size) for b in range(size) if a != b)
    return ()
