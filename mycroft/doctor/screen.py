"""The checks as one screen, or as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mycroft.doctor.check import Check, ready

_SHOWN = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("PROBLEM", "bold red")}


def screen(checks: list[Check]) -> RenderableType:
    """A line a check, its remedy below it, and the sum of it."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for check in checks:
        word, style = _SHOWN[check.status]
        says = Text(check.says)
        if check.remedy:
            says.append(f"\n→ {check.remedy}", style="cyan")
        table.add_row(Text(word, style=style), check.name, says)
    return Group(table, Text(""), _sum(checks))


def _sum(checks: list[Check]) -> Text:
    problems = sum(check.status == "problem" for check in checks)
    warnings = sum(check.status == "warning" for check in checks)
    if problems:
        return Text(
            f"Not ready: {_many(problems, 'problem')}, {_many(warnings, 'warning')}.", style="bold red"
        )
    but = f", with {_many(warnings, 'warning')}" if warnings else ""
    return Text(f"Ready{but}.", style="bold green")


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_json(checks: list[Check]) -> str:
    """`{"ready": …, "checks": [{"name", "status", "says", "remedy"}]}`."""
    return json.dumps({"ready": ready(checks), "checks": [asdict(check) for check in checks]}, indent=2)
