"""NCCL's profiler interface v3 to v7 as ctypes: the one home of its layouts on the Python side.

Declared from the facts of NCCL's public headers: members in declaration order with natural C alignment. What
differs between versions is said member by member (`since`, `until`).
"""

from __future__ import annotations

import ctypes
from ctypes import c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

VERSIONS: Final = (3, 4, 5, 6, 7)
FIRST_WITH_API_EVENTS: Final = 5  # GroupApi, CollApi, P2pApi, KernelLaunch; before it Group is Coll's parent
FIRST_WITH_PEER_WAIT: Final = 4  # before it the states of ProxyOp carry steps and sizes
FIRST_WITH_COMM_FACTS: Final = 4  # init says communicator, rank and nranks

EVENTS: Final = {
    "Group": 1 << 0,
    "Coll": 1 << 1,
    "P2p": 1 << 2,
    "ProxyOp": 1 << 3,
    "ProxyStep": 1 << 4,
    "ProxyCtrl": 1 << 5,
    "KernelCh": 1 << 6,
    "NetPlugin": 1 << 7,
    "GroupApi": 1 << 8,
    "CollApi": 1 << 9,
    "P2pApi": 1 << 10,
    "KernelLaunch": 1 << 11,
    "CeColl": 1 << 12,
    "CeSync": 1 << 13,
    "CeBatch": 1 << 14,
    "KernelPhase": 1 << 15,
}
"""Event type by name, with its bit in the activation mask."""

_LAST_BIT: Final = {3: 7, 4: 7, 5: 11, 6: 14, 7: 15}

_CHILDREN: Final = {
    "ProxyStep": ("NetPlugin",),
    "ProxyOp": ("ProxyStep",),
    "KernelCh": ("KernelPhase",),
    "Coll": ("ProxyOp", "KernelCh"),
    "P2p": ("ProxyOp", "KernelCh"),
    "Group": ("Coll", "P2p"),
    "CeColl": ("CeSync", "CeBatch"),
    "CollApi": ("Coll", "CeColl"),
    "P2pApi": ("P2p",),
    "GroupApi": ("CollApi", "P2pApi", "KernelLaunch", "Group"),
}

STATES: Final = {
    "ProxyOpSendPosted": 0,
    "ProxyOpSendTransmitted": 2,
    "ProxyOpSendDone": 3,
    "ProxyOpRecvPosted": 4,
    "ProxyOpRecvReceived": 5,
    "ProxyOpRecvTransmitted": 6,
    "ProxyOpRecvDone": 7,
    "ProxyStepSendGPUWait": 8,
    "ProxyStepSendWait": 9,
    "ProxyStepRecvWait": 10,
    "ProxyStepRecvFlushWait": 11,
    "ProxyStepRecvGPUWait": 12,
    "ProxyCtrlIdle": 13,
    "ProxyCtrlActive": 14,
    "ProxyCtrlSleep": 15,
    "ProxyCtrlWakeup": 16,
    "ProxyCtrlAppend": 17,
    "ProxyCtrlAppendEnd": 18,
    "ProxyOpInProgress": 19,
    "ProxyStepSendPeerWait": 20,
    "NetPluginUpdate": 21,
    "KernelChStop": 22,
    "GroupStartApiStop": 23,
    "GroupEndApiStart": 24,
    "KernelPhaseStop": 31,
}
"""Event states that some version of the interface still records."""


def exists(event: str, version: int) -> bool:
    """Whether this version of the interface has that event."""
    return EVENTS[event].bit_length() - 1 <= _LAST_BIT[version]


@cache
def wanted_by(event: str) -> int:
    """The mask bits of which one is enough for NCCL to start `event`: its own and those of what lies below.

    >>> bool(wanted_by("Coll") & EVENTS["ProxyStep"]), bool(wanted_by("ProxyStep") & EVENTS["Coll"])
    (True, False)
    """
    bits = EVENTS[event]
    for child in _CHILDREN.get(event, ()):
        bits |= wanted_by(child)
    return bits


@dataclass(frozen=True)
class Member:
    """A member of an event's descriptor: its `key` in a recorded run, None where runs do not hold it."""

    name: str
    type: Any
    key: str | None = None
    since: int = 3
    until: int = 7


TEXT: Final = c_char_p
HANDLE: Final = c_void_p  # a plugin's handle
POINTER: Final = c_void_p  # some other address, which a plugin must not follow

_NAME = (Member("name", TEXT, "commName", until=3), Member("commHash", c_uint64, "commId", until=3))
_TAG = Member("userTag", c_uint64, since=7)

MEMBERS: Final[dict[str, tuple[Member, ...]]] = {
    "Group": (),
    "Coll": (
        *_NAME,
        Member("seqNumber", c_uint64, "seq"),
        Member("func", TEXT, "func"),
        Member("sendBuff", POINTER),
        Member("recvBuff", POINTER),
        Member("count", c_size_t, "count"),
        Member("root", c_int, "root"),
        Member("datatype", TEXT, "dt"),
        Member("nChannels", c_uint8, "nCh"),
        Member("nWarps", c_uint8, "nWarps"),
        Member("algo", TEXT, "algo"),
        Member("proto", TEXT, "proto"),
        Member("parentGroup", HANDLE, "parentGroup", since=5),
        Member("kernelVariant", TEXT, since=7),
        Member("isSymColl", c_bool, since=7),
        _TAG,
    ),
    "P2p": (
        *_NAME,
        Member("func", TEXT, "func"),
        Member("buff", POINTER),
        Member("datatype", TEXT, "dt"),
        Member("count", c_size_t, "count"),
        Member("peer", c_int, "peer"),
        Member("nChannels", c_uint8, "nCh", since=4),
        Member("parentGroup", HANDLE, "parentGroup", since=5),
        _TAG,
    ),
    "ProxyOp": (
        Member("pid", c_int, "opPid"),
        Member("channelId", c_uint8, "ch"),
        Member("peer", c_int, "peer"),
        Member("nSteps", c_int, "nSteps"),
        Member("chunkSize", c_int, "chunkSize"),
        Member("isSend", c_int, "isSend"),
    ),
    "ProxyStep": (Member("step", c_int, "step"),),
    "ProxyCtrl": (),
    "KernelCh": (Member("channelId", c_uint8, "ch"), Member("pTimer", c_uint64, "pTimer", since=4)),
    "NetPlugin": (Member("id", c_int64, "id"), Member("data", POINTER, "data")),
    "GroupApi": (Member("graphCaptured", c_bool, "graph"), Member("groupDepth", c_int, "depth")),
    "CollApi": (
        Member("func", TEXT, "func"),
        Member("count", c_size_t, "count"),
        Member("datatype", TEXT, "dt"),
        Member("root", c_int, "root"),
        Member("stream", POINTER, "stream"),
        Member("graphCaptured", c_bool, "graph"),
        _TAG,
    ),
    "P2pApi": (
        Member("func", TEXT, "func"),
        Member("count", c_size_t, "count"),
        Member("datatype", TEXT, "dt"),
        Member("stream", POINTER, "stream"),
        Member("graphCaptured", c_bool, "graph"),
        _TAG,
    ),
    "KernelLaunch": (Member("stream", POINTER, "stream"),),
    "CeColl": (
        Member("seqNumber", c_uint64, "seq"),
        Member("func", TEXT, "func"),
        Member("sendBuff", POINTER),
        Member("recvBuff", POINTER),
        Member("count", c_size_t, "count"),
        Member("root", c_int, "root"),
        Member("datatype", TEXT, "dt"),
        Member("syncStrategy", TEXT, "syncStrategy"),
        Member("intraBatchSync", c_bool, "intraBatchSync"),
        Member("batchSize", c_uint32, "batchSize"),
        Member("numBatches", c_uint32, "numBatches"),
        Member("ceSeqNum", c_uint32, "ceSeqNum"),
        Member("stream", POINTER, "stream"),
        _TAG,
    ),
    "CeSync": (Member("isComplete", c_bool, "isComplete"), Member("nRanks", c_int, "nRanks")),
    "CeBatch": (
        Member("numOps", c_int, "numOps"),
        Member("totalBytes", c_size_t, "totalBytes"),
        Member("useIntraSync", c_bool, "useIntraSync"),
    ),
    "KernelPhase": (
        Member("channelId", c_uint8, "ch"),
        Member("phaseId", c_uint8, "phaseId"),
        Member("phaseName", TEXT, "phaseName"),
        Member("pTimer", c_uint64, "pTimer"),
    ),
}


@dataclass(frozen=True)
class Layout:
    """An event descriptor of one version: its size, and where each member of each event lies.

    `members`: (event, member) → byte offset and struct format character.
    """

    version: int
    size: int
    type_format: str
    parent: int
    rank: int
    members: dict[tuple[str, str], tuple[int, str]]


def _members(event: str, version: int) -> list[Member]:
    return [member for member in MEMBERS[event] if member.since <= version <= member.until]


@cache
def descriptor(version: int) -> type[ctypes.Structure]:
    """The ctypes structure `ncclProfilerEventDescr_vN_t`, its union named `u`."""
    inner: list[tuple[str, Any]] = []
    for event in EVENTS:
        if exists(event, version) and (fields := _members(event, version)):
            body = type(event, (ctypes.Structure,), {"_fields_": [(m.name, m.type) for m in fields]})
            inner.append((event, body))
    union = type("Body", (ctypes.Union,), {"_fields_": inner})
    code = c_uint8 if version < 5 else c_uint64
    head: list[tuple[str, Any]] = [("type", code), ("parentObj", c_void_p), ("rank", c_int), ("u", union)]
    return type(f"Descr{version}", (ctypes.Structure,), {"_fields_": head})


@cache
def layout(version: int) -> Layout:
    """Offsets of every member in a descriptor of this version."""
    whole: Any = descriptor(version)
    union = {name: kind for name, kind, *_ in whole._fields_}["u"]
    members: dict[tuple[str, str], tuple[int, str]] = {}
    for event, body in union._fields_:
        for name, kind in body._fields_:
            code = "Q" if kind._type_ in "zP" else kind._type_  # pointers are written as addresses
            members[event, name] = (whole.u.offset + getattr(body, name).offset, code)
    type_format = "B" if version < 5 else "Q"
    return Layout(
        version, ctypes.sizeof(whole), type_format, whole.parentObj.offset, whole.rank.offset, members
    )


class Exported(ctypes.Structure):
    """The struct that a plugin exports as `ncclProfiler_vN`."""

    _fields_ = (
        ("name", c_char_p),
        ("init", c_void_p),
        ("startEvent", c_void_p),
        ("stopEvent", c_void_p),
        ("recordEventState", c_void_p),
        ("finalize", c_void_p),
    )


LOGGER: Final = ctypes.CFUNCTYPE(None, c_int, ctypes.c_ulong, c_char_p, c_int, c_char_p, c_void_p)
"""`ncclDebugLogger_t` with room for the first of its variable arguments, if it is an integer or a pointer."""

_START: Final = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
_STOP: Final = ctypes.CFUNCTYPE(c_int, c_void_p)
_STATE: Final = ctypes.CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)
_INIT: Final = {
    3: ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p),
    4: ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_char_p, c_uint64, c_int, c_int, c_int, LOGGER),
    5: ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_void_p, c_char_p, c_int, c_int, c_int, LOGGER),
}


@dataclass(frozen=True)
class Plugin:
    """The functions of a loaded plugin; each takes addresses and handles as plain integers."""

    version: int
    name: str
    start: Any
    stop: Any
    state: Any
    finalize: Any
    _init: Any

    def init(
        self, context: int, mask: int, comm: int, name: bytes, nnodes: int, nranks: int, rank: int, log: Any
    ) -> int:
        """Call `init` as its version wants it; `context` and `mask` are addresses that it writes to."""
        if self.version < FIRST_WITH_COMM_FACTS:
            return int(self._init(context, mask))
        if self.version < FIRST_WITH_API_EVENTS:
            return int(self._init(context, mask, name, comm, nnodes, nranks, rank, log))
        return int(self._init(context, comm, mask, name, nnodes, nranks, rank, log))


def load(library: ctypes.CDLL, version: int) -> Plugin:
    """The table that `library` exports for this version; raises ValueError where it has none."""
    table = Exported.in_dll(library, f"ncclProfiler_v{version}")
    found = {name: getattr(table, name) for name, _ in Exported._fields_}
    missing = [name for name, value in found.items() if not value and name != "name"]
    if missing:
        raise ValueError(f"ncclProfiler_v{version} has no {', '.join(missing)}")
    return Plugin(
        version,
        (found["name"] or b"").decode(errors="replace"),
        _START(found["startEvent"]),
        _STOP(found["stopEvent"]),
        _STATE(found["recordEventState"]),
        _STOP(found["finalize"]),
        _INIT[min(version, 5)](found["init"]),
    )
