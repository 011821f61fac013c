"""What is known about devices and communicators beside the waits: names for ids, ranks for devices.

Watch sends the facts of all that its waits mention along with them, so that diagnose needs no look-up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from schemas.ids import hex_id, parse_hex_id
from schemas.members import Announcement, Member


@dataclass(frozen=True)
class CommFacts:
    """A communicator: its name and, for the devices mentioned, their ranks."""

    name: str
    nranks: int


@dataclass
class Facts:
    """Facts by id. `ranks[dev][comm]` is a device's rank in a communicator."""

    devices: dict[int, Member] = field(default_factory=dict)
    comms: dict[int, CommFacts] = field(default_factory=dict)
    ranks: dict[int, dict[int, int]] = field(default_factory=dict)
    orders: dict[int, int] = field(default_factory=dict)
    """Of a source that hides point-to-point: launch order of each device's process, idle or not."""

    def merge(self, other: Facts) -> None:
        """Take over what another partition knows."""
        self.devices.update(other.devices)
        self.comms.update(other.comms)
        for dev, ranks in other.ranks.items():
            self.ranks.setdefault(dev, {}).update(ranks)
        for dev, order in other.orders.items():
            self.orders[dev] = max(order, self.orders.get(dev, 0))

    def copy(self) -> Facts:
        """As it stands now, whatever is merged later."""
        ranks = {dev: dict(ranks) for dev, ranks in self.ranks.items()}
        return Facts(dict(self.devices), dict(self.comms), ranks, dict(self.orders))

    def precedence(self, dev: int) -> int:
        """World rank, behind all others where it is unknown: it decides between equals, so answers repeat."""
        rank = self.world_rank(dev)
        return 1 << 32 if rank is None else rank

    def silent(self) -> frozenset[int]:
        """Devices of which nothing is known."""
        return frozenset(dev for dev, member in self.devices.items() if member.silent)

    def world_rank(self, dev: int) -> int | None:
        """World rank of a device, None where unknown."""
        member = self.devices.get(dev)
        return None if member is None else member.world_rank


def gather(announcements: Iterable[Announcement], devices: Iterable[int], comms: Iterable[int]) -> Facts:
    """The facts of the given devices and communicators, and of all that are silent.

    A device's rank is given for every communicator that is announced here, also where it does not wait.
    """
    wanted, named = set(devices), set(comms)
    facts = Facts()
    for announcement in announcements:
        if announcement.comm in named:
            facts.comms[announcement.comm] = CommFacts(announcement.name, announcement.nranks)
        for member in announcement.members:
            if member.dev in wanted or member.silent:
                facts.devices[member.dev] = member
                facts.ranks.setdefault(member.dev, {})[announcement.comm] = member.rank
    return facts


def encode(facts: Facts) -> dict[str, Any]:
    """JSON types, ids as hex."""
    return {
        "orders": {hex_id(dev): order for dev, order in facts.orders.items()},
        "comms": {hex_id(comm): [known.name, known.nranks] for comm, known in facts.comms.items()},
        "devices": {
            hex_id(dev): {
                "world_rank": member.world_rank, "host": member.host, "pid": member.pid, "gpu": member.gpu,
                "silent": member.silent,
                "ranks": {hex_id(comm): rank for comm, rank in facts.ranks.get(dev, {}).items()},
            }
            for dev, member in facts.devices.items()
        },
    }  # fmt: skip


def decode(body: dict[str, Any]) -> Facts:
    """The reverse of encode; raises KeyError, TypeError or ValueError on anything else."""
    facts = Facts()
    for comm, (name, nranks) in body["comms"].items():
        facts.comms[parse_hex_id(comm)] = CommFacts(name, nranks)
    for text, known in body["devices"].items():
        dev = parse_hex_id(text)
        facts.devices[dev] = Member(
            -1,
            dev,
            known["world_rank"],
            known["host"],
            None,
            known["pid"],
            known["gpu"],
            None,
            known["silent"],
        )
        facts.ranks[dev] = {parse_hex_id(comm): int(rank) for comm, rank in known["ranks"].items()}
    facts.orders = {parse_hex_id(dev): int(order) for dev, order in body["orders"].items()}
    return facts
