"""Drawings and texts of reports: pure functions, answers by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.report import chain, timeline
from queries.report.chain import Edge, Place, draw
from queries.report.evidence import Evidence
from queries.report.page import escape_markdown, html, markdown
from queries.report.steps import CATEGORIES, next_steps
from queries.report.timeline import Operation, lay_out
from schemas.incidents import Node, alert_schema
from tests.reports import hostile_evidence, hostile_incident


def _stands(rank: int, operation: str) -> Edge:
    return Edge(f"device {rank}", f"rank {rank}", f"operation {operation}", operation, "in operation", False)


def _holds(rank: int, operation: str, *, named: bool = True) -> Edge:
    return Edge(f"operation {operation}", operation, f"device {rank}", f"rank {rank}", "not launched", named)


def test_a_chain_over_two_operations_reads_from_left_to_right() -> None:
    """0 waits in A for 2, which waits in B for 3. Waits that lead to nobody named are not drawn."""
    drawing = draw(
        [_stands(0, "A"), _holds(2, "A", named=False), _stands(2, "B"), _holds(3, "B"), _stands(9, "C")]
    )
    assert drawing is not None
    assert [box.title for box in sorted(drawing.boxes, key=lambda box: box.x)] == [
        "rank 0", "A", "rank 2", "B", "rank 3",
    ]  # fmt: skip
    assert [box.title for box in drawing.boxes if box.cause] == ["rank 3"]
    assert len(drawing.arrows) == 4
    assert all(arrow.x1 < arrow.x2 for arrow in drawing.arrows)


def test_thousands_who_wait_alike_are_one_box() -> None:
    drawing = draw([*(_stands(rank, "A") for rank in range(16_383)), _holds(20_000, "A")])
    assert drawing is not None
    assert len(drawing.boxes) == 3
    assert any(box.title.startswith("16383 ranks: rank 0, ") for box in drawing.boxes)
    assert any(box.title.endswith("rank 7, 16375 more") for box in drawing.boxes)


def test_boxes_that_find_no_room_are_counted() -> None:
    drawing = draw(_holds(rank, "A") for rank in range(20))
    assert drawing is not None
    assert len(drawing.boxes) == 1 + chain.MAX_LAYER
    assert drawing.left_out == 20 - chain.MAX_LAYER


def test_who_holds_an_operation_up_does_not_wait_in_it_for_itself() -> None:
    drawing = draw([_stands(1, "A"), _stands(2, "A"), _holds(1, "A"), _holds(2, "A"), _stands(0, "A")])
    assert drawing is not None
    assert len(drawing.arrows) == 3


def test_a_circle_is_drawn_as_one() -> None:
    """1 stands in A, which 2 holds; 2 stands in B, which 1 holds."""
    drawing = draw([_stands(1, "A"), _holds(2, "A"), _stands(2, "B"), _holds(1, "B")])
    assert drawing is not None
    assert len(drawing.arrows) == 4


def test_nobody_named_is_no_drawing() -> None:
    assert draw([_stands(0, "A"), _holds(2, "A", named=False)]) is None
    assert draw([]) is None


@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 12), st.sampled_from("ABCDE"), st.booleans()), max_size=40
    )
)
def test_every_box_lies_on_the_paper_and_none_on_another(waits: list[tuple[bool, int, str, bool]]) -> None:
    drawing = draw(
        _stands(rank, op) if stands else _holds(rank, op, named=named) for stands, rank, op, named in waits
    )
    if drawing is None:
        return
    corners = [(box.x, box.y) for box in drawing.boxes]
    assert len(set(corners)) == len(corners)
    for x, y in corners:
        assert 0 <= x <= drawing.width - chain.BOX_W
        assert 0 <= y <= drawing.height - chain.BOX_H


def test_lanes_put_who_is_named_first_and_bars_where_they_belong() -> None:
    operations = [
        Operation(Place(0, None), False, "A", 100.0, 1.0, True),
        Operation(Place(0, None), False, "B", 101.0, 9.0, False),
        Operation(Place(5, "node"), True, "A", 105.0, 0.0, True),
    ]
    found = lay_out(operations, 2)
    assert found is not None
    assert [lane.name for lane in found.lanes] == ["rank 5 on node", "rank 0"]
    # 10 s on 750 px.
    assert [(bar.x, bar.width, bar.kind) for bar in found.lanes[1].bars] == [
        (150.0, 75.0, "done"),
        (225.0, 675.0, "stuck"),
    ]
    assert [(bar.x, bar.width) for bar in found.lanes[0].bars] == [(525.0, timeline.MIN_BAR)]
    assert found.left_out == 0


def test_what_cannot_be_seen_to_end_is_not_shown_as_stuck() -> None:
    found = lay_out([Operation(Place(0, None), False, "A", 0.0, 9.0, False, False)], 1)
    assert found is not None
    assert [bar.kind for bar in found.lanes[0].bars] == ["unseen"]


def test_more_ranks_than_fit_are_counted() -> None:
    found = lay_out((Operation(Place(rank, None), False, "A", 0.0, 1.0, True) for rank in range(100)), 16_384)
    assert found is not None
    assert len(found.lanes) == timeline.MAX_LANES
    assert found.left_out == 16_384 - timeline.MAX_LANES
    assert lay_out([], 4) is None


def test_there_are_steps_for_every_category() -> None:
    assert set(CATEGORIES) == set(alert_schema()["properties"]["category"]["enum"])


@pytest.mark.parametrize("category", CATEGORIES)
def test_steps_name_process_and_host_where_they_are_known(category: str) -> None:
    one = replace(hostile_incident(), category=category, culprits=(Node("device", 3, host="node-3", pid=47),))
    text = " ".join(next_steps(one))
    assert "{" not in text
    assert "PID" not in text
    assert "its host" not in text
    two = replace(one, culprits=(*one.culprits, Node("device", 4, host="node-4", pid=48)))
    assert "node-" not in " ".join(next_steps(two))


def test_no_name_is_markup() -> None:
    page = html(hostile_incident(), hostile_evidence())
    assert "<script" not in page
    assert "<img" not in page
    assert "{{ 7*7 }}" in page
    assert page.count("&lt;script&gt;") > 8


def test_markdown_shows_names_as_they_are() -> None:
    text = markdown(hostile_incident(), hostile_evidence())
    assert "<script" not in text
    assert "<img" not in text
    broken = replace(hostile_incident(), summary="a\n# b | [c](d) ~~e~~ `f`", job="- x")
    lines = markdown(broken, Evidence((), (), (), 0)).splitlines()
    assert lines[0] == r"## a \# b \| \[c\](d) \~\~e\~\~ \`f\`"
    assert any(line.startswith(r"| job | \- x,") for line in lines)


@given(st.text())
def test_escaped_markdown_is_one_line_without_tags(text: str) -> None:
    escaped = escape_markdown(text)
    assert len(escaped.splitlines()) <= 1
    assert "<" not in escaped


@pytest.mark.parametrize("category", CATEGORIES)
def test_what_is_over_asks_for_nothing_to_be_done_to_a_process(category: str) -> None:
    node = Node("device", 3, host="node-3", pid=47)
    over = replace(
        hostile_incident(), category=category, culprits=(node,), state="closed",
        closed="2026-03-01T03:09:00.000000Z",
    )  # fmt: skip
    first, *rest = next_steps(over)
    assert first == "It is over. What is left is to find out why."
    assert rest
    assert not [
        step for step in rest if "{" in step or "kill -CONT" in step or "-p 47" in step or "--pid" in step
    ]
