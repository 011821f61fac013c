"""What diagnosis yields: causes as devices and the records that indict them, still without words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemas.enums import NodeKind, Reason
from schemas.records import UNKNOWN_US, Records
from streams.live.hostfacts import HostFact


@dataclass(frozen=True)
class Link:
    """One link of a chain: `waiter` stands in an operation and waits there for `holder`.

    `standing` and `holding` are records: waiter → operation and operation → holder.
    """

    waiter: int
    standing: int
    holding: int
    holder: int


@dataclass(frozen=True)
class Finding:
    """One cause. Devices are ids; records are indices into the findings' waits."""

    category: str
    confidence: str
    culprits: tuple[int, ...]
    candidates: tuple[int, ...]
    nodes: tuple[int, ...]
    """Sink nodes of the wait-for graph."""
    proof: tuple[int, ...]
    """Records that indict."""
    ahead: tuple[int, ...] = ()
    """Idle devices that were ruled out because they are further on."""
    waiting: int = 0
    """Devices that wait because of this, those named left out unless they wait in a circle."""
    chain: tuple[Link, ...] = ()
    facts: tuple[HostFact, ...] = ()
    """What the hosts say of themselves that decides it."""

    @property
    def named(self) -> tuple[int, ...]:
        """Culprits and candidates."""
        return self.culprits + self.candidates


@dataclass(frozen=True)
class Findings:
    """All findings of one job at one time, with the waits they rest on."""

    waits: Records
    """Shape (W,), mismatches last."""
    found: tuple[Finding, ...]


def waited_s(waits: Records, proof: Sequence[int]) -> float:
    """For how long the longest has stood in the operations of these records, s; 0 where that is not known."""
    ops = np.isin(waits["op"], waits["op"][list(proof)])
    waited = waits["waited_us"][ops & (waits["waiter_kind"] == NodeKind.DEVICE)]
    return float(waited[waited != UNKNOWN_US].max(initial=0)) / 1e6


def step_s(waits: Records, proof: Sequence[int]) -> float:
    """The usual time from one launch to the next of the operations of these records, s: the longest of those
    who stand in them, 0 where none is known.
    """
    ops = np.isin(waits["op"], waits["op"][list(proof)])
    return float(waits["step_us"][ops & (waits["waiter_kind"] == NodeKind.DEVICE)].max(initial=0)) / 1e6


def quiet_s(waits: Records, proof: Sequence[int]) -> float:
    """For how long the operations of these records have shown no progress, s: of those who stand in them the
    longest, 0 where that is not known.
    """
    ops = np.isin(waits["op"], waits["op"][list(proof)])
    quiet = waits["quiet_us"][ops & np.isin(waits["reason"], (Reason.IN_OPERATION, Reason.IN_UNSEEN))]
    return float(quiet[quiet != UNKNOWN_US].max(initial=0)) / 1e6
