"""Entries become records, positions are what the dumps prove. Right values derived by hand from the dumps."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.flight_recorder.errors import BadInput
from collectors.flight_recorder.snapshot import Snapshot, read_snapshot
from schemas.enums import DataType, Flag, Func, Kind, Visibility
from schemas.records import COLL, UNKNOWN_US, as_dict, unknown_codes
from tests.flight_recorder_dumps import JobDumps
from tests.flight_recorder_sets import recorded

PAIR = {"1": ("DATA_GROUP", [0, 1])}
NOW = 1_800_000_000_123_456_789


class Told:
    """A snapshot's records by world rank and communicator name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.names = {each.comm: each.name for each in snapshot.announcements}
        self.ranks = {
            member.dev: member.world_rank for each in snapshot.announcements for member in each.members
        }

    def of(self, rows: np.ndarray[Any, Any], rank: int) -> list[dict[str, Any]]:
        return [
            as_dict(row) | {"comm": self.names[int(row["comm"])]}
            for row in rows
            if self.ranks[int(row["dev"])] == rank
        ]

    def position(self, rank: int, comm: str) -> tuple[int, int, int] | None:
        """Launched, ended and order of the collectives."""
        found = [
            (row["seq"], row["ended"], row["order"])
            for row in self.of(self.snapshot.positions, rank)
            if row["comm"] == comm and row["func"] == Func.ANY
        ]
        assert len(found) < 2
        return found[0] if found else None

    def pairs(self, rank: int) -> dict[tuple[Func, int], tuple[int, int]]:
        """(func, peer) → launched and ended of the sends and receives."""
        return {
            (Func(row["func"]), row["peer"]): (row["seq"], row["ended"])
            for row in self.of(self.snapshot.positions, rank)
            if row["func"] != Func.ANY
        }

    def pending(self, rank: int) -> list[dict[str, Any]]:
        return self.of(self.snapshot.pending, rank)

    def done(self, rank: int) -> list[dict[str, Any]]:
        return self.of(np.concatenate(self.snapshot.done), rank)


def told(folder: Path) -> Told:
    snapshot = read_snapshot(folder, "job", now=NOW)
    for rows in (*snapshot.done, snapshot.pending, snapshot.positions):
        assert rows.dtype == COLL.dtype
        assert not unknown_codes(COLL, rows).any()
        assert (rows["visibility"] == Visibility.COMPLETE).all()
    return Told(snapshot)


def test_gloo_hang() -> None:
    what = told(recorded("gloo_hang"))
    # Rank 5 never came to the 21st of its TENSOR group, where rank 4 waits.
    assert what.position(5, "TENSOR_MODEL_PARALLEL_GROUP[3]") == (20, 20, 44)
    assert what.position(4, "TENSOR_MODEL_PARALLEL_GROUP[3]") == (21, 20, 45)
    assert what.position(0, "DATA_PARALLEL_GROUP[5]") == (20, 20, 45)
    assert what.position(2, "DATA_PARALLEL_GROUP[5]") == (21, 20, 46)
    assert [len(what.pending(rank)) for rank in range(8)] == [0, 0, 1, 1, 1, 0, 1, 1]
    (waits,) = what.pending(4)
    assert (waits["comm"], waits["rank"], waits["nranks"]) == ("TENSOR_MODEL_PARALLEL_GROUP[3]", 0, 2)
    assert (waits["func"], waits["seq"], waits["order"]) == (Func.ALL_REDUCE, 21, 45)
    assert (waits["count"], waits["datatype"], waits["bytes"]) == (16384, DataType.FLOAT32, 65536)
    assert (waits["kind"], waits["current"], waits["flags"]) == (Kind.STATE, 1, Flag.SEQ_PER_COMM)
    assert (waits["age_us"], waits["quiet_us"], waits["end_us"]) == (UNKNOWN_US,) * 3
    assert len(what.done(0)) == 45
    assert what.snapshot.blind == ("p2p",)
    assert what.snapshot.silent == {}


def test_gloo_healthy() -> None:
    snapshot = told(recorded("gloo_healthy")).snapshot
    assert len(snapshot.pending) == 0
    assert (snapshot.positions["seq"] == snapshot.positions["ended"]).all()
    assert len(snapshot.positions) == 24


@pytest.mark.shared
def test_gpu_error() -> None:
    what = told(recorded("gpu_error_1st"))
    assert what.position(12, "TENSOR_MODEL_PARALLEL_GROUP[41]") == (42817, 42805, 90110)
    assert what.position(13, "TENSOR_MODEL_PARALLEL_GROUP[41]") == (42826, 42817, 90126)
    for rank in (12, 14):
        (current,) = [row for row in what.pending(rank) if row["current"] == 1]
        assert (current["comm"][:21], current["seq"]) == ("TENSOR_MODEL_PARALLEL", 42806)
    # pg_status counts sends here (11980), the collectives stand in the entries: 26 all have finished.
    assert what.position(12, "PIPELINE_MODEL_PARALLEL_GROUP[43]") == (26, 26, 90110)
    # Rank 0 has two sends to group rank 3 pending, which has launched one receive of them.
    assert what.pairs(0)[Func.SEND, 3] == (2, 0)
    assert what.pairs(12)[Func.RECV, 0] == (1, 0)
    assert what.snapshot.blind == ()


@pytest.mark.shared
def test_lock_gil() -> None:
    what = told(recorded("lock_gil_2nd"))
    # Rank 10 wrote no entries. Its launches: 81366 by pg_status and the 27 collectives of the pipeline group,
    # whose status counts the sends: what its neighbours launched next has record_id 81393.
    assert what.position(10, "TENSOR_MODEL_PARALLEL_GROUP[40]") == (31442, 31442, 81393)
    assert what.position(10, "PIPELINE_MODEL_PARALLEL_GROUP[49]") == (27, 27, 81393)
    assert what.position(11, "TENSOR_MODEL_PARALLEL_GROUP[40]") == (31451, 31442, 81416)
    assert min(row["order"] for row in what.pending(11)) == 81394
    assert what.position(15, "EXPERT_MODEL_PARALLEL_GROUP[74]") == (20946, 20946, 91931)
    assert set(what.pairs(10).values()) == {(0, 0)}
    assert what.pending(10) == []


def test_later_operations_may_finish_before_older_ones(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    for rank in (0, 1):
        job.launch(rank, "1", "all_reduce")
        job.finish(job.launch(rank, "1", "all_reduce"), after_ns=2_500_999)
    what = told(job.write(tmp_path, drop_finished=False))
    assert what.position(0, "DATA_GROUP[1]") == (2, 0, 2)
    (done,) = what.done(0)
    assert (done["seq"], done["end_us"], done["first_us"]) == (2, 2500, 0)
    (pending,) = what.pending(0)
    assert (pending["seq"], pending["current"]) == (1, 1)


def test_a_pending_operation_that_the_ring_has_lost_is_not_called_finished(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    for _ in range(3):
        job.together("1", "all_reduce")
    for rank in (0, 1):
        job.launch(rank, "1", "all_reduce")
        job.launch(rank, "1", "all_reduce")
    job.overwrite[0] = {"entries": []}
    what = told(job.write(tmp_path))
    assert what.position(0, "DATA_GROUP[1]") == (5, 3, 5)
    assert what.position(1, "DATA_GROUP[1]") == (5, 3, 5)


def test_a_group_that_a_rank_has_never_used_stands_at_zero(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR | {"2": ("OTHER_GROUP", [0, 1])})
    job.together("1", "all_reduce")
    job.launch(0, "2", "broadcast")
    what = told(job.write(tmp_path))
    assert what.position(0, "OTHER_GROUP[2]") == (1, 0, 2)
    # Rank 1 does not list the group: NCCL does so with the first call.
    assert what.position(1, "OTHER_GROUP[2]") == (0, 0, 1)


def test_unknown_positions_are_left_out(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR | {"2": ("OTHER_GROUP", [0, 1])})
    job.together("1", "all_reduce")
    job.together("2", "all_reduce")
    job.launch(0, "1", "all_reduce")
    # Rank 1 lists groups under names that do not tell their order, and has no entries.
    names = {"b": "OTHER_GROUP", "a": "DATA_GROUP"}
    job.overwrite[1] = {"pg_config": {name: {"desc": desc, "ranks": [0, 1]} for name, desc in names.items()}}
    what = told(job.write(tmp_path))
    assert what.position(0, "DATA_GROUP[1]") == (2, 1, 3)
    assert [what.position(1, comm) for comm in what.names.values()] == [None] * 4


def test_the_order_of_a_dump_without_entries_needs_proof(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    job.together("1", "all_reduce")
    job.launch(0, "1", "all_reduce")
    assert told(job.write(tmp_path / "proven")).position(1, "DATA_GROUP[1]") == (1, 1, 1)
    job.entries[0][1]["record_id"] = 40  # rank 0 launched more than its status counts
    assert told(job.write(tmp_path / "not")).position(1, "DATA_GROUP[1]") == (1, 1, 0)


def test_sends_and_receives_are_counted_where_dumps_go_back_to_the_start(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    job.together("1", "barrier")
    for _ in range(2):
        job.finish(job.launch(0, "1", "send", peer=1))
    job.finish(job.launch(1, "1", "recv", peer=0))
    job.launch(1, "1", "recv", peer=0)
    what = told(job.write(tmp_path, drop_finished=False))
    assert what.pairs(0) == {(Func.SEND, 1): (2, 2)}
    assert what.pairs(1) == {(Func.RECV, 0): (2, 1)}
    (pending,) = what.pending(1)
    assert (pending["seq"], pending["peer"], pending["flags"]) == (2, 0, Flag.P2P)
    # The collectives of a group with sends: by the entries alone.
    assert what.position(0, "DATA_GROUP[1]") == (1, 1, 3)
    assert what.position(1, "DATA_GROUP[1]") == (1, 1, 3)


def test_sends_and_receives_are_aligned_where_finished_ones_are_dropped(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    for _ in range(5):
        job.finish(job.launch(0, "1", "send", peer=1))
        job.finish(job.launch(1, "1", "recv", peer=0))
    job.launch(0, "1", "send", peer=1)
    what = told(job.write(tmp_path))
    (pending,) = what.pending(0)
    assert (pending["seq"], pending["flags"]) == (1, Flag.P2P | Flag.SEQ_RELATIVE)
    assert what.pairs(0) == {(Func.SEND, 1): (1, 0)}
    assert what.pairs(1) == {(Func.RECV, 0): (0, 0)}


def test_a_silent_peer_has_no_position(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    job.launch(0, "1", "send", peer=1)
    what = told(job.write(tmp_path, omit_ranks={1}))
    assert what.snapshot.silent == {1: "no dump"}
    assert (what.pairs(0), what.pairs(1)) == ({(Func.SEND, 1): (1, 0)}, {})
    (announced,) = what.snapshot.announcements
    assert [member.silent for member in announced.members] == [False, True]


def test_sends_whose_peer_cannot_be_told_are_left_out_and_counted(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    job.launch(0, "1", "send", peer=1)["profiling_name"] = "nccl:recvAnySource"
    job.launch(0, "1", "send", peer=7)
    job.launch(0, "1", "all_reduce")
    what = told(job.write(tmp_path))
    assert [row["func"] for row in what.pending(0)] == [Func.ALL_REDUCE]
    assert what.snapshot.skipped == {
        "rank 0: 2 sends or receives": "their peer is missing or the rank itself"
    }


def coalesce(job: JobDumps, rank: int, peers: list[int], finished: bool) -> None:
    """A batch of sends to `peers`, closed as the recorder does: the parts stay as they are for ever."""
    parts = [job.launch(rank, "1", "send", peer=peer) for peer in peers]
    closing = job.launch(rank, "1", "send", peer=peers[0])
    closing["profiling_name"] = "nccl:coalesced"
    for entry in (*parts, closing):
        entry["p2p_seq_id"] = parts[0]["p2p_seq_id"]
    if finished:
        job.finish(closing)


def test_parts_of_a_coalesced_call_have_its_state(tmp_path: Path) -> None:
    job = JobDumps(3, {"1": ("PIPELINE_GROUP", [0, 1, 2])})
    coalesce(job, 0, [1, 2], finished=True)
    coalesce(job, 0, [1, 2], finished=False)
    what = told(job.write(tmp_path, drop_finished=False))
    assert [(row["peer"], row["group"]) for row in what.done(0)] == [(1, 1), (2, 1)]
    assert [(row["peer"], row["group"], row["current"]) for row in what.pending(0)] == [(1, 4, 1), (2, 4, 1)]
    assert all(row["flags"] & Flag.GROUPED for row in (*what.done(0), *what.pending(0)))


def test_parts_whose_closing_entry_was_dropped_are_finished(tmp_path: Path) -> None:
    job = JobDumps(3, {"1": ("PIPELINE_GROUP", [0, 1, 2])})
    coalesce(job, 0, [1, 2], finished=True)
    assert told(job.write(tmp_path)).pending(0) == []


def test_coalesced_collectives_are_one_operation(tmp_path: Path) -> None:
    job = JobDumps(2, PAIR)
    parts = [job.launch(0, "1", "all_reduce", count=count) for count in (3, 4)]
    closing = job.launch(0, "1", "coalesced", count=0)
    for entry in (*parts, closing):
        entry["collective_seq_id"] = 1
    what = told(job.write(tmp_path, drop_finished=False))
    (pending,) = what.pending(0)
    assert (pending["func"], pending["seq"], pending["count"], pending["current"]) == (
        Func.ALL_REDUCE,
        1,
        7,
        1,
    )


def test_clocks_and_age_of_a_dump_do_not_matter(tmp_path: Path) -> None:
    def snapshot(name: str, base: int, clocks: dict[int, int]) -> Snapshot:
        job = JobDumps(2, PAIR, base=base, clocks=clocks)
        job.together("1", "all_reduce")
        job.launch(0, "1", "all_reduce")
        return read_snapshot(job.write(tmp_path / name, drop_finished=False), "job", now=NOW)

    now = snapshot("now", 1_790_000_000_000_000_000, {})
    old = snapshot("old", 1_500_000_000_000_000_000, {1: -240_000_000_000})
    for one, other in zip(
        (*now.done, now.pending, now.positions), (*old.done, old.pending, old.positions), strict=True
    ):
        assert all((one[name] == other[name]).all() for name in COLL.dtype.names or () if name != "launched")


@st.composite
def traffic(draw: st.DrawFn) -> tuple[JobDumps, bool]:
    """Three ranks that launch what they like in two groups and finish what they like of it."""
    job = JobDumps(3, {"1": ("ALL_GROUP", [0, 1, 2]), "2": ("PAIR_GROUP", [0, 2])}, style="nccl")
    for rank, group, peer, finished in draw(
        st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(-4, 4), st.booleans()), max_size=25)
    ):
        name = "2" if group and rank != 1 else "1"
        size = len(job.groups[name][1])
        if peer == 0 or (abs(peer) - 1) % size == job.groups[name][1].index(rank):
            entry = job.launch(rank, name, "all_reduce")
        else:
            entry = job.launch(rank, name, "send" if peer > 0 else "recv", peer=(abs(peer) - 1) % size)
        if finished:
            job.finish(entry)
    return job, draw(st.booleans())


@given(traffic())
def test_positions_and_operations_never_contradict_each_other(made: tuple[JobDumps, bool]) -> None:
    job, drop = made
    with TemporaryDirectory() as folder:
        what = told(job.write(Path(folder), drop_finished=drop))
    finished = np.concatenate(what.snapshot.done)
    assert len(finished) + len(what.snapshot.pending) == sum(
        not (drop and entry["retired"]) for entries in job.entries.values() for entry in entries
    )
    key = ["comm", "dev", "func", "peer"]
    places = {tuple(row[key].tolist()): row for row in what.snapshot.positions}
    assert len(places) == len(what.snapshot.positions)
    assert (what.snapshot.positions["ended"] <= what.snapshot.positions["seq"]).all()
    for row in (*finished, *what.snapshot.pending):
        pairwise = row["flags"] & Flag.P2P
        place = places[row["comm"], row["dev"], row["func"] if pairwise else Func.ANY, row["peer"]]
        assert 1 <= row["seq"] <= place["seq"]
        assert row["order"] <= place["order"]
        assert row["kind"] != Kind.STATE or row["seq"] > place["ended"]
    for rank in range(3):
        pending = what.pending(rank)
        oldest = min((row["order"] for row in pending), default=0)
        assert [row["order"] for row in pending if row["current"] == 1] == [oldest][: len(pending)]


def test_importing_again_is_another_attempt() -> None:
    first, second = (read_snapshot(recorded("gloo_hang"), " job ", now=now) for now in (NOW, NOW + 1))
    assert (first.job, first.attempt) == ("job", "import-2027-01-15T08:00:00.123Z")
    assert first.job_id == second.job_id
    assert first.attempt_id < second.attempt_id
    assert {each.comm for each in first.announcements}.isdisjoint(each.comm for each in second.announcements)
    named = read_snapshot(recorded("gloo_hang"), "job", attempt="third", now=NOW)
    assert (named.attempt, named.attempt_id) == ("third", NOW)


@pytest.mark.parametrize("name", ["", "  ", "none", "NULL", "unknown", "default", "x" * 201, "a\nb"])
def test_placeholders_are_no_names(name: str) -> None:
    with pytest.raises(BadInput, match="name"):
        read_snapshot(recorded("gloo_hang"), name)
    with pytest.raises(BadInput, match="attempt"):
        read_snapshot(recorded("gloo_hang"), "job", attempt=name)


def test_behind_a_send_a_device_may_stand_further_on(tmp_path: Path) -> None:
    """A send need not hold up what follows it; the first collective waits for all before it."""
    job = JobDumps(2, {"0": ("PIPELINE", [0, 1]), "1": ("DATA", [0, 1])})
    job.launch(0, "0", "send", peer=1)
    job.launch(0, "0", "recv", peer=1)
    job.launch(0, "1", "all_reduce")
    job.launch(0, "1", "all_reduce")
    job.launch(1, "1", "all_reduce")
    job.launch(1, "0", "recv", peer=0)
    what = told(job.write(tmp_path))
    assert [row["current"] for row in what.pending(0)] == [1, 2, 2, 0]
    assert [row["current"] for row in what.pending(1)] == [1, 3]
