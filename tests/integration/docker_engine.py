"""A Docker engine for tests: the one that runs here, else one of our own, which ends and leaves nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 60
STOP_S = 60
MIN_FREE_BYTES = 12 << 30
"""Images, their build and the volumes take some 6 GB."""
_PR_SET_PDEATHSIG = 1
_NEEDED = (
    "install Docker with Compose (Debian: docker.io and docker-compose) and start it, or run this as root"
)


class DockerUnavailable(RuntimeError):
    """No engine, no Compose, or images that cannot be had; the text says which and why."""


@dataclass(frozen=True)
class Docker:
    """An engine that answers. `compose` is the command of Docker Compose, `environment` what both need."""

    compose: tuple[str, ...]
    environment: Mapping[str, str]

    def run(self, *arguments: str, timeout_s: float = 600) -> str:
        """What `docker ARGUMENTS` prints; raises CalledProcessError, with its words in `stderr`."""
        return subprocess.run(
            ["docker", *arguments], env=dict(self.environment), capture_output=True, text=True,
            timeout=timeout_s, check=True,
        ).stdout.strip()  # fmt: skip

    def works(self, *arguments: str) -> bool:
        """Whether `docker ARGUMENTS` ends well."""
        try:
            self.run(*arguments)
        except (subprocess.SubprocessError, OSError):
            return False
        return True


@contextmanager
def docker(folder: Path) -> Iterator[Docker]:
    """An engine with Compose; one of our own keeps its data in `folder`. Raises DockerUnavailable."""
    if shutil.which("docker") is None:
        raise DockerUnavailable(f"docker is not installed: {_NEEDED}")
    running = Docker((), dict(os.environ))
    if running.works("version"):
        yield Docker(_compose(running), _with_builder(running))
        return
    if os.geteuid() or shutil.which("dockerd") is None:
        raise DockerUnavailable(f"no Docker engine answers: {_NEEDED}")
    free = shutil.disk_usage(folder).free
    if free < MIN_FREE_BYTES:
        raise DockerUnavailable(f"{folder} has {free >> 30} GiB free, {MIN_FREE_BYTES >> 30} are needed")
    with _engine(folder) as own:
        yield Docker(_compose(own), _with_builder(own))


def _compose(engine: Docker) -> tuple[str, ...]:
    if engine.works("compose", "version"):
        return ("docker", "compose")
    if shutil.which("docker-compose"):
        return ("docker-compose",)
    raise DockerUnavailable(f"Docker Compose is not installed: {_NEEDED}")


def _with_builder(engine: Docker) -> dict[str, str]:
    if engine.works("buildx", "version"):
        return dict(engine.environment)
    return {**engine.environment, "DOCKER_BUILDKIT": "0", "COMPOSE_DOCKER_CLI_BUILD": "0"}


@contextmanager
def _engine(folder: Path) -> Iterator[Docker]:
    """dockerd until the end of the block; then its bridge, its firewall rules and its data go."""
    bridge = Path("/sys/class/net/docker0")
    had_bridge, rules = bridge.exists(), _rules()
    socket, data = folder / "docker.sock", folder / "data"
    command = [
        "dockerd", f"--data-root={data}", f"--exec-root={folder / 'run'}", f"--pidfile={folder / 'pid'}",
        f"--host=unix://{socket}",
    ]  # fmt: skip
    own = Docker((), {**os.environ, "DOCKER_HOST": f"unix://{socket}"})
    with (folder / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, preexec_fn=_die_with_parent  # noqa: PLW1509 - takes no lock
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while not own.works("version"):
            if process.poll() is not None or time.monotonic() > deadline:
                last = (folder / "dockerd.log").read_text(errors="replace").strip().splitlines()[-1:]
                raise DockerUnavailable(f"the Docker engine does not start: {' '.join(last)}")
            time.sleep(0.2)
        yield own
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for mounted in (folder / "run" / "netns").glob("*"):
            subprocess.run(["umount", mounted], check=False)
        if not had_bridge and bridge.exists():
            subprocess.run(["ip", "link", "delete", "docker0"], check=False)
        if rules is not None:
            subprocess.run(["iptables-restore"], input=rules, check=False)
        shutil.rmtree(data, ignore_errors=True)


def _rules() -> bytes | None:
    done = subprocess.run(["iptables-save"], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _die_with_parent() -> None:
    """A test run that is killed must not leave an engine behind; ended so, it ends its containers."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
