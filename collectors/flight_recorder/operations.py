"""What `profiling_name` and the dtype names of an entry mean in NCCL's words."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from schemas.enums import DataType, Func

# Longest match first: "reduce_scatter" before "reduce", "all_reduce_barrier" is what NCCL's barrier records.
_FUNCS: tuple[tuple[str, Func], ...] = (
    ("allreducebarrier", Func.BARRIER),
    ("allgatherv", Func.ALL_GATHER_V),
    ("allgather", Func.ALL_GATHER),
    ("allreduce", Func.ALL_REDUCE),
    ("alltoall", Func.ALL_TO_ALL),
    ("reducescatter", Func.REDUCE_SCATTER),
    ("broadcast", Func.BROADCAST),
    ("reduce", Func.REDUCE),
    ("gather", Func.GATHER),
    ("scatter", Func.SCATTER),
    ("barrier", Func.BARRIER),
    ("send", Func.SEND),
    ("recv", Func.RECV),
)
_PAIR = re.compile(r"(\d{1,9})\s*(?:->|<-)\s*(\d{1,9})")

_DTYPES: dict[str, tuple[DataType, int]] = {
    "Byte": (DataType.UINT8, 1), "Char": (DataType.INT8, 1), "Short": (DataType.INT16, 2),
    "Int": (DataType.INT32, 4), "Long": (DataType.INT64, 8), "UInt16": (DataType.OTHER, 2),
    "UInt32": (DataType.UINT32, 4), "UInt64": (DataType.UINT64, 8), "Half": (DataType.FLOAT16, 2),
    "Float": (DataType.FLOAT32, 4), "Double": (DataType.FLOAT64, 8), "BFloat16": (DataType.BFLOAT16, 2),
    "Bool": (DataType.BOOL, 1), "ComplexHalf": (DataType.OTHER, 4), "ComplexFloat": (DataType.COMPLEX64, 8),
    "ComplexDouble": (DataType.COMPLEX128, 16), "Float8_e4m3fn": (DataType.FLOAT8_E4M3, 1),
    "Float8_e4m3fnuz": (DataType.FLOAT8_E4M3, 1), "Float8_e5m2": (DataType.FLOAT8_E5M2, 1),
    "Float8_e5m2fnuz": (DataType.FLOAT8_E5M2, 1), "Float8_e8m0fnu": (DataType.OTHER, 1),
    "QInt8": (DataType.OTHER, 1), "QUInt8": (DataType.OTHER, 1), "QInt32": (DataType.OTHER, 4),
}  # fmt: skip


class Operation(NamedTuple):
    """A profiling name taken apart. `peer` is a rank within the group, -1 where the name has none."""

    backend: str
    func: Func
    peer: int
    coalesced: bool
    """The closing entry of a coalesced call: it stands for its parts and carries their state."""


@lru_cache(maxsize=4096)
def operation(name: str) -> Operation:
    """What a profiling name says.

    >>> operation("nccl:recv 0<-3")
    Operation(backend='nccl', func=<Func.RECV: 10>, peer=3, coalesced=False)
    """
    backend, colon, rest = name.partition(":")
    if not colon:
        backend, rest = "", name
    word = re.sub(r"[^a-z]", "", rest.lower())
    func = next((func for prefix, func in _FUNCS if word.startswith(prefix)), Func.OTHER)
    peer = -1
    if func in (Func.SEND, Func.RECV) and (pair := _PAIR.search(rest)):
        peer = int(pair.group(2))
    return Operation(backend, func, peer, word == "coalesced")


def datatype(name: str) -> tuple[DataType, int]:
    """Datatype and bytes per element; OTHER and 1 for names that are not known here.

    >>> datatype("BFloat16")
    (<DataType.BFLOAT16: 10>, 2)
    """
    return _DTYPES.get(name, (DataType.OTHER, 1))
