"""The CUDA driver and NCCL as ctypes: the few functions that an AllReduce takes."""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

FLOAT32 = 7
SUM = 0
OLDEST = 22600
"""ncclGetVersion of the first NCCL whose profiler interface (v3) the plugin exports."""


class Missing(RuntimeError):
    """This machine lacks something; the text says what."""


class Failed(RuntimeError):
    """A call gave an error."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, passed by value."""

    _fields_ = (("internal", c_char * 128),)


def _open(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)


class Cuda:
    """Device 0 through the driver's interface: it is there wherever a GPU is, a runtime may not be."""

    def __init__(self, path: str = "libcuda.so.1") -> None:
        """Raises Missing where there is no driver or no GPU."""
        try:
            self._library = _open(path)
        except OSError as error:
            raise Missing(f"no NVIDIA driver ({error})") from error
        if status := self._library.cuInit(0):
            raise Missing(f"no usable NVIDIA GPU (cuInit gave error {status})")
        count = c_int()
        self._call("cuDeviceGetCount", byref(count))
        if not count.value:
            raise Missing("the NVIDIA driver shows no GPU")

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise Failed(f"{name} gave error {status}")

    def name(self) -> str:
        """Of device 0, with the driver's CUDA version."""
        text, version = ctypes.create_string_buffer(128), c_int()
        self._call("cuDeviceGetName", text, 128, 0)
        self._call("cuDriverGetVersion", byref(version))
        return f"{text.value.decode()}, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}"

    def use(self) -> None:
        """Makes device 0 current, with the context that NCCL's own runtime will use."""
        context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(context), c_int(0))
        self._call("cuCtxSetCurrent", context)

    def filled(self, count: int, value: float) -> c_uint64:
        """Address of so many float32 of that value."""
        address = c_uint64()
        bits = ctypes.c_uint32.from_buffer_copy(ctypes.c_float(value)).value
        self._call("cuMemAlloc_v2", byref(address), c_size_t(4 * count))
        self._call("cuMemsetD32_v2", address, c_uint(bits), c_size_t(count))
        self._call("cuCtxSynchronize")
        return address

    def read(self, address: c_uint64, at: int) -> float:
        """One float32."""
        value = ctypes.c_float()
        self._call("cuMemcpyDtoH_v2", byref(value), c_uint64(address.value + 4 * at), c_size_t(4))
        return float(value.value)

    def stream(self) -> c_void_p:
        """A stream that does not wait for the default one."""
        made = c_void_p()
        self._call("cuStreamCreate", byref(made), c_uint(1))
        return made

    def synchronize(self, stream: c_void_p) -> None:
        """Blocks until the stream is empty."""
        self._call("cuStreamSynchronize", stream)


def find_nccl() -> str | None:
    """NCCL that Python packages brought, else one that the loader finds, else None."""
    for folder in [*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]:
        if not folder:
            continue
        for pattern in ("nvidia/*/lib/libnccl.so.2", "torch/lib/libnccl.so*", "libnccl.so.2"):
            found = sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))  # noqa: PTH118, PTH207
            if found:
                return found[0]
    try:
        _open("libnccl.so.2")
    except OSError:
        return None
    return "libnccl.so.2"


class Nccl:
    """One communicator's worth of NCCL."""

    def __init__(self, path: str | None) -> None:
        """Raises Missing where there is none, or one that is too old."""
        if path is None:
            raise Missing(
                "no NCCL: install PyTorch or nvidia-nccl-cu12, set LD_LIBRARY_PATH, or give --nccl FILE"
            )
        try:
            self._library = _open(path)
        except OSError as error:
            raise Missing(f"NCCL does not load ({error})") from error
        self.path = path
        version = c_int()
        self._call("ncclGetVersion", byref(version))
        self.version = version.value
        if self.version < OLDEST:
            raise Missing(f"{path} has version code {self.version}: 2.26 or newer is needed")
        self._library.ncclGetErrorString.restype = c_char_p
        self._library.ncclCommInitRank.argtypes = (POINTER(c_void_p), c_int, UniqueId, c_int)

    def _call(self, name: str, *arguments: Any) -> None:
        if status := getattr(self._library, name)(*arguments):
            text = self._library.ncclGetErrorString(status) or b""
            raise Failed(f"{name}: {text.decode() if isinstance(text, bytes) else status}")

    @property
    def name(self) -> str:
        """`2.30.7`."""
        return f"{self.version // 10000}.{self.version // 100 % 100}.{self.version % 100}"

    def unique_id(self) -> UniqueId:
        """For one communicator."""
        made = UniqueId()
        self._call("ncclGetUniqueId", byref(made))
        return made

    def open(self, identity: UniqueId, nranks: int, rank: int) -> c_void_p:
        """Joins the communicator; blocks until all have."""
        comm = c_void_p()
        self._call("ncclCommInitRank", byref(comm), c_int(nranks), identity, c_int(rank))
        return comm

    def all_reduce(
        self, comm: c_void_p, send: c_uint64, receive: c_uint64, count: int, stream: c_void_p
    ) -> None:
        """Enqueues the sum of float32."""
        self._call(
            "ncclAllReduce", c_void_p(send.value), c_void_p(receive.value), c_size_t(count), c_int(FLOAT32),
            c_int(SUM), comm, stream,
        )  # fmt: skip

    def close(self, comm: c_void_p) -> None:
        """Leaves it."""
        self._call("ncclCommDestroy", comm)
