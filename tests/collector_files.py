"""Files as the plugin writes them, made by hand: what the collector's tests read.

Ticks are ns of the monotonic clock here, so a test says times as it thinks of them.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.agent import layout
from collectors.agent.discovery import Identity
from collectors.agent.layout import CommunicatorState, FlowState, OperationState, RecordKind, Table
from collectors.agent.procfs import boot_id, pid_namespace, status
from schemas.enums import Algo, DataType, Direction, Func, Proto, Visibility

CAPACITIES = {
    Table.COMMUNICATORS: 8, Table.STREAMS: 8, Table.CALLS: 16, Table.OPERATIONS: 64, Table.FLOWS: 128,
    Table.PAIRS: 64, Table.RING: 64,
}  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A folder for the files of a host's processes."""
    folder = tmp_path / "shm"
    folder.mkdir()
    return folder


class FakeProcess:
    """One process's file. Slots are handed out in order; `ring` writes finished records."""

    def __init__(
        self,
        directory: Path,
        pid: int | None = None,
        nonce: int = 0x1111_2222_3333_4444,
        environment: dict[str, str] | None = None,
        capacities: dict[Table, int] | None = None,
        **header: Any,
    ) -> None:
        self.pid = os.getpid() if pid is None else pid
        own = status(self.pid)
        self.start = header.pop("start_ticks", own.start_ticks if own else 1)
        self.nonce = nonce
        sizes = CAPACITIES | (capacities or {})
        offset, places = layout.HEADER_BYTES, {}
        for table, row in layout.ROWS.items():
            places[table] = offset
            offset += -(-row.itemsize * sizes[table] // 64) * 64
        self.path = directory / f"{self.pid}-{self.start}-{nonce:016x}.mycroft"
        self.path.write_bytes(bytes(offset))
        with self.path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), offset)
        self.header = np.frombuffer(self.memory, layout.HEADER, 1)
        self.tables = {
            table: np.frombuffer(self.memory, row, sizes[table], places[table])
            for table, row in layout.ROWS.items()
        }
        values = {
            "layout_version": layout.VERSION, "header_bytes": layout.HEADER_BYTES, "file_bytes": offset,
            "nonce": nonce, "nonce_tag": self.tag, "pid": self.pid, "start_ticks": self.start,
            "pid_namespace": pid_namespace() or 0, "uid": self.path.stat().st_uid, "tick_hz": 10**9,
            "applied_tier": 1, "state": layout.State.ON, "nccl_version": 23007,
        } | header  # fmt: skip
        for name, value in values.items():
            self.header[name] = value
        boot = bytes.fromhex(boot_id().replace("-", ""))
        self.header["boot_id"][0, : len(boot)] = np.frombuffer(boot, np.uint8)
        for table, row in layout.ROWS.items():
            self.header["tables"][0, table] = (places[table], row.itemsize, sizes[table], 0, 0)
        block = b"".join(f"{name}={value}".encode() + b"\0" for name, value in (environment or {}).items())
        self.header["environment"] = block
        self.anchor()
        self.header["magic"] = layout.MAGIC

    @property
    def tag(self) -> int:
        return self.nonce & 0xFFFFF

    def identity(self) -> Identity:
        return Identity(
            self.pid, self.start, pid_namespace() or 0, self.nonce, self.tag, boot_id(), os.getuid()
        )

    def anchor(self, now: int | None = None) -> None:
        now = time.monotonic_ns() if now is None else now
        wall = time.time_ns() - time.monotonic_ns() + now
        for name in ("start_anchor", "anchor"):
            self.header[name]["ticks"] = self.header[name]["monotonic_ns"] = now
            self.header[name]["wall_ns"] = wall

    def slot(self, table: Table, at: int) -> np.void:
        """A slot to write to, counted as used."""
        used = self.header["tables"][0, table]["used"]
        self.header["tables"]["used"][0, table] = max(int(used), at + 1)
        row: np.void = self.tables[table][at]
        return row

    def communicator(
        self, at: int = 0, comm: int = 0xC0, rank: int = 0, nranks: int = 2, **values: Any
    ) -> np.void:
        row = self.slot(Table.COMMUNICATORS, at)
        _fill(
            row,
            {
                "generation": 2, "state": CommunicatorState.OPEN, "comm_id": comm,
                "context": self.context(at), "nranks": nranks, "nnodes": nranks, "rank": rank, "api": 6,
                "name": b"world", "device": 0,
                "bus_id": b"0000:3b:00.0",
            } | values,
        )  # fmt: skip
        return row

    def context(self, at: int) -> int:
        return 1 << 60 | self.tag << 40 | at << 24 | 2

    def handle(self, at: int, generation: int = 2) -> int:
        return 4 << 60 | self.tag << 40 | at << 24 | generation

    def operation(self, at: int, launched: int, seq: int = 1, **values: Any) -> np.void:
        """An operation in flight, launched at that tick."""
        row = self.slot(Table.OPERATIONS, at)
        comm = int(values.get("comm", 0))
        _fill(
            row,
            {
                "control": control(2, OperationState.OPEN), "handle": self.handle(at), "seq": seq,
                "order": seq, "base": seq, "stream": 0x57, "count": 256, "bytes": 1024, "comm": comm,
                "comm_generation": 2, "peer": -1, "func": Func.ALL_REDUCE, "datatype": DataType.FLOAT32,
                "algo": Algo.RING, "proto": Proto.SIMPLE, "channels": 1, "visibility": Visibility.FLOWS,
                "stream_slot": layout.NONE, "launch_tick": launched, "api_tick": max(launched - 5000, 1),
            } | values,
        )  # fmt: skip
        communicator = self.tables[Table.COMMUNICATORS][comm]
        func = int(row["func"])
        communicator["launched"][func] = max(int(communicator["launched"][func]), seq)
        communicator["last_launch_tick"] = launched
        communicator["launches"] += 1
        self.header["launches"] += 1
        return row

    def flow(self, at: int, operation: int, **values: Any) -> np.void:
        """An open flow of the operation in that slot; `counters` as in layout.h."""
        row = self.slot(Table.FLOWS, at)
        of = self.tables[Table.OPERATIONS][operation]
        _fill(
            row,
            {
                "generation": 2, "state": FlowState.OPEN, "direction": Direction.SEND, "channel": 0,
                "total": 8,
                "parent": self.handle(operation), "context": self.context(int(of["comm"])), "op": operation,
                "op_generation": 2, "comm": of["comm"], "comm_generation": 2, "peer": 1, "rank": 0,
                "owner_pid": self.pid, "seq": of["seq"], "order": of["order"], "func": of["func"],
                "launch_tick": of["launch_tick"], "start_tick": int(of["launch_tick"]) + 1000,
            } | values,
        )  # fmt: skip
        return row

    def ring(self, kind: RecordKind, body: np.void) -> None:
        """Appends a finished record."""
        number = int(self.header["ring_next"][0])
        row = self.tables[Table.RING][number % len(self.tables[Table.RING])]
        row["sequence"] = 2 * number + 1
        row["kind"] = kind
        row["body"] = np.frombuffer(body.tobytes(), np.uint8)
        row["sequence"] = 2 * number + 2
        self.header["ring_next"] = number + 1
        self.header["tables"]["used"][0, Table.RING] = min(number + 1, len(self.tables[Table.RING]))

    def end(self, at: int, tick: int, reason: layout.EndReason = layout.EndReason.BY_FLOWS) -> None:
        """Ends an operation at that tick and puts it into the ring."""
        row = self.tables[Table.OPERATIONS][at]
        row["control"] = control(2, OperationState.ENDED)
        row["end_reason"], row["last_tick"] = reason, tick
        row["end_tick"] = tick if reason in (layout.EndReason.BY_FLOWS, layout.EndReason.BY_KERNELS) else 0
        communicator = self.tables[Table.COMMUNICATORS][int(row["comm"])]
        if int(row["end_tick"]):
            communicator["ended"][int(row["func"])] = row["seq"]
            communicator["ended_count"] += 1
        self.ring(RecordKind.OPERATION, row)

    def finish(self, at: int, tick: int) -> None:
        """Finishes a flow: into the ring, and its slot is free."""
        row = self.tables[Table.FLOWS][at]
        row["state"], row["end_tick"] = FlowState.FINISHED, tick
        self.ring(RecordKind.FLOW, row)
        row["state"], row["generation"] = FlowState.FREE, int(row["generation"]) + 2


def control(generation: int, state: OperationState) -> int:
    return generation << 40 | int(state) << 32


def _fill(row: np.void, values: dict[str, Any]) -> None:
    for name, value in values.items():
        row[name] = value
