"""`mycroft tier`: whose tier is changed, and what is said where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from collectors.agent.layout import NotOurs, State, Tier
from collectors.tiers import request_tier
from mycroft.cli import app
from mycroft.commands import tier as command
from mycroft.doctor.traced import find_processes
from mycroft.errors import UsageError
from tests.collector_files import FakeProcess


def run(folder: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["tier", *arguments, "--dir", str(folder)])


def job(name: str) -> dict[str, str]:
    return {"MYCROFT_JOB": name}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_FOLLOWS_S", 0.0)


def requested(process: FakeProcess) -> int:
    return int(process.header["requested_tier"][0])


def test_what_each_process_has(tmp_path: Path) -> None:
    process = FakeProcess(tmp_path, environment=job("train"), applied_tier=Tier.OPS)
    done = run(tmp_path)
    assert done.exit_code == 0
    assert done.stdout.split() == ["pid", "job", "traces", str(process.pid), "train", "ops"]


@pytest.mark.parametrize("name", [" ", "none", "evil\x1b[31m\nname"])
def test_what_the_collector_takes_for_no_name_is_none(tmp_path: Path, name: str) -> None:
    FakeProcess(tmp_path, environment=job(name), applied_tier=Tier.OPS)
    assert run(tmp_path).stdout.split()[-3:] == ["(no", "name)", "ops"]


def test_a_job_has_the_name_that_the_collector_tells(tmp_path: Path) -> None:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    FakeProcess(tmp_path, nonce=1, environment={"SLURM_JOB_ID": "7"}, applied_tier=Tier.OPS)
    FakeProcess(tmp_path, nonce=2, environment=where)
    jobs = {process.job for process in find_processes(tmp_path, host="node1")}
    assert jobs == {"slurm-7.0", "at-node1-127.0.0.1:29500"}


def test_one_job_is_changed_and_no_other(tmp_path: Path) -> None:
    mine = [FakeProcess(tmp_path, nonce=nonce, environment=job("train")) for nonce in (1, 2)]
    other = FakeProcess(tmp_path, nonce=3, environment=job("other"), requested_tier=Tier.FLOWS)
    done = run(tmp_path, "idle", "--job", "train")
    assert done.exit_code == 0
    assert [requested(process) for process in mine] == [Tier.IDLE, Tier.IDLE]
    assert requested(other) == Tier.FLOWS
    assert "2 of 2 will follow at the next launch." in done.stderr


def test_a_process_that_follows_is_shown_so(tmp_path: Path) -> None:
    FakeProcess(tmp_path, environment=job("train"), applied_tier=Tier.OPS)
    done = run(tmp_path, "ops")
    assert done.stdout.split()[-1] == "ops"
    assert "follow" not in done.stderr


def test_the_dead_and_those_that_are_off_are_left_alone(tmp_path: Path) -> None:
    gone = FakeProcess(tmp_path, nonce=1, start_ticks=1)
    off = FakeProcess(tmp_path, nonce=2, state=State.OFF)
    FakeProcess(tmp_path, nonce=3)
    assert run(tmp_path, "kernel").exit_code == 0
    assert requested(gone) == requested(off) == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fast"], "unknown tier 'fast': one of ops, flows, kernel, idle"),
        (["ops"], "several jobs run on this host: one, two; choose one with --job"),
        (["ops", "--job", "three"], "no process of job three is traced on this host; there are: one, two"),
    ],
)
def test_what_cannot_be_meant(tmp_path: Path, arguments: list[str], says: str) -> None:
    FakeProcess(tmp_path, nonce=1, environment=job("one"))
    FakeProcess(tmp_path, nonce=2, environment=job("two"))
    done = run(tmp_path, *arguments)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == says


def test_an_empty_folder(tmp_path: Path) -> None:
    done = run(tmp_path, "ops")
    assert str(done.exception) == f"no process is traced in {tmp_path}; mycroft doctor says why"


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    """Else root would write into whatever the job's user had linked there."""
    process = FakeProcess(tmp_path)
    target = tmp_path / "target"
    target.write_bytes(bytes(4096))
    name = process.path.name
    process.path.unlink()
    process.path.symlink_to(target)
    with pytest.raises(NotOurs, match="symbolic link"):
        request_tier(tmp_path, name, Tier.IDLE)
    assert target.read_bytes() == bytes(4096)


def test_a_file_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = FakeProcess(tmp_path)

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(command, "request_tier", denied)
    done = run(tmp_path, "ops")
    assert done.exit_code == 1
    assert f"pid {process.pid}: Permission denied; be its user, or root" in done.stderr
