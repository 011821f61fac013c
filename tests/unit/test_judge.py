"""Who waits for whom inside one operation: each thing that a member can do, and what follows."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.enums import Func, NodeKind, Reason
from schemas.ids import hash64
from schemas.records import UNKNOWN_US, Records, unknown_codes
from schemas.records import WAIT as WAIT_RECORD
from tests.records import LAUNCHED_NS, Told, comm_of, dev_of

IN, ABSENT, QUEUED = Reason.IN_OPERATION, Reason.NOT_LAUNCHED, Reason.QUEUED
FINISHED, SILENT, UNSEEN = Reason.PEERS_FINISHED, Reason.SILENT, Reason.UNSEEN
SEQ = 5


def tell(doing: list[str], func: Func = Func.ALL_REDUCE, *, per_func: bool = False) -> Told:
    """One operation, number 5, in which member i does doing[i]."""
    silent = [rank for rank, what in enumerate(doing) if what == "silent"]
    told = Told({"world": range(len(doing))}, silent=silent, per_func=per_func)
    space = func if per_func else Func.ANY
    for rank, what in enumerate(doing):
        if what == "finished":
            told.done(rank, "world", SEQ, func=func)
            told.at(rank, "world", SEQ, SEQ, func=space)
        elif what == "past":  # finished, as only its position tells
            told.at(rank, "world", SEQ + 2, SEQ + 1, func=space)
        elif what in ("stands", "may stand", "held"):
            current = {"stands": 1, "may stand": 2, "held": 0}[what]
            told.state(rank, "world", SEQ, current=current, func=func)
            told.at(rank, "world", SEQ + (rank % 2), SEQ - 1, func=space)
        elif what == "absent":
            told.at(rank, "world", SEQ - 1, SEQ - 1, func=space)
        elif what == "lost":  # its record went missing on the way
            told.at(rank, "world", SEQ, SEQ - 1, func=space)
        else:
            assert what in ("silent", "unknown")
    return told


def edges(waits: Records) -> set[tuple[str, Reason, int]]:
    """Each record as "rank >" (device → operation) or "> rank" (operation → device), reason and sureness."""
    found = set()
    for row in waits:
        standing = row["waiter_kind"] == NodeKind.DEVICE
        name = f"{row['waiter_rank']} >" if standing else f"> {row['holder_rank']}"
        found.add((name, Reason(int(row["reason"])), int(row["sure"])))
    assert len(found) == len(waits)
    return found


def test_one_is_absent() -> None:
    assert edges(tell(["stands", "absent", "stands"]).waits()) == {
        ("0 >", IN, 1), ("2 >", IN, 1), ("> 1", ABSENT, 1),
    }  # fmt: skip


def test_several_are_absent() -> None:
    assert edges(tell(["absent", "absent", "stands"]).waits()) == {
        ("2 >", IN, 1), ("> 0", ABSENT, 1), ("> 1", ABSENT, 1),
    }  # fmt: skip


def test_one_is_held_by_an_older_operation() -> None:
    assert edges(tell(["stands", "held", "stands"]).waits()) == {
        ("0 >", IN, 1), ("2 >", IN, 1), ("> 1", QUEUED, 1),
    }  # fmt: skip


def test_one_may_stand_in_it() -> None:
    assert edges(tell(["stands", "may stand", "stands"]).waits()) == {
        ("0 >", IN, 1), ("2 >", IN, 1), ("1 >", IN, 0), ("> 1", QUEUED, 0),
    }  # fmt: skip


def test_all_stand_in_it() -> None:
    assert edges(tell(["stands", "stands"]).waits()) == {
        ("0 >", IN, 1), ("1 >", IN, 1), ("> 0", UNSEEN, 1), ("> 1", UNSEEN, 1),
    }  # fmt: skip


@pytest.mark.parametrize("done", ["finished", "past"])
def test_one_pends_where_others_have_finished(done: str) -> None:
    assert edges(tell([done, "stands", done]).waits()) == {("1 >", IN, 1), ("> 1", FINISHED, 1)}


def test_some_pend_where_one_has_finished() -> None:
    assert edges(tell(["stands", "finished", "stands"]).waits()) == {
        ("0 >", IN, 1), ("2 >", IN, 1), ("> 0", FINISHED, 1), ("> 2", FINISHED, 1),
    }  # fmt: skip


@pytest.mark.parametrize("func", [Func.ALL_REDUCE, Func.BROADCAST])
@pytest.mark.parametrize("what", ["silent", "unknown", "lost"])
def test_one_pends_where_another_may_hold_up_the_end(what: str, func: Func) -> None:
    found = edges(tell(["finished", "stands", what], func).waits())
    assert found - {("2 >", IN, 0)} == {("1 >", IN, 1), ("> 1", FINISHED, 0), ("> 2", SILENT, 0)}


def test_contradictions_prove_nothing() -> None:
    """What one has finished all have launched: the position of member 2 is older than the others' records."""
    assert edges(tell(["finished", "stands", "absent"]).waits()) == {("1 >", IN, 1), ("> 1", FINISHED, 0)}


@pytest.mark.parametrize("what", ["silent", "unknown"])
def test_nothing_is_known_of_one(what: str) -> None:
    assert edges(tell(["stands", what, "stands"]).waits()) == {
        ("0 >", IN, 1), ("2 >", IN, 1), ("> 1", SILENT, 1),
    }  # fmt: skip


@pytest.mark.parametrize(("what", "reason", "sure"), [("absent", ABSENT, 1), ("held", QUEUED, 1)])
def test_silence_is_no_certainty_beside_what_explains_the_wait(what: str, reason: Reason, sure: int) -> None:
    assert edges(tell(["stands", "silent", what]).waits()) == {
        ("0 >", IN, 1), ("> 1", SILENT, 0), ("> 2", reason, sure),
    }  # fmt: skip


def test_a_lost_record_counts_as_launched() -> None:
    """Its position says that it launched: it may stand there, and is not late."""
    assert edges(tell(["stands", "lost", "absent"]).waits()) == {
        ("0 >", IN, 1), ("1 >", IN, 0), ("> 2", ABSENT, 1),
    }  # fmt: skip


def test_a_lost_record_where_all_others_stand() -> None:
    """It holds the operation as little or as much as they do."""
    assert edges(tell(["stands", "lost"]).waits()) == {
        ("0 >", IN, 1), ("1 >", IN, 0), ("> 0", UNSEEN, 1), ("> 1", UNSEEN, 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    "nobody", [["held", "absent"], ["held", "held"], ["finished", "absent"], ["silent"] * 2]
)
def test_operations_that_nobody_stands_in_are_not_judged(nobody: list[str]) -> None:
    assert len(tell(nobody).waits()) == 0


def test_no_records() -> None:
    waits = Told({"world": (0, 1)}).waits()
    assert waits.dtype == WAIT_RECORD.dtype
    assert len(waits) == 0
    assert len(Told({}).waits()) == 0


ROOTED = (Func.BROADCAST, Func.REDUCE, Func.GATHER, Func.SCATTER)


@pytest.mark.parametrize("func", ROOTED)
@pytest.mark.parametrize(("what", "reason"), [("absent", ABSENT), ("held", QUEUED)])
def test_a_root_that_has_finished_does_not_prove_others_stuck(func: Func, what: str, reason: Reason) -> None:
    assert edges(tell(["finished", "stands", what], func).waits()) == {("1 >", IN, 1), ("> 2", reason, 1)}


@pytest.mark.parametrize("func", ROOTED)
def test_with_a_finished_root_those_that_remain_are_stuck(func: Func) -> None:
    assert edges(tell(["finished", "stands", "finished"], func).waits()) == {
        ("1 >", IN, 1),
        ("> 1", FINISHED, 1),
    }


def test_counts() -> None:
    doing = ["stands", "absent", "held", "silent", "may stand", "lost", "stands"]
    for row in tell(doing).waits():
        assert (row["members"], row["launched"], row["finished"], row["silent"]) == (7, 5, 0, 1)
    for row in tell(["finished", "stands", "past", "silent"]).waits():
        assert (row["members"], row["launched"], row["finished"], row["silent"]) == (4, 3, 2, 1)


def test_what_a_record_says() -> None:
    told = Told({"world": (7, 8, 9)})
    row = told.state(9, "world", 5, func=Func.ALL_GATHER)
    row["launched"], row["age_us"], row["count"] = LAUNCHED_NS + 1, 77, 4096
    told.at(9, "world", 5, 4, order=40)
    told.at(7, "world", 4, 4, order=30)
    told.at(8, "world", 5, 4, order=39)
    told.state(8, "world", 5, func=Func.ALL_GATHER)["count"] = 4096
    waits = told.waits()
    assert not unknown_codes(WAIT_RECORD, waits).any()
    op = hash64("op", comm_of("world"), 0, -1, -1, 5)
    assert set(waits["op"].tolist()) == {op}
    assert set(waits["comm"].tolist()) == {comm_of("world")}
    assert set(waits["seq"].tolist()) == {5}
    assert set(waits["func"].tolist()) == {Func.ALL_GATHER}
    assert set(waits["count"].tolist()) == {4096}
    (standing,) = waits[waits["waiter"] == dev_of(9)]
    assert (standing["holder"], standing["holder_kind"]) == (op, NodeKind.OPERATION)
    assert (standing["waiter_rank"], standing["holder_rank"]) == (2, -1)
    assert (standing["since"], standing["waited_us"]) == (LAUNCHED_NS + 1, 77)
    assert (standing["sender"], standing["receiver"], standing["channel"]) == (-1, -1, -1)
    (holding,) = waits[waits["holder"] == dev_of(7)]
    assert (holding["waiter"], holding["waiter_kind"]) == (op, NodeKind.OPERATION)
    assert (holding["waiter_rank"], holding["holder_rank"], holding["holder_peer_rank"]) == (-1, 0, -1)
    assert (holding["holder_seq"], holding["holder_order"]) == (4, 30)
    assert (holding["since"], holding["waited_us"]) == (0, UNKNOWN_US)


def test_seq_spaces_of_funcs() -> None:
    """Absence is judged by the position in the space of that func alone."""
    told = tell(["stands", "absent"], per_func=True)
    told.at(1, "world", 99, 99, func=Func.ALL_GATHER)
    assert edges(told.waits()) == {("0 >", IN, 1), ("> 1", ABSENT, 1)}


def test_a_position_of_another_space_says_nothing() -> None:
    told = tell(["stands", "unknown"], per_func=True)
    told.at(1, "world", 99, 99, func=Func.ALL_GATHER)
    assert edges(told.waits()) == {("0 >", IN, 1), ("> 1", SILENT, 1)}


def test_a_position_of_another_communicator_says_nothing() -> None:
    told = tell(["stands", "unknown"])
    told.comms["other"] = (0, 1)
    told.at(1, "other", 2, 2)
    assert edges(told.waits()) == {("0 >", IN, 1), ("> 1", SILENT, 1)}


def test_a_finished_record_outranks_one_in_flight() -> None:
    told = tell(["stands", "absent"])
    told.done(0, "world", SEQ)
    assert len(told.waits()) == 0


def test_a_record_outranks_silence_and_position() -> None:
    told = tell(["silent", "absent", "stands"])
    told.state(0, "world", SEQ)
    told.state(1, "world", SEQ)
    assert edges(told.waits()) == {
        ("0 >", IN, 1), ("1 >", IN, 1), ("2 >", IN, 1),
        ("> 0", UNSEEN, 1), ("> 1", UNSEEN, 1), ("> 2", UNSEEN, 1),
    }  # fmt: skip


def pair(sender: str, receiver: str, *, lower_sends: bool = True) -> Told:
    """One send, number 5, between ranks 1 and 2 of a communicator of four."""
    ends = (1, 2) if lower_sends else (2, 1)
    silent = [rank for rank, what in zip(ends, (sender, receiver), strict=True) if what == "silent"]
    told = Told({"pipe": range(4)}, silent=silent)
    for me, peer, func, what in (
        (ends[0], ends[1], Func.SEND, sender),
        (ends[1], ends[0], Func.RECV, receiver),
    ):
        if what in ("stands", "may stand", "held"):
            current = {"stands": 1, "may stand": 2, "held": 0}[what]
            told.half(me, func, peer, "pipe", SEQ, current=current)
            told.half_at(me, func, peer, "pipe", SEQ, SEQ - 1)
        elif what == "finished":
            told.half(me, func, peer, "pipe", SEQ, done=True)
            told.half_at(me, func, peer, "pipe", SEQ, SEQ)
        elif what == "absent":
            told.half_at(me, func, peer, "pipe", SEQ - 1, SEQ - 1)
            # Other directions and collectives say nothing about this one.
            told.half_at(me, Func.SEND if func == Func.RECV else Func.RECV, peer, "pipe", SEQ + 9, SEQ + 9)
            told.at(me, "pipe", SEQ + 9, SEQ + 9)
    return told


PAIRS = [
    ("stands", "absent", {("s >", IN, 1), ("> r", ABSENT, 1)}),
    ("absent", "stands", {("r >", IN, 1), ("> s", ABSENT, 1)}),
    ("stands", "held", {("s >", IN, 1), ("> r", QUEUED, 1)}),
    ("may stand", "stands", {("s >", IN, 0), ("> s", QUEUED, 0), ("r >", IN, 1)}),
    ("stands", "stands", {("s >", IN, 1), ("r >", IN, 1), ("> s", UNSEEN, 1), ("> r", UNSEEN, 1)}),
    ("finished", "stands", {("r >", IN, 1), ("> r", FINISHED, 1)}),
    ("stands", "finished", {("s >", IN, 1), ("> s", FINISHED, 1)}),
    ("stands", "silent", {("s >", IN, 1), ("> r", SILENT, 1)}),
    ("silent", "stands", {("r >", IN, 1), ("> s", SILENT, 1)}),
    ("finished", "absent", set()),
]


@pytest.mark.parametrize("lower_sends", [True, False])
@pytest.mark.parametrize(
    ("sender", "receiver", "expected"),
    PAIRS,
    ids=lambda what: str(sorted(what) if isinstance(what, set) else what)[:10],
)
def test_pairs(sender: str, receiver: str, expected: set[tuple[str, Reason, int]], lower_sends: bool) -> None:
    waits = pair(sender, receiver, lower_sends=lower_sends).waits()
    names = {"s": "1", "r": "2"} if lower_sends else {"s": "2", "r": "1"}
    found = {
        (name.replace("s", names["s"]).replace("r", names["r"]), why, sure) for name, why, sure in expected
    }
    assert edges(waits) == found
    assert set(waits["sender"].tolist()) <= {int(names["s"])}
    assert set(waits["receiver"].tolist()) <= {int(names["r"])}
    assert set(waits["members"].tolist()) <= {2}


WHAT = ("finished", "past", "stands", "may stand", "held", "absent", "silent", "unknown", "lost")
stories = st.lists(st.sampled_from(WHAT), min_size=2, max_size=6)
funcs = st.sampled_from([Func.ALL_REDUCE, Func.BROADCAST, Func.ALL_TO_ALL, Func.REDUCE])


@settings(deadline=None)
@given(stories, funcs, st.booleans())
def test_invariants(doing: list[str], func: Func, per_func: bool) -> None:
    waits = tell(doing, func, per_func=per_func).waits()
    standing = waits[waits["reason"] == IN]
    holding = waits[waits["reason"] != IN]
    stands = {rank for rank, what in enumerate(doing) if what == "stands"}
    may = {rank for rank, what in enumerate(doing) if what == "may stand"}
    lost = {rank for rank, what in enumerate(doing) if what == "lost"}
    # Exactly those that stand, or may, have an edge into the operation; it is sure for the first alone.
    assert sorted(standing["waiter_rank"].tolist()) == (sorted(stands | may | lost) if stands | may else [])
    assert {int(row["waiter_rank"]) for row in standing if row["sure"]} == stands
    # Who only stands there is never said to be missing.
    accused: dict[Reason, set[int]] = {}
    for row in holding:
        accused.setdefault(Reason(int(row["reason"])), set()).add(int(row["holder_rank"]))
    absent = {rank for rank, what in enumerate(doing) if what == "absent"}
    assert accused.get(ABSENT, set()) <= absent
    assert accused.get(QUEUED, set()) <= may | {rank for rank, what in enumerate(doing) if what == "held"}
    assert accused.get(FINISHED, set()) <= stands
    assert accused.get(UNSEEN, set()) <= stands | lost
    unknown = {rank for rank, what in enumerate(doing) if what in ("silent", "unknown")}
    assert accused.get(SILENT, set()) <= unknown | lost
    # At most two records a member, at most one that accuses it.
    of_rank = Counter(holding["holder_rank"].tolist())
    assert all(count == 1 for count in of_rank.values())
    assert len(waits) <= 2 * len(doing)
    # Somebody is accused only where somebody stands.
    assert bool(len(standing)) == bool(stands | may)
    assert not len(holding) or len(standing)
    if not any(what in ("finished", "past") for what in doing) and stands:
        assert accused.get(ABSENT, set()) == absent
    unheard = len(absent) + doing.count("silent") + doing.count("unknown")
    assert {int(row["launched"]) for row in waits} <= {len(doing) - unheard}


@settings(deadline=None)
@given(stories, st.randoms(use_true_random=False))
def test_order_of_records_does_not_matter(doing: list[str], random: Random) -> None:
    told = tell(doing)
    before = edges(told.waits())
    random.shuffle(told.rows)
    assert edges(told.waits()) == before


def test_operations_do_not_influence_each_other() -> None:
    """All pairs of stories of three members, in two communicators at once."""
    stories = [
        ["stands", "absent", "stands"],
        ["finished", "stands", "finished"],
        ["stands", "silent", "held"],
    ]
    for one, other in product(stories, repeat=2):
        silent = [rank for rank, what in enumerate(one + other) if what == "silent"]
        both = Told({"a": (0, 1, 2), "b": (3, 4, 5)}, silent=silent)
        apart = []
        for name, doing, offset in (("a", one, 0), ("b", other, 3)):
            alone = tell(doing)
            for row in alone.rows:
                moved = row.copy()
                moved["comm"] = comm_of(name)
                moved["dev"] = dev_of(int(row["rank"][0]) + offset)
                both.rows.append(moved)
            apart.append(edges(alone.waits()))
        waits = both.waits()
        assert [edges(waits[waits["comm"] == comm_of(name)]) for name in "ab"] == apart
        assert np.unique(waits["op"]).size == 2
