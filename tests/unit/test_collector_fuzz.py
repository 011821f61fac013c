"""Whatever bytes stand in the files, the collector reports and carries on with the others."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from collectors.agent import layout
from collectors.agent.flush import Counts, messages
from collectors.agent.layout import RecordKind, Table
from schemas.envelope import decode
from schemas.records import COLL, FLOW, PROC, unknown_codes
from tests.collector_files import FakeProcess
from tests.unit.test_collector_host import Host, at

ROUNDS = 120
INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF_FFFF, 0xFFFF_FFFF, (1 << 63) - 1, (1 << 64) - 1)


def busy(host: Host, nonce: int) -> FakeProcess:
    """A process with something in every table."""
    made = host.process(nonce=nonce)
    for slot in range(4):
        made.communicator(slot, comm=0xA0 + slot, rank=nonce % 2)
        made.slot(Table.STREAMS, slot)["moved_base"] = slot
        made.slot(Table.CALLS, slot)["generation"] = 2
        made.slot(Table.PAIRS, slot)["key"] = 2 << 48 | slot << 36 | 1 << 32 | 1
    for slot in range(16):
        made.operation(slot, at(-1000), seq=slot + 1, comm=slot % 4)
        made.flow(slot, slot, channel=slot % 4, flags=slot % 2)
    for slot in range(8):
        made.ring(RecordKind.OPERATION, made.tables[Table.OPERATIONS][slot])
        made.ring(RecordKind.FLOW, made.tables[Table.FLOWS][slot])
    return made


def corrupt(made: FakeProcess, dice: random.Random) -> None:
    """Writes something somewhere: a word that overflows things, noise, or a slot over another."""
    memory = np.frombuffer(made.memory, np.uint8)
    kind = dice.randrange(4)
    if kind == 0:
        place = dice.randrange(0, len(memory) - 8) & ~7
        memory[place : place + 8] = np.frombuffer(dice.choice(INTERESTING).to_bytes(8, "little"), np.uint8)
    elif kind == 1:
        row = made.tables[dice.choice(list(Table))]
        at_row, size = dice.randrange(len(row)), row.dtype.itemsize
        row.view(np.uint8).reshape(len(row), size)[at_row] = np.frombuffer(dice.randbytes(size), np.uint8)
    elif kind == 2:
        name = dice.choice(
            [name for name in layout.HOT_HEADER.names or () if name not in ("magic", "tables")]
        )
        field = made.header[name].view(np.uint8).reshape(-1)
        field[:] = np.frombuffer(dice.randbytes(len(field)), np.uint8)
    else:
        made.header["tables"]["used"][0] = [dice.choice(INTERESTING) & 0xFFFF_FFFF for _ in Table]


@pytest.mark.parametrize("seed", range(3))
def test_corruption_under_a_running_collector(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    host, dice, counts = Host(folder), random.Random(seed), Counts()
    good, bad = busy(host, 1), busy(host, 2)
    for round_ in range(ROUNDS):
        for _ in range(dice.randrange(4)):
            corrupt(bad, dice)
        for flush in host.tick(100 * round_):
            for ready in messages(flush, 4, "node1", 0, counts):
                sections = decode(ready.value).sections
                for record in (COLL, FLOW, PROC):
                    if record.name in sections:
                        assert not unknown_codes(record, sections[record.name]).any()
        assert good.path.name in host.files.traced
        if bad.path.name not in host.files.traced:  # found out: another one takes its place
            bad.path.unlink()
            bad = busy(host, round_ + 3)
    assert host.metrics["errors_total"] == 0


def test_files_that_are_cut_grow_vanish_or_are_garbage(tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    host, dice = Host(folder), random.Random(7)
    good = busy(host, 1)
    for round_ in range(60):
        nonce = round_ + 2
        bad = busy(host, nonce)
        host.tick(200 * round_)
        size = bad.path.stat().st_size
        match round_ % 4:
            case 0:
                os.truncate(bad.path, dice.randrange(size))
            case 1:
                os.truncate(bad.path, size * 2)
            case 2:
                bad.path.unlink()
            case 3:
                bad.path.unlink()
                bad.path.write_bytes(dice.randbytes(dice.randrange(size)))
        host.tick(200 * round_ + 100)
        assert good.path.name in host.files.traced
        bad.path.unlink(missing_ok=True)
    assert host.metrics["errors_total"] == 0
    host.tick(20_000)
    assert list(host.files.traced) == [good.path.name]


def test_names_that_are_no_files_of_ours_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    host = Host(folder)
    good = busy(host, 1)
    for name in (
        "x.mycroft",
        "1-2-zzzzzzzzzzzzzzzz.mycroft",
        "..mycroft",
        "1-2-0000000000000001.mycroft.tmp",
    ):
        (folder / name).write_bytes(b"x")
    target = tmp_path / "target"
    target.write_bytes(good.path.read_bytes())
    link = folder / "77-1-00000000000000aa.mycroft"
    link.symlink_to(target)
    host.tick(0)
    assert list(host.files.traced) == [good.path.name]
    assert host.metrics["files_refused"] == 1
    assert link.is_symlink()
