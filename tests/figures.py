"""Figures that tests measure and print: how long an answer took, where an issue names a deadline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Figure = Callable[[str], None]

_KEY = "figure"


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Notes a line that is printed at the end of the run, whether the test passes or not."""
    return lambda line: request.node.user_properties.append((_KEY, line))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was noted."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    lines = [text for report in reports for key, text in report.user_properties if key == _KEY]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.write_line(line)
