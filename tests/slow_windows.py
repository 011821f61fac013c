"""Windows of recorded runs as the worker closes them, for tests of what is said of them.

`tests/data/slow-windows/NAME-TIER.npz` holds the LAG rows and flow sums of a run, all windows merged, its
length, and the world rank and host of each device. `python -m tests.slow_windows RUN…` makes them anew: it
replays the runs at both tiers through real collectors.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collectors.replay.runner import Options
from mycroft.connections import collector_arguments
from mycroft.local.broker import MockCluster
from mycroft.local.observed import observe
from mycroft.local.slowness import Heard
from mycroft.plugin import plugin_path
from mycroft.settings import Settings
from schemas.records import FLOW, LAG, Records, RecordType
from streams.slow.window import Window, merged
from tests.oracle_runs import recorded_run
from tests.recorded_answers import Truth, read_truth

FOLDER = Path(__file__).parent / "data" / "slow-windows"
TRUTHS = FOLDER / "truths.json"
"""What the manifest of the recorded runs says of each, also of those that are not in the tree."""


@dataclass(frozen=True)
class Recorded:
    """A run at a tier. `ranks`: world rank by device; `hosts`: host by device."""

    name: str
    tier: str
    window: Window
    ranks: dict[int, int]
    hosts: dict[int, str]

    @property
    def truth(self) -> Truth:
        """What was done to it."""
        return read_truth(json.loads(TRUTHS.read_text())[self.name], self.tier)


def names() -> list[str]:
    """NAME-TIER of all that are here."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


def read(name: str) -> Recorded:
    """The windows of a run, by NAME-TIER."""
    with np.load(FOLDER / f"{name}.npz") as file:
        window = Window(1, 1, 0, int(file["length_us"]), _rows(LAG, file["lags"]), _rows(FLOW, file["flows"]))
        devices = file["devices"].tolist()
        ranks = dict(zip(devices, file["ranks"].tolist(), strict=True))
        hosts = {dev: f"host{host}" for dev, host in zip(devices, file["hosts"].tolist(), strict=True)}
    run, _, tier = name.rpartition("-")
    return Recorded(run, tier, window, ranks, hosts)


def _rows(record: RecordType, rows: Records) -> Records:
    """Rows by the names of their fields: fields that came later are 0."""
    assert rows.dtype.names is not None
    found = record.empty(len(rows))
    for name in rows.dtype.names:
        found[name] = rows[name]
    return found


def write(name: str, window: Window, places: dict[int, tuple[int, str]]) -> None:
    """Keep the window of a run; `places`: world rank and host by device."""
    FOLDER.mkdir(exist_ok=True)
    devices = sorted(places, key=lambda dev: places[dev][0])
    arrays: dict[str, Any] = {
        "length_us": np.int64(window.length_us),
        "lags": window.lags, "flows": window.flows,
        "devices": np.array(devices, np.uint64),
        "ranks": np.array([places[dev][0] for dev in devices]),
        "hosts": np.array([int(places[dev][1].removeprefix("host")) for dev in devices]),
    }  # fmt: skip
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def main(runs: list[str]) -> None:
    """Replay runs and keep their windows."""
    cluster = MockCluster()
    for name in runs:
        for tier in ("flows", "kernel"):
            job = f"{name}-{tier}"
            with tempfile.TemporaryDirectory() as folder, Heard(cluster.bootstrap) as heard:
                options = Options(plugin_path(), Path(folder), job, tier, log_level=2)
                collector = collector_arguments(Settings(kafka=cluster.bootstrap))
                observe(recorded_run(name), options, collector, lambda: True)
                windows = merged(heard.windows(job))
                places = {
                    member.dev: (member.world_rank or 0, member.host or "")
                    for one in heard.announcements(job)
                    for member in one.members
                }
            write(job, windows, places)


if __name__ == "__main__":
    main(sys.argv[1:])
