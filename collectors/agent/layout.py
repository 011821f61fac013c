"""The plugin's shared-memory file as numpy sees it: native/plugin/layout.h, field by field.

What the fields mean stands there; a test compares both. Nothing here is trusted by its readers: a table's
place, stride and use come from the file's own header and are checked against the file (`tables`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = 0x31544643524D594D
VERSION = 1
HEADER_BYTES = 12288
NONE = 0xFFFF_FFFF
"""No slot."""
FUNCS = 16
"""Func codes 0 … 14 have a counter each, all others share the last."""

MAX_FILE_BYTES = 1 << 30
MAX_STRIDE = 4096

U64 = npt.NDArray[np.uint64]
Raw = npt.NDArray[np.void]
"""A structured array of one of this module's dtypes."""


class State(IntEnum):
    """Header.state."""

    STARTING = 0
    ON = 1
    OFF = 2


class Tier(IntEnum):
    """Header.requested_tier and applied_tier."""

    OPS = 0
    FLOWS = 1
    KERNEL = 2
    IDLE = 3


TIERS = tuple(tier.name.lower() for tier in Tier)
"""Their names, as MYCROFT_TIER and options take them."""


class Table(IntEnum):
    """Place of a table's description in Header.tables."""

    COMMUNICATORS = 0
    STREAMS = 1
    CALLS = 2
    OPERATIONS = 3
    FLOWS = 4
    PAIRS = 5
    RING = 6


DROPS_LOST = (0, 1, 2, 3, 4, 5, 7)
"""Kinds of Header.drops that are losses; the others are refusals, or cost nothing."""
DROP_KINDS = 16


class CommunicatorState(IntEnum):
    """Communicator.state."""

    FREE = 0
    OPEN = 1
    FINALISED = 2
    ABORTED = 3


class CallKind(IntEnum):
    """Call.kind."""

    GROUP_API = 1
    COLL_API = 2
    P2P_API = 3
    GROUP = 4


class OperationState(IntEnum):
    """State part of Operation.control."""

    FREE = 0
    WRITING = 1
    OPEN = 2
    ENDED = 3


class EndReason(IntEnum):
    """Operation.end_reason."""

    NOT_ENDED = 0
    BY_FLOWS = 1
    BY_KERNELS = 2
    BY_SUCCESSOR = 3
    RECYCLED = 4
    FINALISED = 5
    ABORTED = 6


class FlowState(IntEnum):
    """Flow.state."""

    FREE = 0
    OPEN = 1
    FINISHED = 2


class FlowFlag(IntFlag):
    """Flow.flags."""

    FOREIGN = 1
    IN_PROGRESS = 2
    UNOWNED = 4
    CUT = 8


class StepState(IntEnum):
    """Flow.head_state."""

    CLOSED = 0
    STARTED = 1
    SEND_GPU = 2
    SEND_CREDIT = 3
    SEND_NET = 4
    RECV_NET = 5
    RECV_FLUSH = 6
    RECV_GPU = 7


class RecordKind(IntEnum):
    """Record.kind."""

    OPERATION = 1
    FLOW = 2


def _struct(*fields: tuple[Any, ...]) -> np.dtype[np.void]:
    """A C struct with natural alignment, little-endian."""
    return np.dtype([(name, "<" + code, *shape) for name, code, *shape in fields], align=True)


def _fields(row: np.dtype[np.void]) -> list[tuple[str, tuple[Any, int]]]:
    return [(name, (entry[0], entry[1])) for name, entry in (row.fields or {}).items()]


def offset_of(row: np.dtype[np.void], name: str) -> int:
    """Byte at which a field begins."""
    return dict(_fields(row))[name][1]


TABLE_INFO = _struct(
    ("offset", "u8"), ("stride", "u4"), ("capacity", "u4"), ("used", "u4"), ("reserved", "u4"),
)  # fmt: skip
ANCHOR = _struct(
    ("version", "u4"), ("reserved", "u4"), ("ticks", "u8"), ("monotonic_ns", "i8"), ("wall_ns", "i8"),
)  # fmt: skip
HEADER = np.dtype(
    [
        ("magic", "<u8"), ("layout_version", "<u4"), ("header_bytes", "<u4"), ("file_bytes", "<u8"),
        ("nonce", "<u8"), ("nonce_tag", "<u4"), ("pid", "<u4"), ("start_ticks", "<u8"),
        ("pid_namespace", "<u8"), ("boot_id", "u1", 16), ("uid", "<u4"), ("plugin_version", "<u4"),
        ("clock_source", "<u4"), ("nccl_version", "<u4"), ("tick_hz", "<u8"), ("reserved0", "u1", 32),
        ("start_anchor", ANCHOR), ("anchor", ANCHOR), ("tables", TABLE_INFO, len(Table)),
        ("reserved1", "u1", 24), ("requested_tier", "<u4"), ("applied_tier", "<u4"),
        ("kernel_allowed", "<u4"), ("state", "<u4"), ("off_reason", "<u4"), ("chained", "<u4"),
        ("reserved2", "u1", 40), ("order", "<u8"), ("launches", "<u8"), ("last_launch_tick", "<u8"),
        ("group_calls", "<u8"), ("reserved3", "u1", 32), ("moved_order", "<u8"), ("moved_tick", "<u8"),
        ("reserved4", "u1", 48), ("ring_next", "<u8"), ("callbacks", "<u8"), ("flows_free", "<u4"),
        ("flows_tag", "<u4"), ("reserved5", "u1", 40), ("drops", "<u8", DROP_KINDS),
        ("environment", "S8192"), ("job", "S256"), ("reserved6", "u1", 3072),
    ]
)  # fmt: skip
HOT_HEADER_BYTES = 768
"""The part of the header that changes: all before the environment."""
HOT_HEADER = np.dtype(
    {
        "names": (hot := [name for name, (_, offset) in _fields(HEADER) if offset < HOT_HEADER_BYTES]),
        "formats": [HEADER[name] for name in hot],
        "offsets": [offset for _, (_, offset) in _fields(HEADER) if offset < HOT_HEADER_BYTES],
        "itemsize": HOT_HEADER_BYTES,
    }
)
COMMUNICATOR = _struct(
    ("generation", "u4"), ("state", "u4"), ("comm_id", "u8"), ("context", "u8"), ("nranks", "u4"),
    ("nnodes", "u4"), ("rank", "i4"), ("api", "u4"), ("opened_tick", "u8"), ("closed_tick", "u8"),
    ("reserved0", "u1", 8), ("name", "S64"), ("device", "i4"), ("reserved1", "u4"), ("bus_id", "S24"),
    ("uuid", "u1", 16), ("nccl_version", "u4"), ("kernel_tier", "u4"), ("reserved2", "u1", 8),
    ("last_order", "u8"), ("moved_base", "u8"), ("moved_tick", "u8"), ("launches", "u8"),
    ("ended_count", "u8"), ("last_launch_tick", "u8"), ("reserved3", "u1", 16), ("launched", "u8", FUNCS),
    ("ended", "u8", FUNCS), ("called", "u8", FUNCS), ("captured", "u8", FUNCS), ("proxy_calls", "u8"),
    ("proxy_tick", "u8"), ("proxy_state", "u4"), ("reserved4", "u4"), ("proxy_appended", "u8"),
    ("reserved5", "u1", 32),
)  # fmt: skip
STREAM = _struct(
    ("stream", "u8"), ("last_order", "u8"), ("moved_base", "u8"), ("moved_tick", "u8"), ("launches", "u8"),
    ("reserved", "u1", 24),
)  # fmt: skip
CALL = _struct(
    ("generation", "u4"), ("comm", "u4"), ("kind", "u1"), ("func", "u1"), ("stage", "u1"), ("captured", "u1"),
    ("explicit_group", "u1"), ("datatype", "u1"), ("reserved", "u1", 2), ("group", "u8"), ("stream", "u8"),
    ("count", "u8"), ("entered", "u8"), ("left", "u8"), ("parent", "u4"), ("parent_generation", "u4"),
)  # fmt: skip
OPERATION = _struct(
    ("control", "u8"), ("handle", "u8"), ("seq", "u8"), ("order", "u8"), ("base", "u8"), ("group", "u8"),
    ("stream", "u8"), ("count", "u8"), ("comm", "u4"), ("comm_generation", "u4"), ("peer", "i4"),
    ("flags", "u4"), ("func", "u1"), ("datatype", "u1"), ("algo", "u1"), ("proto", "u1"), ("channels", "u1"),
    ("visibility", "u1"), ("end_reason", "u1"), ("amended", "u1"), ("stream_slot", "u4"),
    ("kernels_expected", "u4"), ("bytes", "u8"), ("api_tick", "u8"), ("launch_tick", "u8"),
    ("enqueued_tick", "u8"), ("first_tick", "u8"), ("moved_tick", "u8"), ("last_tick", "u8"),
    ("end_tick", "u8"), ("kernel_start_ns", "u8"), ("kernel_end_ns", "u8"), ("kernel_start_tick", "u8"),
    ("kernel_end_tick", "u8"), ("kernels_started", "u8"), ("kernels_stopped", "u8"), ("flows_started", "u4"),
    ("flows_finished", "u4"), ("user_tag", "u8"), ("reserved", "u1", 32),
)  # fmt: skip
FLOW = _struct(
    ("generation", "u4"), ("state", "u1"), ("direction", "u1"), ("channel", "u1"), ("head_state", "u1"),
    ("head", "u4"), ("total", "u4"), ("counters", "u4", 4), ("window", "u2", 16), ("since", "u8"),
    ("time", "u8", 4), ("bytes", "u8"), ("no_credit", "u8"), ("calls", "u8"), ("parent", "u8"),
    ("context", "u8"), ("op", "u4"), ("op_generation", "u4"), ("comm", "u4"), ("comm_generation", "u4"),
    ("peer", "i4"), ("rank", "i4"), ("owner_pid", "u4"), ("flags", "u4"), ("chunk", "i4"),
    ("next_free", "u4"), ("seq", "u8"), ("order", "u8"), ("launch_tick", "u8"), ("start_tick", "u8"),
    ("first_tick", "u8"), ("first_data_tick", "u8"), ("end_tick", "u8"), ("func", "u1"), ("counted", "u1"),
    ("reserved", "u1", 14),
)  # fmt: skip
PAIR = _struct(("key", "u8"), ("count", "u8"))
RECORD = _struct(
    ("sequence", "u8"), ("kind", "u4"), ("slot", "u4"), ("reserved", "u1", 16), ("body", "u1", 256),
)  # fmt: skip

ROWS: dict[Table, np.dtype[np.void]] = {
    Table.COMMUNICATORS: COMMUNICATOR, Table.STREAMS: STREAM, Table.CALLS: CALL, Table.OPERATIONS: OPERATION,
    Table.FLOWS: FLOW, Table.PAIRS: PAIR, Table.RING: RECORD,
}  # fmt: skip
STRUCTS: dict[str, np.dtype[np.void]] = {
    "TableInfo": TABLE_INFO, "Anchor": ANCHOR, "Header": HEADER, "Communicator": COMMUNICATOR,
    "Stream": STREAM, "Call": CALL, "Operation": OPERATION, "Flow": FLOW, "Pair": PAIR, "Record": RECORD,
}  # fmt: skip
"""By the names of layout.h."""


class NotOurs(ValueError):
    """A file that is not to be read: the text says what is wrong with it."""


@dataclass(frozen=True)
class Place:
    """Where a table lies in a file: offset and stride in bytes, slots in all."""

    offset: int
    stride: int
    capacity: int


def check_identity(header: Any, size: int) -> None:
    """Raises NotOurs unless `header` (one HEADER row) is one that this version reads, in `size` bytes."""
    if int(header["magic"]) != MAGIC:
        raise NotOurs("no magic: not a file of the plugin, or one that is just being made")
    if int(header["layout_version"]) != VERSION:
        raise NotOurs(f"layout version {int(header['layout_version'])} is not known here (known: {VERSION})")
    if int(header["header_bytes"]) != HEADER_BYTES:
        raise NotOurs(f"a header of {int(header['header_bytes'])} bytes, {HEADER_BYTES} expected")
    if int(header["file_bytes"]) > min(size, MAX_FILE_BYTES):
        raise NotOurs(f"{size} bytes, shorter than the {int(header['file_bytes'])} that its header tells")


def tables(header: Any) -> dict[Table, Place]:
    """Where the tables lie. Raises NotOurs where one is outside the file, or its rows are too small."""
    found = {}
    limit = int(header["file_bytes"])
    for table, row in ROWS.items():
        info = header["tables"][table]
        place = Place(int(info["offset"]), int(info["stride"]), int(info["capacity"]))
        if not row.itemsize <= place.stride <= MAX_STRIDE or place.stride % 8 or place.offset % 8:
            raise NotOurs(f"table {table.name.lower()} has rows of {place.stride} bytes at {place.offset}")
        if place.offset < HEADER_BYTES or place.offset + place.stride * place.capacity > limit:
            raise NotOurs(f"table {table.name.lower()} lies outside the file")
        found[table] = place
    if not found[Table.RING].capacity:
        raise NotOurs("a ring without slots")
    return found


def used(header: Any, table: Table, place: Place) -> int:
    """Slots of a table that have ever been used, never more than there are."""
    return min(int(header["tables"][table]["used"]), place.capacity)


def control_state(control: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """State part of Operation.control, shape as given."""
    found: npt.NDArray[np.uint8] = ((control >> np.uint64(32)) & np.uint64(0x7F)).astype(np.uint8)
    return found


def control_generation(control: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Generation part of Operation.control, shape as given."""
    found: U64 = control >> np.uint64(40)
    return found


def handle_tag(handle: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The nonce tag in a handle: whose process made it."""
    found: U64 = (handle >> np.uint64(40)) & np.uint64(0xFFFFF)
    return found
