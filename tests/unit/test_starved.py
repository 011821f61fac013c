"""A machine too busy for a run: what it does to an answer is said, and only then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mycroft.commands.diagnose import starved
from mycroft.local.pulse import longest_gap

TIMES = st.lists(st.floats(-10, 10), max_size=20)


def test_gaps() -> None:
    assert longest_gap([0.0, 0.5, 1.0, 4.5, 5.0], 0.0, 5.0) == 3.5
    assert longest_gap([], 1.0, 5.0) == 4.0
    assert longest_gap([-3.0, 8.0], 1.0, 5.0) == 4.0, "what lies outside is nobody's look at this time"
    assert longest_gap([2.0], 5.0, 5.0) == 0.0


@given(TIMES, st.floats(-10, 10))
def test_another_look_never_lengthens_a_gap(times: list[float], more: float) -> None:
    assert longest_gap([*times, more], -5.0, 5.0) <= longest_gap(times, -5.0, 5.0)


@given(TIMES)
def test_no_stretch_without_a_look_is_longer(times: list[float]) -> None:
    gap = longest_gap(times, -5.0, 5.0)
    assert 0.0 <= gap <= 10.0
    for start in (-5.0, *(time for time in times if -5.0 <= time <= 5.0)):
        after = [time for time in times if time > start]
        assert min([*after, 5.0]) - start <= gap + 1e-9


@pytest.mark.parametrize(
    ("late", "pause", "says"),
    [
        (0.1, 0.6, []), (0.5, 2.0, []), (0.6, 0.6, ["up to 0.6 s late"]),
        (0.1, 7.04, ["for 7.0 s it looked"]),
        (3.0, 9.0, ["up to 3.0 s late", "for 9.0 s it looked"]),
    ],
)  # fmt: skip
def test_what_is_said(late: float, pause: float, says: list[str]) -> None:
    told = starved(late, pause)
    assert len(told) == len(says)
    assert all(part in line for part, line in zip(says, told, strict=True))
