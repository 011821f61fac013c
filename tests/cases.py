"""Hung jobs as dumps, each with the answer that its story gives by hand.

The same cases are judged by the pure functions, through the whole pipeline on both brokers, and by the
command line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.flight_recorder_dumps import BASE_NS, JobDumps

MINUTE_NS = 60 * 1_000_000_000
YEAR_NS = 365 * 24 * 60 * MINUTE_NS


@dataclass(frozen=True)
class Answer:
    """What has to be found: category, culprits and candidates as world ranks, how many wait."""

    category: str
    culprits: tuple[int, ...] = ()
    candidates: tuple[int, ...] = ()
    waiting: int | None = None


@dataclass(frozen=True)
class Case:
    """A story, its dumps and the answer."""

    name: str
    write: Callable[[Path], Path]
    answers: tuple[Answer, ...]


def _grid(**options: object) -> JobDumps:
    """Four ranks: tensor groups {0,1} and {2,3}, data groups {0,2} and {1,3}, and all of them."""
    groups = {
        "0": ("default_pg", [0, 1, 2, 3]),
        "1": ("TENSOR", [0, 1]),
        "2": ("TENSOR", [2, 3]),
        "3": ("DATA", [0, 2]),
        "4": ("DATA", [1, 3]),
    }
    job = JobDumps(4, groups, **options)  # type: ignore[arg-type]
    for group in ("0", "1", "2", "3", "4"):
        job.together(group, "all_reduce")
    return job


def _late(folder: Path, **options: object) -> Path:
    """Rank 3 sleeps before a tensor operation. 2 waits for it there, 0 waits for 2 in data, 1 for 0."""
    job = _grid(**options)
    job.launch(2, "2", "all_reduce")
    for rank in (0, 1):
        job.finish(job.launch(rank, "1", "all_reduce"))
    job.launch(0, "3", "all_reduce")
    job.launch(1, "4", "all_reduce")
    return job.write(folder)


def _late_clocks(folder: Path) -> Path:
    """The same with clocks that are minutes apart, the late rank's far ahead and its waiter's far behind."""
    return _late(folder, clocks={3: 7 * MINUTE_NS, 2: -9 * MINUTE_NS, 0: 3 * MINUTE_NS})


def _late_old(folder: Path) -> Path:
    """The same, a year ago."""
    return _late(folder, base=BASE_NS - YEAR_NS)


def _late_json(folder: Path) -> Path:
    """The same as JSON."""
    job = _grid()
    job.launch(2, "2", "all_reduce")
    return job.write(folder, fmt="json")


def _gpu_hang(folder: Path) -> Path:
    """Rank 1's GPU stops: 0 has finished their tensor operation and waits in a later one, 3 in data."""
    job = _grid()
    hung = job.launch(1, "1", "all_reduce")
    job.finish(job.launch(0, "1", "all_reduce"))
    assert not hung["retired"]
    job.launch(0, "1", "all_gather")
    job.launch(1, "4", "all_reduce")
    job.launch(3, "4", "all_reduce")
    return job.write(folder)


def _two_hangs(folder: Path) -> Path:
    """Ranks 1 and 3 hang in their tensor groups, each for itself."""
    job = _grid()
    for good, bad, group in ((0, 1, "1"), (2, 3, "2")):
        job.finish(job.launch(good, group, "all_reduce"))
        job.launch(bad, group, "all_reduce")
        job.launch(good, group, "all_gather")
    return job.write(folder)


def _two_late(folder: Path) -> Path:
    """Ranks 1 and 3 never come to their tensor operations, each for itself."""
    job = _grid()
    job.launch(0, "1", "all_reduce")
    job.launch(2, "2", "all_reduce")
    return job.write(folder)


def _late_together(folder: Path) -> Path:
    """Ranks 1 and 3 are both missing from the one operation that others wait in: nothing tells them apart."""
    job = _grid()
    job.launch(0, "0", "all_reduce")
    job.launch(2, "0", "all_reduce")
    return job.write(folder)


def _sizes_differ(folder: Path) -> Path:
    """Rank 2 passes half the count."""
    job = _grid()
    for rank in range(4):
        job.launch(rank, "0", "all_reduce", count=512 if rank == 2 else 1024)
    return job.write(folder)


def _types_differ(folder: Path) -> Path:
    """Rank 0 passes another element type."""
    job = _grid()
    for rank in range(4):
        job.launch(rank, "0", "all_reduce", dtype="BFloat16" if rank == 0 else "Float")
    return job.write(folder)


def _funcs_differ(folder: Path) -> Path:
    """Two ranks, one in an AllReduce and one in an AllGather: no majority."""
    job = _grid()
    job.launch(0, "1", "all_reduce")
    job.launch(1, "1", "all_gather")
    return job.write(folder)


def _crossed(folder: Path) -> Path:
    """Ranks 0 and 1 issue tensor and world operations in opposite order; 2 and 3 wait in the world's."""
    job = _grid()
    job.launch(0, "1", "all_reduce")
    job.launch(0, "0", "all_reduce")
    job.launch(1, "0", "all_reduce")
    job.launch(1, "1", "all_reduce")
    job.launch(2, "0", "all_reduce")
    job.launch(3, "0", "all_reduce")
    return job.write(folder)


def _crossed_blocking(folder: Path) -> Path:
    """The same with calls that block: neither ever launches its second operation."""
    job = _grid()
    job.launch(0, "1", "all_reduce")
    job.launch(1, "0", "all_reduce")
    job.launch(2, "0", "all_reduce")
    job.launch(3, "0", "all_reduce")
    return job.write(folder)


def _idle(folder: Path) -> Path:
    """All ranks have finished what they launched."""
    return _grid().write(folder)


def _missing(folder: Path) -> Path:
    """Everybody but rank 2 waits in the world's operation; rank 2 left no dump."""
    job = _grid()
    for rank in (0, 1, 3):
        job.launch(rank, "0", "all_reduce")
    return job.write(folder, omit_ranks=[2])


def _truncated(folder: Path) -> Path:
    """The same, rank 2's dump breaks off in the middle."""
    job = _grid()
    for rank in (0, 1, 3):
        job.launch(rank, "0", "all_reduce")
    return job.write(folder, truncate=[2])


def _missing_beside_late(folder: Path) -> Path:
    """Rank 3 is late in the world's operation; rank 0, which left no dump, may be a victim of that."""
    job = _grid()
    job.launch(1, "0", "all_reduce")
    job.launch(2, "0", "all_reduce")
    return job.write(folder, omit_ranks=[0])


def _pipeline(folder: Path) -> Path:
    """Four stages. Rank 2 never sends what 3 is to receive; 3's receive and, behind it, 1's send wait."""
    job = JobDumps(4, {"0": ("PIPELINE", [0, 1, 2, 3])})
    job.launch(3, "0", "recv", peer=2)
    job.launch(1, "0", "send", peer=2)
    job.launch(0, "0", "send", peer=1)
    return job.write(folder)


def _both_ways(folder: Path) -> Path:
    """Two ranks each post send and receive at once, and nothing moves: the link between them, no deadlock."""
    job = JobDumps(2, {"0": ("PIPELINE", [0, 1])})
    for rank in (0, 1):
        job.launch(rank, "0", "send", peer=1 - rank)
        job.launch(rank, "0", "recv", peer=1 - rank)
    return job.write(folder)


def _hidden_send(folder: Path) -> Path:
    """gloo records no sends. Rank 1 is stuck before a send to 3, which waits for it unseen; 2 waits for 3."""
    job = JobDumps(
        4, {"0": ("default_pg", [0, 1, 2, 3]), "1": ("TENSOR", [0, 1]), "2": ("TENSOR", [2, 3])}, style="gloo"
    )
    for group in ("0", "1", "2", "1"):
        job.together(group, "all_reduce")
    job.launch(2, "2", "all_reduce")
    return job.write(folder)


def _eager_send(folder: Path) -> Path:
    """Rank 0's send is long finished and no longer in its dump; the receiver's GPU, rank 2's, is stuck."""
    job = JobDumps(4, {"0": ("PIPELINE", [0, 2]), "1": ("TENSOR", [2, 3])})
    job.together("1", "all_reduce")
    for sender, receiver in ((0, 2),) * 3:
        sent = job.launch(sender, "0", "send", peer=1)
        got = job.launch(receiver, "0", "recv", peer=0)
        job.finish(sent)
        job.finish(got)
    job.finish(job.launch(0, "0", "send", peer=1))
    job.launch(2, "0", "recv", peer=0)
    job.launch(3, "1", "all_reduce")
    return job.write(folder)


def _overlap(folder: Path) -> Path:
    """Rank 0 is late. 1 has a data operation pending beside, whose other member waits down a chain for 1."""
    groups = {
        "1": ("TENSOR", [0, 1]),
        "2": ("DATA", [1, 2]),
        "3": ("PIPELINE", [1, 3]),
        "4": ("TENSOR", [2, 3]),
    }
    job = JobDumps(4, groups)
    for group in ("1", "2", "4"):
        job.together(group, "all_reduce")
    job.launch(1, "2", "reduce_scatter")
    job.launch(1, "1", "all_reduce")
    job.launch(3, "3", "recv", peer=0)
    job.launch(2, "4", "all_reduce")
    return job.write(folder)


def _locked_and_late(folder: Path) -> Path:
    """Ranks 0 and 1 cross two operations of four ranks, in one of which rank 3 is late as well."""
    job = JobDumps(4, {"1": ("A", [0, 1, 2, 3]), "2": ("B", [0, 1])})
    for group in ("1", "2"):
        job.together(group, "all_reduce")
    job.launch(0, "1", "all_reduce")
    job.launch(1, "2", "all_reduce")
    job.launch(2, "1", "all_reduce")
    return job.write(folder)


def _missing_beside_idle(folder: Path) -> Path:
    """Rank 0 waits for 1, which left no dump. 3 is idle with its own: 1 may wait for it."""
    job = _grid()
    job.launch(0, "1", "all_reduce")
    return job.write(folder, omit_ranks=[1])


def _two_missing(folder: Path) -> Path:
    """Ranks 1 and 3 left no dump. 0 waits for 1, which may wait for 3 in their data group."""
    job = _grid()
    job.launch(0, "1", "all_reduce")
    job.launch(2, "3", "all_reduce")
    return job.write(folder, omit_ranks=[1, 3])


def _alone(folder: Path) -> Path:
    """Rank 1 pends in a group of its own, and rank 0 waits for it in another."""
    job = JobDumps(2, {"1": ("TENSOR", [0, 1]), "2": ("SELF", [1])})
    job.together("1", "all_reduce")
    job.launch(1, "2", "all_reduce")
    job.launch(0, "1", "all_reduce")
    return job.write(folder)


def _no_entries(folder: Path) -> Path:
    """gloo: 3 is late in a group of four; 4 to 7 have dumps without entries, so their groups are unknown."""
    job = JobDumps(
        8,
        {"0": ("default_pg", list(range(8))), "1": ("TENSOR", [0, 1, 2, 3]), "2": ("TENSOR", [4, 5, 6, 7])},
        style="gloo",
    )
    for group in ("0", "1", "2"):
        job.together(group, "all_reduce")
    for rank in range(3):
        job.launch(rank, "1", "all_reduce")
    for rank in range(4, 8):
        job.overwrite[rank] = {"entries": []}
    return job.write(folder)


CASES = (
    Case("late", _late, (Answer("late-launch", (3,), waiting=3),)),
    Case("late-clocks-apart", _late_clocks, (Answer("late-launch", (3,), waiting=3),)),
    Case("late-a-year-old", _late_old, (Answer("late-launch", (3,), waiting=3),)),
    Case("late-json", _late_json, (Answer("late-launch", (3,), waiting=1),)),
    Case("gpu-hang", _gpu_hang, (Answer("gpu-hang", (1,), waiting=2),)),
    Case("two-gpu-hangs", _two_hangs, tuple(Answer("gpu-hang", (rank,), waiting=1) for rank in (1, 3))),
    Case("two-late", _two_late, tuple(Answer("late-launch", (rank,), waiting=1) for rank in (1, 3))),
    Case("late-together", _late_together, (Answer("late-launch", candidates=(1, 3), waiting=2),)),
    Case("sizes-differ", _sizes_differ, (Answer("mismatch", (2,)),)),
    Case("types-differ", _types_differ, (Answer("mismatch", (0,)),)),
    Case("funcs-differ", _funcs_differ, (Answer("mismatch", candidates=(0, 1)),)),
    Case("crossed", _crossed, (Answer("deadlock", candidates=(0, 1), waiting=4),)),
    Case("crossed-blocking", _crossed_blocking, (Answer("deadlock", candidates=(0, 1), waiting=4),)),
    Case("idle", _idle, ()),
    Case("missing", _missing, (Answer("host-silent", (2,), waiting=3),)),
    Case("truncated", _truncated, (Answer("host-silent", (2,), waiting=3),)),
    Case("missing-beside-late", _missing_beside_late, (Answer("late-launch", (3,), waiting=2),)),
    Case("pipeline", _pipeline, (Answer("late-launch", (2,), waiting=3),)),
    Case("both-ways", _both_ways, (Answer("unknown", candidates=(0, 1)),)),
    Case("hidden-send", _hidden_send, (Answer("late-launch", candidates=(0, 1, 3), waiting=1),)),
    Case("eager-send", _eager_send, (Answer("unknown", candidates=(0, 2)),)),
    Case("overlap", _overlap, (Answer("late-launch", (0,), waiting=3),)),
    Case(
        "locked-and-late", _locked_and_late,
        (Answer("late-launch", (3,)), Answer("deadlock", candidates=(0, 1))),
    ),
    Case("missing-beside-idle", _missing_beside_idle, (Answer("host-silent", candidates=(1,), waiting=1),)),
    Case("two-missing", _two_missing, (Answer("host-silent", candidates=(1, 3), waiting=2),)),
    Case("alone", _alone, (Answer("gpu-hang", (1,), waiting=1),)),
    Case("no-entries", _no_entries, (Answer("late-launch", (3,), waiting=3),)),
)  # fmt: skip
