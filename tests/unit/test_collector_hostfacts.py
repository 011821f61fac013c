"""Facts of a host from fake /sys, /proc and kernel log: what they say, and what of it is told when."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from collectors.agent.backlog import Flush
from collectors.agent.flush import by_partition
from collectors.agent.hostfacts import AGAIN_NS, KEEP_NS, HostFacts, HostWatch
from collectors.agent.hostfs import Carrier, carriers, interface_state, port_speed, port_state
from collectors.agent.kernellog import KernelLog, Report, parse
from schemas.enums import FactKind, PortState
from schemas.records import FACT, UNKNOWN_US, Records

SECOND = 10**9
SNMP = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm MaxConn RetransSegs InErrs\nTcp: 1 -1 57 0\n"
NETSTAT = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 12\nIpExt: InNoRoutes\nIpExt: 3\n"
OFF_THE_BUS = "3,901,5000000,-;NVRM: Xid (PCI:0000:3B:00): 79, pid=7, GPU has fallen off the bus.\n"
SWITCH = "3,902,6000000,-;nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress\n"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def interface(sys: Path, name: str, *, carrier: str | None = "1\n", operstate: str = "up\n",
              hardware: bool = True) -> None:  # fmt: skip
    folder = sys / "class" / "net" / name
    put(folder / "operstate", operstate)
    (folder / "carrier").unlink(missing_ok=True)
    if carrier is not None:
        put(folder / "carrier", carrier)
    put(folder / "speed", "100000\n" if carrier == "1\n" else "-1\n")
    put(folder / "statistics" / "rx_errors", "3\n")
    put(folder / "statistics" / "tx_errors", "4\n")
    if hardware:
        (folder / "device").mkdir(exist_ok=True)


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Path]:
    """/sys and /proc of a host with two NICs, a bridge and an RDMA port."""
    sys, proc = tmp_path / "sys", tmp_path / "proc"
    interface(sys, "eth0")
    interface(sys, "eth1", carrier=None, operstate="down\n")
    interface(sys, "docker0", hardware=False)
    interface(sys, "lo", hardware=False)
    port = sys / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    for name, text in (
        ("state", "4: ACTIVE\n"), ("rate", "400 Gb/sec (4X NDR)\n"), ("counters/port_rcv_errors", "5\n"),
        ("counters/link_downed", "2\n"), ("hw_counters/packet_seq_err", "8\n"),
        ("hw_counters/local_ack_timeout_err", "9\n"),
    ):  # fmt: skip
        put(port / name, text)
    put(proc / "net" / "snmp", SNMP)
    put(proc / "net" / "netstat", NETSTAT)
    return sys, proc


def test_a_host(tree: tuple[Path, Path]) -> None:
    assert carriers(*tree) == [
        Carrier(FactKind.INTERFACE, "eth0", PortState.UP, 100_000, 7),
        Carrier(FactKind.INTERFACE, "eth1", PortState.DOWN, 0, 7),
        Carrier(FactKind.PORT, "mlx5_0/1", PortState.UP, 400_000, 7, 8, 9),
        Carrier(FactKind.TCP, "tcp", retransmits=57, timeouts=12),
    ]


def test_a_namespace_with_nothing_but_virtual_interfaces(tmp_path: Path) -> None:
    interface(tmp_path, "lo", hardware=False)
    interface(tmp_path, "host-1", carrier="0\n", operstate="lowerlayerdown\n", hardware=False)
    assert carriers(tmp_path, tmp_path) == [Carrier(FactKind.INTERFACE, "host-1", PortState.DOWN, 0, 7)]


def test_a_host_that_tells_nothing(tmp_path: Path) -> None:
    assert carriers(tmp_path / "no", tmp_path / "no") == []
    log = KernelLog(tmp_path / "no")
    assert log.read() == []
    log.close()


def test_words_of_the_kernel() -> None:
    states = [
        interface_state(*read) for read in (("0", "up"), ("", "lowerlayerdown"), ("", "dormant"), ("", ""))
    ]
    assert states == [PortState.DOWN, PortState.DOWN, PortState.UNKNOWN, PortState.UNKNOWN]
    assert [port_state(text) for text in ("2: INIT", "5: ACTIVE_DEFER", "strange")] == [
        PortState.DOWN, PortState.DOWN, PortState.UNKNOWN,
    ]  # fmt: skip
    assert [port_speed(text) for text in ("100 Gb/sec (4X EDR)", "fast Gb/sec", "7 furlongs")] == [
        100_000,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (OFF_THE_BUS, Report(FactKind.XID, "0000:3b:00", 79, 5_000_000)),
        (SWITCH, Report(FactKind.SXID, "0000:c1:00", 12028, 6_000_000)),
        ("6,1,2,-;usb 1-1: new device", None),
        ("6,1,2,-;somebody quotes NVRM: Xid (PCI:0000:3b:00): 79", None),
        ("3,1;NVRM: Xid (PCI:0000:3b:00): 79, no time", None),
        (" SUBSYSTEM=pci", None),
        ("", None),
    ],
)
def test_lines_of_the_kernel_log(record: str, wanted: Report | None) -> None:
    assert parse(record) == wanted


def test_the_kernel_log_is_read_on(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,2,-;boot\n SUBSYSTEM=pci\n" + OFF_THE_BUS)
    log = KernelLog(path)
    assert [report.code for report in log.read()] == [79]
    assert log.read() == []
    with path.open("a") as file:
        file.write(SWITCH)
    assert [report.code for report in log.read()] == [12028]
    log.close()


def test_a_kernel_log_without_end_and_one_that_stays_silent(tmp_path: Path) -> None:
    """A pipe gives nothing without blocking, as the log does."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    log = KernelLog(path)
    assert log.read() == []
    writer = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    assert log.read() == []
    os.write(writer, OFF_THE_BUS.encode())
    assert [report.pci for report in log.read()] == ["0000:3b:00"]
    os.close(writer)
    log.close()


UP = Carrier(FactKind.INTERFACE, "eth0", PortState.UP, 100_000)
DOWN = Carrier(FactKind.INTERFACE, "eth0", PortState.DOWN)
GPU = {"0000:3b:00": (11, 12)}


def told(facts: HostFacts, now: int, stalls: bool = False, job: int = 1) -> Records:
    return facts.due(job, 2, stalls, GPU, now * SECOND, 77)


def test_changes_are_told_once() -> None:
    facts = HostFacts("node1")
    facts.carriers([UP], 0)
    (row,) = told(facts, 1)
    assert (row["host"], row["name"], row["what"], row["state"]) == (b"node1", b"eth0", FactKind.INTERFACE, 1)
    assert (row["job"], row["attempt"], row["sampled"], row["age_us"]) == (1, 2, 77, UNKNOWN_US)
    facts.carriers([UP], 10 * SECOND)
    assert len(told(facts, 11)) == 0
    facts.carriers([DOWN], 20 * SECOND)
    (row,) = told(facts, 23)
    assert (row["state"], row["age_us"]) == (PortState.DOWN, 3_000_000)
    assert len(told(facts, 24)) == 0
    assert len(told(facts, 24, job=5)) == 1, "a job that came later is told how things are"


def test_counters_that_grow_are_no_change() -> None:
    facts = HostFacts("node1")
    facts.carriers([Carrier(FactKind.TCP, "tcp", retransmits=1)], 0)
    told(facts, 1)
    facts.carriers([Carrier(FactKind.TCP, "tcp", retransmits=2)], 10 * SECOND)
    assert len(told(facts, 11)) == 0
    (row,) = told(facts, 12, stalls=True)
    assert row["retransmits"] == 2


def test_everything_is_told_when_a_stall_begins_and_again_while_it_lasts() -> None:
    facts = HostFacts("node1")
    facts.carriers([UP], 0)
    told(facts, 1)
    counts = [len(told(facts, at, stalls=True)) for at in range(10, 33)]
    again = AGAIN_NS // SECOND
    assert [at for at, count in enumerate(counts) if count] == [0, again, 2 * again]


def test_a_change_of_speed_keeps_since_when_it_is_up() -> None:
    facts = HostFacts("node1")
    facts.carriers([UP], 0)
    told(facts, 1)
    facts.carriers([Carrier(FactKind.INTERFACE, "eth0", PortState.UP, 10_000)], 10 * SECOND)
    (row,) = told(facts, 11)
    assert (row["speed_mbps"], row["age_us"]) == (10_000, UNKNOWN_US)


def test_a_nic_that_vanishes_is_down_and_forgotten_later() -> None:
    facts = HostFacts("node1")
    facts.carriers([UP], 0)
    facts.carriers([], 10 * SECOND)
    (row,) = told(facts, 12)
    assert (row["state"], row["age_us"]) == (PortState.DOWN, 2_000_000)
    facts.carriers([], 10 * SECOND + KEEP_NS + 1)
    assert len(told(facts, 1000, stalls=True)) == 0
    facts.carriers([UP], 1001 * SECOND)
    assert told(facts, 1002)["state"].tolist() == [PortState.UP]


def test_an_xid_names_the_devices_on_that_gpu() -> None:
    facts = HostFacts("node1")
    facts.reports([], 100 * SECOND)
    report = Report(FactKind.XID, "0000:3b:00", 79, 100_500_000)
    facts.reports([report, Report(FactKind.XID, "0000:5e:00", 31, 100_600_000)], 101 * SECOND)
    rows = told(facts, 103)
    assert rows["dev"].tolist() == [11, 12, 0]
    assert rows["code"].tolist() == [79, 79, 31]
    assert rows["age_us"].tolist() == [2_500_000, 2_500_000, 2_400_000]
    assert len(told(facts, 104)) == 0


def test_a_kernel_whose_clock_has_strayed() -> None:
    """What is read now came since the last reading, whatever its time; of the first nobody knows more."""
    facts = HostFacts("node1")
    first = Report(FactKind.XID, "0000:3b:00", 1, 40_000_000)
    facts.reports([first], 100 * SECOND)
    facts.reports([Report(FactKind.XID, "0000:3b:00", 2, 70_000_000)], 110 * SECOND)
    facts.reports([Report(FactKind.XID, "0000:3b:00", 3, 900_000_000)], 120 * SECOND)
    rows = told(facts, 120)[::2]  # each is told for both devices on that GPU
    assert rows["code"].tolist() == [1, 2, 3]
    assert rows["age_us"].tolist() == [80_000_000, 20_000_000, 0]


def test_an_old_report_is_not_told() -> None:
    facts = HostFacts("node1")
    facts.reports([Report(FactKind.XID, "0000:3b:00", 79, 0)], KEEP_NS + 1)
    assert len(told(facts, 700, stalls=True)) == 0


def test_facts_go_to_one_partition() -> None:
    flush = Flush(1, 2, 3, np.array([6, 9], np.uint64), {FACT.name: FACT.empty(3)})
    held = by_partition(flush, 4)
    assert {partition: sorted(sections) for partition, sections in held.items()} == {1: [], 2: ["fact"]}


def test_a_host_is_watched(tree: tuple[Path, Path], tmp_path: Path) -> None:
    """While something stalls a lost carrier and an Xid are seen by themselves."""
    sys, proc = tree
    kmsg = tmp_path / "kmsg"
    os.mkfifo(kmsg)
    watch = HostWatch("node1", sys, proc, kmsg)
    writer = os.open(kmsg, os.O_WRONLY)
    seen: set[tuple[str, int, int]] = set()

    def until(wanted: tuple[str, int, int]) -> None:
        deadline = time.monotonic() + 30.0
        while wanted not in seen:
            assert time.monotonic() < deadline, seen
            time.sleep(0.02)
            watch.watch(True, [(1, 2)])
            for row in watch.due(1, 2, True, GPU, time.monotonic_ns(), 0):
                seen.add((bytes(row["name"]).decode(), int(row["state"]), int(row["code"])))

    try:
        until(("eth0", PortState.UP, 0))
        interface(sys, "eth0", carrier="0\n", operstate="down\n")
        os.write(writer, OFF_THE_BUS.encode())
        until(("eth0", PortState.DOWN, 0))
        until(("0000:3b:00", 0, 79))
    finally:
        watch.close()
        os.close(writer)
