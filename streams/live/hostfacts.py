"""What hosts say of themselves, as evidence: carriers lost, GPUs that the driver has reported.

Which interface a job's traffic takes is not known, so a lost carrier says nothing alone: it decides which end
of a wire is dead that the job's own counters show to be dead, and only where it was lost since that wire last
moved anything. That nothing is reported proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.enums import FactKind, PortState
from schemas.records import UNKNOWN_US

BEFORE_S = 5.0
"""A cause may be seen so long before the last progress: what was under way comes to its end, and hosts look
at their interfaces each second at best."""
HARMLESS = frozenset({45, 63, 64, 92})
"""Xids that tell of a GPU that goes on, or of clearing up after a process that has ended: preemptive
clean-up, remapped rows and their failure, many corrected errors (NVIDIA's Xid catalogue)."""


@dataclass(frozen=True)
class HostFact:
    """Something wrong with a host. `since`: broker seconds, None where it was so when the host was first
    looked at. `dev`: the device that an Xid is about, 0 where it is none of the job's.
    """

    host: str
    what: FactKind
    name: str
    down: bool
    code: int
    dev: int
    since: float | None

    @classmethod
    def of(cls, row: Any, at: float) -> HostFact:
        """From a FACT record told `at`."""
        age = int(row["age_us"])
        return cls(
            bytes(row["host"]).decode(errors="replace"), FactKind(int(row["what"])),
            bytes(row["name"]).decode(errors="replace"), int(row["state"]) == PortState.DOWN,
            int(row["code"]), int(row["dev"]), None if age == UNKNOWN_US else at - age / 1e6,
        )  # fmt: skip

    def after(self, progress: float) -> bool:
        """Whether it may be why nothing has moved since `progress` (broker seconds)."""
        return self.since is not None and self.since >= progress - BEFORE_S


def lost_carriers(facts: Sequence[HostFact], host: str, progress: float) -> tuple[HostFact, ...]:
    """Interfaces and ports of a host that went down no earlier than what waits last moved."""
    return tuple(fact for fact in facts if fact.host == host and fact.down and fact.after(progress))


def reported_gpus(facts: Sequence[HostFact], devices: Iterable[int], progress: float) -> tuple[HostFact, ...]:
    """Xids of these devices' GPUs that stop them, no earlier than what waits last moved."""
    named = set(devices)
    return tuple(
        fact
        for fact in facts
        if fact.what == FactKind.XID
        and fact.dev in named
        and fact.code not in HARMLESS
        and fact.after(progress)
    )
