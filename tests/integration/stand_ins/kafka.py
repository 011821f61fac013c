"""Starts Kafka as the official image does: KAFKA_A_B_C in the environment is the property a.b.c."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

_HOME = Path("/opt/kafka")
_NOT_PROPERTIES = ("KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS")


def properties(environment: Mapping[str, str]) -> dict[str, str]:
    """The broker's properties, by the rules of the official image."""
    return {
        _property(name.removeprefix("KAFKA_")): value
        for name, value in environment.items()
        if name.startswith("KAFKA_") and name not in _NOT_PROPERTIES
    }


def _property(name: str) -> str:
    return name.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def main() -> None:
    """Format the log folder where it is new, then become the broker."""
    config = _HOME / "config" / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties(os.environ).items()))
    java = [
        "java", *os.environ.get("KAFKA_HEAP_OPTS", "").split(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_HOME / 'log4j2.properties'}", "-cp", f"{_HOME}/libs/*",
    ]  # fmt: skip
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--ignore-formatted"]
    subprocess.run([*java, *tool, "-c", str(config)], check=True)
    os.execvp("java", [*java, "kafka.Kafka", str(config)])


if __name__ == "__main__":
    main()
