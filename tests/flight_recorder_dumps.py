"""Folders of Flight Recorder dumps for tests: a job told launch by launch, written as its ranks would.

job = JobDumps(2, {"1": ("DATA_PARALLEL_GROUP", [0, 1])})
for rank in (0, 1):
    job.finish(job.launch(rank, "1", "all_reduce", count=8))
job.launch(0, "1", "all_reduce", count=8)  # rank 1 never comes
job.write(folder)
"""

from __future__ import annotations

import json
import math
import pickle
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

BASE_NS = 1_790_000_000_000_000_000
STEP_NS = 1_000_000

Entry = dict[str, Any]


class JobDumps:
    """A job of `ranks` processes.

    `groups` maps a group's name to its description and world ranks. Style "nccl" lists members and drops what
    has finished, "gloo" lists none, keeps everything and never says more of it than that it is retired.
    `base` is the time of the first launch and `clocks` how far each rank's clock is off it (ns); every launch
    takes `STEP_NS`.
    """

    def __init__(
        self, ranks: int, groups: Mapping[str, tuple[str, Sequence[int]]], *, style: str = "nccl",
        version: str | None = None, base: int = BASE_NS, clocks: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.ranks = ranks
        self.groups = dict(groups)
        self.style = style
        self.version = version or {"nccl": "2.9", "gloo": "2.10"}[style]
        self.base = base
        self.clocks = dict(clocks or {})
        self.entries: dict[int, list[Entry]] = {rank: [] for rank in range(ranks)}
        self.overwrite: dict[int, dict[str, Any]] = {}
        """Fields of a rank's dump that shall be other than told."""
        self._numbers: defaultdict[tuple[int, str, str], int] = defaultdict(int)
        self._status: dict[int, dict[str, dict[str, int]]] = {rank: {} for rank in range(ranks)}
        self._rank_of: dict[int, int] = {}
        self._now = base
        self._pg_ids: list[dict[str, int]] = [{} for _ in range(ranks)]
        for name in sorted(groups, key=int):
            for rank in groups[name][1]:
                self._pg_ids[rank][name] = len(self._pg_ids[rank])

    def pg_id(self, rank: int, group: str) -> int:
        """The process's own number of a group: it counts those it is in, in the order of their names."""
        return self._pg_ids[rank][group]

    def launch(
        self, rank: int, group: str, func: str, *, count: int | Sequence[int] = 1024, dtype: str = "Float",
        peer: int | None = None,
    ) -> Entry:  # fmt: skip
        """One operation; `peer` is the group rank that a send goes to or a recv comes from."""
        desc, members = self.groups[group]
        pairwise = func in ("send", "recv")
        self._numbers[rank, group, "p2p" if pairwise else "collective"] += 1
        self._now += STEP_NS
        name = func
        if pairwise:
            name = f"{func} {list(members).index(rank)}{'->' if func == 'send' else '<-'}{peer}"
        collective, p2p = self._numbers[rank, group, "collective"], self._numbers[rank, group, "p2p"]
        shape = [count] if isinstance(count, int) else list(count)
        entry: Entry = {
            "record_id": len(self.entries[rank]), "pg_id": self.pg_id(rank, group),
            "process_group": (group, desc), "collective_seq_id": collective, "p2p_seq_id": p2p,
            "op_id": collective + p2p, "profiling_name": f"{self.style}:{name}",
            "time_created_ns": self._now + self.clocks.get(rank, 0), "input_sizes": [shape],
            "input_dtypes": [dtype], "output_sizes": [shape], "output_dtypes": [dtype], "state": "scheduled",
            "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": False,
            "timeout_ms": 600_000, "is_p2p": pairwise,
        }  # fmt: skip
        self.entries[rank].append(entry)
        self._rank_of[id(entry)] = rank
        self._said(entry, rank)["last_enqueued_collective"] = p2p if pairwise else collective
        return entry

    def finish(self, entry: Entry, after_ns: int = 1_000_000) -> None:
        """The operation ends `after_ns` after its launch."""
        rank = self._rank_of[id(entry)]
        entry["retired"] = True
        if self.style == "nccl":
            entry["state"] = "completed"
            entry["time_discovered_started_ns"] = entry["time_created_ns"]
            entry["time_discovered_completed_ns"] = entry["time_created_ns"] + after_ns
        number = entry["p2p_seq_id"] if entry["is_p2p"] else entry["collective_seq_id"]
        self._said(entry, rank)["last_completed_collective"] = number

    def together(
        self, group: str, func: str, count: int | Sequence[int] = 1024, dtype: str = "Float"
    ) -> None:
        """One collective that all members launch and finish."""
        for entry in [
            self.launch(rank, group, func, count=count, dtype=dtype) for rank in self.groups[group][1]
        ]:
            self.finish(entry)

    def dump(self, rank: int, drop_finished: bool | None = None) -> dict[str, Any]:
        """What one rank writes; `drop_finished` is by default what the style does."""
        drop = self.style == "nccl" if drop_finished is None else drop_finished
        config = {"": {"name": "", "desc": "", "ranks": "[]"}}
        if self.style == "nccl":
            config = {
                name: {"name": name, "desc": desc, "ranks": str(list(members))}
                for name, (desc, members) in self.groups.items()
                if rank in members and str(self.pg_id(rank, name)) in self._status[rank]
            }
        entries = [entry for entry in self.entries[rank] if not (drop and entry["retired"])]
        return {
            "version": self.version, "pg_config": config, "pg_status": self._status[rank],
            "nccl_version": "2.27.3", "entries": entries, **self.overwrite.get(rank, {}),
        }  # fmt: skip

    def write(
        self, folder: Path, fmt: str = "pickle", omit_ranks: Collection[int] = (),
        truncate: Collection[int] = (), drop_finished: bool | None = None,
    ) -> Path:  # fmt: skip
        """Writes one file per rank and returns the folder; those of `truncate` break off in the middle."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(self.ranks):
            if rank in omit_ranks:
                continue
            dump = self.dump(rank, drop_finished)
            name = f"_dump_{rank}" if fmt == "pickle" else f"rank{rank}.json"
            raw = pickle.dumps(dump, protocol=2) if fmt == "pickle" else json.dumps(_as_json(dump)).encode()
            (folder / name).write_bytes(raw[: math.ceil(len(raw) / 2)] if rank in truncate else raw)
        return folder

    def _said(self, entry: Entry, rank: int) -> dict[str, int]:
        return self._status[rank].setdefault(str(entry["pg_id"]), _no_status())


def _no_status() -> dict[str, int]:
    return {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1}


def _as_json(dump: dict[str, Any]) -> dict[str, Any]:
    """The recorder's JSON: numbers of pg_status as text, unknown times as 0, no entries no key."""
    unknown = ("time_discovered_started_ns", "time_discovered_completed_ns")
    status = {
        pg_id: {key: str(value) for key, value in said.items()} for pg_id, said in dump["pg_status"].items()
    }
    entries = [entry | {key: entry[key] or 0 for key in unknown} for entry in dump["entries"]]
    body = dump | {"pg_status": status, "entries": entries}
    return body if entries else {key: value for key, value in body.items() if key != "entries"}
