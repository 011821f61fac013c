"""The file of a recorded run: one callback a line as JSON, compressed with zstd, beside a manifest.json.

    {"t":1881994337,"p":5,"cb":"startEvent","ty":"P2pApi","h":5,"ctx":1,"parent":4,"func":"Send", … ,"th":0}

`t` ns since the first line · `p` world rank of the process · `th` its thread · `ctx`, `h`, `parent` numbers
that stand for contexts and handles within that process · `cb` the callback, or `note`, `MASK`, `initFAIL`,
`end`. The other fields are the descriptor's members, see `abi.MEMBERS`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import zstandard

from collectors.flight_recorder.errors import BadInput
from collectors.replay import abi

Line: TypeAlias = dict[str, Any]

MANIFEST: Final = "manifest.json"
SUFFIX: Final = ".jsonl.zst"

_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "init": ("ctx", "commId", "nNodes", "nranks", "rank", "th"),
    "startEvent": ("ty", "h", "ctx", "parent", "th"),
    "stopEvent": ("h", "th"),
    "recordEventState": ("h", "state", "th"),
    "finalize": ("ctx", "th"),
    "MASK": ("v", "th"),
    "note": ("what",),
}


class BadRun(BadInput):
    """The file is no recorded run that can be used; the text says where and why."""


@dataclass(frozen=True)
class Run:
    """A recorded run: lines in time order, host of each world rank, and how long it went on after them.

    `described`: a manifest says so; otherwise nothing is known of what came after the last line.
    """

    name: str
    lines: list[Line]
    nodes: tuple[int, ...]
    hold_s: float
    described: bool = True

    @property
    def ranks(self) -> int:
        """Processes of the run."""
        return len(self.nodes)


def read_run(path: Path) -> Run:
    """The run in a file; its hosts from the manifest beside it or else from the run itself. Raises BadRun."""
    lines = list(_checked(path, _texts(path)))
    if not lines:
        raise BadRun(f"{path} holds no callback")
    name = path.name.removesuffix(SUFFIX)
    entry = _manifest(path.parent / MANIFEST).get(name, {})
    ranks = 1 + max(line["p"] for line in lines)
    if ranks < 1:
        raise BadRun(f"{path} holds no process")
    if ranks > len(lines):
        raise BadRun(f"{path} names rank {ranks - 1} in {len(lines)} callbacks")
    nodes = entry.get("nodes")
    if nodes is None:
        nodes = list(range(ranks)) if entry else hosts(lines, ranks)
    if len(nodes) < ranks:
        raise BadRun(f"{path.parent / MANIFEST} names hosts of {len(nodes)} ranks, {name} has {ranks}")
    return Run(name, lines, tuple(nodes), float(entry.get("hold_s", 0)), bool(entry))


def hosts(lines: Iterable[Line], ranks: int) -> list[int]:
    """The host of each rank as far as a run without manifest tells.

    Recordings name it (`host` of init). Otherwise the largest communicator says over how many hosts its ranks
    lie, and they are taken to lie in equal blocks.
    """
    inits = [line for line in lines if line["cb"] == "init"]
    named = {line["p"]: line["host"] for line in inits if "host" in line}
    if len(named) == ranks:
        numbers = {host: n for n, host in enumerate(dict.fromkeys(named[p] for p in range(ranks)))}
        return [numbers[named[p]] for p in range(ranks)]
    widest = max(inits, key=lambda line: int(line["nranks"]), default=None)
    count = min(max(1, widest["nNodes"] if widest else ranks), ranks)
    return [p * count // ranks for p in range(ranks)]


def write_run(file: BinaryIO, lines: Iterable[Line]) -> int:
    """Write a run into an open file, which stays open; returns the number of lines."""
    written = 0
    with zstandard.ZstdCompressor(level=10).stream_writer(file, closefd=False) as packed:
        for line in lines:
            packed.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            written += 1
    return written


def _texts(path: Path) -> Iterator[bytes]:
    try:
        raw = path.open("rb")
    except OSError as error:
        raise BadRun(f"{path} cannot be read: {error.strerror}") from error
    with raw:
        try:
            with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as unpacked:
                rest = b""
                while chunk := unpacked.read(1 << 20):
                    *whole, rest = (rest + chunk).split(b"\n")
                    yield from whole
                yield rest
        except zstandard.ZstdError as error:
            raise BadRun(f"{path} is no zstd file: {error}") from error


def _checked(path: Path, texts: Iterable[bytes]) -> Iterator[Line]:
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
        except ValueError as error:
            cut = "" if text.rstrip().endswith(b"}") else "; the file seems to be cut off there"
            raise BadRun(f"{path} line {number} is no JSON: {error}{cut}") from error
        if wrong := fault(line):
            raise BadRun(f"{path} line {number}: {wrong}")
        yield line


def fault(line: Any) -> str | None:
    """What is wrong with a line, None if it can be used."""
    if not isinstance(line, dict):
        return "no JSON object"
    for key in ("t", "p"):
        if type(line.get(key)) is not int:
            return f"{key} is no integer"
    callback = line.get("cb")
    if not isinstance(callback, str):
        return "cb is no text"
    missing = [key for key in _NEEDED.get(callback, ()) if key not in line]
    if callback == "recordEventState" and line.get("h") and "ty" not in line:  # 0: NULL, or nobody's
        missing.append("ty")
    if missing:
        return f"{callback} without {', '.join(missing)}"
    if callback == "startEvent" and line["ty"] not in abi.EVENTS:
        return f"unknown event type {line['ty']!r}"
    return None


def _manifest(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    try:
        runs: dict[str, dict[str, Any]] = json.loads(path.read_bytes())["runs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRun(f"{path} is no manifest of recorded runs: {error}") from error
    return runs
