"""Commands are found by name, and each loads no more than it needs."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mycroft.cli import COMMANDS, app, load, summary
from mycroft.errors import BAD_INPUT, OURS, UsageError, explain

HEAVY = ("faust", "numba", "numpy", "chdb", "clickhouse_connect", "clickhouse_migrations", "confluent_kafka")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_there_and_says_what_it_does(name: str) -> None:
    command = load(name)
    assert command.name == name
    assert command.help
    assert inspect.cleandoc(command.help).splitlines()[0] == summary(name).splitlines()[0]


@pytest.mark.parametrize(
    ("modules", "may_load"),
    [
        ("mycroft.cli", ()),
        ("mycroft.commands.collect", ()),
        ("mycroft.commands.plugin", ()),
        ("mycroft.commands.sql", ("numpy", "clickhouse_connect")),
        ("collectors.agent.__main__", ("numpy", "confluent_kafka")),
    ],
)
def test_what_is_not_needed_is_not_loaded(modules: str, may_load: tuple[str, ...]) -> None:
    program = f"import sys, {modules}; print(*sorted(set(sys.modules) & {set(HEAVY)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= set(may_load)


@pytest.mark.parametrize("name", OURS)
def test_each_error_that_is_known_by_name_exists(name: str) -> None:
    module, _, kind = name.rpartition(".")
    found = getattr(importlib.import_module(module), kind)
    assert issubclass(found, Exception)
    error = found.__new__(found)
    error.args = ("what\n  went wrong",)
    assert explain(error) == ("what went wrong", OURS[name])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["testbed", "--duration", "-3"], "duration -3.0 is none"),
        (["testbed", "--duration", "nan"], "duration nan is none"),
        (["diagnose", ".", "--timeout", "inf"], "timeout inf is none"),
        (["sql", ""], "the statement is empty"),
        (["sql", " ;\n"], "the statement is empty"),
    ],
)
def test_what_cannot_be_meant(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, UsageError)
    assert told in str(done.exception)


@pytest.mark.parametrize(
    ("days", "bound"),
    [("-1", "greater than or equal to 0"), ("4294967296", "less than or equal to 4294967295")],
)
def test_a_number_out_of_range_names_its_parameter(days: str, bound: str) -> None:
    done = CliRunner().invoke(app, ["query", "worst-links", "--days", days])
    assert done.exit_code == BAD_INPUT
    assert "'--days'" in done.stderr
    assert bound in done.stderr


def test_errors_that_nobody_foresaw_are_not_explained() -> None:
    assert explain(ValueError("x")) is None
    assert explain(FileNotFoundError(2, "No such file or directory", "there")) == (
        "cannot use there: No such file or directory",
        2,
    )


def test_a_question_that_is_not_there_is_told_with_those_that_are() -> None:
    done = CliRunner().invoke(app, ["query", "worst-link"])
    assert isinstance(done.exception, UsageError)
    assert "no question is called worst-link; there are " in str(done.exception)
    assert "worst-links" in str(done.exception)
