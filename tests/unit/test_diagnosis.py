"""From records to findings: who is named for what, and who must never be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.enums import DataType, Func
from schemas.records import WAIT
from streams.diagnosis import diagnose
from streams.snapshots import judge
from streams.suspects import COMPARABLE_LEAD
from tests.records import Told, dev_of


def never_launched() -> Told:
    """Ranks 0, 1 and 3 stand in the fifth operation; rank 2 launched four."""
    told = Told({"world": (0, 1, 2, 3)})
    for rank in (0, 1, 3):
        told.state(rank, "world", 5)
        told.at(rank, "world", 5, 4)
    told.at(2, "world", 4, 4)
    return told


def test_nothing_to_judge() -> None:
    assert diagnose(WAIT.empty(0)).found == ()


def test_all_idle_is_no_incident() -> None:
    told = Told({"world": (0, 1, 2)})
    for rank in told.ranks:
        told.at(rank, "world", 7, 7)
        told.done(rank, "world", 7)
    assert told.told() == []


def test_idle_ranks_that_nobody_waits_for_are_no_incident() -> None:
    told = Told({"world": (0, 1, 2)})
    for rank, launched in ((0, 7), (1, 6), (2, 3)):
        told.at(rank, "world", launched, launched)
    assert told.told() == []


def test_never_launched() -> None:
    told = never_launched()
    assert told.told() == [("late-launch", "proven", [2], [], 3)]
    (finding,) = told.findings().found
    assert [(link.waiter, link.holder) for link in finding.chain] == [(dev_of(0), dev_of(2))]


def test_order_of_records_does_not_matter() -> None:
    told = never_launched()
    told.rows.reverse()
    assert told.told() == [("late-launch", "proven", [2], [], 3)]


def chain_over_communicators() -> Told:
    """0 waits for 1 in a, 1 for 2 in b, 2 for 3 in c; 3 is idle."""
    told = Told({"a": (0, 1), "b": (1, 2), "c": (2, 3)})
    for low, comm in enumerate("abc"):
        told.state(low, comm, 8)
        told.at(low, comm, 8, 7)
        told.at(low + 1, comm, 7, 7)
    return told


def test_chain_over_communicators_never_names_a_victim() -> None:
    told = chain_over_communicators()
    assert told.told() == [("late-launch", "proven", [3], [], 3)]
    (finding,) = told.findings().found
    assert [told.ranks_of([link.waiter, link.holder]) for link in finding.chain] == [[0, 1], [1, 2], [2, 3]]


def test_a_queued_operation_leads_to_the_one_before_it() -> None:
    """Rank 1 launched what 0 stands in, but stands in an older one for which 2 is missing."""
    told = Told({"a": (0, 1), "b": (1, 2)})
    told.state(0, "a", 3)
    told.state(1, "a", 3, current=0)
    told.state(1, "b", 9)
    told.at(0, "a", 3, 2)
    told.at(1, "a", 3, 2)
    told.at(1, "b", 9, 8)
    told.at(2, "b", 8, 8)
    assert told.told() == [("late-launch", "proven", [2], [], 2)]


def test_two_independent_culprits() -> None:
    told = Told({"a": (0, 1, 2), "b": (3, 4)})
    for rank in (0, 1):
        told.state(rank, "a", 2)
        told.at(rank, "a", 2, 1)
    told.at(2, "a", 1, 1)
    told.state(3, "b", 6)
    told.at(3, "b", 6, 5)
    told.at(4, "b", 5, 5)
    # The heavier one first.
    assert told.told() == [
        ("late-launch", "proven", [2], [], 2),
        ("late-launch", "proven", [4], [], 1),
    ]


def test_two_late_in_one_operation_cannot_be_told_apart() -> None:
    told = Told({"world": (0, 1, 2, 3)})
    for rank in (0, 3):
        told.state(rank, "world", 5)
        told.at(rank, "world", 5, 4)
    told.at(1, "world", 4, 4)
    told.at(2, "world", 4, 4)
    assert told.told() == [("late-launch", "candidates", [], [1, 2], 2)]


def test_one_of_two_alone_holds_another_operation() -> None:
    """1 and 2 are missing in one operation, and 2 alone in another: 2 is late, 1 perhaps."""
    told = Told({"world": (0, 1, 2, 3), "pair": (2, 3)})
    told.state(0, "world", 5)
    for rank, launched in ((0, 5), (1, 4), (2, 4), (3, 4)):
        told.at(rank, "world", launched, 4)
    told.state(3, "pair", 9)
    told.at(3, "pair", 9, 8)
    told.at(2, "pair", 8, 8)
    assert told.told() == [("late-launch", "likely", [2], [1], 2)]


def test_peers_have_finished() -> None:
    told = Told({"world": (0, 1, 2, 3)})
    for rank in (0, 1, 3):
        told.done(rank, "world", 5)
        told.at(rank, "world", 5, 5)
    told.state(2, "world", 5)
    told.at(2, "world", 5, 4)
    assert told.told() == [("gpu-hang", "likely", [2], [], 0)]


def test_peers_have_finished_as_their_positions_say() -> None:
    told = Told({"world": (0, 1, 2)})
    told.state(2, "world", 5)
    for rank, ended in ((0, 5), (1, 5), (2, 4)):
        told.at(rank, "world", 5, ended)
    assert told.told() == [("gpu-hang", "likely", [2], [], 0)]


def test_who_waits_for_a_stuck_device() -> None:
    """Rank 2 is stuck in an operation of world; 3 waits for it in another communicator, and 4 for 3."""
    told = Told({"world": (0, 1, 2), "a": (2, 3), "b": (3, 4)})
    for rank in (0, 1):
        told.at(rank, "world", 5, 5)
    told.state(2, "world", 5)
    told.at(2, "world", 5, 4)
    told.state(3, "a", 1)
    told.at(3, "a", 1, 0)
    told.state(2, "a", 1, current=0)
    told.at(2, "a", 1, 0)
    told.state(4, "b", 1)
    told.at(4, "b", 1, 0)
    told.at(3, "b", 0, 0)
    assert told.told() == [("gpu-hang", "likely", [2], [], 2)]


def test_two_stuck_in_one_operation_are_candidates() -> None:
    told = Told({"world": (0, 1, 2, 3)})
    for rank in (0, 3):
        told.at(rank, "world", 5, 5)
    for rank in (1, 2):
        told.state(rank, "world", 5)
        told.at(rank, "world", 5, 4)
    assert told.told() == [("gpu-hang", "candidates", [], [1, 2], 0)]


def test_two_stuck_in_operations_of_their_own() -> None:
    told = Told({"a": (0, 1), "b": (2, 3)})
    for comm, (fine, stuck) in told.comms.items():
        told.at(fine, comm, 4, 4)
        told.state(stuck, comm, 4)
        told.at(stuck, comm, 4, 3)
    assert told.told() == [("gpu-hang", "likely", [1], [], 0), ("gpu-hang", "likely", [3], [], 0)]


def test_all_stand_in_one_operation() -> None:
    told = Told({"world": (0, 1, 2)})
    for rank in told.ranks:
        told.state(rank, "world", 5)
        told.at(rank, "world", 5, 4)
    ((category, confidence, culprits, candidates, waiting),) = told.told()
    assert (category, confidence, culprits, candidates) == ("unknown", "candidates", [], [0, 1, 2])
    assert waiting == 3


def test_mismatch_of_a_minority_outranks_who_stands_in_it() -> None:
    told = Told({"world": (0, 1, 2)})
    for rank in told.ranks:
        told.state(rank, "world", 5)["count"] = 512 if rank == 1 else 1024
        told.at(rank, "world", 5, 4)
    assert told.told() == [("mismatch", "likely", [1], [], 3)]


def test_mismatch_without_a_majority() -> None:
    told = Told({"pair": (0, 1)})
    for rank in told.ranks:
        told.state(rank, "pair", 5)["datatype"] = (DataType.FLOAT32, DataType.BFLOAT16)[rank]
        told.at(rank, "pair", 5, 4)
    assert told.told() == [("mismatch", "candidates", [], [0, 1], 2)]


def test_mismatch_in_a_finished_operation_beside_a_late_rank() -> None:
    told = never_launched()
    for rank in told.ranks:
        told.done(rank, "world", 3)["count"] = 512 if rank == 0 else 1024
    assert told.told() == [("late-launch", "proven", [2], [], 3), ("mismatch", "likely", [0], [], 0)]


def test_those_behind_a_mismatch_wait_for_it() -> None:
    """Rank 3 waits for rank 2, which stands in the operation that rank 1 called differently."""
    told = Told({"world": (0, 1, 2), "a": (2, 3)})
    for rank in (0, 1, 2):
        told.state(rank, "world", 5)["count"] = 512 if rank == 1 else 1024
        told.at(rank, "world", 5, 4)
    told.state(3, "a", 2)
    told.at(3, "a", 2, 1)
    told.at(2, "a", 1, 1)
    assert told.told() == [("mismatch", "likely", [1], [], 4)]


def test_deadlock_of_two_ranks() -> None:
    """Rank 0 issues a before b, rank 1 b before a."""
    told = Told({"a": (0, 1), "b": (0, 1)})
    for rank, stands, lacks in ((0, "a", "b"), (1, "b", "a")):
        told.state(rank, stands, 3)
        told.at(rank, stands, 3, 2)
        told.at(rank, lacks, 2, 2)
    assert told.told() == [("deadlock", "candidates", [], [0, 1], 2)]
    (finding,) = told.findings().found
    waiters, holders = [link.waiter for link in finding.chain], [link.holder for link in finding.chain]
    assert told.ranks_of(waiters[:1]) == told.ranks_of(holders[-1:]) == [0]
    assert told.ranks_of(waiters) == [0, 1]


def test_deadlock_of_queued_operations() -> None:
    """Both have launched both, in crossed order on one stream."""
    told = Told({"a": (0, 1), "b": (0, 1)})
    for rank, stands, queued in ((0, "a", "b"), (1, "b", "a")):
        told.state(rank, stands, 3)
        told.state(rank, queued, 3, current=0)
        told.at(rank, stands, 3, 2)
        told.at(rank, queued, 3, 2)
    assert told.told() == [("deadlock", "candidates", [], [0, 1], 2)]


def test_deadlock_of_three_ranks_and_a_victim_outside() -> None:
    told = Told({"a": (0, 1), "b": (1, 2), "c": (2, 0), "d": (2, 5)})
    for rank, stands, lacks in ((0, "a", "c"), (1, "b", "a"), (2, "c", "b")):
        told.state(rank, stands, 4)
        told.at(rank, stands, 4, 3)
        told.at(rank, lacks, 3, 3)
    told.state(5, "d", 1)
    told.at(5, "d", 1, 0)
    told.at(2, "d", 0, 0)
    assert told.told() == [("deadlock", "candidates", [], [0, 1, 2], 4)]
    (finding,) = told.findings().found
    assert len(finding.chain) == 3


def test_a_circle_does_not_hide_a_late_rank_elsewhere() -> None:
    told = Told({"a": (0, 1), "b": (0, 1), "c": (2, 3)})
    for rank, stands, lacks in ((0, "a", "b"), (1, "b", "a")):
        told.state(rank, stands, 3)
        told.at(rank, stands, 3, 2)
        told.at(rank, lacks, 2, 2)
    told.state(2, "c", 3)
    told.at(2, "c", 3, 2)
    told.at(3, "c", 2, 2)
    assert told.told() == [
        ("late-launch", "proven", [3], [], 1),
        ("deadlock", "candidates", [], [0, 1], 2),
    ]


def test_a_silent_rank_alone() -> None:
    told = Told({"world": (0, 1, 2)}, silent=[1])
    for rank in (0, 2):
        told.state(rank, "world", 5)
        told.at(rank, "world", 5, 4)
    assert told.told() == [("host-silent", "likely", [1], [], 2)]


def test_two_silent_ranks_of_one_operation_are_candidates() -> None:
    told = Told({"world": (0, 1, 2, 3)}, silent=[1, 2])
    for rank in (0, 3):
        told.state(rank, "world", 5)
        told.at(rank, "world", 5, 4)
    assert told.told() == [("host-silent", "candidates", [], [1, 2], 2)]


def test_a_silent_rank_that_nobody_waits_for() -> None:
    told = Told({"world": (0, 1, 2)}, silent=[1])
    for rank in (0, 2):
        told.at(rank, "world", 5, 5)
    assert told.told() == []


def test_a_silent_rank_beside_a_late_one_of_the_same_operation() -> None:
    """Somebody is missing for certain: the silent one is not needed to explain anything."""
    told = Told({"world": (0, 1, 2)}, silent=[1])
    told.state(0, "world", 5)
    told.at(0, "world", 5, 4)
    told.at(2, "world", 4, 4)
    assert told.told() == [("late-launch", "proven", [2], [], 1)]


def test_a_silent_rank_beside_a_late_one_elsewhere_is_only_a_candidate() -> None:
    told = Told({"a": (0, 1), "b": (2, 3)}, silent=[1])
    told.state(0, "a", 5)
    told.at(0, "a", 5, 4)
    told.state(2, "b", 5)
    told.at(2, "b", 5, 4)
    told.at(3, "b", 4, 4)
    assert told.told() == [
        ("late-launch", "proven", [3], [], 1),
        ("host-silent", "candidates", [], [1], 1),
    ]


def idle_after(orders: dict[int, int]) -> Told:
    """For each rank in `orders`, idle after so many launches of its process, one waits in a communicator."""
    told = Told({f"d{rank}": (50 + rank, rank) for rank in orders})
    for rank, order in orders.items():
        told.state(50 + rank, f"d{rank}", 3)
        told.at(50 + rank, f"d{rank}", 3, 2, order=99)
        told.at(rank, f"d{rank}", 2, 2, order=order)
    return told


def test_blind_source_names_the_one_behind() -> None:
    told = idle_after({1: 20, 2: 17, 3: 20 + COMPARABLE_LEAD - 3})
    assert told.told(blind=True) == [("late-launch", "likely", [2], [], 3)]
    (finding,) = told.findings(blind=True).found
    assert told.ranks_of(finding.ahead) == [1, 3]
    assert told.ranks_of([finding.chain[-1].holder]) == [2]


def test_blind_source_cannot_tell_equals_apart() -> None:
    told = idle_after({1: 17, 2: 17, 3: 19})
    assert told.told(blind=True) == [("late-launch", "candidates", [], [1, 2], 3)]


def test_blind_source_compares_only_what_is_comparable() -> None:
    told = idle_after({1: 17, 2: 17 + COMPARABLE_LEAD + 1})
    assert told.told(blind=True) == [("late-launch", "candidates", [], [1, 2], 2)]
    told = idle_after({1: 17, 2: 17 + COMPARABLE_LEAD})
    assert told.told(blind=True) == [("late-launch", "likely", [1], [], 2)]


def test_blind_source_and_unknown_launches() -> None:
    told = idle_after({1: 17, 2: 0})
    assert told.told(blind=True) == [("late-launch", "candidates", [], [1, 2], 2)]


def test_sighted_source_names_each_that_alone_holds_others() -> None:
    told = idle_after({1: 20, 2: 17})
    assert told.told() == [
        ("late-launch", "proven", [1], [], 1),
        ("late-launch", "proven", [2], [], 1),
    ]


def incomplete(told: Told) -> list[tuple[str, str, list[int], list[int], int]]:
    """Findings where some records have not arrived."""
    found = diagnose(told.judged().waits, incomplete=True)
    return [told.plain(finding) for finding in found.found]


def test_what_looks_idle_proves_nothing_where_records_are_missing() -> None:
    """It may wait in the partition that has not reported."""
    assert incomplete(never_launched()) == [("late-launch", "candidates", [], [2], 3)]


def test_what_peers_have_finished_holds_where_records_are_missing() -> None:
    told = Told({"world": (0, 1)})
    told.at(0, "world", 5, 5)
    told.state(1, "world", 5)
    told.at(1, "world", 5, 4)
    assert incomplete(told) == [("gpu-hang", "likely", [1], [], 0)]


@pytest.mark.parametrize("what", ["silent", "lost"])
@pytest.mark.parametrize("func", [Func.ALL_REDUCE, Func.BROADCAST])
def test_stuck_beside_one_of_which_nothing_is_known(what: str, func: Func) -> None:
    """Rank 1 pends where 0 has finished; it may only wait for 2."""
    told = Told({"world": (0, 1, 2)}, silent=[2] if what == "silent" else [])
    told.done(0, "world", 5, func=func)
    told.at(0, "world", 5, 5)
    told.state(1, "world", 5, func=func)
    told.at(1, "world", 5, 4)
    if what == "lost":
        told.at(2, "world", 5, 4)
    ((category, confidence, culprits, candidates, _),) = told.told()
    assert (category, confidence, culprits, candidates) == ("gpu-hang", "candidates", [], [1, 2])


def test_a_lost_record_makes_nobody_the_only_candidate() -> None:
    told = Told({"world": (0, 1, 2)})
    for rank in (0, 2):
        told.state(rank, "world", 5)
    for rank in told.ranks:
        told.at(rank, "world", 5, 4)
    ((category, _, culprits, candidates, _),) = told.told()
    assert (category, culprits, candidates) == ("unknown", [], [0, 1, 2])


def test_two_ranks_that_nobody_announced_are_two_candidates() -> None:
    told = Told({"world": (0, 1, 2)})
    told.state(0, "world", 5)
    told.at(0, "world", 5, 4)
    (everybody,) = told.announcements()
    alone = replace(everybody, members=everybody.members[:1])
    (finding,) = diagnose(judge([alone], told.rows, 1, 2).waits).found
    assert (finding.category, finding.culprits, len(finding.candidates)) == ("host-silent", (), 2)


def test_different_funcs_in_seq_spaces_of_their_own_are_a_mismatch() -> None:
    """It looks like a circle: each waits for the other in its own operation."""
    told = Told({"world": (0, 1)}, per_func=True)
    for rank, func, other in ((0, Func.ALL_REDUCE, Func.ALL_GATHER), (1, Func.ALL_GATHER, Func.ALL_REDUCE)):
        told.state(rank, "world", 5, func=func)
        told.at(rank, "world", 5, 4, func=func)
        told.at(rank, "world", 4, 4, func=other)
    ((category, confidence, culprits, candidates, _),) = told.told()
    assert (category, confidence, culprits, candidates) == ("mismatch", "candidates", [], [0, 1])


def both_ways(told: Told, one: int, other: int) -> None:
    """Both have launched a send to the other and a receive from it, in one batch."""
    for rank, peer in ((one, other), (other, one)):
        told.half(rank, Func.SEND, peer, "pipe", 4, current=1)
        told.half(rank, Func.RECV, peer, "pipe", 4, current=2)
        told.half_at(rank, Func.SEND, peer, "pipe", 4, 3)
        told.half_at(rank, Func.RECV, peer, "pipe", 4, 3)


def test_a_batch_in_both_directions_is_no_deadlock() -> None:
    told = Told({"pipe": (0, 1)})
    both_ways(told, 0, 1)
    ((category, confidence, culprits, candidates, _),) = told.told()
    assert (category, confidence, culprits, candidates) == ("unknown", "candidates", [], [0, 1])


def test_a_late_rank_behind_a_send() -> None:
    """0 and 1 pend in sends to one another, and may stand in a later collective, for which 2 is missing."""
    told = Told({"pipe": (0, 1), "world": (0, 1, 2)})
    both_ways(told, 0, 1)
    for rank in (0, 1):
        told.state(rank, "world", 9, current=2)
        told.at(rank, "world", 9, 8)
    told.at(2, "world", 8, 8)
    found = told.told()
    assert [category for category, *_ in found] == ["late-launch"]
    assert found[0][2] == [2]


def test_a_late_receiver_of_a_send() -> None:
    told = Told({"pipe": (0, 1, 2)})
    told.half(0, Func.SEND, 1, "pipe", 4)
    told.pair(0, 1, "pipe", 4, 3, 3)
    assert told.told() == [("late-launch", "proven", [1], [], 1)]


def test_a_pipeline_that_starves() -> None:
    """3 waits for data of 2, 2 of 1, 1 of 0; 0 computes."""
    told = Told({"pipe": (0, 1, 2, 3)})
    for rank in (1, 2, 3):
        told.half(rank, Func.RECV, rank - 1, "pipe", 4)
        told.pair(rank - 1, rank, "pipe", 3, 4, 3)
    assert told.told() == [("late-launch", "proven", [0], [], 3)]
    (finding,) = told.findings().found
    assert [told.ranks_of([link.holder]) for link in finding.chain] == [[2], [1], [0]]


def test_a_receiver_whose_sender_has_finished() -> None:
    told = Told({"pipe": (0, 1)})
    told.half(0, Func.SEND, 1, "pipe", 4, done=True)
    told.half_at(0, Func.SEND, 1, "pipe", 4, 4)
    told.half(1, Func.RECV, 0, "pipe", 4)
    told.half_at(1, Func.RECV, 0, "pipe", 4, 3)
    assert told.told() == [("gpu-hang", "likely", [1], [], 0)]


def test_root_that_has_finished_does_not_accuse_those_who_wait_for_a_late_rank() -> None:
    told = Told({"world": (0, 1, 2)})
    told.done(0, "world", 5, func=Func.BROADCAST)
    told.at(0, "world", 5, 5)
    told.state(1, "world", 5, func=Func.BROADCAST)
    told.at(1, "world", 5, 4)
    told.at(2, "world", 4, 4)
    assert told.told() == [("late-launch", "proven", [2], [], 1)]


def test_seq_spaces_of_funcs_are_apart() -> None:
    """Rank 1 launched AllGather 7, but only AllReduce 4: 0 waits in AllReduce 5."""
    told = Told({"world": (0, 1)}, per_func=True)
    told.state(0, "world", 5)
    told.at(0, "world", 5, 4, func=Func.ALL_REDUCE)
    told.at(1, "world", 4, 4, func=Func.ALL_REDUCE)
    told.at(1, "world", 7, 7, func=Func.ALL_GATHER)
    assert told.told() == [("late-launch", "proven", [1], [], 1)]


@dataclass(frozen=True)
class Op:
    """One operation of a program: a collective of a communicator, or a send within it."""

    comm: str
    func: Func
    members: tuple[int, ...]
    """World ranks that take part; of a send the sender and the receiver."""
    seq: int
    """Number in its seq space."""

    @property
    def pair(self) -> bool:
        return self.func == Func.SEND


@dataclass
class Program:
    """One program for all ranks, in one order for all, so that it cannot deadlock by itself."""

    comms: dict[str, tuple[int, ...]]
    ops: list[Op]
    per_func: bool
    ahead: dict[int, int]
    """How many operations beyond the one it stands in each rank has launched."""
    keep: int
    """Finished operations of each rank that still have a record."""
    apart: bool
    """Sends run on streams of their own, so that a device may stand in what follows them."""
    ranks: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.ranks = tuple(sorted({rank for ranks in self.comms.values() for rank in ranks}))

    @property
    def active(self) -> list[int]:
        """Ranks that take part in some operation."""
        return [rank for rank in self.ranks if self.of(rank)]

    def of(self, rank: int) -> list[int]:
        """Indices of the operations that a rank takes part in."""
        return [index for index, op in enumerate(self.ops) if rank in op.members]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    size = draw(st.integers(2, 6))
    comms: dict[str, tuple[int, ...]] = {"world": tuple(range(size))}
    for number in range(draw(st.integers(0, 3))):
        members = draw(st.sets(st.integers(0, size - 1), min_size=2, max_size=size))
        comms[f"g{number}"] = tuple(draw(st.permutations(sorted(members))))
    per_func = draw(st.booleans())
    funcs = (Func.ALL_REDUCE, Func.ALL_GATHER, Func.REDUCE_SCATTER, Func.ALL_TO_ALL, Func.SEND)
    numbers: dict[tuple[str, object], int] = {}
    ops = []
    for _ in range(draw(st.integers(1, 14))):
        comm = draw(st.sampled_from(sorted(comms)))
        func = draw(st.sampled_from(funcs))
        members_of_op = comms[comm]
        space: object = func if per_func else "all"
        if func == Func.SEND:
            sender, receiver, *_ = draw(st.permutations(comms[comm]))
            members_of_op = (sender, receiver)
            space = members_of_op
        numbers[comm, space] = seq = numbers.get((comm, space), 0) + 1
        ops.append(Op(comm, func, members_of_op, seq))
    ahead = {rank: draw(st.integers(0, 3)) for rank in range(size)}
    return Program(comms, ops, per_func, ahead, draw(st.integers(0, 14)), draw(st.booleans()))


def tell(
    program: Program, finished: Callable[[int, int], bool], launches: Callable[[int], int], order: list[int]
) -> tuple[Told, list[int]]:
    """The records of a program that has come to a halt, and who stands in an operation.

    `finished(rank, index)`: whether a rank has finished an operation; `launches(rank)`: how many of its
    operations it has launched.
    """
    told = Told(program.comms, per_func=program.per_func)
    standing = []
    spaces = {(op.comm, op.func) for op in program.ops if not op.pair}
    for rank in program.ranks:
        mine = program.of(rank)[: launches(rank)]
        done = [index for index in mine if finished(rank, index)]
        pending = [index for index in mine if not finished(rank, index)]
        if pending:
            standing.append(rank)
        for index in done[len(done) - min(program.keep, len(done)) :]:
            record(told, program.ops[index], rank, done=True)
        for index, current in zip(pending, currents(program, pending), strict=True):
            record(told, program.ops[index], rank, current=current)
        for comm, members in program.comms.items():
            if rank not in members:
                continue
            within = [index for index in mine if program.ops[index].comm == comm]
            collectives = [index for index in within if not program.ops[index].pair]
            if program.per_func:
                for func in sorted(func for name, func in spaces if name == comm):
                    of_func = [index for index in collectives if program.ops[index].func == func]
                    ended = sum(finished(rank, index) for index in of_func)
                    told.at(rank, comm, len(of_func), ended, order=len(mine), func=func)
            else:
                ended = sum(finished(rank, index) for index in collectives)
                told.at(rank, comm, len(collectives), ended, order=len(mine))
            pairs = {op.members for op in program.ops if op.pair and op.comm == comm and rank in op.members}
            for sender, receiver in sorted(pairs):
                of_pair = [index for index in within if program.ops[index].members == (sender, receiver)]
                of_pair = [index for index in of_pair if program.ops[index].pair]
                ended = sum(finished(rank, index) for index in of_pair)
                func, peer = (Func.SEND, receiver) if rank == sender else (Func.RECV, sender)
                told.half_at(rank, func, peer, comm, len(of_pair), ended, order=len(mine))
    told.rows = [told.rows[place % len(told.rows)] for place in _shuffle(order, len(told.rows))]
    return told, standing


def currents(program: Program, pending: list[int]) -> list[int]:
    """Where a device stands: in the oldest, and behind sends perhaps up to the next collective."""
    found, sends = [], program.apart
    for place, index in enumerate(pending):
        found.append(1 if place == 0 else 2 if sends else 0)
        sends &= program.ops[index].pair
    return found


def _shuffle(seed: list[int], size: int) -> list[int]:
    places = np.arange(size)
    np.random.default_rng(seed).shuffle(places)
    return [int(place) for place in places]


def record(told: Told, op: Op, rank: int, *, current: int = 0, done: bool = False) -> None:
    if op.pair:
        sender, receiver = op.members
        func, peer = (Func.SEND, receiver) if rank == sender else (Func.RECV, sender)
        told.half(rank, func, peer, op.comm, op.seq, current=current, done=done)
    elif done:
        told.done(rank, op.comm, op.seq, func=op.func)
    else:
        told.state(rank, op.comm, op.seq, current=current, func=op.func)


def run(program: Program, faults: dict[int, tuple[int, bool]]) -> tuple[dict[int, int], set[int]]:
    """Run the program with blocking operations until nothing moves.

    `faults` gives for a broken rank the operation in question and whether it hangs there: its device stays in
    it while the others finish. Otherwise it stops before it launches it. Returns where each rank stands (-1
    where it has stopped, absent where it has run through) and which operations are complete.
    """
    stands: dict[int, int] = {}
    complete: set[int] = set()
    for index, op in enumerate(program.ops):
        for rank, (fault, hangs) in faults.items():
            if fault == index and not hangs:
                stands.setdefault(rank, -1)
        if any(rank in stands for rank in op.members):
            stands.update({rank: index for rank in op.members if rank not in stands})
            continue
        complete.add(index)
        stands.update({rank: index for rank, fault in faults.items() if fault == (index, True)})
    return stands, complete


@dataclass
class Halt:
    """A program that has come to a halt."""

    program: Program
    faults: dict[int, tuple[int, bool]]
    stands: dict[int, int] = field(init=False)
    complete: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.stands, self.complete = run(self.program, self.faults)

    def finished(self, rank: int, index: int) -> bool:
        """Whether a rank has finished an operation."""
        return index in self.complete and not self.hangs(rank, index)

    def hangs(self, rank: int, index: int) -> bool:
        """Whether the device of a rank is stuck in an operation."""
        return self.stands.get(rank) == index and self.faults.get(rank) == (index, True)

    def launches(self, rank: int) -> int:
        """How many of its operations a rank has launched."""
        mine = self.program.of(rank)
        through = len([index for index in mine if self.finished(rank, index)])
        if self.stands.get(rank, -1) == -1:
            return through
        ahead = through + 1 + self.program.ahead[rank]
        if rank in self.faults and not self.faults[rank][1]:
            ahead = min(ahead, mine.index(self.faults[rank][0]))
        return min(len(mine), ahead)


def draw_fault(program: Program, data: st.DataObject, ranks: list[int]) -> tuple[int, int]:
    """A rank with operations, and one of these."""
    broken = data.draw(st.sampled_from(ranks))
    return broken, data.draw(st.sampled_from(program.of(broken)))


seeds = st.lists(st.integers(0, 1000), min_size=1, max_size=2)
faults = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@faults
@given(programs(), st.data())
def test_one_rank_that_stops_is_named_and_nobody_else(program: Program, data: st.DataObject) -> None:
    broken, fault = draw_fault(program, data, program.active)
    halt = Halt(program, {broken: (fault, False)})
    told, standing = tell(program, halt.finished, halt.launches, data.draw(seeds))
    assert standing == sorted(rank for rank in halt.stands if rank != broken)
    expected: list[tuple[str, str, list[int], list[int], int]] = []
    if standing:
        expected.append(("late-launch", "proven", [broken], [], len(standing)))
    assert told.told() == expected
    assert [found[2] for found in told.told(blind=True)] == [found[2] for found in expected]


@faults
@given(programs(), st.data())
def test_one_device_that_hangs_is_named_and_nobody_else(program: Program, data: st.DataObject) -> None:
    broken, fault = draw_fault(program, data, program.active)
    halt = Halt(program, {broken: (fault, True)})
    told, standing = tell(program, halt.finished, halt.launches, data.draw(seeds))
    assert standing == sorted(halt.stands)
    assert told.told() == [("gpu-hang", "likely", [broken], [], len(standing) - 1)]


@faults
@given(programs(), st.data())
def test_of_several_faults_no_victim_is_named(program: Program, data: st.DataObject) -> None:
    """Any number of ranks stop or hang: whoever is named is one of them, and somebody is if anybody waits."""
    broken: dict[int, tuple[int, bool]] = {}
    for _ in range(data.draw(st.integers(1, 3))):
        rank, fault = draw_fault(program, data, program.active)
        broken[rank] = (fault, data.draw(st.booleans()))
    halt = Halt(program, broken)
    told, standing = tell(program, halt.finished, halt.launches, data.draw(seeds))
    found = told.told()
    named = {rank for _, _, culprits, candidates, _ in found for rank in culprits + candidates}
    assert named <= set(broken)
    assert bool(named) == bool(standing)
    # Where all members hang in one operation nothing tells.
    assert {category for category, *_ in found} <= {"late-launch", "gpu-hang", "unknown"}


@faults
@given(programs(), st.data())
def test_a_rank_without_records_makes_no_victim_a_culprit(program: Program, data: st.DataObject) -> None:
    """One rank stops or hangs; another, or the same, has left no records."""
    broken, fault = draw_fault(program, data, program.active)
    halt = Halt(program, {broken: (fault, data.draw(st.booleans()))})
    told, standing = tell(program, halt.finished, halt.launches, data.draw(seeds))
    mute = data.draw(st.sampled_from(program.ranks))
    told.silent = frozenset([mute])
    told.rows = [row for row in told.rows if row["dev"] != dev_of(mute)]
    found = told.told()
    assert {rank for _, _, culprits, candidates, _ in found for rank in culprits + candidates} <= {
        broken,
        mute,
    }
    assert bool(found) == bool(set(standing) - {mute})
    for category, _, culprits, candidates, _ in found:
        if category == "late-launch":
            assert (culprits, candidates) == ([broken], [])
        elif mute != broken:
            assert mute in candidates or culprits in ([mute], [broken])


def run_apart(program: Program, broken: int, stops_at: int) -> tuple[set[int], dict[int, int]]:
    """Run the program with sends that run beside what follows, and collectives that wait for all before them.

    A rank launches on until its oldest unfinished collective, and as many operations more as it goes ahead.
    Rank `broken` stops before its `stops_at`-th operation. Returns which operations are complete and how many
    each rank has launched.
    """
    complete: set[int] = set()
    while True:
        launched = {}
        for rank in program.ranks:
            mine = program.of(rank)
            open_ones = [n for n, i in enumerate(mine) if i not in complete and not program.ops[i].pair]
            through = min(len(mine), open_ones[0] + 1 + program.ahead[rank]) if open_ones else len(mine)
            launched[rank] = min(through, stops_at) if rank == broken else through

        more = {index for index in range(len(program.ops)) if can_end(program, index, launched, complete)}
        if not more:
            return complete, launched
        complete |= more


def can_end(program: Program, index: int, launched: dict[int, int], complete: set[int]) -> bool:
    """Whether an operation that is not complete can be, now."""
    op = program.ops[index]
    for rank in op.members:
        mine = program.of(rank)
        place = mine.index(index)
        before = [other for other in mine[:place] if not (op.pair and program.ops[other].pair)]
        if place >= launched[rank] or not complete.issuperset(before):
            return False
    return index not in complete


@faults
@given(programs(), st.data())
def test_with_sends_that_run_beside_no_victim_is_named(program: Program, data: st.DataObject) -> None:
    broken, fault = draw_fault(program, data, program.active)
    program.apart = True
    complete, launched = run_apart(program, broken, program.of(broken).index(fault))
    told, standing = tell(
        program, lambda _, index: index in complete, lambda rank: launched[rank], data.draw(seeds)
    )
    found = told.told()
    assert {rank for _, _, culprits, candidates, _ in found for rank in culprits + candidates} <= {broken}
    assert bool(found) == bool(standing)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_ring_of_communicators_that_all_wait_ends_in_a_deadlock(size: int) -> None:
    """Every rank stands in its own communicator with the next rank, who has not launched there."""
    told = Told({f"c{rank}": (rank, (rank + 1) % size) for rank in range(size)})
    for rank in range(size):
        told.state(rank, f"c{rank}", 1)
        told.at(rank, f"c{rank}", 1, 0)
        told.at((rank + 1) % size, f"c{rank}", 0, 0)
    assert told.told() == [("deadlock", "candidates", [], list(range(size)), size)]
