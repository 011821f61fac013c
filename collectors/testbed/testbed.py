"""A whole testbed: hosts, ranks, collectors, and the faults injected into them.

with Testbed(plan, options) as testbed:
    testbed.wait_steps(5)
    injected = testbed.inject(parse_fault("gpu-hang@5"))
    testbed.wait_happened(injected)
    …
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Final

from collectors.hosts import HostCollectors
from collectors.testbed.errors import TestbedError
from collectors.testbed.faults import Fault, check_fault
from collectors.testbed.namespaces import Namespaces
from collectors.testbed.network import Loopback, Network
from collectors.testbed.plan import Plan
from collectors.testbed.programme import plan_text
from collectors.testbed.ranks import Ranks, State
from collectors.testbed.truth import Truth, truth_of

READY_S: Final = 60.0
HAPPEN_S: Final = 60.0
WARM_STEPS: Final = 8
"""Training steps after which a fault finds a job at its usual pace."""
WIRES: Final = ("auto", "namespaces", "loopback")
_STEPS_AHEAD: Final = 3
"""No rank is further ahead of another when a step ends in an AllReduce over all of them."""
_SHARED_MEMORY: Final = Path("/dev/shm")


@dataclass(frozen=True)
class Options:
    """How to run. `executable`: native/testbed's; `plugin` None: without. `directory` gets a folder for each
    host and the logs, None a fresh one that goes away with the testbed. `collector`: arguments of
    `python -m collectors.agent` but folder and host, empty for none. `environment`: for the ranks. `wires`,
    what connects the hosts: `namespaces`, `loopback`, or `auto`, the first that this system lets us have.
    """

    executable: Path
    plugin: Path | None
    job: str
    tier: str = "flows"
    directory: Path | None = None
    collector: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    wires: str = "auto"


@dataclass(frozen=True)
class Injection:
    """A fault that has been asked for. Times in ns: CLOCK_MONOTONIC and the wall clock of that moment."""

    fault: Fault
    truth: Truth
    monotonic_ns: int
    wall_ns: int


def host_name(host: int) -> str:
    """Name of a host in records."""
    return f"host-{host}"


class Testbed:
    """One job. `start` and `stop`, or a `with` block; ends everything that it has started."""

    __test__ = False  # no test class, for pytest

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan = plan
        self.options = options
        self.attempt = 0
        self.injections: list[Injection] = []
        made = options.directory is None
        self.directory = _fresh_directory() if made else Path(str(options.directory))
        self._remove = made
        self._ranks = Ranks()
        self._network: Network | None = None
        self._collectors: HostCollectors | None = None
        if options.collector:
            folders = {host_name(host): self.host_directory(host) for host in range(plan.hosts)}
            self._collectors = HostCollectors(folders, options.collector, self._logs)
        self._ready_ns = 0

    def __enter__(self) -> Testbed:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start collectors and ranks; returns when all ranks are connected. Raises TestbedError."""
        try:
            for host in range(self.plan.hosts):
                self.host_directory(host).mkdir(parents=True, exist_ok=True)
            self._logs.mkdir(exist_ok=True)
            if self._collectors is not None:
                self._collectors.start()
            self._start_ranks()
        except BaseException:
            self.stop()
            raise

    def host_directory(self, host: int) -> Path:
        """Where the plugin of a host's ranks puts its files, and that host's collector looks."""
        return self.directory / host_name(host)

    def states(self) -> list[State]:
        """What each rank has told."""
        return self._ranks.states()

    def pids(self) -> list[int]:
        """Process id of each rank."""
        return self._ranks.pids()

    def exits(self) -> dict[int, int]:
        """Rank and exit status of those that have ended, negative for a signal."""
        return self._ranks.exits()

    @property
    def connected_by(self) -> str:
        """In words, what lies between the hosts."""
        return self._network.says if self._network is not None else "not started"

    def running_s(self) -> float:
        """Seconds since all ranks were ready."""
        return (time.monotonic_ns() - self._ready_ns) / 1e9

    def wait_steps(self, step: int, timeout_s: float = 60.0) -> None:
        """Return when every rank has finished this training step (from 0). Raises TestbedError."""
        self._ranks.wait(
            lambda all_: all(s.step >= step for s in all_), timeout_s, f"step {step} of all ranks"
        )

    def inject(self, fault: Fault) -> Injection:
        """Make a fault, now or from its step on; what it does may come later: see `wait_happened`.

        Raises BadPlan where the job has no such place, TestbedError where it cannot be made.
        """
        check_fault(fault, self.plan.ranks, self.plan.hosts, self.plan.network)
        if self._network is None:
            raise TestbedError("the testbed has not been started")
        if fault.step is not None and fault.kind.where != "rank":
            rank = 0 if fault.kind.target == "link" else fault.target[0]
            step = fault.step
            self._ranks.wait(
                lambda all_: all_[rank].step >= step - 1, HAPPEN_S, f"step {step} of rank {rank}"
            )
        if fault.kind.target == "ranks" and fault.step is None:  # all at the same place in the programme
            step = max(state.step for state in self._ranks.states()) + _STEPS_AHEAD
            fault = replace(fault, step=step)
        wall, now = time.time_ns(), time.monotonic_ns()
        if fault.kind.where == "rank":
            for rank in fault.target:
                self._ranks.tell(rank, fault.command())
        elif fault.kind.where == "network":
            now = self._network.inject(fault)
        else:
            self._signal(fault, self._network)
        injection = Injection(fault, truth_of(fault, self.plan), now, wall)
        self.injections.append(injection)
        return injection

    def warm_up(self, told: Callable[[int], None] = lambda _: None) -> None:
        """Train until what is usual is known: the first operations of a job say nothing of the others."""
        for step in (*range(1, WARM_STEPS, 3), WARM_STEPS):
            self.wait_steps(step)
            told(step)
        time.sleep(1.0)  # hosts tell positions and sums each second

    def strike(self, fault: Fault) -> tuple[Injection, float]:
        """Inject a fault and wait for its effect; returns when that was, in seconds of the wall clock."""
        injection = self.inject(fault)
        happened = self.wait_happened(injection)
        return injection, (injection.wall_ns + happened - injection.monotonic_ns) / 1e9

    def happened(self, injection: Injection) -> int | None:
        """When the fault had its effect on the last of its ranks, CLOCK_MONOTONIC in ns; None: not yet."""
        if injection.fault.kind.where != "rank":
            return injection.monotonic_ns
        states = self._ranks.states()
        times = [states[rank].faults.get(injection.fault.name) for rank in injection.fault.target]
        return max(found[0] for found in times if found) if all(times) else None

    def wait_happened(self, injection: Injection, timeout_s: float = HAPPEN_S) -> int:
        """Return when the fault had its effect (see `happened`). Raises TestbedError."""
        name = injection.fault.name
        if injection.fault.kind.where == "rank":
            targets = injection.fault.target
            self._ranks.wait(
                lambda all_: all(name in all_[rank].faults for rank in targets),
                timeout_s,
                f"{injection.fault}",
            )
        happened = self.happened(injection)
        assert happened is not None
        return happened

    def restart_collector(self, host: int) -> None:
        """End a host's collector in good order and start it again. Raises CollectorFailed."""
        assert self._collectors is not None
        self._collectors.restart(host_name(host))

    def end(self, timeout_s: float = 60.0) -> None:
        """Let the job end by itself, all ranks after the same step. Raises TestbedError where it does not."""
        last = max(state.step for state in self._ranks.states()) + _STEPS_AHEAD
        for rank in range(self.plan.ranks):
            self._ranks.tell(rank, f"end {last}")
        self._ranks.wait(lambda all_: all(s.ended for s in all_), timeout_s, f"end after step {last}")

    def restart(self) -> None:
        """Kill what is left of the job and start it again, as a launcher does after a failure."""
        self._stop_ranks()
        self.attempt += 1
        self.start()

    def stop(self) -> None:
        """End all processes and take everything away but a directory that was given."""
        self._stop_ranks()
        if self._collectors is not None:
            self._collectors.stop()
        if self._remove:
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def _logs(self) -> Path:
        return self.directory / "logs"

    def _stop_ranks(self) -> None:
        self._ranks.stop()
        if self._network is not None:
            self._network.close()
            self._network = None

    def _start_ranks(self) -> None:
        self._ranks = Ranks()
        log = self._logs / "ranks.log"
        self._network = _connect(self.plan, self.options, log)
        plan_file = self.directory / f"plan-{self.attempt}.txt"
        plan_file.write_text(
            plan_text(self.plan, f"{self.options.job}/{self.attempt}", self._network.addresses())
        )
        memories = [os.memfd_create(host_name(host)) for host in range(self.plan.hosts)]
        try:
            for rank in range(self.plan.ranks):
                command = [str(self.options.executable), "rank", str(plan_file), str(rank)]
                memory = memories[self.plan.host_of(rank)]
                self._ranks.start(command, self._network.seat(rank), memory, self._environment(rank), log)
        finally:
            for memory in memories:
                os.close(memory)
        self._network.open(self._ranks.pids())
        self._ranks.listen()
        self._ranks.wait(lambda all_: all(s.ready for s in all_), READY_S, "ready ranks")
        self._ready_ns = time.monotonic_ns()

    def _environment(self, rank: int) -> dict[str, str]:
        host = self.plan.host_of(rank)
        local = self.plan.ranks_of(host)
        plugin = self.options.plugin
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.plan.ranks),
            "LOCAL_RANK": str(local.index(rank)),
            "LOCAL_WORLD_SIZE": str(len(local)),
            "GROUP_RANK": str(host),
            "MASTER_ADDR": host_name(0),
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": self.options.job,
            "TORCHELASTIC_RESTART_COUNT": str(self.attempt),
            "NCCL_PROFILER_PLUGIN": str(plugin) if plugin is not None else "",
            "MYCROFT_JOB": self.options.job,
            "MYCROFT_DIR": str(self.host_directory(host)),
            "MYCROFT_HOST": host_name(host),
            "MYCROFT_TIER": self.options.tier,
            "MYCROFT_KERNEL_ANY": "1",  # no NCCL is in these processes whose version could forbid the tier
            **self.options.environment,
        }

    def _signal(self, fault: Fault, network: Network) -> None:
        if fault.name == "host-gone":
            host = self.plan.host_of(fault.target[0])
            network.cut_host(host)
            for rank in self.plan.ranks_of(host):
                self._ranks.signal(rank, signal.SIGKILL)
            if self._collectors is not None:
                self._collectors.kill(host_name(host))
        else:
            self._ranks.signal(fault.target[0], signal.SIGKILL if fault.name == "kill" else signal.SIGSTOP)


def _connect(plan: Plan, options: Options, log: Path) -> Network:
    if options.wires == "loopback":
        return Loopback(plan, options.executable, log)
    try:
        return Namespaces(plan, options.executable, log)
    except TestbedError as error:
        if options.wires == "namespaces":
            raise
        made = Loopback(plan, options.executable, log)
        made.says = f"{made.says} ({error})"
        return made


def _fresh_directory() -> Path:
    with suppress(OSError):
        return Path(tempfile.mkdtemp(prefix="mycroft-testbed-", dir=_SHARED_MEMORY))
    return Path(tempfile.mkdtemp(prefix="mycroft-testbed-"))
