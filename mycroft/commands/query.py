"""Ask the store a named question: who is waited for, what is in flight, the history of a host, …

Without a name it lists them. Example: mycroft query host-history --host node-17
"""

from __future__ import annotations

import inspect
import json
from typing import Annotated, Any

import typer
from rich.table import Table as Screen
from rich.text import Text
from typer.core import TyperGroup

from mycroft.commands.options import ClickHouse, Json
from mycroft.connections import settings
from mycroft.errors import UsageError
from mycroft.render import console
from queries.catalogue import Parameter, Question, Table, ask, catalogue
from queries.client import connect, store_errors
from schemas.shown import shown

_NUMBERS: dict[str, type] = {"UInt32": int}
"""What a parameter's text has to be, so that a typing error is told before the store is asked."""


class Questions(TyperGroup):
    """The questions by name; who misremembers one is told all."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The question asked; raises UsageError."""
        if args and args[0] not in self.commands:
            raise UsageError(f"no question is called {args[0]}; there are {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    help=__doc__, add_completion=False, rich_markup_mode=None, invoke_without_command=True, cls=Questions
)


@app.callback()
def _list(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is not None:
        return
    table = Screen(box=None, header_style="bold", pad_edge=False)
    table.add_column("question", no_wrap=True)
    table.add_column("what it answers")
    for question in catalogue().values():
        table.add_row(question.name, question.answers)
    console().print(table)
    console(stderr=True).print("\nIts parameters and a worked result: mycroft query NAME --help", style="dim")


def _asking(question: Question) -> Any:
    """The function behind a question's command: its parameters are options, as Typer reads a signature."""

    def run(*, as_json: bool, clickhouse: str | None, **given: Any) -> None:
        url = settings(clickhouse=clickhouse).clickhouse
        with store_errors(url):
            found = ask(connect(url), question, {name: str(value) for name, value in given.items()})
        if as_json:
            rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
            print(json.dumps({"rows": rows}, default=str))
        else:
            _show(question, found)

    options = [*map(_option, question.parameters)]
    options.append(_keyword("as_json", Json, False))
    options.append(_keyword("clickhouse", ClickHouse, None))
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def _option(parameter: Parameter) -> inspect.Parameter:
    kind = _NUMBERS.get(parameter.type, str)
    bounds: dict[str, Any] = {"min": 0, "max": 2**32 - 1} if kind is int else {}
    option = typer.Option(
        f"--{parameter.name}", help=parameter.doc, show_default=bool(parameter.default), **bounds
    )
    default = inspect.Parameter.empty if parameter.default is None else kind(parameter.default)
    return _keyword(parameter.name, Annotated[kind, option], default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _help(question: Question) -> str:
    worked = "\n".join(question.result)
    # The help is set as paragraphs, but for one that begins with a backspace.
    return f"{question.title}: {question.answers}\n\nWorked result:\n\n\b\n{worked}"


def _show(question: Question, found: Table) -> None:
    if not found.rows:
        console(stderr=True).print(f"{question.title}: none.")
        return
    table = Screen(box=None, header_style="bold", pad_edge=False)
    for column in found.columns:
        table.add_column(column)
    for row in found.rows:
        table.add_row(*(_text(value) for value in row))
    console().print(table)


def _text(value: object) -> Text:
    if isinstance(value, (list, tuple)):
        return Text(shown(", ".join(str(each) for each in value)))
    return Text("" if value is None else shown(str(value)))


for _question in catalogue().values():
    app.command(_question.name, help=_help(_question), short_help=_question.answers)(_asking(_question))
