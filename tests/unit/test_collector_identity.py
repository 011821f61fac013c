"""Jobs, attempts and devices: the same on every host, different for what must not mix."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from collectors.agent.identity import device_id, job_of, process_id, world_rank
from schemas.ids import job_id

ROOT = Path(__file__).parents[2]
BEFORE_ANY_CLOCK = 1 << 58
STARTED = 1_760_000_000_000_000_000


def name_of(**environment: str) -> str:
    return job_of(environment, "node1", 1000, STARTED).name


def attempt_of(**environment: str) -> int:
    return job_of(environment, "node1", 1000, STARTED).attempt_id


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"MYCROFT_JOB": "llama-7b", "SLURM_JOB_ID": "5"}, "llama-7b"),
        ({"MYCROFT_JOB": "none", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2"}, "slurm-5.2"),
        ({"SLURM_JOB_ID": "5", "SLURM_CLUSTER_NAME": "eos"}, "slurm-eos-5.0"),
        (
            {
                "SLURM_JOB_ID": "9",
                "SLURM_ARRAY_JOB_ID": "5",
                "SLURM_ARRAY_TASK_ID": "3",
                "SLURM_STEP_ID": "0",
            },
            "slurm-5_3.0",
        ),
        ({"TORCHELASTIC_RUN_ID": "run7"}, "torchrun-run7"),
        ({"TORCHELASTIC_RUN_ID": "run7", "POD_NAMESPACE": "team-a"}, "torchrun-team-a-run7"),
        # What torchrun sets where nothing was given is no name: the rendezvous tells two jobs apart.
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"}, "at-n0:29500"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, "at-node1-127.0.0.1:29500"),
        ({"MYCROFT_JOB": "a\nb"}, "unnamed-node1-1000"),
        ({}, "unnamed-node1-1000"),
    ],
)
def test_names(environment: dict[str, str], name: str) -> None:
    job = job_of(environment, "node1", 1000, STARTED)
    assert (job.name, job.id, job.named) == (name, job_id(name), not name.startswith("unnamed"))


@pytest.mark.parametrize(
    "environment",
    [
        {"MYCROFT_JOB": "a", "MASTER_ADDR": "n0", "MASTER_PORT": "29500"},
        {"SLURM_JOB_ID": "5", "SLURM_JOB_START_TIME": "1760000000"},
        {"TORCHELASTIC_RUN_ID": "r", "TORCHELASTIC_RESTART_COUNT": "2"},
        {"MASTER_ADDR": "n0", "MASTER_PORT": "29500"},
    ],
)
def test_all_hosts_agree(environment: dict[str, str]) -> None:
    here = job_of(environment | {"RANK": "0"}, "node1", 1000, STARTED)
    there = job_of(environment | {"RANK": "9"}, "node2", 1001, STARTED + 77)
    assert here == there


def test_later_attempts_are_larger() -> None:
    slurm = [
        attempt_of(SLURM_JOB_ID="5", SLURM_JOB_START_TIME=begun, TORCHELASTIC_RESTART_COUNT=restarts)
        for begun, restarts in (("1760000000", "0"), ("1760000000", "1"), ("1760000009", "0"))
    ]
    assert slurm == [1_760_000_000_000_000_000, 1_760_000_000_000_000_001, 1_760_000_009_000_000_000]
    # torchrun takes another port for each restart.
    torchrun = [
        attempt_of(
            TORCHELASTIC_RUN_ID="r", TORCHELASTIC_RESTART_COUNT=str(count), MASTER_PORT=str(50000 - count)
        )
        for count in range(5)
    ]
    assert torchrun == sorted(set(torchrun))
    own = [attempt_of(MYCROFT_JOB="a", MYCROFT_ATTEMPT=number) for number in ("1", "2", "10")]
    assert own == sorted(set(own))


def test_an_attempt_without_a_known_start_never_looks_newer_than_a_real_one() -> None:
    assert attempt_of(TORCHELASTIC_RUN_ID="r", TORCHELASTIC_RESTART_COUNT="99999999") < BEFORE_ANY_CLOCK
    assert attempt_of(MYCROFT_JOB="a", MYCROFT_ATTEMPT="9" * 18) < BEFORE_ANY_CLOCK
    assert 0 < attempt_of(MYCROFT_JOB="a", MYCROFT_ATTEMPT="before-lunch") < BEFORE_ANY_CLOCK
    assert attempt_of(MYCROFT_ATTEMPT="1760000000000000000") == STARTED
    assert attempt_of() == STARTED


def test_starts_of_one_job_with_nothing_but_another_rendezvous_differ() -> None:
    one = attempt_of(MYCROFT_JOB="a", MASTER_ADDR="n0", MASTER_PORT="1")
    assert one != attempt_of(MYCROFT_JOB="a", MASTER_ADDR="n0", MASTER_PORT="2")


def test_world_ranks() -> None:
    assert world_rank({"RANK": "3", "SLURM_PROCID": "4"}) == 3
    assert world_rank({"SLURM_PROCID": "4"}) == 4
    assert world_rank({"RANK": "-1", "OMPI_COMM_WORLD_RANK": "²"}) is None


def test_a_reused_pid_and_the_same_pid_elsewhere_are_other_processes() -> None:
    one = process_id("n", 1, 42, 100)
    assert one == process_id("n", 1, 42, 100)
    assert (
        len({one, process_id("n", 1, 42, 101), process_id("n", 2, 42, 100), process_id("m", 1, 42, 100)}) == 4
    )
    assert device_id(one, 0) != device_id(one, 1)


class Asked(dict[str, str]):
    """An environment that notes which variables it is asked for."""

    def __init__(self, held: dict[str, str]) -> None:
        super().__init__(held)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)


def test_the_plugin_hands_over_every_variable_that_is_read() -> None:
    """Its list is an allow-list: what it lacks is not known here, whatever the launcher sets."""
    asked: set[str] = set()
    for held in (
        {},
        {"SLURM_JOB_ID": "5", "SLURM_ARRAY_JOB_ID": "4", "SLURM_ARRAY_TASK_ID": "1"},
        {"MYCROFT_JOB": "llama"},
        {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
    ):
        environment = Asked(held)
        job_of(environment, "node1", 1000, STARTED)
        world_rank(environment)
        asked |= environment.names
    assert {"SLURM_JOB_START_TIME", "PMIX_NAMESPACE", "TORCHELASTIC_RUN_ID", "RANK"} <= asked
    source = (ROOT / "native" / "plugin" / "identity.cpp").read_text()
    listed = re.findall(r'"(\w+=?)"', source.split("kAllowed[] = {")[1].split("};")[0])
    missing = {name for name in asked if not any(f"{name}=".startswith(prefix) for prefix in listed)}
    assert not missing
