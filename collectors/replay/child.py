"""One process of a replay: loads the plugin as NCCL does and makes the calls of one rank at their times.

Started by `runner.py` as `python -m collectors.replay.child JOB_FD REPORT_FD`: reads what to do (marshal)
from the first, writes one JSON line to the second when it is ready and one when it has ended. It imports
little, since a process a rank starts at once.
"""

from __future__ import annotations

import ctypes
import gc
import json
import marshal
import mmap
import os
import signal
import sys
import threading
import time
from typing import Any, Final

from collectors.replay import abi, calls
from collectors.replay.board import FAILED, PIDS, SKIPPED, START, WALL, Board
from collectors.replay.calls import STALE_SLOT, Call

PATIENCE_S: Final = 10.0  # for a call of another thread or process that has to come first
_POLL_S: Final = 20e-6
_STALE: Final = 0x5A5A_5A5A_5A5A_5A5A
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_TIMERSLACK: Final = 29


class Rank:
    """The state of the process: plugin, memory that the calls point to, and counts for the report."""

    def __init__(self, job: dict[str, Any], board: Board) -> None:
        self.job = job
        self.board = board
        self.layout = abi.layout(job["version"])
        self.path = job["plugin"].encode()
        self.library: ctypes.CDLL | None = None
        self.logger = abi.LOGGER(self._log)
        self.errors = 0
        self.unmet = 0
        self.unwritten = 0
        self.descriptors = bytearray(job["descriptors"]) or bytearray(8)
        self.args = bytearray(job["args"]) or bytearray(8)
        self.mask = bytearray(8)  # an int, the activation mask that the plugin and NCCL share
        self.words = memoryview(self.descriptors).cast("Q")
        self.mask_view = memoryview(self.mask).cast("i")
        self.descriptors_at, self.args_at = _address(self.descriptors), _address(self.args)
        self.mask_at = _address(self.mask)
        self.slots = _address(board.map) + 8 * board.slots_at
        self.written = 0  # what the mask held when last looked at
        self.tier = 0  # what the plugin last asked for
        self.texts = {text: ctypes.create_string_buffer(text) for text in job["strings"]}
        for text, places in job["strings"].items():
            for word in places:
                self.words[word] = ctypes.addressof(self.texts[text])
        board.words[board.slots_at + STALE_SLOT] = _STALE

    def load(self) -> None:
        """Load the plugin; raises OSError and ValueError."""
        self.library = ctypes.CDLL(self.job["plugin"], mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self.plugin = abi.load(self.library, self.job["version"])

    def unload(self) -> None:
        """What NCCL does after the last communicator."""
        if self.library is not None:
            import _ctypes  # noqa: PLC0415 - ctypes has no public way to dlclose

            _ctypes.dlclose(self.library._handle)
            self.library = None

    def fit(self) -> None:
        """Fill in what is known once all processes are there: pids, and GPU times on the wall clock."""
        pids, wall = self.board.words[PIDS:], self.board.words[WALL]
        ints = memoryview(self.descriptors).cast("i")
        for offset, rank in self.job["pids"]:
            ints[offset // 4] = pids[rank]
        args = memoryview(self.args).cast("Q")
        for view, places in ((self.words, "descriptor_timers"), (args, "args_timers")):
            for word in self.job[places]:
                view[word] = (view[word] + wall) % (1 << 64)

    def run(self, todo: list[Call]) -> None:
        """Make the calls of one thread."""
        try:
            self._run(todo)
        except Exception as error:
            print(f"replay: rank {self.job['rank']}: {error!r}", file=sys.stderr, flush=True)
            self.errors += 1

    def _run(self, todo: list[Call]) -> None:
        began, lateness = self.board.words[START], self.board.lateness
        clock, sleep = time.monotonic_ns, time.sleep
        actions = (self._start, self._stop, self._state, self._init, self._finalize, self._mask)
        for call in todo:
            line, due, code, after = call[:4]
            due += began
            while (now := clock()) < due:
                sleep((due - now) / 1e9)
            for other in after:
                if not lateness[other]:
                    self._wait_for(other)
                    now = clock()
            answer = actions[code](call)
            if answer == 0:
                lateness[line] = now - due + 1
            elif answer is SKIPPED:
                lateness[line] = SKIPPED
            else:
                self.errors += 1
                lateness[line] = FAILED

    # Each makes one call and returns what the plugin answered, or SKIPPED.

    def _start(self, call: Call) -> int:
        _, _, _, _, slot, context, number, wanted, patches, stale = call
        shared, at = self.board.words, self.board.slots_at
        if self.mask_view[0] != self.written:
            self.written = self.tier = self.mask_view[0]  # the plugin has written it
        if not self.tier & wanted:
            return SKIPPED
        for word, other in patches:
            self.words[word] = shared[at + other]
        shared[at + slot] = before = shared[at + stale]
        answer: int = self.plugin.start(
            shared[at + context], self.slots + 8 * slot, self.descriptors_at + self.layout.size * number
        )
        if before == _STALE == shared[at + slot]:  # only of this value it is sure that no plugin makes it
            self.unwritten += 1
        return answer

    def _stop(self, call: Call) -> int:
        handle = self.board.words[self.board.slots_at + call[4]]
        return int(self.plugin.stop(handle)) if handle else SKIPPED

    def _state(self, call: Call) -> int:
        handle, number = self.board.words[self.board.slots_at + call[4]], call[6]
        if not handle:
            return SKIPPED
        args = self.args_at + calls.ARGS_BYTES * number if number >= 0 else None
        return int(self.plugin.state(handle, call[5], args))

    def _init(self, call: Call) -> int:
        comm, name, nnodes, nranks, rank = self.job["inits"][call[5]]
        context = self.slots + 8 * call[4]
        return self.plugin.init(context, self.mask_at, comm, name, nnodes, nranks, rank, self.logger)

    def _finalize(self, call: Call) -> int:
        context = self.board.words[self.board.slots_at + call[4]]
        answer: int = self.plugin.finalize(context) if context else SKIPPED
        if call[5]:
            self.unload()
        return answer

    def _mask(self, call: Call) -> int:
        if self.mask_view[0] != self.written:
            self.tier = self.mask_view[0]
        self.written = self.mask_view[0] = call[4] & self.tier
        return 0

    def _wait_for(self, line: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.board.lateness[line]:
            if time.monotonic() > until:
                self.unmet += 1
                return
            time.sleep(_POLL_S)

    def _log(self, level: int, _flags: int, _file: bytes, _line: int, text: bytes, first: int) -> None:
        if text == b"%s" and first:
            text = ctypes.string_at(first)
        message = (text or b"").decode(errors="replace").rstrip()
        if level <= self.job["log_level"]:
            print(f"rank {self.job['rank']}: plugin says ({level}): {message}", file=sys.stderr, flush=True)


def _address(of: bytearray | mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(of))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def _tell(report_fd: int, **what: Any) -> None:
    os.write(report_fd, json.dumps(what).encode() + b"\n")


def main(job_fd: int, report_fd: int) -> int:
    """Read the job, run it, report; returns the exit status."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_TIMERSLACK, 1000)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner ends its processes itself
    with os.fdopen(job_fd, "rb") as pipe:
        job = marshal.load(pipe)
    if os.getppid() != parent:
        return 1
    board = Board(job["board"], job["ranks"], job["slots"], job["lines"])
    rank = Rank(job, board)
    try:
        rank.load()
    except (OSError, ValueError) as error:
        _tell(report_fd, error=str(error))
        return 1
    threads = [
        threading.Thread(target=rank.run, args=(todo,), name=f"nccl-{number}", daemon=True)
        for number, todo in sorted(job["threads"].items())
    ]
    board.words[PIDS + job["rank"]] = os.getpid()
    gc.freeze()
    gc.disable()
    _tell(report_fd, plugin=rank.plugin.name)
    while not board.words[START]:
        time.sleep(0.001)
    rank.fit()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _tell(report_fd, errors=rank.errors, unmet=rank.unmet, unwritten=rank.unwritten)
    if job["end"] < 0:  # it did not end in the recording: the runner ends it
        while True:
            time.sleep(3600)
    while (now := time.monotonic_ns()) < board.words[START] + job["end"]:
        time.sleep((board.words[START] + job["end"] - now) / 1e9)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
