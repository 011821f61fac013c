"""What the matrix tries: which faults in which jobs, and how much NCCL shows of each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from collectors.testbed.faults import KINDS, Fault, parse_fault
from collectors.testbed.plan import NETWORKS, Plan

TOPOLOGIES = {
    "dp8": Plan(ranks=8, ranks_per_host=1),
    "tp4-dp2": Plan(ranks=8, ranks_per_host=4, tp=4),
    "tp2-pp2-dp2": Plan(ranks=8, ranks_per_host=4, tp=2, pp=2),
    "ep8": Plan(ranks=8, ranks_per_host=1, ep=8),
    "tp2-pp2-dp4": Plan(ranks=16, ranks_per_host=8, tp=2, pp=2),
}
"""One rank a host, and several with legs that NCCL does not show."""

SEVERITIES: dict[str, dict[str, str]] = {
    "late-every": {"mild": "n=2,ms=60", "gross": "n=2,ms=400"},
    "slow-gpu": {"mild": "factor=1.5", "gross": "factor=4"},
    "background": {"mild": "share=0.3", "gross": "share=0.75"},
    "slow-copy": {"mild": "ms=0.5", "gross": "ms=4"},
    "slow-receiver": {"mild": "ms=1", "gross": "ms=8"},
    "proxy-delay": {"mild": "p=0.2,ms=1", "gross": "p=0.3,ms=8"},
    "nic-limit": {"mild": "rate=8e6", "gross": "rate=2e6"},
    "nic-limit-in": {"mild": "rate=8e6", "gross": "rate=2e6"},
    "background-traffic": {"mild": "rate=8e6", "gross": "rate=2e6"},
    "slow-channel": {"mild": "channel=0,rate=4e6", "gross": "channel=0,rate=1e6"},
}
"""Of faults that make a job slow: what they are given, for a small and a large loss of a job's time."""

STALLS = tuple(name for name, kind in KINDS.items() if kind.kind == "stall")


SLOW = tuple(SEVERITIES)


@dataclass(frozen=True)
class Cell:
    """One job and what is done to it. `seed` decides the culprit; `repetition` counts from 0; `severity` is
    one of SEVERITIES, empty for a fault that stalls.
    """

    fault: str
    topology: str
    network: str
    repetition: int
    seed: int
    tier: str = "flows"
    severity: str = ""

    @property
    def plan(self) -> Plan:
        """The job."""
        return replace(TOPOLOGIES[self.topology], network=self.network)

    def injected(self) -> Fault:
        """The fault at a culprit drawn by the seed."""
        draw = random.Random(f"{self.seed}/{self.fault}/{self.topology}/{self.network}/{self.repetition}")
        plan, kind = self.plan, KINDS[self.fault]
        values = f":{SEVERITIES[self.fault][self.severity]}" if self.severity else ""
        if kind.target == "link":
            first = draw.randrange(plan.hosts)
            return parse_fault(f"{self.fault}@{first}-{(first + 1) % plan.hosts}{values}")
        if kind.target == "ranks":
            few = sorted(draw.sample(range(plan.ranks), min(3, plan.ranks - 1)))
            return parse_fault(f"{self.fault}@{','.join(map(str, few))}")
        return parse_fault(f"{self.fault}@{draw.randrange(plan.ranks)}{values}")


def cells(
    faults: tuple[str, ...], topologies: tuple[str, ...], networks: tuple[str, ...], repetitions: int,
    seed: int, tier: str, severities: tuple[str, ...] = ("",),
) -> Iterator[Cell]:  # fmt: skip
    """Every cell of the matrix, repetition by repetition."""
    for repetition in range(repetitions):
        for topology in topologies:
            for network in networks:
                for fault in faults:
                    only = KINDS[fault].network
                    if only in ("", network) and network in NETWORKS:
                        for severity in severities:
                            yield Cell(fault, topology, network, repetition, seed, tier, severity)
