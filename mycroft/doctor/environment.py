"""The environment as the plugin takes it, and variables of ours that do not do what they seem to."""

from __future__ import annotations

import re
from collections.abc import Mapping

from collectors.agent.layout import TIERS
from mycroft.doctor.check import Check, ok, warning
from mycroft.variables import unknown

USUAL_BYTES = 4 << 20
_MIN_BYTES, _MAX_BYTES = 256 << 10, 1 << 30


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
    for given, near in unknown(environment):
        meant = f"; is {near} meant?" if near else ""
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
