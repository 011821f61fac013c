"""Faults of the testbed: their names, where they are made, and the category that is right.

gpu-hang@5:t=8            8 s after all ranks are ready, at rank 5's next operation
late-launch@3:step=20,comm=dp      at step 20, at rank 3's next operation on a communicator named dp…
link-down@0-1:t=5         between hosts 0 and 1
outside-nccl@2,3:t=5      several ranks
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from collectors.testbed.errors import BadPlan

STALL: Final = "stall"
SLOW: Final = "slow"


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `where`: `rank` its process does it to itself · `signal` it is sent to the process ·
    `network` the wires do it. `target`: `rank`, `ranks` or `link`. `categories`: the right ones, best first.
    """

    where: str
    categories: tuple[str, ...]
    does: str
    kind: str = STALL
    target: str = "rank"
    values: tuple[str, ...] = ()
    network: str = ""
    """The only network where it means something, empty for all."""


KINDS: Final[Mapping[str, Kind]] = {
    "link-down": Kind("network", ("link",), "nothing passes between two hosts", target="link"),
    "nic-down": Kind(
        "network", ("nic-send", "nic-recv", "link"), "nothing leaves or reaches the rank's host"
    ),
    "lost-credit": Kind(
        "rank", ("link",), "the credit of one receive never reaches the sender", network="credits"
    ),
    "gpu-hang": Kind("rank", ("gpu-hang",), "the kernel of the next operation stops in the middle"),
    "stream-blocked": Kind("rank", ("gpu-hang",), "the stream stops before the next kernel"),
    "kill": Kind("signal", ("process-dead",), "SIGKILL"),
    "stop": Kind("signal", ("process-stopped",), "SIGSTOP"),
    "crash": Kind(
        "rank", ("process-dead", "late-launch"), "it unwinds for `after` s (10), then dies", values=("after",)
    ),
    "host-gone": Kind("signal", ("host-silent",), "the host with all processes and its collector is gone"),
    "late-launch": Kind("rank", ("late-launch",), "the next operation is never launched: the host is busy"),
    "outside-nccl": Kind(
        "rank",
        ("outside-nccl", "late-launch"),
        "the ranks wait in a barrier that is not NCCL's",
        target="ranks",
    ),
    "skip": Kind("rank", ("late-launch", "mismatch", "deadlock"), "one operation is left out"),
    "mismatch": Kind("rank", ("mismatch",), "one collective is called with half the count"),
    "crossed": Kind(
        "rank", ("deadlock",), "an operation and the next one, of another communicator, change places"
    ),
    "proxy-stuck": Kind("rank", ("proxy",), "the proxy thread of the next communicator that it serves stops"),
    "not-posting": Kind("rank", ("proxy",), "receives are posted no more"),
    "nic-limit": Kind(
        "network",
        ("nic-send",),
        "the rank's host sends at most `rate` bytes a second",
        SLOW,
        values=("rate",),
    ),
    "nic-limit-in": Kind(
        "network",
        ("nic-recv",),
        "the rank's host receives at most `rate` bytes a second",
        SLOW,
        values=("rate",),
    ),
    "background-traffic": Kind(
        "network",
        ("link",),
        "other traffic leaves `rate` bytes a second of the link between two hosts, each way",
        SLOW,
        target="link",
        values=("rate",),
    ),
    "slow-channel": Kind(
        "rank",
        ("nic-send", "link"),
        "one channel sends `rate` bytes a second",
        SLOW,
        values=("channel", "rate"),
    ),
    "late-every": Kind(
        "rank", ("late-launch",), "the host is `ms` late at each `n`th step", SLOW, values=("n", "ms")
    ),
    "slow-copy": Kind("rank", ("gpu-slow",), "each copy of the GPU takes `ms` longer", SLOW, values=("ms",)),
    "slow-gpu": Kind(
        "rank", ("gpu-slow",), "computing takes `factor` times as long", SLOW, values=("factor",)
    ),
    "background": Kind(
        "rank", ("gpu-slow",), "another job takes `share` of the GPU", SLOW, values=("share",)
    ),
    "proxy-delay": Kind(
        "rank", ("proxy",), "a pass of a proxy sleeps `ms` with probability `p`", SLOW, values=("p", "ms")
    ),
    "slow-receiver": Kind("rank", ("gpu-slow",), "what is received is taken `ms` late", SLOW, values=("ms",)),
}


@dataclass(frozen=True)
class Fault:
    """One fault. `target`: ranks, or the two hosts of a link. At `t` seconds after all ranks were ready or
    from training step `step` on, whichever is given; neither means when it is injected.
    """

    name: str
    target: tuple[int, ...]
    t: float | None = None
    step: int | None = None
    communicator: str = ""
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        """What the catalogue says of it."""
        return KINDS[self.name]

    def command(self) -> str:
        """The line that its process understands."""
        words = [f"fault {self.name}"]
        if self.step is not None:
            words.append(f"step={self.step}")
        if self.communicator:
            words.append(f"comm={self.communicator}")
        return " ".join([*words, *(f"{key}={value:g}" for key, value in self.values.items())])

    def __str__(self) -> str:
        separator = "-" if self.kind.target == "link" else ","
        return f"{self.name}@{separator.join(map(str, self.target))}"


def parse_fault(text: str) -> Fault:
    """A fault as it is written: NAME@TARGET[:KEY=VALUE,…]. Raises BadPlan."""
    name, at, rest = text.partition("@")
    if name not in KINDS:
        raise BadPlan(f"unknown fault {name!r} in {text!r}: one of {', '.join(KINDS)}")
    kind = KINDS[name]
    where, _, options = rest.partition(":")
    separator = "-" if kind.target == "link" else ","
    parts = where.split(separator)
    wanted = {"rank": 1, "link": 2}.get(kind.target, len(parts))
    if not at or len(parts) != wanted or not all(part.isdecimal() for part in parts):
        form = {"rank": "RANK", "ranks": "RANK,RANK,…", "link": "HOST-HOST"}[kind.target]
        raise BadPlan(f"{text!r} does not say where: {name}@{form}")
    t: float | None = None
    step: int | None = None
    communicator = ""
    values = {}
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        if key == "comm" and value:
            communicator = value
            continue
        try:
            number = float(value)
        except ValueError:
            raise BadPlan(f"{text!r}: {option!r} is no KEY=NUMBER") from None
        if key == "t":
            t = number
        elif key == "step":
            step = int(number)
        elif key in kind.values:
            values[key] = number
        else:
            known = ", ".join(("t", "step", "comm", *kind.values))
            raise BadPlan(f"{text!r}: {name} knows no {key!r}, only {known}")
    return Fault(name, tuple(int(part) for part in parts), t, step, communicator, values)


def check_fault(fault: Fault, ranks: int, hosts: int, network: str) -> None:
    """Raises BadPlan where a job of this size has no such place, or the network no such fault."""
    count, what = (hosts, "host") if fault.kind.target == "link" else (ranks, "rank")
    for number in fault.target:
        if number >= count:
            raise BadPlan(f"{fault}: there is no {what} {number}, only 0 to {count - 1}")
    if len(set(fault.target)) < len(fault.target):
        raise BadPlan(f"{fault}: twice the same {what}")
    if fault.kind.network not in ("", network):
        raise BadPlan(f"{fault} needs the network {fault.kind.network!r}, not {network!r}")
    if fault.kind.where == "network" and hosts == 1:
        raise BadPlan(f"{fault}: one host has no network")
    if fault.communicator and fault.kind.where != "rank":
        raise BadPlan(f"{fault}: comm means nothing here")
    if fault.t is not None and fault.step is not None:
        raise BadPlan(f"{fault}: t or step, not both")
    if (fault.t or 0) < 0 or (fault.step or 0) < 0:
        raise BadPlan(f"{fault}: t and step count from 0")
