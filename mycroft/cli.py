"""The command line: finds the subcommand and turns errors into one line and an exit status.

Only the module of the command that runs is imported. The list of commands shows the first paragraph of each
one's docstring, which is read from its source.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from mycroft.errors import FAILED, explain
from mycroft.output import OutputLost, abandon, prepare
from schemas.shown import shown

COMMANDS = {
    "diagnose": "diagnose.diagnose",
    "up": "up.up",
    "import": "imports.app",
    "incidents": "incidents.incidents",
    "explain": "incidents.explain",
    "report": "report.report",
    "sql": "sql.sql",
    "query": "query.app",
    "alerts": "alerts.alerts",
    "notify": "notify.notify",
    "collect": "collect.collect",
    "doctor": "doctor.doctor",
    "tier": "tier.tier",
    "plugin-path": "plugin.plugin_path",
    "replay": "replay.replay_run",
    "record": "record.record",
    "testbed": "testbed.run_testbed",
    "demo": "demo.demo",
    "worker": "worker.worker",
    "sink": "worker.sink",
    "topics": "worker.topics",
    "migrate": "worker.migrate",
    "healthy": "healthy.healthy",
}
"""Each command's module in mycroft.commands, and there its function, or the Typer app of its own commands."""

_HELP = (
    "Names the rank, the host and the reason when a collective of a training job stalls.\n\n"
    "Start with: mycroft demo, or mycroft diagnose DIR (a folder of Flight Recorder dumps). "
    "For a stack that stays up: mycroft up, then mycroft import, mycroft incidents, mycroft sql."
)


class Commands(TyperGroup):
    """The commands by name; a command comes into being when it is asked for."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the signature is click's
        """All of them, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command, None where there is none; while the list is printed only its name and summary."""
        if cmd_name not in COMMANDS:
            return None
        return TyperCommand(cmd_name, help=summary(cmd_name)) if self._listing else load(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The list of commands."""
        self._listing = True
        super().format_help(ctx, formatter)


def load(name: str) -> Any:
    """Imports the module of a command."""
    module, attribute = COMMANDS[name].split(".")
    found: Any = getattr(importlib.import_module(f"mycroft.commands.{module}"), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, _typer()
        found.command(name)(function)
    command = typer.main.get_command(found)
    command.name = name
    return command


def summary(name: str) -> str:
    """The docstring of a command, without importing it."""
    module, attribute = COMMANDS[name].split(".")
    spec = importlib.util.find_spec(f"mycroft.commands.{module}")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    named = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    return ast.get_docstring(named.get(attribute, tree)) or ""


def _typer(**more: Any) -> typer.Typer:
    return typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich", **more)


app = _typer(name="mycroft", help=_HELP, cls=Commands, no_args_is_help=True)


def _version(asked: bool) -> None:
    if asked:
        print(f"mycroft {version('mycroft')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the console script."""
    prepare()
    try:
        try:
            app(standalone_mode=True)
        finally:
            sys.stdout.flush()  # what it does not take is told as everything else
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        abandon()
        sys.exit(FAILED)
    except Exception as error:
        known = explain(error)
        if known is None:
            raise
        line, status = known
        if isinstance(error, OutputLost):
            abandon()
        print(f"mycroft: {shown(line)}", file=sys.stderr)
        sys.exit(status)


if __name__ == "__main__":
    main()
