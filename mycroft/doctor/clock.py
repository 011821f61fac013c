"""Is the clock kept in time by somebody?"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from dataclasses import dataclass

from mycroft.doctor.check import Check, ok, warning

_ERROR = 5  # TIME_ERROR
_UNSYNCHRONISED = 0x40  # STA_UNSYNC
NAME = "clock"


class _Timex(ctypes.Structure):
    """The head of the kernel's struct timex; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_char * 512),
    )


@dataclass(frozen=True)
class Clock:
    """`synchronised` None: nothing tells. `error_us`: the kernel's bound, µs, where it keeps one."""

    synchronised: bool | None
    source: str
    error_us: int | None = None


def look() -> Clock:
    """Asks the kernel, else systemd."""
    kernel = _kernel()
    if kernel is not None and kernel.synchronised:
        return kernel
    # chrony and ntpd tell the kernel, but a hypervisor's clock or PTP may not: systemd may know more.
    return _systemd() or kernel or Clock(None, "neither the kernel nor systemd tells")


def _kernel() -> Clock | None:
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None
    if state < 0:
        return Clock(None, f"adjtimex: {os.strerror(ctypes.get_errno())}")
    bad = state == _ERROR or bool(timex.status & _UNSYNCHRONISED)
    return Clock(not bad, "the kernel", int(timex.maxerror))


def _systemd() -> Clock | None:
    command = shutil.which("timedatectl")
    if command is None:
        return None
    try:
        told = subprocess.run(
            [command, "show", "-p", "NTPSynchronized", "--value"],
            capture_output=True, text=True, timeout=3, check=False,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Clock(told == "yes", "systemd") if told in ("yes", "no") else None


def check_clock(clock: Clock) -> Check:
    """Never a problem: no rule subtracts clocks of two hosts, but people read times."""
    if clock.synchronised is None:
        return warning(NAME, f"unknown whether it is synchronised ({clock.source})")
    if not clock.synchronised:
        says = f"not synchronised, says {clock.source}: times in records and incidents may be off"
        return warning(NAME, says, "run chrony, ntpd or systemd-timesyncd on the host")
    bound = f", within {clock.error_us / 1000:.0f} ms" if clock.error_us is not None else ""
    return ok(NAME, f"synchronised, says {clock.source}{bound}")
