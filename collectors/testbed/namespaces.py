"""Hosts as network namespaces, a cable of two veth ends between every two of them. Needs root and iproute2.

A namespace lives as long as a process in it: a sleeper a host, which the warden kills where the starter dies.
So nothing has a name in the system, and nothing can be left behind.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from itertools import combinations
from pathlib import Path
from typing import Final

from collectors.testbed.errors import TestbedError
from collectors.testbed.faults import Fault
from collectors.testbed.network import DEFAULT_RATE, Seat
from collectors.testbed.plan import Plan
from collectors.testbed.relay import Relay

MAX_HOSTS: Final = 16
"""Above that there would be more cables than are worth laying."""
_FIRST_PORT: Final = 20_000
_UNSHARE_S: Final = 5.0
_TOOLS: Final = ("ip", "tc", "nsenter", "unshare")
_MTU: Final = 9000


class Namespaces:
    """One namespace a host. Raises TestbedError where the system does not let us make them."""

    says = "network namespaces, a cable between every two hosts"

    def __init__(self, plan: Plan, executable: Path, log: Path) -> None:
        self._plan = plan
        self._holders: list[subprocess.Popen[bytes]] = []
        self._warden: Relay | None = None
        if reason := unavailable(plan):
            raise TestbedError(reason)
        try:
            self._warden = Relay(executable, [(0, 0)], log)
            for _ in range(plan.hosts):
                self._holders.append(_namespace())
            self._warden.tell(f"ward {' '.join(str(holder.pid) for holder in self._holders)}")
            self._lay_cables()
        except BaseException:
            self.close()
            raise

    def addresses(self) -> list[tuple[str, int]]:
        """A port a rank at its host's address."""
        return [(_address(self._plan.host_of(rank)), _FIRST_PORT + rank) for rank in range(self._plan.ranks)]

    def seat(self, rank: int) -> Seat:
        """Started inside its host's namespace."""
        address, port = self.addresses()[rank]
        return Seat(f"{address}:{port}", self._inside(self._plan.host_of(rank)))

    def open(self, pids: list[int]) -> None:
        """The warden ends the ranks, of which some may be stopped, where the starter dies."""
        assert self._warden is not None
        self._warden.tell(f"ward {' '.join(map(str, pids))}")

    def inject(self, fault: Fault) -> int:
        """Link or NIC down, or a limit on what passes over a cable or over each cable of a host, one way."""
        if fault.kind.target == "link":
            a, b = fault.target
            return self._cut([(a, b)]) if fault.name == "link-down" else self._limit([(a, b), (b, a)], fault)
        host = self._plan.host_of(fault.target[0])
        if fault.name == "nic-limit":
            return self._limit([(host, other) for other in self._others(host)], fault)
        if fault.name == "nic-limit-in":
            return self._limit([(other, host) for other in self._others(host)], fault)
        return self.cut_host(host)

    def cut_host(self, host: int) -> int:
        """All its cables, from the other ends: the host itself sees a lost carrier and keeps its routes."""
        return self._cut([(other, host) for other in self._others(host)])

    def close(self) -> None:
        """End the holders; namespaces and cables go with the last process in them."""
        for holder in self._holders:
            holder.kill()
            holder.wait()
        self._holders.clear()
        if self._warden is not None:
            self._warden.close()
            self._warden = None

    def _others(self, host: int) -> list[int]:
        return [other for other in range(self._plan.hosts) if other != host]

    def _inside(self, host: int) -> tuple[str, ...]:
        return ("nsenter", f"--net=/proc/{self._holders[host].pid}/ns/net", "--")

    def _limit(self, ways: list[tuple[int, int]], fault: Fault) -> int:
        """How much may pass, from the first host to the second."""
        bits = 8 * fault.values.get("rate", DEFAULT_RATE)
        limit = f"root tbf rate {bits:.0f}bit burst 16kb latency 100ms"
        for here, there in ways:
            _run([*self._inside(here), "tc", "qdisc", "replace", "dev", _end(there), *limit.split()])
        return time.monotonic_ns()

    def _cut(self, cables: list[tuple[int, int]]) -> int:
        for here, there in cables:
            _run([*self._inside(here), "ip", "link", "set", _end(there), "down"])
        return time.monotonic_ns()

    def _lay_cables(self) -> None:
        for a, b in combinations(range(self._plan.hosts), 2):
            peer = f"peer name {_end(a)} mtu {_MTU} netns {self._holders[b].pid}"
            self._batch(a, [f"link add {_end(b)} mtu {_MTU} type veth {peer}"])
        for host in range(self._plan.hosts):
            lines = ["link set lo up", f"addr add {_address(host)}/32 dev lo"]
            for other in self._others(host):
                lines.append(f"link set {_end(other)} up")
                lines.append(f"route add {_address(other)}/32 dev {_end(other)} src {_address(host)}")
            self._batch(host, lines)

    def _batch(self, host: int, lines: list[str]) -> None:
        _run([*self._inside(host), "ip", "-batch", "-"], "\n".join(lines) + "\n")


def unavailable(plan: Plan) -> str:
    """Why hosts cannot be namespaces here; empty where nothing speaks against trying."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0:
        return "network namespaces need root"
    if missing:
        return f"network namespaces need {', '.join(missing)}"
    if plan.hosts > MAX_HOSTS:
        return f"{plan.hosts} hosts are too many for a cable between every two"
    return ""


def _end(other: int) -> str:
    """A cable's end is named after the host at its other end."""
    return f"host-{other}"


def _address(host: int) -> str:
    return f"10.83.0.{host + 1}"


def _namespace() -> subprocess.Popen[bytes]:
    holder = subprocess.Popen(
        ["unshare", "--net", "sleep", "infinity"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    ours = Path("/proc/self/ns/net").readlink()
    deadline = time.monotonic() + _UNSHARE_S
    while holder.poll() is None and time.monotonic() < deadline:
        try:
            if Path(f"/proc/{holder.pid}/ns/net").readlink() != ours:
                return holder
        except OSError:
            break
        time.sleep(0.002)
    holder.kill()
    holder.wait()
    raise TestbedError("the system does not let us make a network namespace")


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TestbedError(f"{' '.join(command[3:])}: {done.stderr.strip() or done.returncode}")
