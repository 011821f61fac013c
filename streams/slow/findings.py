"""What the localiser of slowness yields: who costs the others time, in which stage, how much; as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Stage(Enum):
    """Where in an operation the time goes; the value is how it reads."""

    LAUNCH = "its host launches late"
    STREAM = "its GPU starts kernels late"
    GPU = "its GPU takes late what has arrived"
    PROXY = "its proxy thread answers late"
    SEND = "what it sends is slow"
    RECEIVE = "what it receives is slow"
    WIRE = "what passes between the two is slow"


class Scope(Enum):
    """What the pattern of slow devices and flows points at."""

    DEVICE = "device"
    HOST = "host"
    NIC = "nic"
    LINK = "link"
    SWITCH = "switch"


@dataclass(frozen=True)
class Measure:
    """One figure behind a finding: seconds in a stage, of a device and of those like it."""

    dev: int
    stage: Stage
    own_s: float
    others_s: float
    """Median of the devices that it is compared with."""
    peer: int = 0
    """Other end of a wire, 0 for none."""
    channel: int = -1
    """The one channel that differs from its siblings, -1 for all alike."""


@dataclass(frozen=True)
class Finding:
    """One cause of slowness. Devices are ids; either culprits or candidates are empty."""

    category: str
    confidence: str
    """`likely` or `candidates`: sums over time indict, they do not prove."""
    culprits: tuple[int, ...]
    candidates: tuple[int, ...]
    stage: Stage
    scope: Scope
    lost_s: float
    """By how much the job was slowed in the window."""
    share: float
    """The same as a part of the window, 0 to 1."""
    waiting: int
    """Devices that waited for those named."""
    steps: int
    """Training steps in the window, as far as operations tell, at least 1."""
    measures: tuple[Measure, ...]
    """The largest first."""

    @property
    def stolen_s(self) -> float:
        """Device-seconds taken from the job in the window."""
        return self.lost_s * self.waiting

    @property
    def stolen_per_step_s(self) -> float:
        """Device-seconds taken from the job in each step."""
        return self.stolen_s / self.steps

    @property
    def named(self) -> tuple[int, ...]:
        """Culprits or candidates."""
        return self.culprits or self.candidates
