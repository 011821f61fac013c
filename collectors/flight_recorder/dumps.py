"""One dump file → a `Dump`; a folder of them → who spoke and who is silent.

The format is PyTorch's (FlightRecorder.hpp), version 2.x, by pickle or JSON. What differs between writers:

- JSON leaves `entries` out where there are none, and writes the numbers of `pg_status` as text;
- `pg_config` is empty with gloo.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectors.flight_recorder.entries import MAX_NUMBER, Entries, read_entries
from collectors.flight_recorder.errors import BadDump, BadFolder, ForbiddenLoad
from collectors.flight_recorder.unpickle import MAX_BYTES, load_plain

MAX_RANK = 1 << 20
_RANK_IN_NAME = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|bin|dump))?$", re.IGNORECASE)
_DUMP_SUFFIXES = (".json", ".pickle", ".pkl", ".dump")


@dataclass(frozen=True)
class GroupConfig:
    """A process group as `pg_config` lists it; `ranks` are world ranks in the group's order."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class GroupStatus:
    """Numbers of the last operation enqueued and completed; 0 for none."""

    enqueued: int
    completed: int


@dataclass(frozen=True)
class Dump:
    """What one process wrote about itself."""

    rank: int
    version: str
    config: Mapping[str, GroupConfig]
    status: Mapping[int, GroupStatus]
    """By pg_id, which counts the process's own groups: the same id means other groups elsewhere."""
    names: tuple[tuple[str, str], ...]
    """(name, description) of the groups that the entries mention, shape (G,)."""
    entries: Entries
    backends: frozenset[str]
    library: str | None


@dataclass(frozen=True)
class Folder:
    """A folder's dumps by world rank; ranks that left a file which says nothing; files passed over."""

    path: Path
    dumps: Mapping[int, Dump]
    silent: Mapping[int, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)


def rank_in_name(name: str) -> int | None:
    """World rank by the digits that end a file's name, None where there are none.

    >>> [rank_in_name(name) for name in ("_dump_0", "nccl_trace_rank_3", "rank12.json", "README")]
    [0, 3, 12, None]
    """
    found = _RANK_IN_NAME.search(name)
    if found is None or int(found.group(1)) >= MAX_RANK:
        return None
    return int(found.group(1))


def parse_dump(raw: bytes, name: str) -> Dump:
    """One dump; `name` is its file's. Raises BadDump (ForbiddenLoad for a pickle that would load code)."""
    body = load_plain(raw, name)
    if not isinstance(body, dict):
        raise BadDump(f"{name}: holds a {type(body).__name__}, not a dump")
    version = str(body.get("version", ""))
    if not re.fullmatch(r"2\.\d+", version):
        said = f"format version {version[:40]!r}" if version else "no format version, so it is no dump"
        raise BadDump(f"{name}: {said} (known: 2.x)")
    is_json = raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{"
    entries = body.get("entries", [] if is_json else None)
    if not isinstance(entries, list | tuple):
        raise BadDump(f"{name}: has no list of entries, so it does not say what is pending")
    try:
        config = _config(body.get("pg_config") or {})
        status = _status(body.get("pg_status") or {})
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadDump(
            f"{name}: pg_config or pg_status: {type(error).__name__}: {str(error)[:200]}"
        ) from error
    table = read_entries(entries, name)
    library = body.get("comm_lib_version") or body.get("nccl_version")
    return Dump(
        rank=_rank(body, name), version=version, config=config, status=status, names=table.names,
        entries=table.rows, backends=table.backends, library=None if library is None else str(library)[:100],
    )  # fmt: skip


def read_folder(path: Path) -> Folder:
    """Every dump in a folder.

    A file that is named like a rank's dump but is empty or cannot be read makes that rank silent; other
    files are skipped. Raises BadFolder where there is no folder, no dump in it, two files for one rank, or a
    pickle that would load code: then nothing in it is to be trusted.
    """
    if not path.is_dir():
        raise BadFolder(f"{path}: {'not a folder' if path.exists() else 'no such folder'}")
    with _no_garbage_collection():
        return _read_files(path)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Dumps are millions of containers without a cycle: looking for cycles in them is a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read_files(path: Path) -> Folder:
    dumps: dict[int, Dump] = {}
    named: dict[int, str] = {}
    unreadable: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for file in _files(path):
        if file.name.startswith(".") or not file.is_file():
            skipped[file.name] = "hidden" if file.name.startswith(".") else "not a file"
            continue
        if rank_in_name(file.name) is None and not file.name.lower().endswith(_DUMP_SUFFIXES):
            skipped[file.name] = "its name does not end in a rank"
            continue
        try:
            dump = parse_dump(_bytes(file), file.name)
        except ForbiddenLoad as error:
            raise BadFolder(f"{path}/{error}; nothing was executed, nothing imported") from error
        except BadDump as error:
            unreadable[file.name] = str(error).removeprefix(f"{file.name}: ")
        else:
            _only_one(named, dump.rank, file.name, path)
            dumps[dump.rank] = dump
    if not dumps:
        why = next(
            (f"{name}: {said}" for name, said in (*unreadable.items(), *skipped.items())), "it is empty"
        )
        raise BadFolder(f"{path}: no Flight Recorder dump that can be read ({why})")
    # A log or a core file may end in a number too: a rank's dump is named as the other dumps are.
    families = {_family(name) for name in named.values()}
    silent = {}
    for name, reason in unreadable.items():
        rank = rank_in_name(name)
        if rank is None or _family(name) not in families:
            skipped[name] = reason
        else:
            _only_one(named, rank, name, path)
            silent[rank] = f"{name}: {reason}"
    return Folder(path, dumps, silent, skipped)


def _files(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir(), key=lambda file: (rank_in_name(file.name) or 0, file.name))
    except OSError as error:
        raise BadFolder(f"{path}: {error.strerror or error}") from error


def _family(name: str) -> str:
    """A file's name without its rank."""
    return _RANK_IN_NAME.sub("", name)


def _bytes(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise BadDump(
                f"{file.name}: {file.stat().st_size} bytes, more than the {MAX_BYTES} a dump may have"
            )
        return file.read_bytes()
    except OSError as error:
        raise BadDump(f"{file.name}: {error.strerror or error}") from error


def _only_one(seen: dict[int, str], rank: int, name: str, path: Path) -> None:
    if rank in seen:
        raise BadFolder(f"{path}: {seen[rank]} and {name} are both of rank {rank}: keep one of them")
    seen[rank] = name


def _rank(body: Mapping[str, Any], name: str) -> int:
    named, said = rank_in_name(name), body.get("rank")
    if said is not None:
        if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said < MAX_RANK:
            raise BadDump(f"{name}: its field rank is {str(said)[:40]!r}")
        if named is not None and named != said:
            raise BadDump(f"{name}: its field rank says {said}, its name {named}")
        return said
    if named is None:
        raise BadDump(f"{name}: neither its name ends in a rank nor has it a field rank")
    return named


def _config(raw: Mapping[str, Any]) -> dict[str, GroupConfig]:
    config = {}
    for key, group in raw.items():
        ranks = group.get("ranks") or []
        if isinstance(ranks, str):
            ranks = json.loads(ranks)
        members = tuple(int(rank) for rank in ranks)
        if len(set(members)) != len(members) or any(not 0 <= rank < MAX_RANK for rank in members):
            raise ValueError(f"ranks of group {key} are {str(ranks)[:80]}")
        name = str(group.get("name", key))
        if name:  # gloo lists one nameless group without ranks
            config[name] = GroupConfig(name, str(group.get("desc", "")), members)
    return config


def _status(raw: Mapping[Any, Any]) -> dict[int, GroupStatus]:
    status = {}
    for pg_id, said in raw.items():
        enqueued = max(int(said["last_enqueued_collective"]), 0)  # -1 stands for none
        completed = max(int(said["last_completed_collective"]), 0)
        if max(enqueued, completed) >= MAX_NUMBER:
            raise ValueError(f"numbers of group {pg_id} are out of range")
        status[int(pg_id)] = GroupStatus(enqueued, completed)
    return status
