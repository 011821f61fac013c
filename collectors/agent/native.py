"""The part of the collector that runs ten times a second: native/collector, and what both sides share.

Field by field as in native/collector/file.h, clock.h, ring.h and host.h; a test compares the sizes.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from pathlib import Path

import numpy as np

from collectors.agent.layout import Table

LIBRARY = Path(__file__).parents[2] / "mycroft" / "native" / "libmycroft-collector.so"
"""Where the package's own build puts it."""

SOURCE = np.dtype(
    [
        ("id", "<u8"), ("nonce", "<u8"), ("cursor", "<u8"), ("fd", "<i4"), ("pid", "<u4"),
        ("places", [("offset", "<u8"), ("stride", "<u4"), ("capacity", "<u4")], len(Table)),
    ]
)  # fmt: skip
"""One open file; `cursor` is the address of a CURSOR."""
CURSOR = np.dtype([("next", "<u8"), ("waited_until", "<u8"), ("behind", "<u8")])
CLOCK = np.dtype([("ticks", "<i8"), ("monotonic_ns", "<i8"), ("wall_ns", "<i8"), ("rate", "<f8")])
HEARD = np.dtype([("calls", "<u8"), ("any_since", "<i8"), ("proxy_since", "<i8")])


class Verdict(IntEnum):
    """What a glance says; see host.h."""

    CALM = 0
    STILL = 1
    MOVED = 2
    FILLING = 3
    FAILED = 4
    NO_ROOM = 5
    NO_MEMORY = 6


FAILURES = {1: "it was cut while in use", 2: "its header changed hands", 3: "its clock makes no sense"}


class Found(ctypes.Structure):
    """Where a glance writes, and how much it found."""

    _fields_ = (
        *[
            (name, ctypes.c_void_p)
            for name in (
                "headers", "failed", "clocks", "heard", "counts", "operations", "open_operations",
                "operation_where", "shown", "flows", "open_flows", "flow_where",
            )
        ],
        *[
            (name, ctypes.c_uint64)
            for name in (
                "operation_room", "flow_room", "operation_count", "operations_open", "flow_count",
                "flows_open",
            )
        ],
    )  # fmt: skip


class Again(ctypes.Structure):
    """Where second copies go, and how many there are."""

    _fields_ = (
        *[
            (name, ctypes.c_void_p)
            for name in ("operations", "operation_where", "flows", "flow_where", "flow_slots")
        ],
        *[(name, ctypes.c_uint64) for name in ("operation_count", "flow_count", "torn")],
    )


class Drained(ctypes.Structure):
    """Where finished records go, and how many there are."""

    _fields_ = (
        *[(name, ctypes.c_void_p) for name in ("operations", "flows")],
        *[(name, ctypes.c_uint64) for name in ("operation_count", "flow_count", "lost", "corrupt")],
    )


SIZES = (
    SOURCE.itemsize, CURSOR.itemsize, CLOCK.itemsize, HEARD.itemsize, ctypes.sizeof(Found),
    ctypes.sizeof(Again), ctypes.sizeof(Drained),
)  # fmt: skip
"""In the order of mycroft_sizes."""

_POINTER, _NUMBER, _TIME, _CODE = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32
_FUNCTIONS = {
    "mycroft_sizes": ((), ctypes.POINTER(ctypes.c_uint32)),
    "mycroft_host_open": ((), _POINTER),
    "mycroft_host_close": ((_POINTER,), None),
    "mycroft_host_sources": ((_POINTER, _POINTER, _NUMBER), _CODE),
    "mycroft_host_headers": ((_POINTER, _POINTER), _CODE),
    "mycroft_host_glance": ((_POINTER, _POINTER, _TIME, _TIME, _CODE), _CODE),
    "mycroft_host_tables": ((_POINTER, _POINTER, _POINTER, _POINTER), _CODE),
    "mycroft_host_again": ((_POINTER, _POINTER, _POINTER, _POINTER), _CODE),
    "mycroft_ring_waiting": ((_POINTER, _NUMBER), _NUMBER),
    "mycroft_ring_drain": ((_POINTER, _NUMBER, _POINTER), _CODE),
}


class NotBuilt(RuntimeError):
    """The library is not there; the text is one line."""


@cache
def library() -> ctypes.CDLL:
    """The library, loaded once. Raises NotBuilt."""
    try:
        found = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise NotBuilt(f"the collector's native part cannot be loaded: {error}") from error
    for name, (arguments, result) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.argtypes, function.restype = list(arguments), result
    return found


def checked(code: int) -> Verdict:
    """A result as a verdict. Raises MemoryError."""
    if code == Verdict.NO_MEMORY:
        raise MemoryError("reading the plugin's files")
    return Verdict(code)
