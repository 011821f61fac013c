"""Loads a profiler plugin and opens one communicator with it, in a process of its own: `trial PLUGIN [DIR]`.

Prints one line of JSON. With DIR the plugin makes its file there, as in a job, and says itself why not if it
cannot. Imports nothing but ctypes, so that what crashes here is the plugin.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from collectors.replay.abi import LOGGER, VERSIONS, Exported, load

HIGHEST = 15
"""Newer interfaces than we know are listed up to this one."""


def main(path: str, directory: str | None) -> dict[str, Any]:
    """What the plugin exports and says."""
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        return {"error": str(error)}
    tables: dict[str, str] = {}
    for version in range(1, HIGHEST + 1):
        try:
            table = Exported.in_dll(library, f"ncclProfiler_v{version}")
        except ValueError:
            continue
        tables[str(version)] = (table.name or b"").decode(errors="replace")
    found: dict[str, Any] = {"tables": tables, "lines": [], "files": []}
    # Another's plugin is only looked at: who knows what its init does.
    known = [one for one in VERSIONS if one > VERSIONS[0] and tables.get(str(one)) == "Mycroft"]
    if directory is None or not known:
        return found
    plugin = load(library, max(known))

    def told(level: int, flags: int, file: bytes, line: int, form: bytes, first: int | None) -> None:  # noqa: ARG001
        text = ctypes.string_at(first) if form == b"%s" and first else form
        found["lines"].append(text.decode(errors="replace"))

    log = LOGGER(told)
    context, mask = ctypes.c_void_p(), ctypes.c_int()
    at = (ctypes.addressof(context), ctypes.addressof(mask))
    found["init"] = plugin.init(at[0], at[1], 1, b"doctor", 1, 1, 0, log)
    found["mask"] = mask.value
    found["files"] = sorted(str(path) for path in Path(directory).glob("*.mycroft"))
    if context.value:
        plugin.finalize(context.value)
    return found


if __name__ == "__main__":
    arguments = [*sys.argv[1:3], None]
    print(json.dumps(main(str(arguments[0]), arguments[1])), flush=True)
