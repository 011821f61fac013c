"""Ranges: each message is stored once, whatever crashes when."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.sink.ranges import Cursor, Intent, Range, start

ID = "topic-1"


def cursor(position: int = 0, intent: Intent | None = None, *, compacted: bool = False) -> Cursor:
    return Cursor("t", 0, ID, position, intent, compacted)


def test_a_range_is_what_has_been_read() -> None:
    reader = cursor(5)
    for offset in (5, 6, 7):
        reader.add(offset, b"x")
    cut = reader.cut(now=100)
    assert cut is not None
    assert (cut.first, cut.last, cut.at, cut.gaps) == (5, 7, 100, ())
    assert cut.token == "topic-1:0:5-7"
    assert reader.cut(now=101) is None
    assert (reader.position, reader.size) == (8, 0)


def test_an_intent_is_made_good_exactly() -> None:
    reader = cursor(5, Intent(last=7, at=90))
    reader.add(5, b"a")
    reader.add(6, b"b")
    assert reader.cut(now=100) is None
    reader.add(7, b"c")
    reader.add(8, b"d")
    first, second = reader.cut(now=100), reader.cut(now=100)
    assert first is not None
    assert second is not None
    assert (first.token, first.at) == ("topic-1:0:5-7", 90)
    assert (second.token, second.at) == ("topic-1:0:8-8", 100)


@pytest.mark.parametrize("compacted", [True, False])
def test_an_intent_whose_end_is_gone_ends_at_what_follows(*, compacted: bool) -> None:
    reader = cursor(5, Intent(last=7, at=90), compacted=compacted)
    reader.add(5, b"a")
    reader.at_end(8)
    cut = reader.cut(now=100)
    assert cut is not None
    assert (cut.token, cut.gaps) == ("topic-1:0:5-7", () if compacted else ((6, 2),))


def test_holes_are_losses_that_the_next_range_tells() -> None:
    reader = cursor(0)
    for offset in (3, 4, 7):
        reader.add(offset, b"")
    cut = reader.cut(now=1)
    assert cut is not None
    assert (cut.first, cut.last, cut.gaps) == (0, 7, ((0, 3), (5, 2)))


def test_offsets_given_out_again_are_read_again() -> None:
    reader = cursor(9)
    reader.add(4, b"new")
    cut = reader.cut(now=1)
    assert cut is not None
    assert (cut.first, cut.last, cut.gaps) == (4, 4, ())


def test_where_reading_begins() -> None:
    cut = Range("t", 0, ID, 5, 7, 90, ())
    assert start(None, None, ID, 3) == (3, None)
    assert start(5, cut.intent, ID, 3) == (5, Intent(7, 90))
    assert start(8, cut.done, ID, 3) == (8, None)
    assert start(8, "", ID, 3) == (8, None)
    assert start(8, "moved by hand", ID, 3) == (8, None)
    assert start(8, "[1]", ID, 3) == (8, None)
    assert start(8, '{"last": "x", "at": 1}', ID, 3) == (8, None)
    # A topic that was made anew under the old name.
    assert start(5, cut.intent, "topic-2", 0) == (0, None)
    assert start(8, cut.done, "topic-2", 0) == (0, None)


class Model:
    """A partition, a group and a table that outlive the sink's processes."""

    def __init__(self, offsets: list[int]) -> None:
        self.offsets = offsets
        self.committed: int | None = None
        self.metadata: str | None = None
        self.tokens: set[str] = set()
        self.stored: Counter[int] = Counter()

    def run(self, steps: int, chance: random.Random) -> None:
        """One process that crashes after so many steps: a commit and an insert are one step each."""
        position, intent = start(self.committed, self.metadata, ID, 0)
        reader = cursor(position, intent, compacted=True)
        unread = [offset for offset in self.offsets if offset >= position]
        while True:
            for _ in range(chance.randint(1, 4)):
                if unread:
                    reader.add(unread.pop(0), b"")
            if not unread:
                reader.at_end(max(self.offsets) + 1)
            cut = reader.cut(now=chance.randint(0, 9))
            if cut is None and not unread:
                return
            if cut is None:
                continue
            for step in (self.intend, self.insert, self.finish):
                if steps == 0:
                    return
                step(cut)
                steps -= 1

    def intend(self, cut: Range) -> None:
        self.committed, self.metadata = cut.first, cut.intent

    def insert(self, cut: Range) -> None:
        if cut.token not in self.tokens:
            self.tokens.add(cut.token)
            self.stored.update(offset for offset, _ in cut.messages)

    def finish(self, cut: Range) -> None:
        self.committed, self.metadata = cut.last + 1, cut.done


@settings(deadline=None)
@given(
    offsets=st.sets(st.integers(0, 60), min_size=1).map(sorted),
    crashes=st.lists(st.integers(0, 12), max_size=8),
    seed=st.integers(0, 2**32),
)
def test_every_message_is_stored_once(offsets: list[int], crashes: list[int], seed: int) -> None:
    model, chance = Model(offsets), random.Random(seed)
    for steps in crashes:
        model.run(steps, chance)
    model.run(10_000, chance)
    assert model.stored == Counter(offsets)
