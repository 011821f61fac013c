"""What the plugin kept and lost: a few numbers from its files, without numpy.

Offsets are those of native/plugin/layout.h; a test compares them with collectors/agent/layout.py.
"""

from __future__ import annotations

import struct
from pathlib import Path

DROPS, DROP_KINDS, LAUNCHES, RING_NEXT, STATE, KERNEL_ALLOWED = 640, 16, 456, 576, 396, 392
TABLES, TABLE_BYTES, RING = 192, 24, 6
COMM_GENERATION, COMM_LAUNCHES, COMM_ENDED = 0, 216, 224
LOST = (0, 1, 2, 3, 4, 5, 7)
"""Kinds of drops that are losses; the others are refusals, or cost nothing."""
ON = 1


def _u64(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", raw, at)[0])


def _u32(raw: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", raw, at)[0])


def read(path: Path) -> dict[str, int]:
    """Numbers of one process: launched, ended (seen to end), dropped, records and what the ring holds, on."""
    raw = path.read_bytes()
    offset, stride, _, used = struct.unpack_from("<QIII", raw, TABLES)
    ended = sum(_u64(raw, offset + slot * stride + COMM_ENDED) for slot in range(used))
    return {
        "launched": _u64(raw, LAUNCHES),
        "ended": ended,
        "dropped": sum(_u64(raw, DROPS + 8 * kind) for kind in LOST),
        "records": _u64(raw, RING_NEXT),
        "ring": _u32(raw, TABLES + RING * TABLE_BYTES + 12),
        "kernel": _u32(raw, KERNEL_ALLOWED),
        "on": int(_u32(raw, STATE) == ON),
    }


def total(folder: Path) -> dict[str, int]:
    """Sums over all files of a folder, and `files`."""
    found = [read(path) for path in sorted(folder.glob("*.mycroft"))]
    names = ("launched", "ended", "dropped", "records", "ring", "kernel", "on")
    return {"files": len(found), **{name: sum(one[name] for one in found) for name in names}}


def complaints(sums: dict[str, int], ranks: int, made: int) -> list[str]:
    """What is missing, in words. `made`: operations that the ranks made in all."""
    wrong = []
    if sums["files"] != ranks or sums["on"] != ranks:
        wrong.append(f"{ranks} ranks, but {sums['files']} files, {sums['on']} of them on")
    if sums["launched"] != made:
        wrong.append(f"{made} operations made, {sums['launched']} seen")
    if sums["ended"] != sums["launched"]:
        wrong.append(f"{sums['launched']} operations seen, {sums['ended']} seen to end")
    if sums["dropped"]:
        wrong.append(f"{sums['dropped']} events dropped because tables were full")
    return wrong
