"""The images of docker-compose.yml: pulled where a registry answers, else stand-ins under the same tags.

A stand-in is built on Debian's own packages: Python, Apache Kafka's jars on Debian's Java, ClickHouse's
engine behind our own endpoint. Grafana has none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.integration.docker_engine import Docker, DockerUnavailable
from tests.integration.kafka_harness import LOGGING, KafkaUnavailable, fetch

PULL_S = 600
_BASE = "mycroft-stand-in-debian"
_SUITE = "bookworm"
_PACKAGES = "ca-certificates,python3,python3-venv,wget"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_STAND_INS = Path(__file__).parent / "stand_ins"
_CACHE = Path(__file__).resolve().parents[2] / ".cache"


@dataclass(frozen=True)
class Images:
    """Tags by name of what they are of: python, kafka, clickhouse, grafana; and ours."""

    python: str
    kafka: str
    clickhouse: str
    grafana: str
    mycroft: str

    def others(self) -> tuple[str, ...]:
        """Those that come from a registry."""
        return (self.python, self.kafka, self.clickhouse, self.grafana)


def pulled(engine: Docker, images: Images) -> bool:
    """Whether the images of others are here; pulls what is not. The first that cannot be had ends it."""
    for image in images.others():
        if engine.works("image", "inspect", image):
            continue
        try:
            engine.run("pull", "--quiet", image, timeout_s=PULL_S)
        except subprocess.SubprocessError:
            return False
    return True


def stand_in_for_python(engine: Docker, images: Images, work: Path) -> None:
    """Raises DockerUnavailable where Debian's packages cannot be had."""
    if not engine.works("image", "inspect", _BASE):
        engine.run("import", str(_debian()), _BASE)
    context = _context(work / "python", "Dockerfile.python")
    shutil.copy(os.environ.get("PIP_CERT", _CERTIFICATES), context / "certificates.crt")
    _build(engine, context, images.python)


def stand_in_for_kafka(engine: Docker, images: Images, work: Path) -> None:
    """Takes Debian from the one for Python. Raises DockerUnavailable."""
    context = _context(work / "kafka", "Dockerfile.kafka", "kafka.py")
    (context / "log4j2.properties").write_text(LOGGING)
    try:
        shutil.copytree(fetch(), context / "libs")
    except KafkaUnavailable as error:
        raise DockerUnavailable(str(error)) from error
    _build(engine, context, images.kafka)


def stand_in_for_clickhouse(engine: Docker, images: Images, work: Path) -> None:
    """Takes the engine from our own image."""
    context = _context(work / "clickhouse", "Dockerfile.clickhouse", "clickhouse.py")
    _build(engine, context, images.clickhouse, f"--build-arg=MYCROFT={images.mycroft}")


def remove(engine: Docker, images: Images) -> None:
    """Removes the stand-ins: nobody shall take them for the real ones later."""
    for image in (*images.others(), _BASE):
        engine.works("image", "rm", "--force", image)


def _debian() -> Path:
    """A root file system as a tar, made once (about a minute)."""
    tar = _CACHE / f"{_SUITE}.tar"
    if not tar.exists():
        if shutil.which("mmdebstrap") is None:
            raise DockerUnavailable("no registry answers, and for stand-ins mmdebstrap is not installed")
        _CACHE.mkdir(exist_ok=True)
        draft = tar.with_suffix(".draft.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(draft)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DockerUnavailable(f"mmdebstrap made no Debian: {done.stderr.strip()[-500:]}")
        draft.rename(tar)
    return tar


def _context(folder: Path, dockerfile: str, *files: str) -> Path:
    folder.mkdir()
    shutil.copy(_STAND_INS / dockerfile, folder / "Dockerfile")
    for name in files:
        shutil.copy(_STAND_INS / name, folder)
    return folder


def _build(engine: Docker, context: Path, tag: str, *arguments: str) -> None:
    try:
        engine.run("build", "--quiet", f"--tag={tag}", *arguments, str(context))
    except subprocess.CalledProcessError as error:
        raise DockerUnavailable(f"no stand-in for {tag}: {error.stderr.strip()[-500:]}") from error
