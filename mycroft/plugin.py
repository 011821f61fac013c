"""Where the native parts are: the NCCL profiler plugin, the testbed's program."""

from __future__ import annotations

from pathlib import Path

_NATIVE = Path(__file__).parent.resolve() / "native"


def plugin_path() -> Path:
    """The plugin's library, for NCCL_PROFILER_PLUGIN; raises FileNotFoundError where it was not built."""
    return _built("libnccl-profiler-mycroft.so")


def program_path() -> Path:
    """The program of the testbed's processes; raises FileNotFoundError where it was not built."""
    return _built("mycroft-testbed")


def _built(name: str) -> Path:
    path = _NATIVE / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: install mycroft on Linux, without MYCROFT_NO_NATIVE")
    return path
