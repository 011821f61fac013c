"""What the NVIDIA driver says of GPUs and NVSwitches in the kernel log, where it may be read.

/dev/kmsg wants CAP_SYSLOG, or kernel.dmesg_restrict=0; without it nothing is known, and nothing is said.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from schemas.enums import FactKind

KMSG = Path("/dev/kmsg")
_RECORD_BYTES = 8192
"""The kernel gives a record a read, of at most this size."""
_MAX_READ = 20_000
"""Records taken at once, so that a kernel that logs without end holds nobody."""

# Text: NVIDIA's "GPU Debug Guidelines" (Xid) and "Fabric Manager User Guide" (SXid).
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")
_SXID = re.compile(r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")


@dataclass(frozen=True)
class Report:
    """One line of the driver. `pci`: address without function; `at_us`: of the kernel's clock since boot."""

    what: FactKind
    pci: str
    code: int
    at_us: int


def parse(record: str) -> Report | None:
    """What a record of /dev/kmsg reports: "priority,number,µs,flags;text"; None where it is nothing of ours.

    >>> parse("3,901,5000000,-;NVRM: Xid (PCI:0000:3B:00): 79, pid=7, GPU has fallen off the bus.")
    Report(what=<FactKind.XID: 4>, pci='0000:3b:00', code=79, at_us=5000000)
    """
    head, _, text = record.partition(";")
    for what, pattern in ((FactKind.XID, _XID), (FactKind.SXID, _SXID)):
        found = pattern.match(text)
        fields = head.split(",")
        if found is not None and len(fields) > 2 and fields[2].isdigit():
            return Report(what, slot_of(found[1]), int(found[2]), int(fields[2]))
    return None


def slot_of(pci: str) -> str:
    """A PCI address without its function, lower case, domain of four digits: as unequal writers agree on it.

    >>> slot_of("00000000:3B:00.0"), slot_of("0000:3b:00")
    ('0000:3b:00', '0000:3b:00')
    """
    domain, _, rest = pci.lower().partition(".")[0].partition(":")
    return f"{domain[-4:]}:{rest}"


class KernelLog:
    """The log from its oldest record on; `read` gives what has come since."""

    def __init__(self, path: Path = KMSG) -> None:
        try:
            self._fd: int | None = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = None

    def read(self) -> list[Report]:
        """The driver's reports among all records since the last call; never blocks, never raises."""
        found = []
        for _ in range(_MAX_READ):
            lines = self._record()
            if lines is None:
                break
            found += [report for report in map(parse, lines) if report is not None]
        return found

    def _record(self) -> list[str] | None:
        if self._fd is None:
            return None
        try:
            record = os.read(self._fd, _RECORD_BYTES)
        except BrokenPipeError:  # records were overwritten before they were read; the next one is there
            return []
        except OSError:
            return None
        # Behind the record's own line there may be more about the device, indented.
        return record.decode(errors="replace").splitlines() or None

    def close(self) -> None:
        """Gives the file back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
