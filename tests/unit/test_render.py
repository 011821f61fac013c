"""What a terminal is shown: names from jobs, hosts and dumps are text, whatever they hold."""

from __future__ import annotations

import io
import logging

import pytest
from rich.table import Table
from rich.text import Text

from mycroft.render import console, incident, listing
from schemas.incidents import Node
from schemas.shown import LineFormatter
from tests.alerts import an_incident

NAMES = ["[bold red]x[/b] y", "exp[lr=3]", "[/]", ":smile:", "back\\[slash]", "1e-3 'a' http://h"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_no_markup(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = console()
    table = Table("job")
    table.add_row(name)
    found = an_incident(
        1, job=name, attempt=name, summary=name, chain=(name,), culprits=(Node("device", 1, host=name),)
    )
    for each in (name, f"job {name}", table, listing([found]), incident(found)):
        out.print(each)
        told = capsys.readouterr().out
        assert name in told


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("evil\x1b[31m\nname", "evil\\x1b[31m\\nname"),
        ("a\r\x9b2Jb", "a\\r\\x9b2Jb"),
        ("\u202eabc", "\\u202eabc"),
        ("naïve 模型", "naïve 模型"),
    ],
)
def test_a_name_commands_no_terminal(name: str, seen: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = an_incident(1, job=name)
    for each in (listing([found]), incident(found)):
        console().print(each)
        assert seen in capsys.readouterr().out


def test_what_reaches_a_terminal_uncleaned_is_escaped_on_its_way(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("two\nlines", Text("a\x1b]0;title\x9cb"))
    assert capsys.readouterr().out == "two\nlines a\\x1b]0;title\\x9cb\n"


def test_a_line_of_the_log_is_one_line() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter("%(levelname)s %(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        raise ValueError
    except ValueError:
        log.exception("file %s", "a\x1b[0m\nERROR b")
    told = written.getvalue().splitlines()
    assert told[0] == "ERROR file a\\x1b[0m\\nERROR b"
    assert told[1].startswith("Traceback")
