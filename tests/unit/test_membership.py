"""Announcements to flat arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schemas.members import Announcement, Member
from streams.membership import membership
from tests.records import announcement, comm_of, dev_of


def known(comm: int, nranks: int, *members: Member) -> Announcement:
    return replace(announcement("any", (0,)), comm=comm, nranks=nranks, members=members)


def test_slots_are_by_communicator_then_rank() -> None:
    members = membership(
        [known(9, 2, Member(1, 91), Member(0, 90)), known(4, 3, *(Member(r, r) for r in (2, 1, 0)))]
    )
    assert members.comm.tolist() == [4, 9]
    assert members.first.tolist() == [0, 3, 5]
    assert members.dev.tolist() == [0, 1, 2, 90, 91]
    assert members.silent.tolist() == [False] * 5


def test_large_ids_keep_their_low_bits() -> None:
    members = membership([known(2**64 - 1, 1, Member(0, 2**64 - 3))])
    assert members.comm.tolist() == [2**64 - 1]
    assert members.dev.tolist() == [2**64 - 3]


def test_a_rank_that_nobody_announced_is_silent() -> None:
    members = membership([known(4, 3, Member(1, 7))])
    assert members.dev[1] == 7
    assert members.silent.tolist() == [True, False, True]


def test_ranks_that_nobody_announced_are_different_devices() -> None:
    members = membership([known(4, 3, Member(1, 7)), known(5, 2)])
    assert len(set(members.dev.tolist())) == 5
    assert 0 not in members.dev
    assert membership([known(4, 3, Member(1, 7)), known(5, 2)]).dev.tolist() == members.dev.tolist()


def test_a_silent_member_keeps_its_device() -> None:
    members = membership([known(4, 2, Member(0, 7), Member(1, 8, silent=True))])
    assert members.dev.tolist() == [7, 8]
    assert members.silent.tolist() == [False, True]


def test_sources_may_each_name_a_part() -> None:
    members = membership([known(4, 3, Member(0, 7)), known(4, 3, Member(2, 9)), known(4, 3, Member(1, 8))])
    assert members.first.tolist() == [0, 3]
    assert members.dev.tolist() == [7, 8, 9]


def test_the_later_word_on_a_rank_counts() -> None:
    members = membership([known(4, 1, Member(0, 7, silent=True)), known(4, 1, Member(0, 8))])
    assert members.dev.tolist() == [8]
    assert members.silent.tolist() == [False]


def test_ranks_outside_are_left_out() -> None:
    members = membership([known(4, 2, Member(0, 7), Member(2, 8), Member(-1, 9))])
    assert members.dev[0] == 7
    assert not {8, 9} & set(members.dev.tolist())
    assert members.silent.tolist() == [False, True]


def test_no_announcements() -> None:
    members = membership([])
    assert members.comm.shape == (0,)
    assert members.first.tolist() == [0]
    at, there = members.index(np.array([4, 0], np.uint64))
    assert at.shape == (2,)
    assert there.tolist() == [False, False]


@given(st.sets(st.integers(0, 2**64 - 1), max_size=6), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_index(comms: set[int], others: list[int]) -> None:
    members = membership([known(comm, 1, Member(0, 1)) for comm in comms])
    asked = [*comms, *others]
    at, there = members.index(np.array(asked, np.uint64))
    assert there.tolist() == [comm in comms for comm in asked]
    assert [int(members.comm[place]) for place, known in zip(at, there, strict=True) if known] == [
        comm for comm in asked if comm in comms
    ]
    assert all(0 <= place < max(1, len(comms)) for place in at.tolist())


def test_builders_of_the_tests() -> None:
    members = membership([announcement("a", (3, 5), silent=[5])])
    assert members.comm.tolist() == [comm_of("a")]
    assert members.dev.tolist() == [dev_of(3), dev_of(5)]
    assert members.silent.tolist() == [False, True]
