"""Every environment variable that the plugin and the collector read: the home of docs/operators.md's tables.

The plugin's own are declared here and held to native/plugin/settings.cpp by a test; the collector's and the
commands' come from mycroft/settings.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from collectors.agent.layout import TIERS
from mycroft.doctor.check import Check, ok, warning
from mycroft.settings import Settings

USUAL_BYTES = 4 << 20
USUAL_DIR = "/dev/shm/mycroft"
_MIN_BYTES, _MAX_BYTES = 256 << 10, 1 << 30


@dataclass(frozen=True)
class Variable:
    """A variable, what holds without it, and what it does."""

    name: str
    default: str
    meaning: str


PLUGIN = (
    Variable("MYCROFT_DISABLE", "0", "1: the plugin loads but traces and records nothing"),
    Variable(
        "MYCROFT_DIR",
        USUAL_DIR,
        "folder of the shared-memory files, made if absent; the collector has to look into the same",
    ),
    Variable(
        "MYCROFT_SHM_BYTES", "4M", "size of each process's file, with an optional K, M or G: 256K to 1G"
    ),
    Variable(
        "MYCROFT_TIER", "flows", "what is traced: ops, flows, kernel or idle; can be changed in a running job"
    ),
    Variable(
        "MYCROFT_KERNEL_ANY",
        "0",
        "1: trace kernel channels with any NCCL, also where it is known to be unsafe",
    ),
    Variable("MYCROFT_JOB", "", "name of the job; default: what Slurm, torchrun, … say"),
    Variable("MYCROFT_CHAIN", "", "file or path of the profiler plugin to load behind this one"),
    Variable(
        "MYCROFT_RECORD",
        "",
        "folder that gets every callback as JSON lines, for `mycroft record`; costs time and disk",
    ),
    Variable("MYCROFT_SIGBUS", "1", "0: do not install the handler that survives a truncated file"),
)
"""Read by the plugin, in the training process, at the first communicator."""

PASSED = (
    Variable("MYCROFT_ATTEMPT", "", "name of this start of the job; default: from the launcher's counters"),
    Variable("MYCROFT_NAMESPACE", "", "tells apart jobs of one name; default: POD_NAMESPACE"),
)
"""Set for the training process too; the plugin copies them and the collector reads them there."""

ELSEWHERE = (
    Variable("MYCROFT_CONFIG", "mycroft.toml", "file with the settings below, lower-case and without prefix"),
    Variable("MYCROFT_DATA", "", "where the local stack keeps its store; default: the user's data folder"),
    Variable("MYCROFT_NO_NATIVE", "", "1 while installing: leave the plugin out, where only dumps are read"),
)
"""Read by the commands and the installation, but no settings of mycroft/settings.py."""


def settings() -> tuple[Variable, ...]:
    """What the collector and the commands read, from mycroft/settings.py."""
    return tuple(
        Variable(f"MYCROFT_{name.upper()}", _shown(field.default), str(field.description))
        for name, field in Settings.model_fields.items()
    )


def _shown(default: Any) -> str:
    return "" if default is None else str(default)


def table(variables: tuple[Variable, ...]) -> str:
    """The variables as Markdown.

    >>> print(table((Variable("A", "1", "does"), Variable("B", "", "does"))))
    | variable | default | meaning |
    |---|---|---|
    | `A` | `1` | does |
    | `B` |  | does |
    """
    rows = [
        f"| `{one.name}` | {f'`{one.default}`' if one.default else ''} | {one.meaning} |" for one in variables
    ]
    return "\n".join(("| variable | default | meaning |", "|---|---|---|", *rows))


def file_bytes(given: str | None) -> tuple[int, bool]:
    """The size of a process's file as the plugin reads MYCROFT_SHM_BYTES, and whether it took what was given.

    >>> file_bytes("8M"), file_bytes("1K"), file_bytes("lots"), file_bytes(None)
    ((8388608, True), (262144, False), (4194304, False), (4194304, True))
    >>> file_bytes("4.5M"), file_bytes("1T")
    ((4194304, False), (4194304, False))
    """
    if not given:
        return USUAL_BYTES, True
    found = re.fullmatch(r"\s*\+?(\d+)([kKmMgG]?)", given)
    number = int(found[1]) if found else 0
    if found is None or not 0 < number <= _MAX_BYTES:
        return USUAL_BYTES, False
    asked = number << {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]
    taken = min(max(asked, _MIN_BYTES), _MAX_BYTES)
    return taken, taken == asked


def on(given: str | None) -> bool:
    """A flag as the plugin reads it; absent and empty are off."""
    return bool(given) and given not in ("0", "false", "no")


def check_environment(environment: Mapping[str, str]) -> list[Check]:
    """Variables of ours that do not do what they seem to: misspelt, out of range, or switching us off."""
    name = "environment"
    found = []
    known = {one.name for one in (*PLUGIN, *PASSED, *ELSEWHERE, *settings())}
    for given in sorted(environment):
        if given.startswith("MYCROFT_") and given not in known and not given.startswith("MYCROFT_TEST_"):
            near = difflib.get_close_matches(given, known, 1)
            meant = f"; is {near[0]} meant?" if near else ""
            found.append(warning(name, f"{given} is set, but nothing reads it{meant}", f"unset {given}"))
    tier = environment.get("MYCROFT_TIER")
    if tier and tier not in TIERS:
        says = f"MYCROFT_TIER={tier} is no tier: the plugin takes flows"
        found.append(warning(name, says, f"one of {', '.join(TIERS)}"))
    size, taken = file_bytes(environment.get("MYCROFT_SHM_BYTES"))
    if not taken:
        given = environment["MYCROFT_SHM_BYTES"]
        says = f"MYCROFT_SHM_BYTES={given} is out of range, or no size: the plugin takes {size}"
        found.append(warning(name, says, "a number from 256K to 1G"))
    if on(environment.get("MYCROFT_DISABLE")):
        found.append(
            warning(
                name, "MYCROFT_DISABLE is set: jobs started from here are not traced", "unset MYCROFT_DISABLE"
            )
        )
    if environment.get("MYCROFT_RECORD"):
        found.append(
            warning(
                name,
                f"MYCROFT_RECORD={environment['MYCROFT_RECORD']}: every callback is written to disk",
                "unset MYCROFT_RECORD, unless a recording is wanted",
            )
        )
    return found or [ok(name, "all variables of ours that are set are known and in range")]
