"""Bytes of one dump → plain Python values, with nothing executed.

A pickle is a program: loading one may import any name and call it. Dumps need none of that, so every
opcode that looks up a name (GLOBAL, STACK_GLOBAL, INST, EXT1 to EXT4) or asks for an outside object
(PERSID, BINPERSID) is refused. Without a name there is nothing that a REDUCE or BUILD could call.
"""

from __future__ import annotations

import copyreg
import io
import json
import pickle
from typing import NoReturn

from collectors.flight_recorder.errors import BadDump, ForbiddenLoad

MAX_BYTES = 512 * 1024 * 1024
"""A dump of 2,000 entries has some MB with stacks; whatever is larger than this is something else."""

_extension_cache: dict[int, object] = getattr(copyreg, "_extension_cache", {})


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise ForbiddenLoad(f"it wants to load {module_name}.{global_name}, dumps hold plain values only")

    def persistent_load(self, pid: object) -> NoReturn:
        raise ForbiddenLoad(
            f"it wants to load the outside object {str(pid)[:80]!r}, dumps hold plain values only"
        )


def load_plain(raw: bytes, name: str) -> object:
    """The value in a pickle or JSON text: plain containers of text, bytes, numbers, bool and None.

    `name` stands in errors. Raises ForbiddenLoad where a pickle wants to load a name, BadDump for all else
    that is wrong with it.
    """
    if not raw:
        raise BadDump(f"{name}: no bytes")
    if len(raw) > MAX_BYTES:
        raise BadDump(f"{name}: {len(raw)} bytes, more than the {MAX_BYTES} that a dump may have")
    is_json = raw.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    try:
        return json.loads(raw) if is_json else _unpickle(raw)
    except ForbiddenLoad as error:
        raise ForbiddenLoad(f"{name}: refused: {error}") from error
    except RecursionError as error:
        raise BadDump(f"{name}: nested too deeply to be a dump") from error
    except MemoryError as error:
        raise BadDump(f"{name}: asks for more memory than there is") from error
    except Exception as error:  # a malformed pickle may raise almost anything
        kind = "JSON" if is_json else "pickle"
        raise BadDump(f"{name}: not a readable {kind}: {_first_line(error)}") from error


def _unpickle(raw: bytes) -> object:
    # An extension code that something in this process has resolved before would bypass find_class.
    if _extension_cache:
        raise BadDump("this process has cached pickle extensions, so a pickle cannot be read safely")
    # The buffer has a peek(): without it the unpickler reads opcode by opcode, four times as slow.
    return _PlainUnpickler(io.BufferedReader(io.BytesIO(raw), 1 << 16)).load()


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
