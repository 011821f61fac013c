"""Lines of NCCL's log as its versions write them, and files that grow, go, or hold anything else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.agent.ringlog import EVERY_NS, MAX_PATHS, RingLog, RingOrders
from schemas.members import RingPath

CHANNEL = "gpu01:4242:4301 [0] NCCL INFO Channel {channel:02d}/02 :    0   1   3   2"
MADE = (
    "gpu01:4242:4301 [0] NCCL INFO ncclCommInitRankConfig comm 0x55d0c1 rank 0 nranks {nranks} cudaDev 0 "
    "nvmlDev 0 busId 1c0 commId 0x{comm:x} - Init COMPLETE"
)
SPLIT = (
    "gpu01:4242:4301 [0] NCCL INFO ncclCommSplit comm 0x55d0c1 rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1c0 "
    "parent 0x55aa splitCount 2 color 0 key 0 - Init COMPLETE"
)


def orders(*lines: str) -> dict[int, tuple[RingPath, ...]]:
    read = RingOrders()
    for line in lines:
        read.take(line)
    return read.paths


def test_rank_0_tells_whole_rings() -> None:
    lines = [CHANNEL.format(channel=0), CHANNEL.format(channel=1), MADE.format(nranks=4, comm=0xD1E)]
    whole = (0, 1, 3, 2, 0)
    assert orders(*lines) == {0xD1E: (RingPath(0, whole), RingPath(1, whole))}


def test_each_rank_tells_its_own_place() -> None:
    """With the subsystem GRAPH; two ranks of a host, each in a process of its own, in one file."""
    lines = []
    for rank, (before, after) in {2: (3, 0), 3: (1, 2)}.items():
        thread = f"gpu01:{5000 + rank}:{6000 + rank} [{rank}] NCCL INFO "
        lines += [f"{thread}Ring 00 : {before} -> {rank} -> {after}"]
        lines += [f"{thread}Trees [0] 1/-1/-1->{rank}->-1", f"{thread}P2P Chunksize set to 131072"]
    for rank in (3, 2):
        lines.append(
            f"gpu01:{5000 + rank}:{6000 + rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} "
            f"nranks 4 cudaDev {rank} nvmlDev {rank} busId 1c0 commId 0xab - Init COMPLETE"
        )
    assert orders(*lines) == {0xAB: (RingPath(0, (1, 3, 2)), RingPath(0, (3, 2, 0)))}


def test_a_large_ring_is_cut_at_20_ranks() -> None:
    """rings.cc prints MAXWIDTH of them: what is there is known, and that it does not close."""
    line = "[2026-11-02 10:00:00] n:1:2 [0] NCCL INFO Channel 00/16 : " + "".join(
        f" {r:3d}" for r in range(20)
    )
    last = "[2026-11-02 10:00:01] n:1:2 [0] NCCL INFO x comm 0x1 rank 0 nranks 64 commId 0x7 - Init COMPLETE"
    assert orders(line, last) == {7: (RingPath(0, tuple(range(20))),)}


@pytest.mark.parametrize(
    "lines",
    [
        [CHANNEL.format(channel=0), SPLIT],  # it names no communicator
        [CHANNEL.format(channel=0), SPLIT, MADE.format(nranks=4, comm=9)],  # nor is its ring that of the next
        [MADE.format(nranks=4, comm=9)],
        [CHANNEL.format(channel=0), MADE.format(nranks=3, comm=9)],  # rank 3 of 3
        [CHANNEL.format(channel=0).replace("4301", "4302"), MADE.format(nranks=4, comm=9)],  # another thread
        ["gpu01:4242:4301 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P", MADE.format(nranks=4, comm=9)],
        [CHANNEL.format(channel=0), MADE.format(nranks=4, comm=1 << 64)],
        [CHANNEL.format(channel=0).replace("3", "99999999999"), MADE.format(nranks=4, comm=9)],
        ["", "\x00\xff", "NCCL INFO", "a:1:2 [0] NCCL INFO "],
    ],
)  # fmt: skip
def test_what_tells_no_order(lines: list[str]) -> None:
    assert orders(*lines) == {}


def test_no_log_is_without_bounds() -> None:
    lines = [CHANNEL.format(channel=number) for number in range(MAX_PATHS + 50)]
    assert len(orders(*lines, MADE.format(nranks=4, comm=1))[1]) == MAX_PATHS


@given(
    st.lists(
        st.text(max_size=60) | st.sampled_from([CHANNEL.format(channel=1), MADE.format(nranks=4, comm=3)])
    )
)
def test_no_line_is_trusted(lines: list[str]) -> None:
    assert set(orders(*lines)) <= {3}


def test_files_are_read_as_they_grow(tmp_path: Path) -> None:
    log, now = RingLog(str(tmp_path / "nccl.*.log")), 0
    log.read(now)
    assert log.paths == {}
    file = tmp_path / "nccl.gpu01.4242.log"
    half = MADE.format(nranks=4, comm=5)[:40]
    file.write_text(CHANNEL.format(channel=0) + "\n" + half)
    log.read(now := now + EVERY_NS)
    assert log.paths == {}
    with file.open("a") as more:
        more.write(MADE.format(nranks=4, comm=5)[40:] + "\n")
    log.read(now + 1)  # not yet: files are looked at each second
    assert log.paths == {}
    log.read(now := now + EVERY_NS)
    assert list(log.paths) == [5]
    file.unlink()  # its inode may come again
    file.write_text(f"{CHANNEL.format(channel=0)}\n{MADE.format(nranks=4, comm=6)}\n".replace("4242", "777"))
    log.read(now + EVERY_NS)
    assert list(log.paths) == [5, 6]


def test_what_cannot_be_read_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "nccl.log").mkdir()
    log = RingLog(str(tmp_path / "nccl.log"))
    for number in range(3):
        log.read(number * EVERY_NS)
    assert [record.message for record in caplog.records] == [
        f"NCCL's log {tmp_path / 'nccl.log'} cannot be read: {os.strerror(21)}"
    ]
