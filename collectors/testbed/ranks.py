"""The training processes: started, listened to, told, ended."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from collectors.testbed.errors import TestbedError
from collectors.testbed.network import Seat


@dataclass
class State:
    """What a rank has told. Times are CLOCK_MONOTONIC, ns."""

    ready: bool = False
    ended: bool = False
    step: int = -1
    """The last training step that it has finished."""
    faults: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Faults that have happened: when, and in which step."""
    wrong: list[str] = field(default_factory=list)
    """Results that were not what they should be."""
    errors: list[str] = field(default_factory=list)


class Ranks:
    """All ranks of one start of a job. Thread-safe; one thread reads what they tell."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._states: list[State] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, name="testbed-ranks", daemon=True)
        self._selector = selectors.DefaultSelector()

    def start(
        self, command: Sequence[str], seat: Seat, memory: int, environment: Mapping[str, str], log: Path
    ) -> int:
        """Start the next rank; returns its pid."""
        with log.open("ab") as errors:
            process = subprocess.Popen(
                [*seat.prefix, *command, str(memory), seat.listen],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                pass_fds=(memory, *seat.handed),
                start_new_session=True,  # Ctrl-C reaches only the starter
            )
        self._processes.append(process)
        self._states.append(State())
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, len(self._processes) - 1)
        return process.pid

    def listen(self) -> None:
        """Begin to read; after the last start."""
        self._reader.start()

    def wait(self, until: Callable[[list[State]], bool], timeout_s: float, what: str) -> None:
        """Block until the states are so; raises TestbedError, also where a rank has told of an error."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not until(self._states):
                for rank, state in enumerate(self._states):
                    if state.errors:
                        raise TestbedError(f"rank {rank}: {state.errors[0]}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TestbedError(f"no {what} within {timeout_s:g} s")
                self._changed.wait(min(left, 0.5))

    def states(self) -> list[State]:
        """What each rank has told, as it is now."""
        with self._changed:
            return [
                State(s.ready, s.ended, s.step, dict(s.faults), list(s.wrong), list(s.errors))
                for s in self._states
            ]

    def pids(self) -> list[int]:
        """Process id of each rank."""
        return [process.pid for process in self._processes]

    def exits(self) -> dict[int, int]:
        """Rank and exit status, negative for a signal, of those that have ended."""
        return {
            rank: process.returncode
            for rank, process in enumerate(self._processes)
            if process.poll() is not None
        }

    def tell(self, rank: int, command: str) -> None:
        """Send a command line; one that has died hears nothing."""
        stream = self._processes[rank].stdin
        assert stream is not None
        with suppress(BrokenPipeError, ValueError):
            stream.write(command.encode() + b"\n")
            stream.flush()

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal; nothing where it has ended."""
        self._processes[rank].send_signal(number)

    def stop(self) -> None:
        """Kill what is left and give everything back."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        for process in self._processes:
            process.wait()
        if self._reader.is_alive():
            self._reader.join(5)
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        self._selector.close()

    def _read(self) -> None:
        rests = [b""] * len(self._processes)
        while self._selector.get_map():
            for key, _ in self._selector.select():
                rank: int = key.data
                stream = self._processes[rank].stdout
                assert stream is not None
                chunk = os.read(stream.fileno(), 65536)
                if not chunk:
                    self._selector.unregister(stream)
                *lines, rests[rank] = (rests[rank] + chunk).split(b"\n")
                with self._changed:
                    for line in lines:
                        _take(self._states[rank], line.decode(errors="replace"))
                    self._changed.notify_all()


def _take(state: State, line: str) -> None:
    word, _, rest = line.partition(" ")
    if word == "ready":
        state.ready = True
    elif word == "ended":
        state.ended = True
    elif word == "step":
        state.step = int(rest)
    elif word == "fault":
        name, when, step = rest.split()
        state.faults[name] = (int(when), int(step))
    elif word == "wrong":
        state.wrong.append(rest)
    else:
        state.errors.append(rest if word == "error" else line)
