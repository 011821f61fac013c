"""Which failed tests are asked once more."""

from __future__ import annotations

import pytest

from tests.alone import may_live_again

LIVE = "tests/integration/test_live.py::test_what_froze[c_hang4]"


def test_a_live_test_is() -> None:
    assert may_live_again({LIVE: True}) == [LIVE]


@pytest.mark.parametrize(
    "failed",
    [
        ["tests/unit/test_alone.py::test_a_live_test_is"],
        ["tests/integration/test_native.py::test_plugin[test]"],
        ["tests/integration/test_live.py"],  # it could not be imported
        [LIVE, "tests/unit/test_alone.py::test_a_live_test_is"],
        [f"{LIVE}{number}" for number in range(4)],
        [],
    ],
)
def test_others_are_not(failed: list[str]) -> None:
    assert may_live_again(failed) == []
