"""From nothing to the answer: `mycroft diagnose` with an empty kernel cache, its stack's start included."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

SETS = ("gloo_hang", "gloo_p2p_hang", "gloo_healthy", "gpu_error_1st", "lock_gil_2nd")
LIMIT_S = 30.0
"""What a user is promised on two cores."""

_ROOT = Path(__file__).resolve().parents[1]


def _folder(name: str) -> Path | None:
    shared = Path(os.environ.get("MYCROFT_SHARED", _ROOT.parent / "shared"))
    for base in (_ROOT / "tests" / "data", shared / "data"):
        if (folder := base / "flight-recorder" / name).is_dir():
            return folder
    return None


def _seconds(folder: Path, cache: Path) -> float:
    command = [str(Path(sys.executable).with_name("mycroft")), "diagnose", str(folder), "--json"]
    began = time.perf_counter()
    done = subprocess.run(
        command, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, stdout=subprocess.PIPE, check=False
    )
    took = time.perf_counter() - began
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    return took


def main() -> None:
    """Each recorded set, first with an empty cache, then with a filled one."""
    table = Table(title=f"mycroft diagnose: seconds from start to exit (promised: {LIMIT_S:.0f} from cold)")
    for column in ("dumps", "cold", "again"):
        table.add_column(column, justify="left" if column == "dumps" else "right")
    for name in SETS:
        folder = _folder(name)
        if folder is None:
            table.add_row(name, "not here", "")
            continue
        with tempfile.TemporaryDirectory() as cache:
            cold = _seconds(folder, Path(cache))
            table.add_row(name, f"{cold:.1f}", f"{_seconds(folder, Path(cache)):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
