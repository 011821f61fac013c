"""The folder of the shared-memory files: is there room, may it be written, does the collector see it?"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path

from mycroft.doctor.check import Check, ok, problem, warning

FREE_TIMES = 4
"""The plugin makes a file only where so many times its size is free (native/plugin/shm.cpp)."""
CONTAINER_BYTES = 64 << 20
"""What container engines give /dev/shm unless told otherwise."""
_MIB = 1 << 20
NAME = "shared memory"


@dataclass(frozen=True)
class Folder:
    """What is known of the folder. Sizes are of its file system, bytes."""

    path: Path
    exists: bool
    link: bool
    writable: bool
    total: int
    free: int
    filesystem: str = ""
    error: str = ""


def look(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> Folder:
    """The folder as it is now; where it is absent, the nearest existing one above it decides."""
    exists = path.is_dir()
    there = path if exists else next((one for one in path.parents if one.is_dir()), Path("/"))
    try:
        space = os.statvfs(there)
    except OSError as error:
        return Folder(path, exists, path.is_symlink(), False, 0, 0, "", os.strerror(error.errno or 0))
    return Folder(
        path,
        exists,
        path.is_symlink(),
        os.access(there, os.W_OK | os.X_OK),
        space.f_blocks * space.f_frsize,
        space.f_bavail * space.f_frsize,
        filesystem_of(there, mounts),
        "" if exists or not path.exists() else "not a folder",
    )


def filesystem_of(path: Path, mounts: Path) -> str:
    """Type of the file system that `path` lies on, by /proc/self/mountinfo; empty where unknown."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    wanted = path.resolve()
    for line in lines:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        at = Path(fields[4].replace("\\040", " "))
        if (at == wanted or at in wanted.parents) and len(at.parts) >= best:
            best, kind = len(at.parts), right.split()[0]
    return kind


def check_folder(folder: Folder, file_bytes: int, processes: int) -> list[Check]:
    """Existence, rights and room for so many processes with a file of so many bytes each."""
    path = folder.path
    if folder.link:
        return [
            problem(
                NAME, f"{path} is a symbolic link, which the plugin refuses", "name its target: MYCROFT_DIR"
            )
        ]
    if folder.error:
        return [problem(NAME, f"{path}: {folder.error}", "name another folder: MYCROFT_DIR")]
    if not folder.writable:
        what = "cannot be written" if folder.exists else "does not exist and cannot be made"
        return [
            problem(
                NAME,
                f"{path} {what} by this user",
                f"mkdir -p {path} && chmod 1777 {path}, or set MYCROFT_DIR",
            )
        ]
    checks = [_room(folder, file_bytes, processes)]
    if folder.filesystem not in ("tmpfs", "ramfs", "devtmpfs", ""):
        says = f"{path} lies on {folder.filesystem}, not in memory: page writes may stall the job"
        checks.append(warning(NAME, says, "use a folder on tmpfs: MYCROFT_DIR"))
    return checks


def _room(folder: Folder, file_bytes: int, processes: int) -> Check:
    # The last one that starts still has to find four times its size free.
    needed = (processes - 1 + FREE_TIMES) * file_bytes
    each = f"{_mib(file_bytes)} a process, {FREE_TIMES} times that must be free"
    says = f"{folder.path}: {_mib(folder.free)} of {_mib(folder.total)} free; {each}"
    remedy = "a larger /dev/shm (docker run --shm-size=1g; Kubernetes: an emptyDir of medium Memory)"
    if folder.total == CONTAINER_BYTES:
        says += "; 64 MiB is what containers get by default, and NCCL needs it too"
    if folder.free < FREE_TIMES * file_bytes:
        return problem(
            NAME, f"{says}: no process would be traced", f"{remedy}, or a smaller MYCROFT_SHM_BYTES"
        )
    if folder.free < needed:
        fit = (folder.free // file_bytes) - FREE_TIMES + 1
        says += f": {fit} of {processes} processes would be traced"
        return problem(NAME, says, f"{remedy}, or a smaller MYCROFT_SHM_BYTES")
    if folder.total == CONTAINER_BYTES:
        return warning(NAME, says, remedy)
    return ok(
        NAME, f"{says}: enough for {processes} processes" + ("" if folder.exists else "; the plugin makes it")
    )


def _mib(size: int) -> str:
    return f"{size / _MIB:.0f} MiB" if size >= _MIB else f"{size >> 10} KiB"


@dataclass(frozen=True)
class Collector:
    """A process that runs `mycroft collect`; `same`: does it see our folder (None: cannot be told)."""

    pid: int
    same: bool | None


@dataclass(frozen=True)
class Surroundings:
    """Containers and collectors. `locked`: a collector holds the folder; None where that cannot be told."""

    container: str = ""
    locked: bool | None = None
    collectors: tuple[Collector, ...] = ()


def surroundings(path: Path, root: Path = Path("/")) -> Surroundings:
    """What can be seen of containers and collectors from here."""
    return Surroundings(container(root), is_locked(path), tuple(collectors(path, root / "proc")))


def container(root: Path = Path("/")) -> str:
    """What says that this is a container, empty where nothing does."""
    for mark in (".dockerenv", "run/.containerenv"):
        if (root / mark).exists():
            return f"/{mark}"
    if (root / "var/run/secrets/kubernetes.io").is_dir():
        return "a Kubernetes service account"
    try:
        groups = (root / "proc/1/cgroup").read_text()
    except OSError:
        return ""
    return next((word for word in ("kubepods", "docker", "containerd", "libpod") if word in groups), "")


def is_locked(path: Path) -> bool | None:
    """Whether a collector reads this very folder: it holds a lock on it, across containers too."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def collectors(path: Path, proc: Path = Path("/proc")) -> list[Collector]:
    """Processes here that run `mycroft collect`, and whether they see the same folder under this path."""
    found = []
    for entry in sorted(proc.glob("[0-9]*/cmdline")):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        named = [at for at, word in enumerate(words) if Path(word).name == "mycroft" or word == "mycroft.cli"]
        if not any(words[at + 1 : at + 2] == ["collect"] for at in named):
            continue
        found.append(Collector(int(entry.parent.name), _same(path, entry.parent / "root")))
    return found


def _same(path: Path, root: Path) -> bool | None:
    try:
        there = (root / path.relative_to("/")).stat()
        here = path.stat()
    except (OSError, ValueError):
        return None
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def check_collector(around: Surroundings, path: Path) -> Check:
    """Whether a collector reads this folder, through the same mount."""
    name = "collector"
    start = f"mycroft collect --dir {path}"
    if around.locked:
        return ok(name, f"a collector reads {path}")
    elsewhere = [one.pid for one in around.collectors if one.same is False]
    if elsewhere:
        says = f"a collector runs (pid {elsewhere[0]}), but its {path} is another mount than this one"
        remedy = "mount the same host folder into both containers, and set MYCROFT_DIR to it in both"
        return problem(name, says, remedy)
    if around.collectors:
        says = f"a collector runs (pid {around.collectors[0].pid}), which has not taken {path}"
        return warning(name, says, f"see that it was started with --dir {path}")
    if around.container:
        says = f"none is seen to read {path}, and /dev/shm may be this container's own ({around.container})"
        remedy = f"mount one host folder here and where the collector runs, then: {start}"
        return warning(name, says, remedy)
    return warning(name, f"none reads {path}: what is traced stays on this host", start)
