"""Parts of the local stack: what their logs say."""

from __future__ import annotations

import time
from pathlib import Path

from mycroft.local.processes import Child
from mycroft.local.stack import Stack


def test_what_a_child_says_is_read_once(tmp_path: Path) -> None:
    log = tmp_path / "zen.log"
    log.write_text("of an earlier start\n")
    child = Child("zen", ["this"], log, {})
    child.start()
    deadline = time.monotonic() + 30
    while child.alive():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    said = child.news()
    assert said[0] == "The Zen of Python, by Tim Peters"
    assert child.news() == []
    with log.open("a") as more:
        more.write("half a li")
    assert child.news() == []
    with log.open("a") as more:
        more.write("ne\nand one\n")
    assert child.news() == ["half a line", "and one"]


def test_the_stack_tells_what_troubles_its_sink(tmp_path: Path) -> None:
    """Who watches `mycroft up` need not look into a log to learn that the disk is full."""
    told: list[str] = []
    stack, log = Stack(tmp_path, tell=told.append), tmp_path / "sink.log"
    line = "2026-12-03 06:00:0{} WARNING streams.sink.loop: Cannot reserve 1.00 MiB (waiting)\n"
    log.write_text(line.format(1) + line.format(2) + "Traceback of nobody\n")
    sink = Child("sink", ["this"], log, {})
    stack._tell_trouble(sink)
    assert told == []  # written before this start
    with log.open("a") as more:
        more.write(line.format(3) + line.format(4) + "2026-12-03 06:00:05 INFO streams.sink.loop: fine\n")
    stack._tell_trouble(sink)
    assert told == ["sink: Cannot reserve 1.00 MiB (waiting)"]
