"""A replay from outside: a process a rank, the notes made real, and how well it kept time."""

from __future__ import annotations

import json
import marshal
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from collectors.replay import notes
from collectors.replay.board import FAILED, SKIPPED, START, WALL, Board
from collectors.replay.program import Program, compile_run
from collectors.replay.trace import BadRun, Run

TIERS: Final = ("ops", "flows", "kernel")
READY_S: Final = 60.0  # for all processes to have loaded the plugin
CATCH_UP_S: Final = 10.0  # for a late process, before a signal and at the end
_LEAD_NS: Final = 200_000_000  # from "start" to the first call: every process has to see it
_ROOT: Final = Path(__file__).parents[2]


class ReplayError(BadRun):
    """The replay could not start: the plugin does not load, a process died."""


@dataclass(frozen=True)
class Options:
    """How to replay. `directory` gets a folder for each host; `hold_s` None takes the run's own. What the
    plugin says up to `log_level` (NCCL's: 2 warnings, 3 information) goes to standard error.
    """

    plugin: Path
    directory: Path
    job: str
    tier: str = "flows"
    version: int = 6
    speed: float = 1.0
    hold_s: float | None = None
    log_level: int = 3
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a replay did. Lateness is of calls made, in ns; `wall`: when the run began, ns since the epoch;
    `died` lists ranks that ended unasked.
    """

    calls: int
    skipped: int
    failed: int
    missing: int
    unmet: int
    unwritten: int
    lateness_max: int
    lateness_p99: int
    seconds: float
    wall: int
    died: tuple[int, ...]
    pids: tuple[int, ...]

    @property
    def complete(self) -> bool:
        """Whether everything happened as recorded, only perhaps late."""
        return not (self.failed or self.missing or self.unmet or self.died)

    def faults(self) -> list[str]:
        """What did not happen as recorded, a line each."""
        counts = {
            "calls answered with an error": self.failed,
            "calls never made": self.missing,
            "calls made before another that belongs before them": self.unmet,
            "handles that the plugin did not set": self.unwritten,
        }
        lines = [f"{count:,} {what}" for what, count in counts.items() if count]
        died = ", ".join(map(str, self.died))
        return [*lines, f"ended unasked: ranks {died}"] if died else lines


@dataclass
class _Started:
    rank: int
    process: subprocess.Popen[bytes]
    report: IO[bytes]
    lines: list[dict[str, Any]] = field(default_factory=list)
    killed: bool = False


def host_directory(directory: Path, host: int) -> Path:
    """Where the plugin of the processes of a host puts its files, and that host's collector looks."""
    return directory / f"host{host}"


def environment(run: Run, rank: int, options: Options) -> dict[str, str]:
    """What a launcher would set for this rank, and the plugin's settings."""
    node = run.nodes[rank]
    local = [other for other in range(run.ranks) if run.nodes[other] == node]
    return {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "RANK": str(rank),
        "WORLD_SIZE": str(run.ranks),
        "LOCAL_RANK": str(local.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "NCCL_PROFILER_PLUGIN": str(options.plugin),
        "MYCROFT_JOB": options.job,
        "MYCROFT_DIR": str(host_directory(options.directory, node)),
        "MYCROFT_HOST": f"host{node}",
        "MYCROFT_TIER": options.tier,
        "MYCROFT_KERNEL_ANY": "1",  # no NCCL is in these processes whose version could forbid the kernel tier
        **options.environment,
    }


def replay(
    run: Run, options: Options, started: Callable[[tuple[int, ...]], None] = lambda _: None
) -> Outcome:
    """Replay a run into a plugin; returns when every process has ended.

    `started` is called with the pid of each rank just before the first callback. Blocks for the length of the
    run divided by the speed, plus the hold. Raises BadRun for a run that cannot be called, ReplayError where
    the plugin does not load.
    """
    program = compile_run(run, options.version, options.speed)
    for host in set(run.nodes):
        host_directory(options.directory, host).mkdir(parents=True, exist_ok=True)
    fd, board = Board.create(run.ranks, program.slots, program.lines)
    processes: list[_Started] = []
    try:
        for rank in range(run.ranks):
            processes.append(_spawn(run, rank, options, program, fd))
        _await_ready(processes)
        started(tuple(p.process.pid for p in processes))
        began = time.monotonic()
        board.words[WALL] = time.time_ns() + _LEAD_NS
        board.words[START] = time.monotonic_ns() + _LEAD_NS
        _conduct(run, options, program, board, processes)
        died = _end(processes, program)
        return _outcome(program, board, processes, died, time.monotonic() - began)
    finally:
        for p in processes:
            if p.process.poll() is None:
                p.process.kill()
            p.process.wait()
            p.report.close()
        os.close(fd)


def _spawn(run: Run, rank: int, options: Options, program: Program, board: int) -> _Started:
    job_read, job_write = os.pipe()
    report_read, report_write = os.pipe()
    job = {
        **program.processes[rank].plain(),
        "rank": rank,
        "ranks": run.ranks,
        "slots": program.slots,
        "lines": program.lines,
        "board": board,
        "version": options.version,
        "log_level": options.log_level,
        "plugin": str(options.plugin),
    }
    process = subprocess.Popen(
        [sys.executable, "-S", "-m", "collectors.replay.child", str(job_read), str(report_write)],
        env=environment(run, rank, options),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else subprocess.DEVNULL,
        pass_fds=(job_read, report_write, board),
    )
    os.close(job_read)
    os.close(report_write)
    try:
        with os.fdopen(job_write, "wb") as pipe:
            marshal.dump(job, pipe)
    except BrokenPipeError:
        pass  # it has died: what it reported, if anything, is read later
    return _Started(rank, process, os.fdopen(report_read, "rb"))


def _has_fileno(stream: Any) -> bool:
    try:
        return bool(stream.fileno() >= 0)
    except (OSError, ValueError, AttributeError):
        return False


def _await_ready(processes: list[_Started]) -> None:
    with selectors.DefaultSelector() as selector:
        for p in processes:
            selector.register(p.report, selectors.EVENT_READ, p)
        until = time.monotonic() + READY_S
        while selector.get_map():
            ready = selector.select(max(0.0, until - time.monotonic()))
            if not ready:
                raise ReplayError(f"the processes of the replay were not ready after {READY_S:.0f} s")
            for key, _ in ready:
                p = key.data
                text = p.report.readline()
                if not text:
                    raise ReplayError(f"rank {p.rank} of the replay died before it had loaded the plugin")
                answer = json.loads(text)
                if "error" in answer:
                    raise ReplayError(f"the plugin does not load: {answer['error']}")
                selector.unregister(p.report)


def _conduct(run: Run, options: Options, program: Program, board: Board, processes: list[_Started]) -> None:
    """Send the signals at their times; then wait for the end of the run and the hold."""
    numbers: list[list[int]] = [[] for _ in processes]
    for rank, process in enumerate(program.processes):
        numbers[rank] = sorted(call[0] for calls in process.threads.values() for call in calls)
    for due in notes.signals(run.lines):
        _sleep_until(board.words[START] + int(due.t / options.speed))
        target = processes[due.p]
        if due.signal != signal.SIGCONT:
            before = [n for n in numbers[due.p] if run.lines[n]["t"] <= due.t]
            _catch_up(board, before[-1:], target)
        if target.process.poll() is None:
            target.process.send_signal(due.signal)
        target.killed |= due.signal == signal.SIGKILL
    _sleep_until(board.words[START] + int(run.lines[-1]["t"] / options.speed))
    for p in processes:
        if not p.killed:
            _catch_up(board, numbers[p.rank], p)
    hold = run.hold_s if options.hold_s is None else options.hold_s
    time.sleep(max(0.0, hold))


def _sleep_until(moment: int) -> None:
    while (left := moment - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


def _catch_up(board: Board, lines: list[int], of: _Started) -> None:
    """Wait until a process has made these calls; a late one must not lose them."""
    until = time.monotonic() + CATCH_UP_S
    while any(not board.lateness[line] for line in lines):
        if time.monotonic() > until or of.process.poll() is not None:
            return
        time.sleep(0.001)


def _end(processes: list[_Started], program: Program) -> tuple[int, ...]:
    """End what did not end by itself, all at the same moment; returns the ranks that had died unasked."""
    until = time.monotonic() + CATCH_UP_S
    died = []
    for p in processes:
        if program.processes[p.rank].end >= 0 and not p.killed:
            try:
                p.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                died.append(p.rank)
            else:
                if p.process.returncode:
                    died.append(p.rank)
        elif p.process.poll() is not None and not p.killed:
            died.append(p.rank)
    for p in processes:
        if p.process.poll() is None:
            p.process.kill()
    for p in processes:
        p.process.wait()
        p.lines = [json.loads(text) for text in p.report.read().splitlines()]
    return tuple(died)


def _outcome(
    program: Program, board: Board, processes: list[_Started], died: tuple[int, ...], seconds: float
) -> Outcome:
    late = []
    skipped = failed = missing = 0
    for process in program.processes:
        for calls in process.threads.values():
            for call in calls:
                value = board.lateness[call[0]]
                if value > 0:
                    late.append(value - 1)
                elif value == SKIPPED:
                    skipped += 1
                elif value == FAILED:
                    failed += 1
                else:
                    missing += 1
    late.sort()
    counts = [sum(line.get(key, 0) for p in processes for line in p.lines) for key in ("unmet", "unwritten")]
    return Outcome(
        calls=len(late),
        skipped=skipped,
        failed=failed,
        missing=missing,
        unmet=counts[0],
        unwritten=counts[1],
        lateness_max=late[-1] if late else 0,
        lateness_p99=late[len(late) * 99 // 100] if late else 0,
        seconds=seconds,
        wall=board.words[WALL],
        died=died,
        pids=tuple(p.process.pid for p in processes),
    )
