"""The catalogue of named questions: a `.sql` file each, whose first lines say what it answers.

A header line is one of

    -- title: …
    -- answers: …                                what a reader learns from it
    -- parameter: NAME TYPE [= DEFAULT] | …      ClickHouse's type; without a default it has to be given
    -- worked result:                            a table for the reader, to the end of the header

and the statement below it names each parameter as ClickHouse binds it, `{NAME:TYPE}`. A test holds header,
statement and result together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from clickhouse_connect.driver.client import Client

_FIELD = re.compile(r"-- (title|answers|parameter|worked result): ?(.*)")
_PARAMETER = re.compile(r"(?P<name>[a-z_]+) (?P<type>\w+)(?: = (?P<default>\S+))? \| (?P<doc>.+)")


@dataclass(frozen=True)
class Parameter:
    """What a question is asked with; `default` is ClickHouse's text of it, None where it has to be given."""

    name: str
    type: str
    default: str | None
    doc: str


@dataclass(frozen=True)
class Question:
    """A named question; `result` are the lines of its worked result."""

    name: str
    title: str
    answers: str
    parameters: tuple[Parameter, ...]
    result: tuple[str, ...]
    sql: str


@dataclass(frozen=True)
class Table:
    """An answer: names of the columns, and rows of plain Python values."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@cache
def catalogue() -> Mapping[str, Question]:
    """All questions by name, in the order of their names."""
    found = [each for each in files(__package__).iterdir() if each.name.endswith(".sql")]
    return {
        name: parse(name, each.read_text(encoding="utf-8"))
        for each in sorted(found, key=lambda each: each.name)
        if (name := each.name.removesuffix(".sql"))
    }


def parse(name: str, text: str) -> Question:
    """A question from the text of its file; raises ValueError where the header is none.

    >>> parse("one", "-- title: One\\n-- answers: It.\\n-- worked result:\\n--   1\\nSELECT 1\\n").title
    'One'
    """
    lines = text.splitlines()
    header = [line for line in lines if line.startswith("-- ")][: _header_length(lines)]
    said: dict[str, list[str]] = {"title": [], "answers": [], "parameter": [], "worked result": []}
    result: list[str] = []
    for line in header:
        field = _FIELD.fullmatch(line)
        if field is not None:
            said[field[1]].append(field[2])
        elif said["worked result"]:
            result.append(line.removeprefix("--   "))
        else:
            raise ValueError(f"{name}.sql: {line!r} is no header line")
    if any(len(said[one]) != 1 for one in ("title", "answers", "worked result")) or not result:
        raise ValueError(f"{name}.sql: title, answers and worked result have to stand there once each")
    sql = "\n".join(lines[len(header) :]).strip()
    parameters = tuple(_parameter(name, each) for each in said["parameter"])
    return Question(name, said["title"][0], said["answers"][0], parameters, tuple(result), sql)


def ask(client: Client, question: Question, given: Mapping[str, str]) -> Table:
    """The answer of the store, with the parameters bound by the server; raises ClickHouse's errors.

    `given` has a text for each parameter without a default, and for others where they differ from it.
    """
    values = {
        each.name: given.get(each.name, each.default)
        for each in question.parameters
        if each.name in given or each.default is not None
    }
    answer = client.query(question.sql, parameters=values)
    return Table(tuple(answer.column_names), tuple(tuple(row) for row in answer.result_rows))


def _header_length(lines: list[str]) -> int:
    return next((at for at, line in enumerate(lines) if not line.startswith("-- ")), len(lines))


def _parameter(name: str, text: str) -> Parameter:
    found = _PARAMETER.fullmatch(text)
    if found is None:
        raise ValueError(f"{name}.sql: {text!r} is no parameter: NAME TYPE [= DEFAULT] | what it is")
    default = found["default"]
    return Parameter(found["name"], found["type"], "" if default == "''" else default, found["doc"])
