"""Asks a traced process for another tier: the one word of the plugin's file that others may write."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from collectors.agent.discovery import open_file
from collectors.agent.layout import HEADER, Tier, offset_of

_OFFSET = offset_of(HEADER, "requested_tier")


def request_tier(directory: Path, name: str, tier: Tier) -> None:
    """Writes Header::requested_tier of a file of the plugin; its process follows at its next launch.

    Raises NotOurs where the file is not one of the plugin's, OSError where it may not be written: that is for
    its owner and root.
    """
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        file = open_file(folder, name)
    finally:
        os.close(folder)
    try:
        # The very file that was checked, whatever bears its name by now.
        writable = os.open(f"/proc/self/fd/{file.fd}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(writable, struct.pack("<I", tier), _OFFSET)
        finally:
            os.close(writable)
    finally:
        file.close()
