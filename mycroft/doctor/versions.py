"""Which version of the profiler interface an NCCL asks for, and with which kernel channels may be traced."""

from __future__ import annotations

from dataclasses import dataclass

Version = tuple[int, int, int]

EXPORTED_APIS = (3, 4, 5, 6, 7)
"""What our plugin exports. v1 and v2 carry too little, and NCCL asks for them up to 2.25 only."""

_HIGHEST_API: tuple[tuple[tuple[int, int], int], ...] = (
    ((2, 31), 7),
    ((2, 29), 6),
    ((2, 28), 5),
    ((2, 27), 4),
    ((2, 26), 3),
    ((2, 24), 2),
    ((2, 23), 1),
)


def highest_api(version: Version) -> int | None:
    """The highest interface that this NCCL looks for; None before 2.23, which knows no profiler plugin.

    A newer NCCL than any known here is taken to look for the newest known first, as all before it did.

    >>> highest_api((2, 27, 5)), highest_api((2, 22, 3))
    (4, None)
    """
    return next((api for since, api in _HIGHEST_API if version[:2] >= since), None)


@dataclass(frozen=True)
class KernelRule:
    """NCCL from `since` until before `until` (None: without end): may kernel channels be traced, and why."""

    since: Version
    until: Version | None
    allowed: bool
    reason: str


KERNEL_RULES = (
    KernelRule((0, 0, 0), (2, 26, 0), False, "has no kernel channel events"),
    KernelRule((2, 26, 0), (2, 28, 0), False, "'Proxy append out of bounds' was reported with 2.27.7"),
    KernelRule((2, 28, 0), (2, 30, 0), True, "costs some 0.4 % (reported with 2.29.7)"),
    KernelRule((2, 30, 0), (2, 30, 4), False, "a crash was reported with 2.30.3"),
    KernelRule((2, 30, 4), (2, 31, 0), True, "recorded with 2.30.7"),
    KernelRule((2, 31, 0), None, False, "costs some 10 % at 1 MB (reported with 2.31.2)"),
)
"""The plugin enforces native/plugin/versions.h; a test holds both together."""


def kernel_rule(version: Version) -> KernelRule:
    """The rule for this NCCL.

    >>> kernel_rule((2, 30, 3)).allowed, kernel_rule((2, 30, 7)).allowed
    (False, True)
    """
    return next(rule for rule in KERNEL_RULES if rule.until is None or version < rule.until)


def version_of_code(code: int) -> Version | None:
    """The version in ncclGetVersion's number, None for 0, which is "unknown".

    >>> version_of_code(23007), version_of_code(2708)
    ((2, 30, 7), (2, 7, 8))
    """
    if code <= 0:
        return None
    if code < 10_000:  # until 2.8
        return code // 1000, code // 100 % 10, code % 100
    return code // 10_000, code // 100 % 100, code % 100


def text(version: Version | None) -> str:
    """`2.30.7`, or `of unknown version`."""
    return ".".join(map(str, version)) if version else "of unknown version"
