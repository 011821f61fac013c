"""Files and folders of dumps: whose is what, what is refused, who is silent."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from collectors.flight_recorder.dumps import parse_dump, rank_in_name, read_folder
from collectors.flight_recorder.errors import BadDump, BadFolder
from collectors.flight_recorder.operations import datatype, operation
from schemas.enums import DataType, Func
from tests.flight_recorder_dumps import JobDumps


def job(style: str = "nccl") -> JobDumps:
    """Two ranks; one collective finished, a second that only rank 0 has launched."""
    dumps = JobDumps(2, {"1": ("DATA_PARALLEL_GROUP", [0, 1])}, style=style)
    dumps.together("1", "all_reduce")
    dumps.launch(0, "1", "all_reduce", count=[3, 5], dtype="BFloat16")
    return dumps


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("_dump_0", 0), ("_dump_12", 12), ("nccl_trace_rank_3", 3), ("nccl_trace_rank_007.pkl", 7),
        ("rank12.json", 12), ("README", None), ("fault_injection.log", None), ("_dump_99999999999", None),
    ],
)  # fmt: skip
def test_the_rank_is_in_the_name(name: str, rank: int | None) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(
    ("name", "func", "peer"),
    [
        ("nccl:all_reduce", Func.ALL_REDUCE, -1), ("gloo:all_reduce", Func.ALL_REDUCE, -1),
        ("nccl:_all_gather_base", Func.ALL_GATHER, -1),
        ("nccl:_reduce_scatter_base", Func.REDUCE_SCATTER, -1),
        ("nccl:all_gather_into_tensor_coalesced", Func.ALL_GATHER, -1),
        ("ALLGATHER_coalesced", Func.ALL_GATHER, -1),
        ("nccl:reduce_scatter_tensor_coalesced", Func.REDUCE_SCATTER, -1),
        ("nccl:allreduce_coalesced", Func.ALL_REDUCE, -1), ("nccl:all_to_all", Func.ALL_TO_ALL, -1),
        ("nccl:alltoall_base", Func.ALL_TO_ALL, -1), ("nccl:broadcast", Func.BROADCAST, -1),
        ("nccl:_broadcast_oop", Func.BROADCAST, -1), ("nccl:reduce", Func.REDUCE, -1),
        ("nccl:gather", Func.GATHER, -1), ("nccl:scatter", Func.SCATTER, -1),
        ("nccl:all_reduce_barrier", Func.BARRIER, -1), ("gloo:barrier", Func.BARRIER, -1),
        ("nccl:send 0->3", Func.SEND, 3), ("nccl:recv 0<-13", Func.RECV, 13),
        ("nccl:recvAnySource", Func.RECV, -1),
        ("xccl:something_new", Func.OTHER, -1),
    ],
)  # fmt: skip
def test_profiling_names(name: str, func: Func, peer: int) -> None:
    said = operation(name)
    assert (said.func, said.peer) == (func, peer)


def test_dtypes_that_are_not_known_are_said_to_be_other() -> None:
    assert datatype("Float8_e4m3fn") == (DataType.FLOAT8_E4M3, 1)
    assert datatype("Tomorrow") == (DataType.OTHER, 1)


@pytest.mark.parametrize("fmt", ["pickle", "json"])
def test_both_formats_say_the_same(tmp_path: Path, fmt: str) -> None:
    dumps = read_folder(job().write(tmp_path, fmt=fmt)).dumps
    assert sorted(dumps) == [0, 1]
    rows = dumps[0].entries
    assert rows["record_id"].tolist() == [1]
    assert rows["count"].tolist() == [15]
    assert (rows["datatype"][0], rows["itemsize"][0]) == (DataType.BFLOAT16, 2)
    assert not rows["finished"][0]
    assert dumps[0].config["1"].ranks == (0, 1)
    assert {pg: (said.enqueued, said.completed) for pg, said in dumps[0].status.items()} == {0: (2, 1)}
    # Rank 1 has nothing pending: it writes no entries, and that is a statement.
    assert len(dumps[1].entries) == 0
    assert {pg: (said.enqueued, said.completed) for pg, said in dumps[1].status.items()} == {0: (1, 1)}


def test_gloo_finishes_what_it_calls_scheduled(tmp_path: Path) -> None:
    dumps = read_folder(job("gloo").write(tmp_path)).dumps
    assert dumps[0].entries["finished"].tolist() == [True, False]
    assert dumps[0].config == {}


def broken(**changes: Any) -> bytes:
    body = job().dump(0) | changes
    return pickle.dumps({key: value for key, value in body.items() if value is not ...})


def entry(**changes: object) -> list[dict[str, object]]:
    (only,) = job().dump(0)["entries"]
    return [only, only | changes]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (broken(version="3.0"), "format version '3.0' (known: 2.x)"),
        (broken(version=...), "no format version, so it is no dump (known: 2.x)"),
        (broken(entries=...), "has no list of entries"),
        (broken(entries=[7]), "entry 0: "),
        (broken(entries=entry(record_id="x")), "entry 1: "),
        (broken(entries=entry(record_id=-1)), "entry 1: ValueError: record_id is out of range"),
        (broken(entries=entry(input_sizes=[[1 << 40, 1 << 40]])), "entry 1: "),
        (broken(entries=entry(time_created_ns=1 << 70)), "entry 1: "),
        (broken(entries=entry(process_group=(1, 2))), "entry 1: TypeError: process_group is not"),
        (broken(pg_status={"x": {}}), "pg_config or pg_status: "),
        (broken(pg_config={"1": {"ranks": "[0, 0]"}}), "pg_config or pg_status: ValueError: ranks of"),
        (broken(rank=5), "its field rank says 5, its name 0"),
        (pickle.dumps([1]), "holds a list, not a dump"),
    ],
)  # fmt: skip
def test_a_bad_dump_says_where(raw: bytes, said: str) -> None:
    with pytest.raises(BadDump) as caught:
        parse_dump(raw, "_dump_0")
    assert str(caught.value).startswith(f"_dump_0: {said}")
    assert "\n" not in str(caught.value)


def test_a_json_may_name_its_rank(tmp_path: Path) -> None:
    body = json.dumps(job().dump(1) | {"rank": 1})
    (tmp_path / "trace.json").write_text(body)
    assert list(read_folder(tmp_path).dumps) == [1]


def test_silent_ranks_and_skipped_files(tmp_path: Path) -> None:
    dumps = JobDumps(4, {"1": ("DATA_PARALLEL_GROUP", [0, 1, 2, 3])})
    for rank in range(4):
        dumps.launch(rank, "1", "all_reduce")
    dumps.write(tmp_path, omit_ranks={3}, truncate={2})
    (tmp_path / "_dump_1").write_bytes(b"")
    (tmp_path / "fault_injection.log").write_text("rank 1")
    (tmp_path / ".lock").write_text("")
    (tmp_path / "core.4711").write_bytes(b"\x7fELF")
    folder = read_folder(tmp_path)
    assert list(folder.dumps) == [0]
    assert folder.silent[1] == "_dump_1: no bytes"
    assert folder.silent[2].startswith("_dump_2: not a readable pickle: ")
    assert folder.skipped["core.4711"].startswith("not a readable pickle: ")
    assert dict(folder.skipped) | {"core.4711": ""} == {
        "core.4711": "",
        ".lock": "hidden",
        "fault_injection.log": "its name does not end in a rank",
    }


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    job().write(tmp_path)
    job().write(tmp_path, fmt="json", omit_ranks={0})
    with pytest.raises(BadFolder, match=r"_dump_1 and rank1\.json are both of rank 1: keep one of them"):
        read_folder(tmp_path)


def test_folders_without_dumps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadFolder, match="absent: no such folder"):
        read_folder(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadFolder, match=r"no Flight Recorder dump that can be read \(it is empty\)"):
        read_folder(tmp_path / "empty")
    (tmp_path / "_dump_0").write_bytes(b"")
    with pytest.raises(BadFolder, match=r"that can be read \(_dump_0: no bytes\)"):
        read_folder(tmp_path)
    with pytest.raises(BadFolder, match="_dump_0: not a folder"):
        read_folder(tmp_path / "_dump_0")


def test_a_hostile_file_makes_the_folder_untrusted(tmp_path: Path) -> None:
    job().write(tmp_path)
    (tmp_path / "_dump_1").write_bytes(b"cos\nsystem\n(Vtouch x\ntR.")
    with pytest.raises(BadFolder, match=r"_dump_1: refused: it wants to load os\.system.*nothing imported"):
        read_folder(tmp_path)


def test_an_older_format_is_read() -> None:
    (old,) = job().dump(0)["entries"]
    for name in ("process_group", "p2p_seq_id", "op_id", "is_p2p", "retired", "input_dtypes"):
        del old[name]
    old["seq_id"] = old.pop("collective_seq_id")
    dump = parse_dump(pickle.dumps({"version": "2.0", "entries": [old]}), "_dump_0")
    assert dump.names == (("0", ""),)
    assert dump.entries["collective"].tolist() == [2]
    assert dump.entries["datatype"].tolist() == [DataType.UNKNOWN]
