"""Is the plugin there, does it load, which interfaces does it export; and who is in NCCL's one slot."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from collectors.agent import layout
from mycroft.doctor.check import Check, ok, problem, warning
from mycroft.doctor.versions import EXPORTED_APIS

OUR_NAME = "Mycroft"
"""The name in the exported tables."""
UNSET_NAME = "libnccl-profiler.so"
"""What NCCL looks for when NCCL_PROFILER_PLUGIN is unset."""
_TRIAL_S = 20.0
_OFF = "the job goes on untraced"
_NOT_FOR_TRIALS = ("MYCROFT_DISABLE", "MYCROFT_RECORD", "MYCROFT_CHAIN", "MYCROFT_KERNEL_ANY", "LD_PRELOAD")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Trial:
    """What came of loading a plugin in a process of its own.

    `tables`: interface version → name in the table. `died`: how the process ended, if not by itself.
    `lines`: what the plugin logged. `layout_version`: of the file that it made, None if it made none.
    """

    tables: dict[int, str] = field(default_factory=dict)
    error: str = ""
    died: str = ""
    lines: tuple[str, ...] = ()
    layout_version: int | None = None
    plugin_version: str = ""

    @property
    def ours(self) -> bool:
        """Whether the tables bear our name."""
        return OUR_NAME in self.tables.values()


def try_plugin(path: Path, beside: Path | None = None) -> Trial:
    """Load `path` in a child. With `beside` (the shared-memory folder) open a communicator too.

    Its file lies in a new folder on the same file system, which no collector reads, and is removed.
    """
    folder = None
    if beside is not None:
        inside = next((one for one in (beside, *beside.parents) if one.is_dir()), Path("/"))
        try:
            folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=inside))
        except OSError:
            folder = None  # the check of the folder says so
    try:
        return _run(path, folder)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _run(path: Path, folder: Path | None) -> Trial:
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_TRIALS}
    environment["PYTHONPATH"] = str(_ROOT)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-m", "mycroft.doctor.trial", str(path)]
    if folder is not None:
        environment["MYCROFT_DIR"] = str(folder)
        command.append(str(folder))
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_TRIAL_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Trial(died=f"it did not come back within {_TRIAL_S:.0f} s")
    if done.returncode < 0:
        return Trial(died=f"it crashed: {signal.Signals(-done.returncode).name}")
    try:
        told = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        return Trial(died=f"it ended with status {done.returncode}: {last}")
    if "error" in told:
        return Trial(error=told["error"])
    version, plugin_version = _file_versions([Path(one) for one in told["files"]])
    tables = {int(api): str(name) for api, name in told["tables"].items()}
    return Trial(tables, "", "", tuple(told["lines"]), version, plugin_version)


def _file_versions(files: list[Path]) -> tuple[int | None, str]:
    if not files:
        return None, ""
    with files[0].open("rb") as file:
        raw = file.read(layout.HEADER_BYTES)
    if len(raw) < layout.HEADER_BYTES:
        return None, ""
    header = np.frombuffer(raw, layout.HEADER)[0]
    code = int(header["plugin_version"])
    return int(header["layout_version"]), f"{code >> 16}.{code >> 8 & 255}.{code & 255}"


def check_plugin(path: Path | None, trial: Trial | None) -> list[Check]:
    """Found, loads, exports, traces."""
    name = "plugin"
    if path is None:
        remedy = "install the package with its plugin, or build native/ with CMake, or name one with --plugin"
        return [problem(name, "this installation has no plugin", remedy)]
    if not path.is_file():
        return [problem(name, f"{path} is no file", "name the plugin's shared library with --plugin")]
    if trial is None:
        return [warning(name, f"{path} was not tried")]
    if trial.error or trial.died:
        what = trial.error or trial.died
        remedy = "build it on a system as old as this one, for this processor; if it crashes, report it"
        return [problem(name, f"{path} does not load: {what}", remedy)]
    if not trial.tables:
        return [problem(name, f"{path} exports no ncclProfiler_vN", "it is no profiler plugin: --plugin")]
    checks = [_exports(path, trial)]
    if trial.ours:
        checks.append(_traces(trial))
    return checks


def _exports(path: Path, trial: Trial) -> Check:
    versions = ", ".join(f"v{api}" for api in sorted(trial.tables))
    says = f"{path} loads and exports {versions}"
    if not trial.ours:
        who = sorted(set(trial.tables.values()))[0] or "no name"
        return warning("plugin", f"{says}, but is not ours ({who})", "name ours with --plugin")
    missing = [f"v{api}" for api in EXPORTED_APIS if api not in trial.tables]
    if missing:
        return problem("plugin", f"{says}; missing: {', '.join(missing)}", "build the plugin of this version")
    return ok("plugin", says)


def _traces(trial: Trial) -> Check:
    if trial.layout_version is None:
        why = next(
            (line for line in trial.lines if _OFF in line), "; ".join(trial.lines) or "it says nothing"
        )
        return problem("trial", f"a trial process could not trace: {why}", "see the lines on the folder")
    if trial.layout_version != layout.VERSION:
        says = (
            f"the plugin writes layout version {trial.layout_version}, the collector reads {layout.VERSION}"
        )
        return problem("trial", says, "use plugin and collector of the same version")
    return ok(
        "trial", f"a trial process traces (plugin {trial.plugin_version}, layout {trial.layout_version})"
    )


@dataclass(frozen=True)
class Slot:
    """Who is in NCCL's slot: the value that NCCL will see, where it comes from, the file that it means."""

    value: str | None
    source: str
    file: Path | None
    trial: Trial | None = None


def nccl_setting(
    name: str, environment: Mapping[str, str], files: tuple[Path, ...] = ()
) -> tuple[str | None, str]:
    """A variable as NCCL sees it, and its source: the environment, else the first file that sets it."""
    if value := environment.get(name):
        return value, "the environment"
    for path in files:
        try:
            lines = path.read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            key, equals, value = line.partition("=")
            if equals and key.strip() == name and value.strip():
                return value.strip(), str(path)
    return None, ""


def nccl_files(environment: Mapping[str, str], root: Path = Path("/")) -> tuple[Path, ...]:
    """NCCL's files of settings: the user's, then the system's."""
    own = environment.get("NCCL_CONF_FILE")
    home = environment.get("HOME")
    user = Path(own) if own else Path(home) / ".nccl.conf" if home else None
    return tuple(path for path in (user, root / "etc" / "nccl.conf") if path is not None)


def find_in_slot(value: str | None, folders: list[Path]) -> Path | None:
    """The file that NCCL loads for this value of NCCL_PROFILER_PLUGIN, None where it finds none."""
    names = [value, f"libnccl-profiler-{value}.so"] if value else [UNSET_NAME]
    for name in names:
        if "/" in name:
            if (path := Path(name)).is_file():
                return path.resolve()
            continue
        for folder in folders:
            if (folder / name).is_file():
                return (folder / name).resolve()
    return None


def check_slot(slot: Slot, ours: Path | None, chain: str | None = None) -> Check:
    """What NCCL will load as a profiler for a job that is started from here."""
    name = "NCCL_PROFILER_PLUGIN"
    want = f"{name}={ours.resolve() if ours else 'PATH'}"
    if slot.value is None:
        if slot.file is not None and not _is_ours(slot, ours):
            says = f"not set here, and NCCL would load {slot.file}"
            return warning(name, says, f"for the job: {want} MYCROFT_CHAIN={slot.file}")
        if slot.file is not None:
            return ok(name, f"not set here; NCCL loads our plugin as {slot.file}")
        return warning(name, "not set here, so a job started from here is not traced", f"for the job: {want}")
    says = f"{slot.value} (from {slot.source})"
    if slot.file is None:
        return problem(name, f"{says} is found nowhere: NCCL goes on without a profiler", want)
    if not _is_ours(slot, ours):
        remedy = f"{want} MYCROFT_CHAIN={slot.file}: ours loads the other behind it"
        return problem(name, f"{says} is another profiler plugin; NCCL has one slot", remedy)
    return ok(name, f"{says} is our plugin" + (f", with {chain} chained behind it" if chain else ""))


def check_chain(value: str | None, file: Path | None, ours: Path | None, trial: Trial | None) -> list[Check]:
    """The plugin that MYCROFT_CHAIN names. `file`: where it was found."""
    name = "MYCROFT_CHAIN"
    if not value:
        return []
    if file is None:
        return [
            problem(
                name, f"{value} is found nowhere: only ours is loaded", "give the path of the other plugin"
            )
        ]
    if (ours is not None and file == ours.resolve()) or (trial is not None and trial.ours):
        return [problem(name, f"{value} is our own plugin", "name the other one, or unset MYCROFT_CHAIN")]
    if trial is not None and not trial.tables:
        why = trial.error or trial.died or "it exports no ncclProfiler_vN"
        return [
            problem(name, f"{value} is no plugin that loads: {why}", "name another, or unset MYCROFT_CHAIN")
        ]
    versions = ", ".join(f"v{api}" for api in sorted(trial.tables)) if trial else "unknown"
    return [ok(name, f"{file} exports {versions}; it is used if NCCL asks for one of these")]


def _is_ours(slot: Slot, ours: Path | None) -> bool:
    same = ours is not None and slot.file is not None and slot.file == ours.resolve()
    return same or (slot.trial is not None and slot.trial.ours)


def loader_folders(environment: Mapping[str, str], root: Path = Path("/")) -> list[Path]:
    """Where dlopen looks for a bare name, as far as that is known without asking it."""
    given = [Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(":") if part]
    system = ("lib64", "usr/lib64", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib", "usr/lib",
              "usr/lib/aarch64-linux-gnu", "usr/local/lib")  # fmt: skip
    return given + [root / part for part in system]
