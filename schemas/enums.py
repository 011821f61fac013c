"""The closed vocabularies of records, each value with its code on the wire.

Codes travel as one byte and are `Enum8` in ClickHouse, so they stay below 128 and are never reused.
Names are NCCL's own where NCCL has one.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Kind(IntEnum):
    """What a coll record says (design: "Records")."""

    DONE = 1  # one finished operation
    STATE = 2  # one operation in flight
    POSITION = 3  # how far this device is in this communicator: seq launched, ended finished
    SUM = 4  # all operations of one func, size class, algo and proto in a host-second
    ORPHAN = 5  # an operation that never ended


class Func(IntEnum):
    """NCCL's operation names; ANY stands for "all collectives of the communicator share one seq"."""

    ANY = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    BROADCAST = 4
    REDUCE = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    SEND = 9
    RECV = 10
    SEND_RECV = 11
    ALL_GATHER_V = 12
    BARRIER = 13
    OTHER = 127


class DataType(IntEnum):
    """NCCL's datatypes, and the two that frameworks map onto them."""

    UNKNOWN = 0
    INT8 = 1
    UINT8 = 2
    INT32 = 3
    UINT32 = 4
    INT64 = 5
    UINT64 = 6
    FLOAT16 = 7
    FLOAT32 = 8
    FLOAT64 = 9
    BFLOAT16 = 10
    FLOAT8_E4M3 = 11
    FLOAT8_E5M2 = 12
    INT16 = 13
    BOOL = 14
    COMPLEX64 = 15
    COMPLEX128 = 16
    OTHER = 127


class Algo(IntEnum):
    """NCCL's algorithms."""

    UNKNOWN = 0
    TREE = 1
    RING = 2
    COLLNET_DIRECT = 3
    COLLNET_CHAIN = 4
    NVLS = 5
    NVLS_TREE = 6
    PAT = 7
    OTHER = 127


class Proto(IntEnum):
    """NCCL's protocols."""

    UNKNOWN = 0
    LL = 1
    LL128 = 2
    SIMPLE = 3
    OTHER = 127


class Visibility(IntEnum):
    """How much of an operation can be seen on one device (design: "Terms").

    Absence is evidence only where the visibility says so.
    """

    LAUNCH = 1  # only its launch is known
    KERNEL = 2  # kernel channels traced
    FLOWS = 3  # it has proxy steps
    COMPLETE = 4  # Flight Recorder: whether the operation has ended is known


class Flag(IntFlag):
    """Facts about one operation that are yes or no."""

    SEQ_PER_COMM = 1  # seq counts all collectives of the communicator, not one func's
    SEQ_RELATIVE = 2  # point-to-point seq was aligned from the oldest pending operation
    P2P = 4  # send or receive
    GRAPH = 8  # captured in a CUDA graph
    GROUPED = 16  # launched inside a group call
    SYMMETRIC = 32  # symmetric-memory kernel
    ASYNC = 64  # the caller did not ask to wait for it
    ABORTED = 128  # orphan: its communicator was finalised with it open
    DIED = 256  # orphan: its process is dead
    OVERWRITTEN = 512  # orphan: the table was full and its slot was given away
    FINALISED = 1024  # position: its communicator was finalised in good order


class Direction(IntEnum):
    """Which end of a flow a device is."""

    SEND = 1
    RECV = 2


class NodeKind(IntEnum):
    """What can wait, or be waited for, in the wait-for graph."""

    DEVICE = 1
    OPERATION = 2  # all members of one operation, or both ends of one send and receive
    HOST = 3
    LINK = 4
    GROUP = 5  # the members of an operation on one host, one of which holds it


class Reason(IntEnum):
    """Why an edge of the wait-for graph is there (design: "Who waits for whom")."""

    IN_OPERATION = 1  # device -> operation: the device stands in it
    NOT_LAUNCHED = 2  # operation -> device: a member that has not launched it
    QUEUED = 3  # operation -> device: launched, but behind an older operation of that device
    PEERS_FINISHED = 4  # operation -> device: pending there while others have finished it
    MISMATCH = 5  # operation -> device: other func, count, datatype or root than the rest
    SILENT = 6  # operation -> device: nothing is known of that member
    UNSEEN = 7  # operation -> device: all launched, none finished, one of them holds it
    STARVED = 8
    GPU_NOT_READY = 9
    NOT_TRANSMITTED = 10
    GPU_NOT_CONSUMING = 11
    NOT_POSTED = 12
    NOT_DELIVERED = 13
    PROXY_SILENT = 14
    IN_UNSEEN = 15  # device -> operation: launched, and nothing shows whether it has ended
    LEFT = 16  # operation -> device: finalised its communicator without launching it
    CALLED = 17  # operation -> device: has called it, and NCCL has not launched it
    DEAD = 18  # operation -> device: its process is no more, or that which carries its flows
    STOPPED = 19  # the same with a process that is stopped


class FactKind(IntEnum):
    """What a fact of a host is about."""

    INTERFACE = 1  # network interface (/sys/class/net)
    PORT = 2  # port of an RDMA device (/sys/class/infiniband)
    TCP = 3  # all TCP of the host, or of the collector's network namespace
    XID = 4  # the NVIDIA driver's report of a GPU in the kernel log
    SXID = 5  # the same of an NVSwitch


class PortState(IntEnum):
    """Whether an interface or a port can carry anything."""

    UNKNOWN = 0
    UP = 1
    DOWN = 2


class Differs(IntFlag):
    """In what a member's call differs from the majority's."""

    FUNC = 1
    COUNT = 2
    DATATYPE = 4
    ROOT = 8
