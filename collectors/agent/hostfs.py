"""What /sys and /proc tell of a host's network: interfaces, RDMA ports, TCP. Every reader takes the root.

What cannot be read is unknown, never down: containers, virtual interfaces and other drivers leave files out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.enums import FactKind, PortState

SYS = Path("/sys")

_DOWN = frozenset({"down", "lowerlayerdown", "notpresent"})
"""Of operstate's words (RFC 2863) those that carry nothing; `dormant`, `testing`, `unknown` prove neither."""
_PORT_ACTIVE = 4
"""Of an RDMA port's states ("4: ACTIVE") the only one in which it carries data."""
_INTERFACE_ERRORS = ("rx_errors", "tx_errors")
_PORT_ERRORS = ("port_rcv_errors", "port_xmit_discards", "link_error_recovery", "link_downed")


@dataclass(frozen=True)
class Carrier:
    """An interface, a port, or TCP as a whole. Counters run since the host started."""

    what: FactKind
    name: str
    state: PortState = PortState.UNKNOWN
    speed_mbps: int = 0
    errors: int = 0
    retransmits: int = 0
    timeouts: int = 0

    @property
    def key(self) -> tuple[FactKind, str]:
        """What it is, whatever becomes of it."""
        return self.what, self.name


def carriers(sys: Path, proc: Path) -> list[Carrier]:
    """All of a host, in order of their names."""
    return [*interfaces(sys), *ports(sys), *tcp(proc)]


def interfaces(sys: Path = SYS) -> Iterator[Carrier]:
    """Those of hardware, or where there are none (a network namespace of its own) all but loopback.

    Bridges and the ends of containers come and go without any bearing on what a job sends.
    """
    folders = [folder for folder in _entries(sys / "class" / "net") if folder.name != "lo"]
    hardware = [folder for folder in folders if (folder / "device").exists()]
    for folder in hardware or folders:
        yield Carrier(
            FactKind.INTERFACE,
            folder.name,
            interface_state(_text(folder / "carrier"), _text(folder / "operstate")),
            max(_number(folder / "speed"), 0),  # −1 where the link is down
            sum(_number(folder / "statistics" / name) for name in _INTERFACE_ERRORS),
        )


def interface_state(carrier: str, operstate: str) -> PortState:
    """State from `carrier` ("1", "0", not readable while administratively down) and `operstate`.

    >>> [interface_state(*read).name for read in (("0", "up"), ("", "down"), ("1", "unknown"), ("", ""))]
    ['DOWN', 'DOWN', 'UP', 'UNKNOWN']
    """
    if carrier == "0" or operstate in _DOWN:
        return PortState.DOWN
    return PortState.UP if carrier == "1" or operstate == "up" else PortState.UNKNOWN


def ports(sys: Path = SYS) -> Iterator[Carrier]:
    """Ports of RDMA devices, as device/port."""
    for device in _entries(sys / "class" / "infiniband"):
        for port in _entries(device / "ports"):
            more = port / "hw_counters"
            yield Carrier(
                FactKind.PORT,
                f"{device.name}/{port.name}",
                port_state(_text(port / "state")),
                port_speed(_text(port / "rate")),
                sum(_number(port / "counters" / name) for name in _PORT_ERRORS),
                _number(more / "packet_seq_err"),
                _number(more / "local_ack_timeout_err"),
            )


def port_state(text: str) -> PortState:
    """State from the text of a port's `state`.

    >>> port_state("4: ACTIVE").name, port_state("1: DOWN").name, port_state("").name
    ('UP', 'DOWN', 'UNKNOWN')
    """
    number = text.partition(":")[0].strip()
    if not number.isdigit():
        return PortState.UNKNOWN
    return PortState.UP if int(number) == _PORT_ACTIVE else PortState.DOWN


def port_speed(text: str) -> int:
    """Mbit/s from the text of a port's `rate`.

    >>> port_speed("400 Gb/sec (4X NDR)"), port_speed("2.5 Gb/sec (1X SDR)"), port_speed("")
    (400000, 2500, 0)
    """
    number, _, unit = text.partition(" ")
    try:
        return int(float(number) * 1000) if unit.startswith("Gb/sec") else 0
    except ValueError:
        return 0


def tcp(proc: Path) -> Iterator[Carrier]:
    """What TCP had to send again; nothing where the kernel does not say."""
    plain, extended = counters(_text(proc / "net" / "snmp")), counters(_text(proc / "net" / "netstat"))
    if "Tcp.RetransSegs" in plain:
        yield Carrier(
            FactKind.TCP,
            "tcp",
            retransmits=plain["Tcp.RetransSegs"],
            timeouts=extended.get("TcpExt.TCPTimeouts", 0),
        )


def counters(text: str) -> Mapping[str, int]:
    """The counters of /proc/net/snmp or netstat: a line of names, then one of values, for each protocol.

    >>> counters("Tcp: InSegs RetransSegs\\nTcp: 7 2\\n")
    {'Tcp.InSegs': 7, 'Tcp.RetransSegs': 2}
    """
    found = {}
    lines = [line.split() for line in text.splitlines()]
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if names and values and names[0] == values[0]:
            for name, value in zip(names[1:], values[1:], strict=False):
                if value.lstrip("-").isdigit():
                    found[f"{names[0].rstrip(':')}.{name}"] = int(value)
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdigit() else 0
