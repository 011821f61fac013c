"""The wires between the hosts of a testbed, and what cuts and slows them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collectors.testbed.faults import Fault
from collectors.testbed.plan import Plan
from collectors.testbed.relay import Relay, listener

DEFAULT_RATE = 200_000.0
"""Bytes a second that limits leave where they say nothing else: a step then takes seconds."""


@dataclass(frozen=True)
class Seat:
    """How a rank is started. `listen`: what it is told; `prefix`: the command in front of its own."""

    listen: str
    prefix: tuple[str, ...] = ()
    handed: tuple[int, ...] = ()


class Network(Protocol):
    """One way of connecting hosts. `says`: which one, in words."""

    says: str

    def addresses(self) -> list[tuple[str, int]]:
        """Where each rank is connected to."""

    def seat(self, rank: int) -> Seat:
        """How a rank is started."""

    def open(self, pids: list[int]) -> None:
        """Called once the ranks with these pids have been started."""

    def inject(self, fault: Fault) -> int:
        """Make a fault of the network; returns when it was there, CLOCK_MONOTONIC in ns."""

    def cut_host(self, host: int) -> int:
        """Nothing leaves or reaches a host any more, not even the end of its connections."""

    def close(self) -> None:
        """Take everything away."""


class Loopback:
    """All hosts on 127.0.0.1; what passes between two of them goes through a relay process."""

    says = "loopback, with a relay between the hosts"

    def __init__(self, plan: Plan, executable: Path, log: Path) -> None:
        self._plan = plan
        self._listeners = [listener() for _ in range(plan.ranks)]
        ports = [listening.getsockname()[1] for listening in self._listeners]
        targets = [(plan.host_of(rank), port) for rank, port in enumerate(ports)]
        self._relay = Relay(executable, targets, log)

    def addresses(self) -> list[tuple[str, int]]:
        """Every rank is reached through the relay."""
        return [self._relay.address] * self._plan.ranks

    def seat(self, rank: int) -> Seat:
        """A socket that listens already, so that nobody has to wait for anybody."""
        number = self._listeners[rank].fileno()
        return Seat(f"fd={number}", handed=(number,))

    def open(self, pids: list[int]) -> None:
        """The relay ends the ranks, of which some may be stopped, where the starter dies."""
        for listening in self._listeners:
            listening.close()
        self._relay.tell(f"ward {' '.join(map(str, pids))}")

    def inject(self, fault: Fault) -> int:
        """Link or NIC down, or a limit on what a host sends or receives or a link passes."""
        rate = f"{fault.values.get('rate', DEFAULT_RATE):g}"
        if fault.kind.target == "link":
            a, b = fault.target
            down = fault.name == "link-down"
            return self._relay.tell(f"link-down {a} {b}" if down else f"link-rate {a} {b} {rate}")
        host = self._plan.host_of(fault.target[0])
        limits = {"nic-limit": "rate", "nic-limit-in": "rate-in"}
        if fault.name in limits:
            return self._relay.tell(f"{limits[fault.name]} {host} {rate}")
        return self.cut_host(host)

    def cut_host(self, host: int) -> int:
        """Both directions, all links."""
        return self._relay.tell(f"host-down {host}")

    def close(self) -> None:
        """End the relay."""
        for listening in self._listeners:
            listening.close()
        self._relay.close()
