"""One traced process: its file, its place in the ring, and who its communicators and devices are."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.agent.cursor import NOTHING_TOLD, Position, Who
from collectors.agent.discovery import Life, OpenFile
from collectors.agent.hearing import Heard
from collectors.agent.identity import Job, device_id, job_of, process_id, world_rank
from collectors.agent.layout import (
    DROPS_LOST,
    FUNCS,
    CallKind,
    CommunicatorState,
    Raw,
    Table,
)
from collectors.agent.reader import Reader
from collectors.agent.ring import NOTHING, Drained, Ring
from collectors.agent.translate import COMM_FACTS
from schemas.enums import Func
from schemas.ids import hash64
from schemas.members import MAX_RANKS, Member
from schemas.records import PROC, UNKNOWN_US, Records

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_VALID_FUNCS = frozenset(int(func) for func in Func)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Name:
    """What members are told of a communicator beside COMM_FACTS."""

    name: str
    gpu: int | None
    gpu_id: str | None
    bus_id: str
    library: str | None


@dataclass
class Traced:
    """A process while its file is read."""

    file: OpenFile
    host: str
    boot_ns: int
    known: Position = NOTHING_TOLD
    """What an earlier collector has told of it."""
    life: Life = field(default_factory=lambda: Life(None))
    died_at: int | None = None
    told_dead: bool = False
    names: dict[int, Name] = field(default_factory=dict)
    """By communicator slot."""
    version: int = 0
    """Changes whenever a communicator came, went or changed."""
    drops: int = 0
    """Events that the plugin could not take, as last seen."""

    def __post_init__(self) -> None:
        who = self.file.identity
        self.reader = Reader(self.file)
        if self.known.told > self.reader.written:
            log.warning(
                "%s: the cursor file tells of %d records of its ring, which has had %d: not believed",
                self.file.name, self.known.told, self.reader.written,
            )  # fmt: skip
            self.known = NOTHING_TOLD
        self.ring = Ring(self.reader, self.known)
        self.started_ns = self.boot_ns + who.start_ticks * 10**9 // _TICKS_PER_S
        self.id = process_id(self.host, who.namespace, who.pid, who.start_ticks)
        self.job: Job = job_of(self.file.environment, self.host, who.uid, self.started_ns)
        self.world_rank = world_rank(self.file.environment)
        self.facts = np.zeros(0, COMM_FACTS)
        self.ended = np.zeros((0, FUNCS), np.uint64)
        """By communicator slot and func code: the last seq that later ones have shown to be over."""
        self._seen = np.zeros((0, 5), np.uint64)

    @property
    def who(self) -> Who:
        """What names its file to a later collector."""
        return Who(self.file.name, self.file.inode)

    def drain(self, header: np.void, wanted: bool) -> Drained:
        """What has finished, if `wanted` or the ring fills up. Raises NotOurs where the file was cut."""
        if wanted:
            drops = header["drops"].tolist()
            self.drops = sum(min(drops[kind], 1 << 48) for kind in DROPS_LOST)
        return self.ring.drain(header) if wanted or self.ring.filling else NOTHING

    def note(self, identity: npt.NDArray[np.uint64], communicators: Raw) -> None:
        """Takes note of the communicators; `identity` has a row for each: see files.identities."""
        if len(identity) == len(self._seen) and np.array_equal(identity, self._seen):
            return
        count = len(communicators)
        if count != len(self.facts):
            self.facts, self.ended = _grown(self.facts, count), _grown(self.ended, count)
        for slot in range(count):
            if slot >= len(self._seen) or (identity[slot] != self._seen[slot]).any():
                self._communicator(slot, communicators[slot])
        self._seen = identity.copy()
        self.version += 1

    @property
    def drained(self) -> bool:
        """Whether the ring has been read to its end, as far as it was written at the last tick."""
        return self.ring.behind == 0

    def _communicator(self, slot: int, raw: np.void) -> None:
        facts = self.facts[slot]
        if int(facts["generation"]) != int(raw["generation"]):
            self.ended[slot] = 0
        comm, rank, nranks = int(raw["comm_id"]), int(raw["rank"]), int(raw["nranks"])
        if comm == 0 and int(raw["launches"]):
            # Old interfaces on a newer NCCL tell no id: nobody can join it, but it must not be mixed up.
            comm = hash64("comm", self.id, slot, int(raw["generation"]))
        facts["generation"], facts["state"], facts["context"] = (
            raw["generation"],
            raw["state"],
            raw["context"],
        )
        facts["known"] = (
            int(raw["generation"]) % 2 == 0
            and int(raw["generation"]) > 0
            and CommunicatorState.FREE < int(raw["state"]) <= CommunicatorState.ABORTED
            and comm != 0
            and 0 <= rank <= MAX_RANKS
            and nranks <= MAX_RANKS + 1
        )  # fmt: skip
        gpu = int(raw["device"])
        facts["job"], facts["attempt"], facts["comm"] = self.job.id, self.job.attempt_id, comm
        facts["dev"] = device_id(self.id, gpu)
        nnodes = int(raw["nnodes"])
        facts["rank"], facts["nranks"] = max(rank, 0), nranks
        facts["nnodes"] = nnodes if nnodes <= nranks else 0  # 0: not known
        self.names[slot] = Name(
            _text(raw["name"]),
            gpu if 0 <= gpu < 1 << 16 else None,
            _gpu_id(raw),
            _text(raw["bus_id"]),
            _version(int(raw["nccl_version"])),
        )

    def gpus(self) -> dict[str, set[int]]:
        """Devices of this process by the PCI address of their GPU, as far as it is known."""
        found: dict[str, set[int]] = {}
        for slot in np.flatnonzero(self.facts["known"]).tolist():
            if bus_id := self.names[slot].bus_id:
                found.setdefault(bus_id, set()).add(int(self.facts[slot]["dev"]))
        return found

    def members(self) -> list[tuple[np.void, Name, Member]]:
        """The live communicators of this process, and what it is in each."""
        found = []
        for slot in np.flatnonzero(
            self.facts["known"] & (self.facts["state"] == CommunicatorState.OPEN)
        ).tolist():
            facts, name = self.facts[slot], self.names[slot]
            member = Member(
                rank=int(facts["rank"]), dev=int(facts["dev"]), world_rank=self.world_rank, host=self.host,
                pid=self.life.pid or self.file.identity.pid, gpu=name.gpu, gpu_id=name.gpu_id,
            )  # fmt: skip
            found.append((facts, name, member))
        return found

    def comms(self) -> list[int]:
        """Ids of its live communicators."""
        alive = self.facts["known"] & (self.facts["state"] == CommunicatorState.OPEN)
        return [int(comm) for comm in self.facts["comm"][alive]]

    def row(
        self,
        header: np.void,
        monotonic: Callable[[int], int],
        heard: Heard,
        busy_us: int,
        now: int,
        wall: int,
    ) -> Records:
        """The PROC record of this process, shape (1,); may raise NotOurs.

        `monotonic` tells the time of a tick, ns.
        """
        rows = PROC.empty(1)
        who, status = self.file.identity, self.life.status
        func, since = self._call(header, monotonic, now)
        known = self.facts["dev"][self.facts["known"]]
        values = {
            "job": self.job.id, "attempt": self.job.attempt_id, "proc": self.id,
            "dev": int(known[0]) if len(known) else 0, "pid": self.life.pid or who.pid,
            "alive": int(self.life.alive is not False), "state": ord(status.state) if status else 0,
            "tier": min(int(header["applied_tier"]), 255), "api_func": func, "api_us": since,
            "quiet_us": heard.quiet_us, "proxy_us": heard.proxy_us, "cpu_us": status.cpu_us if status else 0,
            "drops": self.drops, "callbacks": heard.callbacks, "sampled": wall, "started": self.started_ns,
            "busy_us": busy_us,
        }  # fmt: skip
        for name, value in values.items():
            rows[name] = value
        return rows

    def _call(self, header: np.void, monotonic: Callable[[int], int], now: int) -> tuple[int, int]:
        """The API call that the host has been in for longest: its func, and for how many µs."""
        calls = self.reader.table(header, Table.CALLS)
        is_open = (calls["generation"] > 0) & (calls["generation"] % 2 == 0) & (calls["left"] == 0)
        is_open &= (calls["entered"] > 0) & (calls["kind"] != CallKind.GROUP)
        if not is_open.any():
            return int(Func.ANY), UNKNOWN_US
        found = calls[is_open]
        oldest = found[np.argmin(found["entered"])]
        entered = monotonic(int(oldest["entered"]))
        func = int(oldest["func"])
        since = min(max(now - entered, 0) // 1000, UNKNOWN_US - 1)
        return func if func in _VALID_FUNCS else int(Func.OTHER), since


def _grown(rows: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    found = np.zeros((count, *rows.shape[1:]), rows.dtype)
    found[: min(count, len(rows))] = rows[:count]
    return found


def _text(raw: bytes) -> str:
    text = bytes(raw).split(b"\0")[0].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _gpu_id(raw: np.void) -> str | None:
    uuid = bytes(raw["uuid"]).hex()
    if uuid.strip("0"):
        return "GPU-" + "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
    return _text(raw["bus_id"]) or None


def _version(code: int) -> str | None:
    """NCCL's version number as text.

    >>> _version(23007)
    'NCCL 2.30.7'
    """
    if not 0 < code < 10_000_000:
        return None
    major, rest = divmod(code, 10_000) if code >= 10_000 else divmod(code, 1000)
    return f"NCCL {major}.{rest // 100}.{rest % 100}"
