"""Which NCCL (or RCCL) libraries a training process could load here, and what each asks a plugin for."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mycroft.doctor.check import Check, ok, problem, warning
from mycroft.doctor.environment import on
from mycroft.doctor.versions import EXPORTED_APIS, Version, highest_api, kernel_rule, text

_SYSTEM = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/local/lib",
           "usr/local/nccl/lib", "usr/local/cuda/lib64", "opt/rocm/lib")  # fmt: skip
_IN_VENV = ("nvidia/nccl/lib", "torch/lib", "nvidia/cu13/lib", "nvidia/cu12/lib")
_NAMES = ("libnccl.so*", "librccl.so*")
_FILE = re.compile(r"lib[nr]ccl\.so\.(\d+)\.(\d+)\.(\d+)")
_BANNER = re.compile(rb"[NR]CCL version\s*:?\s*(\d+)\.(\d+)\.(\d+)")
NAME = "NCCL"


@dataclass(frozen=True)
class Library:
    """One NCCL: its file with links resolved, its version where the file tells it."""

    path: Path
    version: Version | None

    @property
    def rccl(self) -> bool:
        """Whether it is AMD's."""
        return "librccl" in self.path.name


def search_folders(
    environment: Mapping[str, str], venv: Path | None = None, root: Path = Path("/")
) -> list[Path]:
    """Folders in the order in which the loader and torch would find NCCL: LD_LIBRARY_PATH, venv, system."""
    folders = [Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(":") if part]
    if venv is not None:
        for packages in sorted(venv.glob("lib/python3*/site-packages")):
            folders += [packages / part for part in _IN_VENV]
    return folders + [root / part for part in _SYSTEM]


def find_libraries(folders: Iterable[Path]) -> list[Library]:
    """Every NCCL in these folders, each file once, in order."""
    found: dict[Path, Library] = {}
    for folder in folders:
        for pattern in _NAMES:
            for path in sorted(folder.glob(pattern)):
                real = path.resolve()
                if real.is_file() and real not in found:
                    found[real] = Library(real, version_of_file(real))
    return list(found.values())


def version_of_file(path: Path) -> Version | None:
    """The version in the file's name, else in the banner that NCCL prints at start, else None."""
    if named := _FILE.fullmatch(path.name):
        return int(named[1]), int(named[2]), int(named[3])
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            return _banner(view)
    except (OSError, ValueError):  # an empty file cannot be mapped
        return None


def _banner(view: mmap.mmap) -> Version | None:
    at = view.find(b"CCL version")
    while at > 0:
        if found := _BANNER.match(view[at - 1 : at + 64]):
            return int(found[1]), int(found[2]), int(found[3])
        at = view.find(b"CCL version", at + 1)
    return None


def check_libraries(libraries: list[Library], exported: Iterable[int] = EXPORTED_APIS) -> list[Check]:
    """One line a library: what it asks for, and whether a plugin with these tables can answer."""
    if not libraries:
        return [
            warning(
                NAME,
                "no NCCL is visible from here: where the job runs may be another container or environment",
                "name the environment of the job with --venv, or run mycroft doctor where the job runs",
            )
        ]
    return [_check(library, tuple(exported)) for library in libraries]


def _check(library: Library, exported: tuple[int, ...]) -> Check:
    kind = "RCCL" if library.rccl else "NCCL"
    what = f"{kind} {text(library.version)} ({library.path})"
    if library.version is None:
        return warning(
            NAME,
            f"{what}: cannot tell which interface it asks for",
            "start a job with NCCL_DEBUG=INFO: it says so",
        )
    api = highest_api(library.version)
    if api is None:
        return problem(NAME, f"{what} knows no profiler plugin", "use NCCL 2.26 or newer for the job")
    if api < min(EXPORTED_APIS):
        return problem(
            NAME,
            f"{what} asks for v{api} at most, which carries too little",
            "use NCCL 2.26 or newer for the job",
        )
    matching = [one for one in exported if one <= api]
    if not matching:
        return problem(
            NAME, f"{what} asks for v{api}, which the plugin lacks", "name another plugin with --plugin"
        )
    return ok(
        NAME, f"{what} asks for v{api}" + ("" if api in exported else f", and will take v{max(matching)}")
    )


def check_kernel(versions: Iterable[Version | None], environment: Mapping[str, str]) -> list[Check]:
    """Whether the kernel tier is safe with these NCCLs. A warning only where it is asked for."""
    asked = environment.get("MYCROFT_TIER") == "kernel"
    forced = on(environment.get("MYCROFT_KERNEL_ANY"))
    checks = []
    for version in dict.fromkeys(versions):
        rule = kernel_rule(version) if version else None
        who = f"NCCL {text(version)}"
        if rule is not None and rule.allowed:
            checks.append(ok("kernel tier", f"may be used with {who}: {rule.reason}"))
            continue
        why = rule.reason if rule else "the plugin refuses what it does not know"
        if forced:
            says = f"forced by MYCROFT_KERNEL_ANY with {who}, where it is off for a reason: {why}"
            checks.append(warning("kernel tier", says, "unset MYCROFT_KERNEL_ANY"))
        elif asked:
            says = f"asked for, but {who} gets flows only: {why}"
            checks.append(
                warning("kernel tier", says, "MYCROFT_TIER=flows, or an NCCL that the plugin allows")
            )
        else:
            checks.append(ok("kernel tier", f"stays off with {who}: {why}"))
    return checks
