"""Processes in PID namespaces of their own, as in containers: two that are both number 1, a collector that
sees them from outside, and one that lives in a third namespace and does not.

Namespaces and processes are real, and the plugin writes the files. unshare(1) makes a namespace as the engine
of containers does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from collectors.agent.agent import Config
from collectors.agent.budget import Limits
from mycroft.plugin import plugin_path
from tests.integration.collecting import Reader, reading, running, until
from tests.integration.kafka_fixtures import EmbeddedBroker

ROOT = Path(__file__).parents[2]
MYCROFT = str(Path(sys.executable).with_name("mycroft"))
INSIDE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="PID NAMESPACES NEED ROOT AND unshare(1)"
)

TRACED = """
import ctypes, os, sys
from collectors.replay.abi import LOGGER, load
library = ctypes.CDLL(sys.argv[1])
plugin, log = load(library, 6), LOGGER(lambda *_: None)
context, mask = ctypes.c_void_p(), ctypes.c_int()
rank, at = int(sys.argv[2]), (ctypes.addressof(context), ctypes.addressof(mask))
answer = plugin.init(*at, 0xA1, b"world", 2, 2, rank, log)
print(answer, os.getpid(), flush=True)
sys.stdin.read()
"""


@contextmanager
def traced(directory: Path, rank: int) -> Iterator[subprocess.Popen[str]]:
    """A traced process that is number 1 of a namespace of its own."""
    process = subprocess.Popen(
        [*INSIDE, sys.executable, "-c", TRACED, str(plugin_path()), str(rank)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"MYCROFT_DIR": str(directory), "MYCROFT_JOB": "contained"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "0 1\n"
        yield process
    finally:
        process.kill()  # what it started goes with it
        process.wait()


def ends(process: subprocess.Popen[str]) -> None:
    """The traced process goes without a word."""
    process.kill()
    process.wait()


@pytest.fixture
def reader(embedded_broker: EmbeddedBroker) -> Iterator[Reader]:
    with reading(embedded_broker.bootstrap) as made:
        yield made


def lives(reader: Reader) -> dict[int, int]:
    """Whether each process was alive by what was told of it last, by its number where the collector is."""
    return {row["pid"]: row["alive"] for row in reader.read().rows("proc")}


def test_from_outside_two_that_are_both_number_1_are_two(
    embedded_broker: EmbeddedBroker, reader: Reader, directory: Path
) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(traced(directory, rank)) for rank in (0, 1))
        numbers = [
            int(Path(f"/proc/{each.pid}/task/{each.pid}/children").read_text()) for each in (first, second)
        ]
        stack.enter_context(running(Config(embedded_broker.bootstrap, directory, "node1", Limits(0, 0))))
        until(lambda: lives(reader) == dict.fromkeys(numbers, 1), "both live")
        assert len({row["proc"] for row in reader.rows("proc")}) == 2
        ends(first)
        until(
            lambda: lives(reader) == dict(zip(numbers, (0, 1), strict=True)), "one is dead, the other lives"
        )


def test_from_a_namespace_beside_them_nobody_is_called_dead(
    embedded_broker: EmbeddedBroker, reader: Reader, directory: Path
) -> None:
    """Its own process 1 is not theirs; that a process is gone cannot be seen from there."""
    with ExitStack() as stack:
        first, _ = (stack.enter_context(traced(directory, rank)) for rank in (0, 1))
        collect = [MYCROFT, "collect", "--dir", str(directory), "--kafka", embedded_broker.bootstrap]
        collector = stack.enter_context(subprocess.Popen([*INSIDE, *collect], stderr=subprocess.DEVNULL))
        stack.callback(collector.kill)
        until(lambda: len({row["proc"] for row in reader.read().rows("proc")}) == 2, "both are told of")
        ends(first)
        told = len(reader.rows("proc"))
        until(lambda: len(reader.read().rows("proc")) > told + 6, "words of both after one is gone")
    rows = reader.rows("proc")
    assert {row["alive"] for row in rows} == {1}
    assert {row["state"] for row in rows} == {0}, "the state letter of another process"
    assert len(list(directory.glob("*.mycroft"))) == 2, "a file was removed whose process may live"
