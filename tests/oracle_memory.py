"""What lies in the shared-memory files of a replay, in the terms of the oracle.

A plain reader for files that nobody writes any more: with the declarations of collectors/agent/layout.py, but
nothing of how the agent samples and drains.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from collectors.agent import layout
from collectors.agent.layout import FLOW, HEADER, OPERATION, EndReason, OperationState, RecordKind, Table
from schemas.enums import DataType, Func, Visibility

FUNCS = {
    "AllReduce": Func.ALL_REDUCE, "AllGather": Func.ALL_GATHER, "ReduceScatter": Func.REDUCE_SCATTER,
    "Broadcast": Func.BROADCAST, "Reduce": Func.REDUCE, "Send": Func.SEND, "Recv": Func.RECV,
}  # fmt: skip

DATA_TYPES = {
    "ncclInt8": DataType.INT8, "ncclUint8": DataType.UINT8, "ncclInt32": DataType.INT32,
    "ncclUint32": DataType.UINT32, "ncclInt64": DataType.INT64, "ncclUint64": DataType.UINT64,
    "ncclFloat16": DataType.FLOAT16, "ncclFloat32": DataType.FLOAT32, "ncclFloat64": DataType.FLOAT64,
    "ncclBfloat16": DataType.BFLOAT16, "ncclFloat8e4m3": DataType.FLOAT8_E4M3,
    "ncclFloat8e5m2": DataType.FLOAT8_E5M2,
}  # fmt: skip

OperationKey = tuple[int, int, int, int, int]
"""World rank, communicator, func code, seq, peer (−1 for collectives)."""


@dataclass
class Found:
    """An operation in a process's file; `flows` by channel, peer and whether it sends."""

    bytes: int
    count: int
    datatype: int
    channels: int
    visibility: str
    done: bool
    kernels_started: int
    kernels_stopped: int
    flows: dict[tuple[int, int, bool], tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Memory:
    """All processes of a replay: operations, positions of collectives, and what was dropped."""

    operations: dict[OperationKey, Found]
    launched: dict[tuple[int, int, int], int]
    drops: dict[str, int]


def read_memory(directories: Iterable[Path]) -> Memory:
    """Read every file in these folders."""
    files = [_File(path) for folder in directories for path in sorted(folder.glob("*.mycroft"))]
    operations: dict[OperationKey, Found] = {}
    by_handle: dict[int, Found] = {}
    for one in files:
        for handle, row in one.operations.items():
            found = _found(row)
            key = one.key(row)
            assert key not in operations, f"operation {key} is there twice"
            operations[key] = by_handle[handle] = found
    for one in files:
        for flow in one.flows:
            owner = by_handle.get(int(flow["parent"]))
            if owner is None:
                continue
            send = int(flow["direction"]) == 1
            place = (int(flow["channel"]), int(flow["peer"]), send)
            assert place not in owner.flows, f"flow {place} is there twice"
            counters = [int(value) for value in flow["counters"][: 3 if send else 4]]
            owner.flows[place] = (int(flow["total"]), *counters, int(flow["bytes"]), int(flow["no_credit"]))
    launched = {key: seq for one in files for key, seq in one.launched().items()}
    drops: dict[str, int] = {}
    for one in files:
        for kind, value in enumerate(one.header["drops"]):
            if value:
                drops[f"{kind}"] = drops.get(f"{kind}", 0) + int(value)
    return Memory(operations, launched, drops)


def _found(row: Any) -> Found:
    return Found(
        bytes=int(row["bytes"]),
        count=int(row["count"]),
        datatype=int(row["datatype"]),
        channels=int(row["channels"]),
        visibility=Visibility(int(row["visibility"])).name.lower(),
        done=int(row["end_reason"]) in (EndReason.BY_FLOWS, EndReason.BY_KERNELS),
        kernels_started=int(row["kernels_started"]),
        kernels_stopped=int(row["kernels_stopped"]),
    )


class _File:
    """One process: the last state of each operation and flow, from tables and ring."""

    def __init__(self, path: Path) -> None:
        raw = path.read_bytes()
        self.header: Any = np.frombuffer(raw, HEADER, 1)[0]
        layout.check_identity(self.header, len(raw))
        places = layout.tables(self.header)

        def table(which: Table) -> Any:
            place = places[which]
            rows = np.frombuffer(raw, np.uint8, place.stride * place.capacity, place.offset)
            wide = rows.reshape(place.capacity, place.stride)[:, : layout.ROWS[which].itemsize]
            return np.ascontiguousarray(wide).reshape(-1).view(layout.ROWS[which])

        self.comms = table(Table.COMMUNICATORS)
        environment = bytes(self.header["environment"]).split(b"\0")
        self.rank = next(int(entry[5:]) for entry in environment if entry.startswith(b"RANK="))
        ring, count = table(Table.RING), int(self.header["ring_next"])
        assert count <= len(ring), "the ring has run over: a test that compares all must drain it"
        body = np.ascontiguousarray(ring["body"][:count])
        done = body[ring["kind"][:count] == RecordKind.OPERATION].reshape(-1).view(OPERATION)
        self.operations: dict[int, Any] = {int(row["handle"]): row for row in done}
        live = table(Table.OPERATIONS)
        states = layout.control_state(live["control"])
        self.operations |= {int(row["handle"]): row for row in live[states == OperationState.OPEN]}
        flows = table(Table.FLOWS)
        finished = body[ring["kind"][:count] == RecordKind.FLOW].reshape(-1).view(FLOW)
        self.flows = [*finished, *flows[flows["state"] == layout.FlowState.OPEN]]

    def key(self, row: Any) -> OperationKey:
        comm = self.comms[int(row["comm"])]
        peer = int(row["peer"]) if int(row["func"]) in (Func.SEND, Func.RECV) else -1
        return self.rank, int(comm["comm_id"]), int(row["func"]), int(row["seq"]), peer

    def launched(self) -> dict[tuple[int, int, int], int]:
        found = {}
        for comm in self.comms[self.comms["generation"] != 0]:
            for func, seq in enumerate(comm["launched"]):
                if seq and func not in (Func.SEND, Func.RECV):
                    found[self.rank, int(comm["comm_id"]), func] = int(seq)
        return found
