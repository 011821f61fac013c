"""The testbed as it runs: results, callbacks, and what each fault leaves in the counters of every flow.

What has to freeze where is what recorded runs of NCCL showed: a ring of hosts 0 → 1 → 2 → 3 with one rank
each, rank 2 bad, 1 upstream of it and 3 downstream.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from collectors.agent import procfs
from collectors.replay.merge import merge
from collectors.replay.trace import Line
from collectors.testbed.faults import KINDS, SLOW, parse_fault
from collectors.testbed.namespaces import unavailable
from collectors.testbed.plan import Plan
from collectors.testbed.testbed import Options, Testbed
from mycroft.plugin import plugin_path, program_path
from tests.callback_grammar import LAUNCH_ORDER, closed, grammar_faults, launch_orders
from tests.oracle import Flow, Operation, Oracle

pytestmark = pytest.mark.slow

BAD = 2
QUIET_S = 0.6
"""Nothing moves any more once no step was finished and no callback was made for so long."""


@contextmanager
def running(plan: Plan, folder: Path, wires: str = "loopback") -> Iterator[Testbed]:
    """A job that records every callback in `folder`/record, with two steps behind it."""
    options = Options(
        program_path(), plugin_path(), "testbed-test", "kernel", folder, wires=wires,
        environment={"MYCROFT_RECORD": str(folder / "record")},
    )  # fmt: skip
    with Testbed(plan, options) as testbed:
        testbed.wait_steps(1)
        yield testbed


def settle(folder: Path) -> None:
    """Return when the recordings have stopped growing, but for the repeats of who waits for credit."""

    def sizes() -> list[int]:
        return [path.stat().st_size for path in sorted((folder / "record").iterdir())]

    deadline = time.monotonic() + 30
    before, since = sizes(), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        assert time.monotonic() < deadline, "the job goes on"
        time.sleep(0.05)
        if (now := sizes()) != before:
            before, since = now, time.monotonic()


@pytest.mark.parametrize(
    "plan",
    [
        Plan(ranks=4, ranks_per_host=2, tp=2, forward_ms=2, backward_ms=2),
        Plan(ranks=8, ranks_per_host=2, pp=2, ep=2, network="credits", forward_ms=2, backward_ms=2),
        Plan(ranks=6, ranks_per_host=2, algorithm="tree", forward_ms=2, backward_ms=2),
    ],
    ids=["tp", "pp-ep-credits", "tree"],
)
def test_a_healthy_job(plan: Plan, tmp_path: Path) -> None:
    """Results are right, every event is closed, and the callbacks come in NCCL's order."""
    with running(plan, tmp_path) as testbed:
        testbed.wait_steps(4)
        testbed.end()
        deadline = time.monotonic() + 10
        while len(testbed.exits()) < plan.ranks and time.monotonic() < deadline:
            time.sleep(0.02)
        assert testbed.exits() == dict.fromkeys(range(plan.ranks), 0)
        states = testbed.states()
    assert [state.wrong for state in states] == [[]] * plan.ranks
    assert len({state.step for state in states}) == 1
    lines = merge(tmp_path / "record")
    assert grammar_faults(lines) == []
    assert set(launch_orders(lines)) == {LAUNCH_ORDER}
    for kind in ("ProxyOp", "ProxyStep", "KernelCh", "Coll"):
        counts = closed(lines, kind)
        assert counts["started"] == counts["stopped"] > 0


def test_which_legs_have_flows(tmp_path: Path) -> None:
    """Entering ranks receive, leaving ranks send, all others and all-local communicators show none."""
    plan = Plan(ranks=6, ranks_per_host=3, tp=3, forward_ms=2, backward_ms=2)
    with running(plan, tmp_path) as testbed:
        testbed.end()
    picture = Oracle(merge(tmp_path / "record"), "kernel").at()
    seen = {(op.comm.name, op.p, flow.send) for op, flow in picture.flows()}
    world = {(p, send) for name, p, send in seen if name == "world"}
    assert world == {(0, False), (2, True), (3, False), (5, True)}
    assert not any(name.startswith("tp") for name, _, _ in seen)
    assert {name for name, _, _ in seen} == {"world", "dp-0", "dp-1", "dp-2"}


class Frozen:
    """What lies in the counters after a fault: of each rank the first operation that is not over."""

    def __init__(self, lines: list[Line], pids: list[int]) -> None:
        self.lines = lines
        self.pids = pids
        self.operations = list(Oracle(lines, "kernel").at().operations)

    def open(self, p: int) -> Operation:
        return min((op for op in self.operations if op.p == p and not op.done), key=lambda op: op.launched)

    def sends(self, p: int) -> list[Flow]:
        """Unfinished sends of the first open operation, by channel."""
        return self._flows(self.open(p), send=True)

    def receives(self, p: int) -> list[Flow]:
        return self._flows(self.open(p), send=False)

    def launches(self, p: int) -> int:
        return sum(op.p == p for op in self.operations)

    @staticmethod
    def _flows(op: Operation, *, send: bool) -> list[Flow]:
        flows = [flow for flow in op.flows.values() if flow.send == send]
        return sorted(flows, key=lambda flow: flow.channel)


def froze(fault: str, folder: Path, network: str = "sockets", wires: str = "loopback") -> Frozen:
    """A ring of four hosts with one rank each, after this fault."""
    plan = Plan(ranks=4, ranks_per_host=1, network=network, forward_ms=2, backward_ms=2, dp_count=1 << 20)
    with running(plan, folder, wires) as testbed:
        injected = testbed.inject(parse_fault(fault))
        testbed.wait_happened(injected)
        settle(folder)
        assert [state.wrong for state in testbed.states()] == [[]] * 4
        assert not any(state.errors for state in testbed.states())
        pids = testbed.pids()
    frozen = Frozen(merge(folder / "record"), pids)
    assert grammar_faults(frozen.lines) == []
    return frozen


def waits_for_data(flows: list[Flow]) -> bool:
    """RecvWait: everything that was received is consumed, and more is posted."""
    return bool(flows) and all(flow.posted > flow.received == flow.consumed for flow in flows)


def waits_for_gpu(flows: list[Flow]) -> bool:
    """SendGPUWait: all that the GPU has made ready is gone, and it is not all."""
    return bool(flows) and all(flow.ready == flow.done < flow.total for flow in flows)


def test_late_launch(tmp_path: Path) -> None:
    frozen = froze(f"late-launch@{BAD}:comm=dp", tmp_path)
    assert all(op.done for op in frozen.operations if op.p == BAD), "nothing is open"
    stuck = frozen.open(1)
    last = max(
        op.seq for op in frozen.operations if op.p == BAD and op.func == stuck.func and op.comm.name == "dp-0"
    )
    assert last == stuck.seq - 1, "its last one is one lower"
    assert waits_for_data(frozen.receives(3))
    assert all(flow.received == 0 for flow in frozen.receives(3))
    assert frozen.open(1).comm.name == "dp-0"
    assert all(flow.ready > 0 and flow.done < flow.total for flow in frozen.sends(1))


def test_gpu_hang(tmp_path: Path) -> None:
    frozen = froze(f"gpu-hang@{BAD}:comm=dp", tmp_path)
    assert any(kernel.open for kernel in frozen.open(BAD).kernels.values())
    stuck = [flow for flow in frozen.receives(BAD) if not flow.complete]
    assert stuck
    assert all(flow.received == flow.flushed > flow.consumed for flow in stuck), "RecvGPUWait"
    assert any(flow.consumed > 0 for flow in frozen.receives(BAD)), "it stops in the middle"
    assert waits_for_gpu([flow for flow in frozen.sends(BAD) if not flow.complete])
    assert waits_for_data([flow for flow in frozen.receives(3) if not flow.complete])
    for mine, theirs in zip(frozen.sends(1), frozen.receives(BAD), strict=True):
        assert mine.ready >= theirs.received > theirs.consumed, "what is in flight fills the slots"


def test_stream_blocked(tmp_path: Path) -> None:
    frozen = froze(f"stream-blocked@{BAD}:comm=dp", tmp_path)
    assert not frozen.open(BAD).kernels, "no KernelCh"
    assert all(flow.received > flow.consumed == 0 for flow in frozen.receives(BAD))
    assert all(flow.ready == 0 for flow in frozen.sends(BAD))
    assert waits_for_data(frozen.receives(3))
    assert all(frozen.open(p).kernels for p in (0, 1, 3))


WIRES = [
    pytest.param(
        "namespaces",
        marks=pytest.mark.skipif(
            bool(reason := unavailable(Plan())), reason=f"WITHOUT NETWORK NAMESPACES: {reason}"
        ),
    ),
    "loopback",
]


def undelivered(frozen: Frozen, sender: int, receiver: int) -> list[Flow]:
    """Receives of the first open operation that wait for data which their sender has sent."""
    op = frozen.open(receiver)
    wanted = (op.comm.id, op.func, op.seq)
    theirs = next(o for o in frozen.operations if o.p == sender and (o.comm.id, o.func, o.seq) == wanted)
    sent = {flow.channel: flow.transmitted for flow in theirs.flows.values() if flow.send}
    waiting = [flow for flow in frozen.receives(receiver) if not flow.complete and waits_for_data([flow])]
    return [flow for flow in waiting if sent[flow.channel] > flow.received]


@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize(
    ("fault", "cut"), [("link-down@2-3", {(2, 3)}), ("nic-down@3", {(2, 3), (3, 0)})], ids=["link", "nic"]
)
def test_no_network(fault: str, cut: set[tuple[int, int]], wires: str, tmp_path: Path) -> None:
    """Data is sent and never received, over what was cut and nowhere else; all stand in one operation."""
    frozen = froze(fault, tmp_path, wires=wires)
    found = {(p, (p + 1) % 4) for p in range(4) if undelivered(frozen, p, (p + 1) % 4)}
    assert found
    assert found <= cut


def test_lost_credit(tmp_path: Path) -> None:
    frozen = froze("lost-credit@3:comm=dp", tmp_path, "credits")
    sent = {flow.channel: flow for flow in frozen.sends(2)}
    lost = []
    for flow in frozen.receives(3):
        theirs = sent[flow.channel]
        if min(flow.posted, theirs.ready) > theirs.transmitted:
            lost.append(theirs)
    assert len(lost) == 1, "one channel lost it"
    assert lost[0].no_credit > 2, "SendPeerWait repeats"


def test_not_posting(tmp_path: Path) -> None:
    frozen = froze("not-posting@3:comm=dp", tmp_path, "credits")
    sent = {flow.channel: flow for flow in frozen.sends(2)}
    for flow in frozen.receives(3):
        assert flow.posted == flow.consumed == sent[flow.channel].transmitted < flow.total
        assert sent[flow.channel].ready > sent[flow.channel].transmitted


def test_stop(tmp_path: Path) -> None:
    plan = Plan(ranks=4, ranks_per_host=1, forward_ms=2, backward_ms=2, dp_count=1 << 20)
    with running(plan, tmp_path) as testbed:
        testbed.inject(parse_fault(f"stop@{BAD}"))
        settle(tmp_path)
        status = procfs.status(testbed.pids()[BAD])
        assert status is not None
        assert status.state == "T"
        assert max(state.step for state in testbed.states()) - testbed.states()[BAD].step <= 1
    frozen = Frozen(merge(tmp_path / "record"), [])
    assert waits_for_data([flow for flow in frozen.receives(3) if not flow.complete])


@pytest.mark.parametrize(("fault", "status"), [("kill@2", -signal.SIGKILL), ("crash@2:after=0.5", 1)])
def test_a_process_that_dies(fault: str, status: int, tmp_path: Path) -> None:
    plan = Plan(ranks=4, ranks_per_host=1, forward_ms=2, backward_ms=2)
    with running(plan, tmp_path) as testbed:
        testbed.inject(parse_fault(fault))
        until(lambda: BAD in testbed.exits())
        settle(tmp_path)
        assert testbed.exits() == {BAD: status}, "the others stay"


@pytest.mark.parametrize("wires", WIRES)
def test_host_gone(wires: str, tmp_path: Path) -> None:
    plan = Plan(ranks=4, ranks_per_host=2, forward_ms=2, backward_ms=2)
    with running(plan, tmp_path, wires) as testbed:
        testbed.inject(parse_fault("host-gone@3"))
        settle(tmp_path)
        until(lambda: len(testbed.exits()) == 2)
        assert testbed.exits() == {2: -signal.SIGKILL, 3: -signal.SIGKILL}


def test_crossed(tmp_path: Path) -> None:
    frozen = froze(f"crossed@{BAD}:comm=dp", tmp_path)
    assert frozen.open(BAD).comm.name == "world"
    assert {frozen.open(p).comm.name for p in (0, 1, 3)} == {"dp-0"}
    assert len({frozen.launches(p) for p in range(4)}) == 1, "all have launched the same"


def test_outside_nccl(tmp_path: Path) -> None:
    frozen = froze("outside-nccl@1,2", tmp_path)
    for p in (1, 2):
        assert all(op.done for op in frozen.operations if op.p == p)
    assert not frozen.open(0).done
    assert not frozen.open(3).done


def test_proxy_stuck(tmp_path: Path) -> None:
    frozen = froze(f"proxy-stuck@{BAD}:comm=dp", tmp_path)
    silent = max(line["t"] for line in frozen.lines if line["p"] == BAD and line.get("ty") == "ProxyStep")
    others = max(line["t"] for line in frozen.lines if line["p"] != BAD and line.get("ty") == "ProxyStep")
    assert silent < others
    assert waits_for_data([flow for flow in frozen.receives(3) if not flow.complete])


def test_mismatch_is_called_with_half_the_count(tmp_path: Path) -> None:
    plan = Plan(ranks=4, ranks_per_host=1, forward_ms=2, backward_ms=2)
    with running(plan, tmp_path) as testbed:
        testbed.wait_happened(testbed.inject(parse_fault(f"mismatch@{BAD}:comm=world")))
        settle_or_go_on(testbed)
    world = [op for op in Frozen(merge(tmp_path / "record"), []).operations if op.comm.name == "world"]
    halves = [(op.p, op.seq) for op in world if op.count == 512]
    assert [p for p, _ in halves] == [BAD]
    assert {op.count for op in world if op.seq == halves[0][1] and op.p != BAD} == {1024}


def settle_or_go_on(testbed: Testbed) -> None:
    step = max(state.step for state in testbed.states())
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline and max(state.step for state in testbed.states()) < step + 2:
        time.sleep(0.05)


def test_skip_leaves_one_out(tmp_path: Path) -> None:
    """It pairs with what the others call later: they may hang or compute something wrong, as with NCCL."""
    plan = Plan(ranks=4, ranks_per_host=1, forward_ms=2, backward_ms=2)
    with running(plan, tmp_path) as testbed:
        testbed.wait_happened(testbed.inject(parse_fault(f"skip@{BAD}:comm=dp")))
        settle_or_go_on(testbed)
    operations = Frozen(merge(tmp_path / "record"), []).operations
    follower = {"ReduceScatter": "AllReduce", "AllReduce": "AllGather", "AllGather": "ReduceScatter"}
    for p in range(4):
        order = [op.func for op in sorted(operations, key=lambda op: op.launched) if op.p == p]
        breaks = sum(after != follower[before] for before, after in pairwise(order))
        assert breaks == (1 if p == BAD else 0), f"rank {p}: {order}"


SLOWLY = {
    "nic-limit": "rate=3e6", "slow-channel": "channel=0,rate=3e6", "late-every": "n=2,ms=20",
    "slow-copy": "ms=1", "slow-gpu": "factor=2", "background": "share=0.5", "proxy-delay": "p=0.2,ms=2",
    "slow-receiver": "ms=1", "nic-limit-in": "rate=3e6", "background-traffic": "rate=3e6",
}  # fmt: skip


@pytest.mark.parametrize("wires", WIRES)
def test_slow_is_not_wrong(wires: str, tmp_path: Path) -> None:
    """All kinds of slowness at once: each happens, the job goes on, its results stay right."""
    assert {name for name, kind in KINDS.items() if kind.kind == SLOW} == set(SLOWLY)
    plan = Plan(ranks=4, ranks_per_host=2, forward_ms=2, backward_ms=2)
    with running(plan, tmp_path, wires) as testbed:
        injected = [
            testbed.inject(parse_fault(f"{name}@{'0-1' if KINDS[name].target == 'link' else 1}:{values}"))
            for name, values in SLOWLY.items()
        ]
        for one in injected:
            testbed.wait_happened(one)
        testbed.wait_steps(max(state.step for state in testbed.states()) + 3)
        assert [state.wrong for state in testbed.states()] == [[]] * 4
        assert testbed.exits() == {}


def test_a_restart_is_another_attempt(tmp_path: Path) -> None:
    plan = Plan(ranks=2, ranks_per_host=1, forward_ms=2, backward_ms=2)
    with running(plan, tmp_path) as testbed:
        first = testbed.pids()
        testbed.restart()
        testbed.wait_steps(1)
        assert not set(first) & set(testbed.pids())
        environment = Path(f"/proc/{testbed.pids()[0]}/environ").read_bytes().split(b"\0")
        assert b"TORCHELASTIC_RESTART_COUNT=1" in environment


@pytest.mark.parametrize("wires", WIRES)
def test_nothing_is_left(wires: str, tmp_path: Path) -> None:
    """Not of a testbed that was stopped, nor of one whose starter was killed while a rank was stopped."""
    plan = Plan(ranks=2, ranks_per_host=1, forward_ms=2, backward_ms=2)
    options = Options(program_path(), plugin_path(), "testbed-test", wires=wires)
    with Testbed(plan, options) as testbed:
        testbed.inject(parse_fault("stop@1"))
        pids, directory = testbed.pids(), testbed.directory
        assert directory.is_dir()
    assert not directory.exists()
    assert not any(alive(pid) for pid in pids)

    script = (
        "import sys; from dataclasses import replace; from pathlib import Path;"
        "from collectors.testbed.testbed import *;"
        "from collectors.testbed.plan import Plan; from collectors.testbed.faults import parse_fault;"
        f"options = Options(Path({str(program_path())!r}), None, 'k', directory=Path({str(tmp_path)!r}));"
        "bed = Testbed(Plan(ranks=2, ranks_per_host=1), replace(options, wires=sys.argv[1]));"
        "bed.start(); bed.inject(parse_fault('stop@1')); print(*bed.pids(), flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, wires], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert starter.stdout is not None
    pids = [int(word) for word in starter.stdout.readline().split()]
    assert len(pids) == 2
    namespaces = [Path(f"/proc/{pid}/ns/net").readlink() for pid in pids]
    assert (len({*namespaces, Path("/proc/self/ns/net").readlink()}) == 3) == (wires == "namespaces")
    starter.kill()
    starter.communicate()
    until(lambda: not any(alive(pid) for pid in pids))
    if wires == "namespaces":
        until(lambda: not any(lives_in(namespace) for namespace in namespaces))


def lives_in(namespace: Path) -> bool:
    """Whether any process is in a network namespace: it goes with its last one."""
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            if process.readlink() == namespace:
                return True
    return False


def alive(pid: int) -> bool:
    status = procfs.status(pid)
    return status is not None and status.state not in "ZX"


def until(true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ranks", "3", "--tp", "2"], "3 ranks are no multiple"),
        (["--fault", "gpu-hang@7"], "there is no rank 7"),
        (["--tier", "all"], "unknown tier"),
        (["--job", "none"], "placeholder"),
    ],
)
def test_the_command_refuses(options: list[str], said: str) -> None:
    done = mycroft("testbed", "--no-collectors", "--duration", "1", *options)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_command(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("ranks: 4\nforward_ms: 2\nbackward_ms: 2\nfaults: ['stop@1:t=1']\n")
    done = mycroft("testbed", "--plan", str(plan), "--no-collectors", "--duration", "2")
    assert done.returncode == 0, done.stderr
    assert "4 ranks on 2 hosts" in done.stderr
    assert "stop@1: SIGSTOP; right answer: process-stopped at rank 1" in done.stderr


def mycroft(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("mycroft")), *arguments]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
