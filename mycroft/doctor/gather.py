"""Puts the facts of this host before the checks, in the order of the screen."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from collectors.agent import layout
from mycroft.doctor import clock, memory, nccl, plugin, services, traced
from mycroft.doctor.check import Check, ok
from mycroft.doctor.environment import check_environment, file_bytes
from mycroft.doctor.versions import Version

USUAL_PROCESSES = 8


@dataclass(frozen=True)
class Asked:
    """What to look at. `processes` None: as many as there are GPUs, else 8."""

    directory: Path
    kafka: str
    clickhouse: str
    plugin: Path | None
    venv: Path | None = None
    processes: int | None = None


def examine(asked: Asked, environment: Mapping[str, str]) -> list[Check]:
    """Every check, in the order of the screen. Blocks for some seconds where services do not answer."""
    seen = traced.find_processes(asked.directory)
    libraries = nccl.find_libraries(nccl.search_folders(environment, asked.venv))
    trial = None
    if asked.plugin is not None and asked.plugin.is_file():
        trial = plugin.try_plugin(asked.plugin, asked.directory)
    exported = sorted(trial.tables) if trial is not None and trial.tables else None
    size, _ = file_bytes(environment.get("MYCROFT_SHM_BYTES"))
    running = [one.nccl for one in seen if not one.refused and one.alive is not False]
    return [
        check_versions(),
        *plugin.check_plugin(asked.plugin, trial),
        *(nccl.check_libraries(libraries) if exported is None else nccl.check_libraries(libraries, exported)),
        *slot_checks(asked.plugin, environment),
        *nccl.check_kernel(_versions(libraries, running), environment),
        *check_environment(environment),
        *memory.check_folder(
            memory.look(asked.directory), size, asked.processes or gpus() or USUAL_PROCESSES
        ),
        memory.check_collector(memory.surroundings(asked.directory), asked.directory),
        *traced.check_processes(seen),
        services.check_kafka(services.look_at_kafka(asked.kafka)),
        services.check_clickhouse(services.look_at_clickhouse(asked.clickhouse), services.migrations()),
        clock.check_clock(clock.look()),
    ]


def check_versions() -> Check:
    """What this is."""
    try:
        own = version("mycroft")
    except PackageNotFoundError:
        own = "from a source tree"
    python = f"Python {platform.python_version()} on {platform.machine()}"
    return ok("versions", f"Mycroft {own}, {python}, plugin layout {layout.VERSION}")


def slot_checks(ours: Path | None, environment: Mapping[str, str], root: Path = Path("/")) -> list[Check]:
    """NCCL's slot and what MYCROFT_CHAIN puts behind ours."""
    folders = plugin.loader_folders(environment, root)
    value, source = plugin.nccl_setting(
        "NCCL_PROFILER_PLUGIN", environment, plugin.nccl_files(environment, root)
    )
    slot = plugin.Slot(value, source, plugin.find_in_slot(value, folders))
    if slot.file is not None and (ours is None or slot.file != ours.resolve()):
        slot = replace(slot, trial=plugin.try_plugin(slot.file))
    chain = environment.get("MYCROFT_CHAIN") or None
    behind = plugin.find_in_slot(chain, folders) if chain else None
    trial = plugin.try_plugin(behind) if behind is not None else None
    return [plugin.check_slot(slot, ours, chain), *plugin.check_chain(chain, behind, ours, trial)]


def gpus(root: Path = Path("/")) -> int:
    """GPUs that the drivers show here, 0 where none or not to be seen."""
    nvidia = len(list((root / "dev").glob("nvidia[0-9]*")))
    amd = len(list((root / "dev" / "dri").glob("renderD*"))) if (root / "dev" / "kfd").exists() else 0
    return nvidia or amd


def _versions(libraries: list[nccl.Library], running: list[Version | None]) -> list[Version | None]:
    return list(dict.fromkeys([*running, *(library.version for library in libraries)]))
