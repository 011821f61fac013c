"""The catalogue's files: header and statement belong together."""

from __future__ import annotations

import re

import pytest

from mycroft.cli import load
from queries.catalogue import catalogue, parse


@pytest.mark.parametrize("name", catalogue())
def test_parameters_of_header_and_statement_are_the_same(name: str) -> None:
    question = catalogue()[name]
    declared = {(each.name, each.type) for each in question.parameters}
    assert set(re.findall(r"\{(\w+):(\w+)\}", question.sql)) == declared


@pytest.mark.parametrize("name", catalogue())
def test_each_is_a_sentence(name: str) -> None:
    question = catalogue()[name]
    assert re.fullmatch(r"[A-Z].*\.", question.answers)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)


def test_each_is_a_command_with_its_parameters() -> None:
    commands = load("query").commands
    for name, question in catalogue().items():
        options = {option for each in commands[name].params for option in each.opts}
        assert options >= {f"--{each.name}" for each in question.parameters} | {"--json", "--clickhouse"}
        required = {each.name for each in commands[name].params if each.required}
        assert required == {each.name for each in question.parameters if each.default is None}


def test_a_header_is_read() -> None:
    text = "-- title: T\n-- answers: A.\n-- parameter: host String | h\n-- parameter: job String = '' | j\n"
    question = parse("q", text + "-- worked result:\n--   a | b\n--   1 | 2\nSELECT 1 -- one\n")
    assert [(each.name, each.type, each.default, each.doc) for each in question.parameters] == [
        ("host", "String", None, "h"),
        ("job", "String", "", "j"),
    ]
    assert question.result == ("a | b", "1 | 2")
    assert question.sql == "SELECT 1 -- one"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "-- title: T\n-- answers: A.\nSELECT 1",
        "-- title: T\n-- title: T\n-- answers: A.\n-- worked result:\n--   1\nSELECT 1",
        "-- title: T\n-- what\n-- answers: A.\n-- worked result:\n--   1\nSELECT 1",
        "-- title: T\n-- answers: A.\n-- parameter: x\n-- worked result:\n--   1\nSELECT 1",
    ],
)
def test_what_is_no_header_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"q\.sql"):
        parse("q", text)
