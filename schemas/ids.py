"""64-bit identities and how they are written.

Ids are hashes where nature gives none. In JSON and on screens they are 16 hex digits, since jq and
browsers lose the low bits of large numbers.
"""

from __future__ import annotations

import hashlib
import re

_HEX = re.compile("[0-9a-fA-F]{1,16}")


def hash64(*parts: str | int) -> int:
    """A stable 64-bit hash of the parts, never 0 (0 means "none" everywhere).

    Each part is framed by its kind and length, so ("ab", "c") and ("a", "bc") differ.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        raw = str(part).encode()
        digest.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"i", len(raw)))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "little") or 1


def job_id(name: str) -> int:
    """Id of a job by its name."""
    return hash64("job", name)


def hex_id(value: int) -> str:
    """16 lowercase hex digits."""
    return f"{value:016x}"


def parse_hex_id(text: str) -> int:
    """The reverse of hex_id; raises ValueError on anything but 1 to 16 hex digits."""
    if not _HEX.fullmatch(text):
        raise ValueError(f"not an id of at most 16 hex digits: {text!r}")
    return int(text, 16)
