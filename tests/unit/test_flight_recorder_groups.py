"""Process groups become communicators: listed, observed, of one name with different members, with gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.flight_recorder.dumps import read_folder
from collectors.flight_recorder.groups import (
    Layout,
    comm_id,
    dev_id,
    groups_by_order,
    layout,
    own_groups,
)
from tests.flight_recorder_dumps import JobDumps
from tests.flight_recorder_sets import recorded

WORLD = ("default_pg", [0, 1, 2, 3])
PAIRS = {"1": ("TENSOR_GROUP", [0, 1]), "2": ("TENSOR_GROUP", [2, 3])}
CROSS = {"3": ("DATA_GROUP", [0, 2]), "4": ("DATA_GROUP", [1, 3])}


def members(where: Layout) -> dict[str, tuple[int, ...]]:
    return {comm.name: comm.members for comm in where.communicators}


def of(folder: Path) -> Layout:
    return layout(read_folder(folder), "job", 7)


def gloo(groups: dict[str, tuple[str, list[int]]]) -> JobDumps:
    """Everybody has finished one operation in each group."""
    job = JobDumps(4, groups, style="gloo")
    for name in groups:
        job.together(name, "all_reduce")
    return job


@pytest.mark.shared
@pytest.mark.parametrize("name", ["gpu_error_1st", "lock_gil_2nd"])
def test_numbers_and_names_of_groups_correspond_in_order(name: str) -> None:
    dumps = read_folder(recorded(name)).dumps
    assert len(dumps) == 16
    for dump in dumps.values():
        by_order = groups_by_order(dump)
        assert len(by_order) == len(dump.config) == len(dump.status)
        assert own_groups(dump).items() <= by_order.items()


@pytest.mark.shared
def test_members_of_a_real_job() -> None:
    where = of(recorded("lock_gil_2nd"))
    assert len(where.communicators) == 65
    assert members(where)["TENSOR_MODEL_PARALLEL_GROUP[41]"] == (12, 13)
    assert members(where)["PIPELINE_MODEL_PARALLEL_GROUP[49]"] == (2, 6, 10, 14)
    assert (where.expected, where.silent) == (tuple(range(16)), ())
    # Rank 10 wrote no entries: its numbers are known by order.
    assert where.group_of[10][5] == "40"


def test_members_of_a_gloo_job_are_those_who_recorded() -> None:
    assert members(of(recorded("gloo_hang"))) == {
        "default_pg[0]": tuple(range(8)),
        "TENSOR_MODEL_PARALLEL_GROUP[1]": (0, 1),
        "TENSOR_MODEL_PARALLEL_GROUP[2]": (2, 3),
        "TENSOR_MODEL_PARALLEL_GROUP[3]": (4, 5),
        "TENSOR_MODEL_PARALLEL_GROUP[4]": (6, 7),
        "DATA_PARALLEL_GROUP[5]": (0, 2, 4, 6),
        "DATA_PARALLEL_GROUP[6]": (1, 3, 5, 7),
    }


def test_an_entry_that_contradicts_the_order_discards_it(tmp_path: Path) -> None:
    job = JobDumps(2, {"1": ("A", [0, 1]), "2": ("B", [0, 1])})
    for name in job.groups:
        job.together(name, "all_reduce")
    job.launch(0, "2", "all_reduce")["pg_id"] = 0
    where = of(job.write(tmp_path))
    # pg_id 0 is group 2 by the entry; the one number left belongs to the one name left.
    assert where.group_of[0] == {0: "2", 1: "1"}


def test_unused_groups_that_are_listed_are_counted_once_entries_prove_it(tmp_path: Path) -> None:
    job = JobDumps(2, {"1": ("A", [0, 1]), "2": ("B", [0, 1]), "3": ("C", [0, 1])})
    job.together("1", "all_reduce")
    job.together("3", "all_reduce")
    # As if all communicators were made eagerly: listed, but without a status.
    for rank in (0, 1):
        config = {
            name: {"name": name, "desc": desc, "ranks": [0, 1]} for name, (desc, _) in job.groups.items()
        }
        job.overwrite[rank] = {"pg_config": config}
    assert of(job.write(tmp_path / "silent")).group_of[1] == {}
    job.launch(0, "3", "all_reduce")
    assert of(job.write(tmp_path / "proven")).group_of[1] == {0: "1", 2: "3"}


def test_one_name_with_two_sets_of_members_is_two_communicators(tmp_path: Path) -> None:
    job = JobDumps(4, PAIRS)
    for rank in range(4):
        entry = job.launch(rank, "1" if rank < 2 else "2", "all_reduce")
        entry["process_group"] = ("1", "TENSOR_GROUP")
    for rank in (2, 3):
        job.overwrite[rank] = {"pg_config": {"1": {"name": "1", "desc": "TENSOR_GROUP", "ranks": "[2, 3]"}}}
    where = of(job.write(tmp_path))
    assert sorted(comm.members for comm in where.communicators) == [(0, 1), (2, 3)]
    assert len({comm.id for comm in where.communicators}) == 2
    assert where.index[0, "1"] == where.index[1, "1"] != where.index[2, "1"] == where.index[3, "1"]


def test_ids_differ_by_job_and_attempt() -> None:
    assert comm_id("a", 1, "1", (1, 0)) == comm_id("a", 1, "1", (0, 1))
    ids = {comm_id("a", 1, "1", (0, 1)), comm_id("b", 1, "1", (0, 1)), comm_id("a", 2, "1", (0, 1))}
    assert len(ids | {dev_id("a", 1, 0), dev_id("b", 1, 0), dev_id("a", 2, 0)}) == 6


def test_a_listed_rank_without_a_dump_is_a_silent_member(tmp_path: Path) -> None:
    job = JobDumps(4, {"0": WORLD} | PAIRS)
    for rank in range(4):
        job.launch(rank, "0", "all_reduce")
    where = of(job.write(tmp_path, omit_ranks={3}))
    assert (where.expected, where.silent) == ((0, 1, 2, 3), (3,))
    assert members(where)["default_pg[0]"] == (0, 1, 2, 3)


def test_a_missing_gloo_dump_is_placed_where_only_it_can_be(tmp_path: Path) -> None:
    where = of(gloo({"0": WORLD} | PAIRS | CROSS).write(tmp_path, omit_ranks={2}))
    assert where.silent == (2,)
    assert members(where) == {
        "default_pg[0]": (0, 1, 2, 3),
        "TENSOR_GROUP[1]": (0, 1),
        "TENSOR_GROUP[2]": (2, 3),
        "DATA_GROUP[3]": (0, 2),
        "DATA_GROUP[4]": (1, 3),
    }


def test_where_missing_gloo_dumps_belong_may_stay_open(tmp_path: Path) -> None:
    job = gloo({"0": WORLD} | PAIRS)
    job.launch(1, "1", "all_reduce")
    job.launch(3, "2", "all_reduce")
    where = of(job.write(tmp_path, omit_ranks={2}, truncate={0}))
    sizes = {comm.name: (comm.members, comm.nranks) for comm in where.communicators}
    # Both are stuck alone, so each lacks somebody: 0 or 2.
    assert sizes == {
        "default_pg[0]": ((0, 1, 2, 3), 4),
        "TENSOR_GROUP[1]": ((1,), 2),
        "TENSOR_GROUP[2]": ((3,), 2),
    }


def test_a_present_gloo_rank_that_never_called_is_a_member_all_the_same(tmp_path: Path) -> None:
    job = JobDumps(4, {"0": WORLD} | PAIRS, style="gloo")
    job.together("0", "barrier")
    job.together("1", "all_reduce")
    job.launch(2, "2", "all_reduce")
    assert members(of(job.write(tmp_path)))["TENSOR_GROUP[2]"] == (2, 3)


def test_a_gap_in_gloo_ranks_is_a_silent_rank(tmp_path: Path) -> None:
    job = gloo({"0": WORLD})
    where = of(job.write(tmp_path, omit_ranks={1}))
    assert where.silent == (1,)
    assert members(where) == {"default_pg[0]": (0, 1, 2, 3)}
