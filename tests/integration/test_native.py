"""The plugin's own tests and fuzzer, plain and under sanitizers (native/README.md)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.kafka_harness import in_ci

NATIVE = Path(__file__).parents[2] / "native"

TOOLS = ("cmake", "ninja", "ctest", "c++")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
if not Path("/usr/include/gtest").exists():
    MISSING.append("GoogleTest (libgtest-dev)")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(autouse=True)
def _tools() -> None:
    if MISSING and in_ci():
        pytest.fail(f"missing: {', '.join(MISSING)}")
    if MISSING:
        pytest.skip(f"THE PLUGIN'S TESTS DID NOT RUN, missing: {', '.join(MISSING)}")


@pytest.mark.parametrize("preset", ["test", "asan", "tsan"])
def test_plugin(preset: str) -> None:
    for command in (
        ["cmake", "--preset", preset],
        ["cmake", "--build", "--preset", preset],
        ["ctest", "--preset", preset, "--parallel", "2"],
    ):
        done = subprocess.run(command, cwd=NATIVE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
