"""The one home of every binary record layout.

A record is a little-endian struct of fixed size without padding. The same bytes lie in shared memory,
travel in Kafka sections, are viewed by `np.frombuffer(…, dtype)` and enter ClickHouse as `RowBinary`,
which is why field order, widths and enum codes are one declaration: dtype and table columns derive from it.

Fields are only ever appended. A reader uses the section's own stride (see envelope.py) and may meet
records that are longer than it knows.

Durations are microseconds in UInt32: `UNKNOWN_US` where not known, saturating at `MAX_US` (71 minutes).
Wall-clock times are nanoseconds of the host that took them; no rule compares clocks of two hosts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.enums import (
    Algo,
    DataType,
    Direction,
    FactKind,
    Func,
    Kind,
    NodeKind,
    PortState,
    Proto,
    Reason,
    Visibility,
)

UNKNOWN_US = 0xFFFF_FFFF
UNKNOWN_NS = 0xFFFF_FFFF_FFFF_FFFF
MAX_US = 0xFFFF_FFFE

Records = npt.NDArray[np.void]
"""A structured array whose dtype is one of this module's record types."""


@dataclass(frozen=True)
class Field:
    """One field of a record.

    `code` is a numpy type code without byte order; `column` the ClickHouse type of the same width.
    """

    name: str
    code: str
    column: str
    doc: str


@dataclass(frozen=True)
class RecordType:
    """A record layout: `code` names it in an envelope's section, `table` is its ClickHouse table."""

    name: str
    code: int
    table: str
    fields: tuple[Field, ...]

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """Packed little-endian structured dtype, fields in declaration order."""
        return np.dtype([(field.name, "<" + field.code) for field in self.fields])

    def empty(self, rows: int) -> Records:
        """Zeroed records, shape (rows,)."""
        return np.zeros(rows, self.dtype)

    def joined(self, parts: Iterable[Records]) -> Records:
        """All rows of arrays of this type in one, shape (rows of all,).

        np.concatenate would compare the fields of every part anew: that takes longer than to copy it.
        """
        raw = [np.ascontiguousarray(part, self.dtype).view(np.uint8) for part in parts]
        return np.concatenate([np.zeros(0, np.uint8), *raw]).view(self.dtype)

    def chosen(self, rows: Records, which: npt.NDArray[Any]) -> Records:
        """`rows[which]` for a mask or indices; numpy alone copies records field by field."""
        opaque = np.dtype((np.void, self.dtype.itemsize))
        picked: Records = np.ascontiguousarray(rows, self.dtype).view(opaque)[which].view(self.dtype)
        return picked


def _u64(name: str, doc: str) -> Field:
    return Field(name, "u8", "UInt64", doc)


def _u32(name: str, doc: str) -> Field:
    return Field(name, "u4", "UInt32", doc)


def _i32(name: str, doc: str) -> Field:
    return Field(name, "i4", "Int32", doc)


def _u8(name: str, doc: str) -> Field:
    return Field(name, "u1", "UInt8", doc)


def _f64(name: str, doc: str) -> Field:
    return Field(name, "f8", "Float64", doc)


def _time(name: str, doc: str) -> Field:
    return Field(name, "i8", "DateTime64(9, 'UTC')", doc)


def _name(name: str, doc: str) -> Field:
    return Field(name, "S64", "FixedString(64)", doc)


def _enum(name: str, values: type[IntEnum], doc: str) -> Field:
    members = ", ".join(f"'{value.name.lower()}' = {value.value}" for value in values)
    return Field(name, "u1", f"Enum8({members})", doc)


COLL = RecordType(
    "coll",
    1,
    "coll",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("comm", "communicator"),
        _u64("dev", "one GPU of one process instance"),
        _u32("rank", "rank within the communicator"),
        _u32("nranks", "members of the communicator"),
        _u32("nnodes", "hosts of the communicator, 0 where unknown"),
        _enum("kind", Kind, "what this record says"),
        _enum("func", Func, "operation; 'any' in positions that hold for all collectives"),
        _enum("visibility", Visibility, "how much of the operation can be seen on this device"),
        _enum("datatype", DataType, "element type"),
        _enum("algo", Algo, "algorithm"),
        _enum("proto", Proto, "protocol"),
        _u8("current", "the device stands in it: 1 surely, 2 perhaps, 3 rather in an older one, 0 not"),
        _u8("channels", "channels used, 0 where unknown"),
        _u32("flags", "schemas.enums.Flag"),
        _u64("seq", "number of the operation, from 1; in a position the last launched"),
        _u64("ended", "position: the last finished; otherwise 0"),
        _u64("order", "launch order within the process, over all communicators; 0 where unknown"),
        _u64("group", "group call, 0 outside one"),
        _u64("stream", "stream, 0 where unknown"),
        _u64("bytes", "payload of the operation, or of all of them in a sum"),
        _u64("count", "elements, as given to the call"),
        _i32("peer", "root of a rooted collective or peer of a send or receive, -1 for none"),
        _u32("n", "operations that this record covers"),
        _time("launched", "launch by the host's clock, 0 where unknown"),
        _u32("api_us", "API call entered to launch"),
        _u32("first_us", "launch to first progress"),
        _u32("end_us", "launch to end"),
        _u32("kernel_start_us", "launch to start of the kernel"),
        _u32("kernel_end_us", "launch to end of the kernel"),
        _u32("age_us", "launch to sampling, measured on the host"),
        _u32("quiet_us", "last progress to sampling, measured on the host"),
        _u64("duration_sum_us", "sum of the durations of a sum"),
        _u32("duration_max_us", "longest duration of a sum"),
        _u32("duration_p50_us", "median duration of a sum"),
        _u32("duration_p90_us", "90th percentile of a sum"),
        _u32("duration_p99_us", "99th percentile of a sum"),
        _u32(
            "step_us",
            "state: median interval between launches of this communicator, func and count, 0 where unknown",
        ),
    ),
)

WAIT = RecordType(
    "wait",
    2,
    "waits",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("comm", "communicator of the operation"),
        _u64("seq", "number of the operation"),
        _u64("op", "the operation as a node: hash of comm, func space, seq and pair"),
        _enum("func", Func, "operation"),
        _enum("reason", Reason, "why the waiter waits for the holder"),
        _enum("waiter_kind", NodeKind, "kind of the waiting node"),
        _enum("holder_kind", NodeKind, "kind of the node waited for"),
        _u8("sure", "1: the waiter stands here; 0: it may be queued behind something older"),
        Field("channel", "i2", "Int16", "channel, -1 for the whole operation"),
        _u64("waiter", "device, operation, host or first end of a link"),
        _u64("waiter_stream", "stream of a waiting device, 0 where unknown"),
        _i32("waiter_rank", "rank of a waiting device in comm, else -1"),
        _u64("holder", "device, operation, host or first end of a link"),
        _u64("holder_stream", "stream of a holding device, 0 where unknown"),
        _i32("holder_rank", "rank of a holding device in comm, else -1"),
        _u64("holder_peer", "other end of a link, else 0"),
        _i32("holder_peer_rank", "rank of the other end of a link, else -1"),
        _i32("sender", "point-to-point: rank that sends, else -1"),
        _i32("receiver", "point-to-point: rank that receives, else -1"),
        _time("since", "launch of the operation by the waiter's host clock, 0 where unknown"),
        _u32("waited_us", "how long the waiter has been in it, measured on its host"),
        _u32("members", "members of the operation"),
        _u32("launched", "of these, how many have launched it"),
        _u32("finished", "of these, how many have finished it"),
        _u32("silent", "of these, of how many nothing is known"),
        _u64("holder_seq", "last operation that the holder has launched here"),
        _u64("holder_order", "launch order of the holder's process, 0 where unknown"),
        Field("differs", "u4", "UInt32", "schemas.enums.Differs, for a mismatch"),
        _enum("holder_func", Func, "what the holder called, for a mismatch"),
        _enum("datatype", DataType, "what the majority passed"),
        _enum("holder_datatype", DataType, "what the holder passed, for a mismatch"),
        _u64("count", "what the majority passed"),
        _u64("holder_count", "what the holder passed, for a mismatch"),
        _u32("total", "flow: steps of the sender"),
        _u32("ready", "flow: steps that the sender's GPU has filled"),
        _u32("transmitted", "flow: steps handed to the network"),
        _u32("done", "flow: sends completed"),
        _u32("posted", "flow: receives posted"),
        _u32("received", "flow: steps arrived"),
        _u32("flushed", "flow: steps visible to the receiver's GPU"),
        _u32("consumed", "flow: steps that the receiver's GPU has taken"),
        _u64("epoch", "whole second of broker time in which this held"),
        _u32("partition", "trace partition that said so"),
        _u32("quiet_us", "how long nothing of the waiter's has moved, measured on its host"),
        _u32("step_us", "median interval between the waiter's launches like this one, 0 where unknown"),
    ),
)

FLOW = RecordType(
    "flow",
    3,
    "flows",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("comm", "communicator"),
        _u64("dev", "device that the flow belongs to"),
        _u64("carrier", "process whose proxy carries it: with PXN another than the device's own"),
        _u64("seq", "number of its operation, from 1; 0 in a sum"),
        _u32("rank", "rank of the device within the communicator"),
        _i32("peer", "rank at the other end"),
        _enum("kind", Kind, "done, state, sum, or orphan: its carrier died after its operation was over"),
        _enum("func", Func, "operation; 'any' in a sum"),
        _enum("direction", Direction, "which end this is"),
        _u8("current", "1: the device is working on its operation now"),
        Field("channel", "i2", "Int16", "channel, -1 for all channels of a sum"),
        Field("reserved", "u2", "UInt16", "0"),
        _u32("flags", "schemas.enums.Flag"),
        _u32("n", "operations that this record covers"),
        _u32("total", "steps"),
        _u32("ready", "sender: steps that the GPU has filled"),
        _u32("transmitted", "sender: steps handed to the network"),
        _u32("done", "sender: sends completed locally"),
        _u32("posted", "receiver: receives posted"),
        _u32("received", "receiver: steps arrived"),
        _u32("flushed", "receiver: steps visible to the GPU"),
        _u32("consumed", "receiver: steps that the GPU has taken"),
        _u32("no_credit", "sender: polls at which the peer gave no credit"),
        _u64("bytes", "payload moved so far"),
        _time("launched", "launch of the operation by the host's clock, 0 where unknown"),
        _u32("first_us", "launch to first progress"),
        _u32("age_us", "launch to sampling, measured on the host"),
        _u32("quiet_us", "last progress to sampling, measured on the host"),
        _u64("gpu_us", "head-of-line time waiting for the GPU (sender: to fill; receiver: to take)"),
        _u64("credit_us", "sender: head-of-line time waiting for the peer's credit"),
        _u64("net_us", "head-of-line time in the network (sender: send; receiver: receive)"),
        _u64("flush_us", "receiver: head-of-line time in the flush"),
    ),
)

PROC = RecordType(
    "proc",
    4,
    "procs",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("proc", "one process instance: hash of host, pid and start time"),
        _u64("dev", "its first device, 0 where it has none yet"),
        _u32("pid", "process id in the collector's PID namespace, else in its own"),
        _u8("alive", "1: the process exists"),
        _u8("state", "letter of /proc/PID/stat (R, S, D, T, Z …), 0 where it may not be read"),
        _u8("tier", "0 ops, 1 flows, 2 kernel channels"),
        _enum("api_func", Func, "NCCL call that it is in, 'any' for none"),
        _u32("api_us", "how long it has been in that call"),
        _u32("quiet_us", "last callback to sampling"),
        _u32("proxy_us", "last callback of its proxy thread to sampling"),
        _u64("cpu_us", "CPU time used since its start, all threads; 0 where it may not be read"),
        _u64("drops", "events that its full tables and rings could not take"),
        _u64("callbacks", "callbacks so far"),
        _time("sampled", "when, by the host's clock"),
        _time("started", "start of the process by the host's clock"),
        _u32(
            "busy_us", "launch to sampling of its oldest operation that shows flows or kernels, told or not"
        ),
    ),
)

LAG = RecordType(
    "lag",
    5,
    "lags",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("comm", "communicator"),
        _u64("dev", "one GPU of one process instance"),
        _u32("rank", "rank within the communicator"),
        _u32("nranks", "members of the communicator"),
        _u32("nnodes", "hosts of the communicator, 0 where unknown"),
        _enum("func", Func, "operation"),
        _enum("algo", Algo, "algorithm"),
        _enum("proto", Proto, "protocol"),
        _enum("visibility", Visibility, "how much of its operations can be seen on this device"),
        _u8("size_class", "c where 2^(c-1) < payload of each operation <= 2^c"),
        _time("start", "begin of the window, broker time"),
        _u32("length_us", "length of the window"),
        _u32("n", "operations that ended in the window"),
        _u32("timed", "of these, how many whose end is known"),
        _u64("bytes", "payload of all of them"),
        _u64("duration_sum_us", "launch to end, of the timed ones"),
        _u32("duration_max_us", "the longest, UNKNOWN_US where none is known"),
        _u64("interval_sum_us", "from the last launch before to the last one here, on the host's clock"),
        _u32("interval_n", "operations launched in that time"),
        _u32("singles", "operations that were told one by one; what follows is of these"),
        _u64("api_sum_us", "API call entered to launch"),
        _u64("first_sum_us", "launch to first progress"),
        _u32("first_n", "of how many that is known"),
        _u64("kernel_sum_us", "launch to start of the kernel"),
        _u32("kernel_n", "of how many that is known"),
        _u64("gap_sum_us", "end of its former operation of this communicator and func to the launch"),
        _u32("gap_n", "of how many both are known"),
        _u32("joined", "operations that all members have told; what follows is of these"),
        _u32("last", "in how many it was the last to start"),
        _u64("waited_sum_us", "how much longer it was in them than the last to start: no clock is compared"),
        _u64("held_sum_us", "device-time that the others waited for it where it was the last to start"),
        _u64("start_lag_sum_us", "its launch after the first one's; offsets of clocks removed"),
        _u64("end_lag_sum_us", "its end after the first one's; offsets of clocks removed"),
        Field("clock_ns", "i8", "Int64", "its host's clock minus that of the communicator's first device"),
        _u64("clock_bound_ns", "by how much that may be wrong, 2^64 - 1 where nothing is known"),
        _u64("run_sum_us", "start to end of the kernel"),
        _u32("run_n", "of how many single operations that is known"),
        _u8("channels", "channels used, the most; 0 where unknown"),
    ),
)

FACT = RecordType(
    "fact",
    6,
    "facts",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("dev", "device of the job that an Xid is about, 0 where it is none of its own"),
        _name("host", "host, padded with zero bytes"),
        _name("name", "interface, device/port, or PCI address, padded with zero bytes"),
        _enum("what", FactKind, "what the fact is about"),
        _enum("state", PortState, "of an interface or a port"),
        Field("reserved", "u2", "UInt16", "0"),
        _u32("code", "number of an Xid or SXid, else 0"),
        _u32("speed_mbps", "of an interface or a port, 0 where unknown"),
        _u32(
            "age_us",
            "how long before it was told the state was first seen, or the kernel logged the line; unknown "
            "where the state was so at the first look",
        ),
        _u64("errors", "errors counted so far, both directions"),
        _u64("retransmits", "TCP: segments sent again; RDMA port: packets out of sequence"),
        _u64("timeouts", "TCP: retransmission time-outs; RDMA port: acknowledgements that came too late"),
        _time("sampled", "when it was told, by the host's clock"),
    ),
)

RATE = RecordType(
    "rate",
    7,
    "rates",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("comm", "communicator"),
        _u32("nranks", "members of the communicator"),
        _u32("nnodes", "hosts of the communicator, 0 where unknown"),
        _enum("func", Func, "operation"),
        _enum("algo", Algo, "algorithm"),
        _enum("proto", Proto, "protocol"),
        _u8("size_class", "c where 2^(c-1) < payload of each operation <= 2^c"),
        _time("start", "begin of the window, broker time"),
        _u32("length_us", "length of the window"),
        _u32("partition", "trace partition that counted it"),
        _u32("ranks", "members that ended operations in the window"),
        _u32("n", "operations: of the member that ended most"),
        _u64("bytes", "payload of one of them, on average"),
        _u64("busbw", "bus bandwidth, bytes a second, as nccl-tests define it; 0 where no end is known"),
        _u32("transfer_us", "mean duration on the member where it is shortest: it waited for nobody"),
        _u32("duration_p50_us", "launch to end: middle of the members' medians"),
        _u32("duration_p90_us", "middle of the members' 90th percentiles"),
        _u32("duration_p99_us", "largest of the members' 99th percentiles"),
        _u32("duration_max_us", "the longest"),
        _u64("interval_sum_us", "launch to launch, of all members, each on its host's clock"),
        _u64("interval_n", "of how many operations"),
        _u32("interval_p50_us", "middle of the members' mean intervals"),
        _u32("interval_p90_us", "their 90th percentile"),
        _u32("joined", "operations that all members have told one by one; what follows is of these"),
        _u32("start_skew_p50_us", "first to last launch, offsets of clocks removed: the median"),
        _u32("start_skew_max_us", "the largest"),
        _u32("end_skew_p50_us", "first to last end, the same way: the median"),
        _u32("end_skew_max_us", "the largest"),
        _u64("last", "the device that was most often the last to start, 0 where unknown"),
        _u32("last_n", "in how many"),
        _u32("silent", "hosts that had not told their part in time"),
        _u32("late", "records of this window's communicators that came after it was closed, so far"),
    ),
)

BASELINE = RecordType(
    "baseline",
    8,
    "baselines",
    (
        _u64("job", "hash of the job's name"),
        _u64("attempt", "one start of the job: when it began, ns since the epoch"),
        _u64("comm", "communicator"),
        _enum("func", Func, "operation"),
        _enum("algo", Algo, "algorithm"),
        _enum("proto", Proto, "protocol"),
        _u8("size_class", "c where 2^(c-1) < payload of each operation <= 2^c"),
        _u32("odd", "windows of another payload in a row"),
        _u32("low", "windows of half the throughput in a row"),
        _u32("n", "windows from which the interval was learned"),
        _u32("timed", "windows from which the transfer was learned"),
        Field("since", "i8", "Int64", "whole second of broker time in which it was first seen"),
        Field("seen", "i8", "Int64", "and last"),
        _f64("bytes", "usual payload"),
        _f64("interval", "usual interval from launch to launch, natural logarithm of us"),
        _f64("interval_spread", "mean distance from that"),
        _f64("transfer", "usual duration where it is shortest, natural logarithm of us"),
        _f64("transfer_spread", "mean distance from that"),
    ),
)

RECORD_TYPES: tuple[RecordType, ...] = (COLL, WAIT, FLOW, PROC, LAG, FACT, RATE, BASELINE)
BY_CODE: dict[int, RecordType] = {record.code: record for record in RECORD_TYPES}


def enum_values(record: RecordType) -> dict[str, frozenset[int]]:
    """Allowed codes of each enum field, for validation at the edges.

    >>> Kind.DONE in enum_values(COLL)["kind"]
    True
    """
    kinds: dict[str, type[IntEnum]] = {
        "kind": Kind,
        "func": Func,
        "holder_func": Func,
        "visibility": Visibility,
        "datatype": DataType,
        "holder_datatype": DataType,
        "algo": Algo,
        "proto": Proto,
        "reason": Reason,
        "waiter_kind": NodeKind,
        "holder_kind": NodeKind,
        "direction": Direction,
        "api_func": Func,
        "what": FactKind,
        "state": PortState,
    }
    return {
        field.name: frozenset(int(value) for value in kinds[field.name])
        for field in record.fields
        if field.column.startswith("Enum8")
    }


def unknown_codes(record: RecordType, rows: Records) -> npt.NDArray[np.bool_]:
    """Rows with a code that no enum of theirs has, shape (rows,): the store would refuse them."""
    bad = np.zeros(len(rows), np.bool_)
    for name, allowed in enum_values(record).items():
        unknown = np.ones(256, np.bool_)
        unknown[list(allowed)] = False
        bad |= unknown[rows[name]]
    return bad


def as_dict(row: Any) -> dict[str, int]:
    """One record as plain ints, for messages and tests."""
    return {name: int(row[name]) for name in row.dtype.names}
