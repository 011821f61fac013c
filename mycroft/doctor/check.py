"""One line of the doctor's screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Check:
    """What was looked at, how it stands, and what to do about it (always given with a problem)."""

    name: str
    status: Status
    says: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.status == "problem" and not self.remedy:
            raise ValueError(f"{self.name}: a problem without a remedy")


def ok(name: str, says: str) -> Check:
    """Nothing to do."""
    return Check(name, "ok", says)


def warning(name: str, says: str, remedy: str = "") -> Check:
    """May matter, or could not be told."""
    return Check(name, "warning", says, remedy)


def problem(name: str, says: str, remedy: str) -> Check:
    """Tracing does not work, or what it sees does not arrive."""
    return Check(name, "problem", says, remedy)


def ready(checks: list[Check]) -> bool:
    """Whether there is no problem."""
    return all(check.status != "problem" for check in checks)
