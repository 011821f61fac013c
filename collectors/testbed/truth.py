"""The right answer to a fault: who is to blame, where, and under which name."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from collectors.testbed.faults import Fault
from collectors.testbed.plan import Plan

WIRES: Final = frozenset({"link", "nic-send", "nic-recv"})


@dataclass(frozen=True)
class Truth:
    """`ranks`: world ranks to blame, empty where it is a host, a NIC or a link; `hosts`: numbers of the hosts
    that the fault is on; `categories`: any of them is right, the best one first; `kind`: `stall` or `slow`.
    """

    ranks: tuple[int, ...]
    hosts: tuple[int, ...]
    categories: tuple[str, ...]
    kind: str


def truth_of(fault: Fault, plan: Plan) -> Truth:
    """The answer that a diagnosis should give to a fault in this job.

    >>> from collectors.testbed.faults import parse_fault
    >>> truth_of(parse_fault("nic-down@3"), Plan(ranks=4, ranks_per_host=2)).hosts
    (1,)
    """
    kind = fault.kind
    if kind.target == "link":
        return Truth((), fault.target, kind.categories, kind.kind)
    hosts = tuple(sorted({plan.host_of(rank) for rank in fault.target}))
    ranks = () if kind.where == "network" or fault.name == "host-gone" else fault.target
    return Truth(ranks, hosts, kind.categories, kind.kind)


def is_right(
    truth: Truth, plan: Plan, category: str, culprits: AbstractSet[int], candidates: AbstractSet[int]
) -> bool:
    """Whether an answer is right; `culprits`, `candidates`: world ranks."""
    if category not in right_categories(truth):
        return False
    return names(truth, plan, culprits) if culprits else offers(truth, plan, candidates)


def right_categories(truth: Truth) -> set[str]:
    """Of wires any will do, since either end shows it alike; of a host that is gone its processes are too."""
    right = set(truth.categories)
    if right & WIRES:
        right |= WIRES
    if "host-silent" in right:
        right.add("process-dead")
    return right


def names(truth: Truth, plan: Plan, culprits: AbstractSet[int]) -> bool:
    """Whether these are the culprits: of ranks all and nobody else, of hosts (NIC, link) some of theirs."""
    guilty = _guilty(truth, plan)
    found = culprits & guilty
    return bool(found) and culprits <= may_be_named(truth, plan) and (not truth.ranks or guilty <= culprits)


def offers(truth: Truth, plan: Plan, candidates: AbstractSet[int]) -> bool:
    """Whether the culprits are among the candidates: of ranks all, of hosts some of theirs."""
    guilty = _guilty(truth, plan)
    return guilty <= candidates if truth.ranks else bool(candidates & guilty)


def may_be_named(truth: Truth, plan: Plan) -> set[int]:
    """Whom it is no accusation to name: the guilty, and between two hosts both ends of their only link."""
    wires = not truth.ranks and bool(set(truth.categories) & WIRES)
    return set(range(plan.ranks)) if wires and plan.hosts == 2 else _guilty(truth, plan)


def _guilty(truth: Truth, plan: Plan) -> set[int]:
    return set(truth.ranks) or {rank for host in truth.hosts for rank in plan.ranks_of(host)}
