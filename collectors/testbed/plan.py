"""What a testbed runs: sizes, parallelism, network and the training step. From options or a YAML file.

ranks: 16
ranks_per_host: 8
tp: 2
pp: 2
network: credits
faults: ["gpu-hang@5:t=8"]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import yaml

from collectors.testbed.errors import BadPlan
from collectors.testbed.faults import Fault, check_fault, parse_fault

NETWORKS: Final = ("sockets", "credits")
ALGORITHMS: Final = ("ring", "tree")
MAX_RANKS: Final = 256
_MAX_CHANNELS: Final = 32


@dataclass(frozen=True)
class Plan:
    """A job. Counts are elements of 4 bytes, times ms; raises BadPlan for what does not fit together.

    `dp` follows from the others: ranks = tp × pp × dp; `ep` ranks of a dp group exchange tokens. `network`:
    `sockets` takes every send, `credits` refuses one until the receiver has posted. `algorithm`: of AllReduce
    over dp and over all ranks.

    What a healthy job waits for, none of it by default: `uneven_ms`, each layer takes up to so much longer,
    another time on each rank; `checkpoint_every` steps rank 0's host is busy for `checkpoint_ms`;
    `evaluate_every` steps all evaluate for up to `evaluate_ms`; `rare_every` steps a communicator is used
    that is used for nothing else.
    """

    ranks: int = 4
    ranks_per_host: int = 2
    tp: int = 1
    pp: int = 1
    ep: int = 1
    channels: int = 2
    slot_bytes: int = 65536
    network: str = "sockets"
    algorithm: str = "ring"
    micro_batches: int = 2
    forward_ms: float = 20.0
    backward_ms: float = 30.0
    tp_count: int = 65536
    pp_count: int = 65536
    dp_count: int = 262144
    ep_count: int = 8192
    uneven_ms: float = 0.0
    checkpoint_every: int = 0
    checkpoint_ms: float = 0.0
    evaluate_every: int = 0
    evaluate_ms: float = 0.0
    rare_every: int = 0
    faults: tuple[Fault, ...] = field(default=())

    def __post_init__(self) -> None:
        for name in ("ranks", "ranks_per_host", "tp", "pp", "ep", "channels", "micro_batches"):
            if getattr(self, name) < 1:
                raise BadPlan(f"{name} is {getattr(self, name)}: at least 1")
        self._check_sizes()
        for fault in self.faults:
            check_fault(fault, self.ranks, self.hosts, self.network)

    def _check_sizes(self) -> None:
        if not 2 <= self.ranks <= MAX_RANKS:
            raise BadPlan(f"ranks is {self.ranks}: 2 to {MAX_RANKS}")
        if self.ranks % (self.tp * self.pp):
            raise BadPlan(f"{self.ranks} ranks are no multiple of tp × pp = {self.tp} × {self.pp}")
        if self.dp % self.ep:
            raise BadPlan(f"a dp group has {self.dp} ranks, no multiple of ep = {self.ep}")
        if self.network not in NETWORKS:
            raise BadPlan(f"unknown network {self.network!r}: one of {', '.join(NETWORKS)}")
        if self.algorithm not in ALGORITHMS:
            raise BadPlan(f"unknown algorithm {self.algorithm!r}: one of {', '.join(ALGORITHMS)}")
        if self.channels > _MAX_CHANNELS:
            raise BadPlan(f"channels is {self.channels}: at most {_MAX_CHANNELS}")
        if self.slot_bytes < 1024 or self.slot_bytes % 64:
            raise BadPlan(f"slot_bytes is {self.slot_bytes}: a multiple of 64 from 1024 on")
        for name in ("tp_count", "pp_count", "dp_count", "ep_count"):
            if getattr(self, name) < 1:
                raise BadPlan(f"{name} is {getattr(self, name)}: at least 1 element")
        for name in (
            "uneven_ms",
            "checkpoint_every",
            "checkpoint_ms",
            "evaluate_every",
            "evaluate_ms",
            "rare_every",
        ):
            if getattr(self, name) < 0:
                raise BadPlan(f"{name} is {getattr(self, name)}: not below 0")
        if self.dp_count < self.dp:
            raise BadPlan(f"dp_count is {self.dp_count}: at least one element for each of {self.dp} ranks")

    @property
    def dp(self) -> int:
        """Ranks of a data-parallel group."""
        return self.ranks // (self.tp * self.pp)

    @property
    def hosts(self) -> int:
        """Hosts that the ranks fill, the last one perhaps not to the full."""
        return -(-self.ranks // self.ranks_per_host)

    def host_of(self, rank: int) -> int:
        """The host of a world rank."""
        return rank // self.ranks_per_host

    def ranks_of(self, host: int) -> list[int]:
        """The world ranks of a host."""
        return [rank for rank in range(self.ranks) if self.host_of(rank) == host]


def plan_of(values: Mapping[str, Any], what: str = "the plan") -> Plan:
    """A plan from names and values as a file has them; raises BadPlan, saying `what` is wrong."""
    known = {entry.name: entry for entry in fields(Plan)}
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise BadPlan(f"{what}: unknown key {name!r}: one of {', '.join(known)}")
        default = known[name].default
        if name == "faults":
            texts = [value] if isinstance(value, str) else value
            if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
                raise BadPlan(f"{what}: faults is no list of texts like 'gpu-hang@5:t=8'")
            chosen[name] = tuple(parse_fault(text) for text in texts)
        elif isinstance(default, float) and isinstance(value, int | float) and not isinstance(value, bool):
            chosen[name] = float(value)
        elif type(value) is type(default):
            chosen[name] = value
        else:
            raise BadPlan(f"{what}: {name} is {value!r}, no {type(default).__name__}")
    return Plan(**chosen)


def read_plan(path: Path) -> dict[str, Any]:
    """Names and values of a YAML file, for `plan_of`; raises BadPlan and OSError."""
    try:
        values = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path} cannot be read as YAML: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise BadPlan(f"{path} is no list of 'name: value' lines")
    return values
