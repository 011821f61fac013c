"""Builds the native benchmarks into build/native-bench, and what a callback of the plugin costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
_FOLDER = ROOT / "build" / "native-bench"

PLUGIN = _FOLDER / "plugin" / "libnccl-profiler-mycroft.so"
LOAD = _FOLDER / "bench" / "plugin-load"
_BENCH = _FOLDER / "bench" / "plugin-bench"
_FLOOR = "floor: "


def build() -> None:
    """Brings them up to date; ends the program with the compiler's words where that fails."""
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    for command in (
        ["cmake", "-S", str(ROOT / "native"), "-B", str(_FOLDER), "-G", "Ninja", "-DMYCROFT_BENCH=ON"],
        ["cmake", "--build", str(_FOLDER)],
    ):
        done = subprocess.run(
            command, env={**os.environ, "PATH": tools}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    """Every figure of one run, beside the cheapest things that a callback could do."""
    build()
    done = subprocess.run([str(_BENCH), str(PLUGIN), "--json"], capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    floors = {each["name"]: each["ns"] for each in figures if each["name"].startswith(_FLOOR)}
    clock = floors["floor: tick counter"]
    table = Table(title="the plugin's callbacks, best of several runs; ratios are of this run")
    for column in ("callbacks", "tier", "threads", "ns", "goal", "clock reads"):
        table.add_column(column, justify="left" if column in ("callbacks", "tier") else "right")
    for each in figures:
        goal = f"{each['goal']:.0f}" if each["goal"] else ""
        table.add_row(
            each["name"], each["tier"], str(each["threads"]), f"{each['ns']:.1f}", goal,
            f"{each['ns'] / clock:.1f}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
