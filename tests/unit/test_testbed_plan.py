"""Plans and faults of the testbed as they are written, and communicators and steps that follow from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.testbed.communicators import communicators, coordinates
from collectors.testbed.errors import BadPlan
from collectors.testbed.faults import KINDS, Fault, parse_fault
from collectors.testbed.plan import Plan, plan_of, read_plan
from collectors.testbed.programme import instructions, plan_text
from collectors.testbed.truth import is_right, truth_of
from mycroft.errors import BAD_INPUT, explain


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rank": 4}, "unknown key 'rank'"),
        ({"ranks": "4"}, "ranks is '4', no int"),
        ({"ranks": True}, "ranks is True, no int"),
        ({"ranks": 1}, "ranks is 1: 2 to 256"),
        ({"ranks": 6, "tp": 4}, "6 ranks are no multiple of tp × pp = 4 × 1"),
        ({"ranks": 8, "tp": 2, "ep": 3}, "a dp group has 4 ranks, no multiple of ep = 3"),
        ({"tp": 0}, "tp is 0: at least 1"),
        ({"network": "rdma"}, "unknown network 'rdma': one of sockets, credits"),
        ({"algorithm": "nvls"}, "unknown algorithm 'nvls'"),
        ({"slot_bytes": 100}, "slot_bytes is 100"),
        ({"dp_count": 3}, "dp_count is 3"),
        ({"rare_every": -1}, "rare_every is -1: not below 0"),
        ({"faults": [3]}, "faults is no list of texts"),
        ({"faults": ["fire@3"]}, "unknown fault 'fire'"),
        ({"faults": ["gpu-hang"]}, "does not say where: gpu-hang@RANK"),
        ({"faults": ["link-down@1"]}, "link-down@HOST-HOST"),
        ({"faults": ["gpu-hang@9"]}, "there is no rank 9, only 0 to 3"),
        ({"faults": ["link-down@0-2"]}, "there is no host 2, only 0 to 1"),
        ({"faults": ["link-down@1-1"]}, "twice the same host"),
        ({"faults": ["gpu-hang@1:t=soon"]}, "'t=soon' is no KEY=NUMBER"),
        ({"faults": ["gpu-hang@1:ms=3"]}, "gpu-hang knows no 'ms', only t, step, comm"),
        ({"faults": ["gpu-hang@1:t=1,step=2"]}, "t or step, not both"),
        ({"faults": ["kill@1:comm=dp"]}, "comm means nothing here"),
        ({"faults": ["lost-credit@1"]}, "needs the network 'credits', not 'sockets'"),
        ({"ranks_per_host": 4, "faults": ["nic-down@1"]}, "one host has no network"),
    ],
)
def test_what_is_no_plan(values: dict[str, Any], said: str) -> None:
    with pytest.raises(BadPlan, match=said) as caught:
        plan_of(values)
    assert (explain(caught.value) or ("", 0))[1] == BAD_INPUT


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text("ranks: 16\nranks_per_host: 8\ntp: 2\nforward_ms: 5\nfaults: ['nic-down@5:t=8']\n")
    plan = plan_of(read_plan(path), str(path))
    assert (plan.ranks, plan.hosts, plan.dp, plan.forward_ms) == (16, 2, 8, 5.0)
    assert plan.faults == (Fault("nic-down", (5,), t=8.0),)


@pytest.mark.parametrize("text", ["- 3\n", "ranks: [\n", "3: 4\n"])
def test_a_file_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(BadPlan, match=r"plan\.yaml"):
        read_plan(path)


def test_a_fault_in_full() -> None:
    fault = parse_fault("slow-channel@2:step=7,comm=dp,channel=1,rate=5e4")
    assert (fault.name, fault.target, fault.step, fault.communicator) == ("slow-channel", (2,), 7, "dp")
    assert fault.command() == "fault slow-channel step=7 comm=dp channel=1 rate=50000"
    assert str(parse_fault("outside-nccl@2,3")) == "outside-nccl@2,3"
    assert str(parse_fault("link-down@0-1:t=3")) == "link-down@0-1"


def test_categories_are_those_of_incidents() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "alert.schema.json").read_text())
    known = set(schema["properties"]["category"]["enum"])
    assert {name for kind in KINDS.values() for name in kind.categories} <= known


def test_truth() -> None:
    plan = Plan(ranks=8, ranks_per_host=4)
    answers = {
        text: truth_of(parse_fault(text), plan)
        for text in (
            "gpu-hang@5",
            "nic-down@5",
            "link-down@0-1",
            "outside-nccl@3,4",
            "host-gone@2",
            "nic-limit-in@5",
            "background-traffic@0-1",
        )
    }
    assert {text: (truth.ranks, truth.hosts) for text, truth in answers.items()} == {
        "gpu-hang@5": ((5,), (1,)),
        "nic-down@5": ((), (1,)),
        "link-down@0-1": ((), (0, 1)),
        "outside-nccl@3,4": ((3, 4), (0, 1)),
        "host-gone@2": ((), (0,)),
        "nic-limit-in@5": ((), (1,)),
        "background-traffic@0-1": ((), (0, 1)),
    }


def test_ranks_in_megatrons_order() -> None:
    plan = Plan(ranks=16, tp=2, pp=2, ep=2)
    assert [coordinates(plan, rank) for rank in (0, 1, 2, 7, 8, 15)] == [
        (0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 3, 0), (0, 0, 1), (1, 3, 1),
    ]  # fmt: skip
    groups = {group.name: group.members for group in communicators(plan)}
    assert groups["world"] == tuple(range(16))
    assert [groups[f"tp-{n}"] for n in (0, 1, 4)] == [(0, 1), (2, 3), (8, 9)]
    assert [groups[f"pp-{n}"] for n in (0, 1, 7)] == [(0, 8), (1, 9), (7, 15)]
    assert [groups[f"dp-{n}"] for n in (0, 1, 2)] == [(0, 2, 4, 6), (1, 3, 5, 7), (8, 10, 12, 14)]
    assert [groups[f"ep-{n}"] for n in (0, 1, 2, 3)] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert len(groups) == 1 + 8 + 8 + 4 + 8
    for kind, size in (("tp", 2), ("pp", 2), ("dp", 4), ("ep", 2)):
        members = [rank for name, group in groups.items() if name.startswith(kind) for rank in group]
        assert sorted(members) == list(range(16)), "every rank is in one of each kind"
        assert all(len(group) == size for name, group in groups.items() if name.startswith(kind))


def test_communicators_of_one_rank_are_left_out() -> None:
    assert [group.name for group in communicators(Plan(ranks=2, ranks_per_host=1))] == ["world", "dp-0"]
    assert [group.name for group in communicators(Plan(ranks=2, tp=2))] == ["world", "tp-0"]


def test_an_identity_is_of_one_start() -> None:
    world = communicators(Plan())[0]
    assert world.identity("a/0") == world.identity("a/0")
    assert len({world.identity("a/0"), world.identity("a/1"), world.identity("b/0")}) == 3


@pytest.mark.parametrize(("pp", "micro_batches"), [(1, 2), (2, 3), (4, 2)])
def test_every_send_meets_its_receive_in_order(pp: int, micro_batches: int) -> None:
    """Run the stages' sends and receives as if each waited for its other end: nobody is left waiting."""
    plan = Plan(ranks=pp * 2, pp=pp, micro_batches=micro_batches)
    groups = communicators(plan)
    ranks = [stage * plan.dp for stage in range(pp)]  # one pipeline
    todo = [
        [
            tuple(line.split()[::2])
            for line in instructions(plan, rank, groups)
            if line[:4] in ("send", "recv")
        ]
        for rank in ranks
    ]
    exchanged = 0
    moved = True
    while moved:
        moved = False
        for stage, mine in enumerate(todo):
            if mine and mine[0][0] == "send":
                peer = int(mine[0][1])
                if todo[peer] and todo[peer][0] == ("recv", str(stage)):
                    mine.pop(0)
                    todo[peer].pop(0)
                    exchanged += 1
                    moved = True
    assert todo == [[]] * pp
    assert exchanged == 2 * (pp - 1) * micro_batches


def test_a_step_ends_in_what_crossed_needs() -> None:
    plan = Plan(ranks=8, tp=2)
    lines = instructions(plan, 3, communicators(plan))
    assert [line.split()[1] for line in lines[-3:]] == ["ReduceScatter", "AllReduce", "AllGather"]
    tree = instructions(Plan(ranks=8, algorithm="tree"), 3, communicators(Plan(ranks=8, algorithm="tree")))
    assert [line.split()[1] for line in tree[-2:]] == ["AllReduce", "AllReduce"]


def test_the_text_for_the_processes() -> None:
    text = plan_text(
        Plan(ranks=4, ranks_per_host=2, pp=2), "job/0", [("127.0.0.1", 7000 + n) for n in range(4)]
    )
    lines = text.splitlines()
    assert lines[:3] == ["channels 2", "slot 65536", "network sockets"]
    assert lines[3:7] == [f"rank {rank // 2} 127.0.0.1 {7000 + rank}" for rank in range(4)]
    assert [line.split()[2:] for line in lines if line.startswith("communicator")] == [
        ["world", "ring", "0", "1", "2", "3"], ["pp-0", "ring", "0", "2"], ["pp-1", "ring", "1", "3"],
        ["dp-0", "ring", "0", "1"], ["dp-1", "ring", "2", "3"],
    ]  # fmt: skip
    assert "pair 1 0 1" in lines
    assert sum(line.startswith("programme") for line in lines) == 4


@pytest.mark.parametrize(
    ("fault", "category", "culprits", "candidates", "right"),
    [
        ("gpu-hang@5", "gpu-hang", {5}, set(), True),
        ("gpu-hang@5", "gpu-hang", {4, 5}, set(), False),
        ("gpu-hang@5", "gpu-hang", set(), {4, 5}, True),
        ("gpu-hang@5", "gpu-hang", set(), {4}, False),
        ("gpu-hang@5", "late-launch", {5}, set(), False),
        ("outside-nccl@1,2", "outside-nccl", {1}, set(), False),
        ("link-down@1-2", "nic-send", {2}, set(), True),
        ("link-down@1-2", "link", {2, 6}, set(), False),
        ("link-down@1-2", "link", set(), {2, 4}, True),
        ("link-down@1-2", "link", set(), {0, 6}, False),
        ("link-down@1-2", "link", set(), set(), False),
    ],
)
def test_right_and_wrong_answers_to_a_fault(
    fault: str, category: str, culprits: set[int], candidates: set[int], right: bool
) -> None:
    plan = Plan(ranks=8, ranks_per_host=2)
    assert is_right(truth_of(parse_fault(fault), plan), plan, category, culprits, candidates) == right


def test_what_a_healthy_job_waits_for() -> None:
    """All members of a communicator run its operations in the same steps; a checkpoint is rank 0's alone."""
    plan = Plan(
        ranks=4, ranks_per_host=2, micro_batches=1, forward_ms=1.0, backward_ms=2.0, uneven_ms=5.0,
        checkpoint_every=50, checkpoint_ms=8000.0, evaluate_every=30, evaluate_ms=3000.0, rare_every=70,
    )  # fmt: skip
    groups = communicators(plan)
    assert [(group.name, group.members) for group in groups] == [
        ("world", (0, 1, 2, 3)), ("dp-0", (0, 1, 2, 3)), ("rare", (0, 1, 2, 3)),
    ]  # fmt: skip
    training = [
        "compute 1", "uneven 5", "compute 2", "uneven 5", "coll ReduceScatter 1 65536 0",
        "coll AllReduce 0 1024 0", "coll AllGather 1 65536 0",
    ]  # fmt: skip
    evaluation = ["every 30 uneven 3000", "every 30 coll AllReduce 0 1024 0"]
    rare = ["every 70 coll AllReduce 2 1024 0"]
    assert instructions(plan, 0, groups) == [*training, *evaluation, "every 50 host 8000", *rare]
    for rank in (1, 2, 3):
        assert instructions(plan, rank, groups) == [*training, *evaluation, *rare]


def test_by_default_there_is_none_of_it() -> None:
    lines = instructions(Plan(), 0, communicators(Plan()))
    assert not [line for line in lines if line.startswith(("every", "uneven", "host"))]
