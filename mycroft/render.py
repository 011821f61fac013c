"""Incidents for the eyes of a person: who, why, how many wait, the chain, what to do next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from schemas.incidents import Incident, Node
from schemas.shown import shown, shown_lines

_COLOUR = {"critical": "red", "warning": "yellow", "notice": "cyan"}
_CERTAINTY = {
    "proven": "proven by its own records",
    "likely": "likely",
    "candidates": "one or more of these: nothing recorded tells them apart",
}


class Screen(Console):
    """A console on which text is text: no name in it can be markup, an emoji or an escape of the terminal.

    Looks are given as styles, by Text and by `style`. Panels' titles and what spins beside a status read
    strings as markup whatever the console says: give them a Text.
    """

    def __init__(self, *, stderr: bool, width: int | None = None) -> None:
        super().__init__(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is printed, in pieces."""
        for piece in super().render(renderable, options):
            text = piece.text
            safe = piece.control or text.isprintable()
            yield piece if safe else Segment(shown_lines(text), piece.style)


def console(*, stderr: bool = False) -> Screen:
    """A console that wraps nothing in a pipe, where lines are for other programs."""
    made = Screen(stderr=stderr)
    return made if made.is_terminal else Screen(stderr=stderr, width=200)


def incident(found: Incident) -> RenderableType:
    """All of an incident, as a panel."""
    colour = _COLOUR[found.severity]
    parts: list[RenderableType] = [Text(found.summary, style="bold")]
    if found.culprits:
        parts.append(_nodes("culprit" if len(found.culprits) == 1 else "culprits", found.culprits))
    if found.candidates:
        parts.append(_nodes("candidates", found.candidates))
    certainty = _CERTAINTY[found.confidence]
    if found.confidence == "candidates" and len(found.candidates) == 1:
        certainty = "a candidate: the records do not prove it"
    parts.append(Text(f"confidence: {certainty}"))
    parts.append(Text(_times(found)))
    parts += _section("who waits for whom", found.chain, numbered=True)
    parts += _section("evidence", found.evidence)
    parts += _section("ruled out", found.ruled_out)
    parts += _section("what would decide or explain it", found.would_decide)
    title = Text.assemble(
        (f" {found.category} ", f"bold {colour}"),
        shown(f"{found.severity} · {found.job} · {found.attempt}"),
        ("" if found.state == "open" else " · closed", "green"),
        " ",
    )
    return Panel(
        Group(*parts),
        title=title,
        title_align="left",
        subtitle=Text(f" {found.id} "),
        border_style=colour,
    )


def _times(found: Incident) -> str:
    """Since when it stalls, when that was told first, when it was over; UTC.

    >>> from tests.alerts import an_incident
    >>> _times(an_incident(3))
    'told 2026-03-01 03:03:00 UTC, still open'
    """
    known = (("since", found.since), ("told", found.detected), ("closed", found.closed))
    said = [f"{name} {moment[:19].replace('T', ' ')} UTC" for name, moment in known if moment]
    return ", ".join(said if found.state == "closed" else [*said, "still open"])


def _nodes(title: str, nodes: Sequence[Node]) -> Text:
    return Text.assemble(f"{title}: ", (", ".join(node_name(node) for node in nodes), "bold"))


def node_name(node: Node) -> str:
    """`rank 5`, with host, process and GPU where known."""
    name = f"rank {node.rank}" if node.rank is not None else f"device {node.dev}"
    known = [
        part
        for part in (
            node.host and f"host {node.host}",
            node.pid is not None and f"pid {node.pid}",
            node.gpu is not None and f"GPU {node.gpu}",
            node.peer is not None and f"link to rank {node.peer}",
        )
        if part
    ]
    return f"{name} ({', '.join(known)})" if known else name


def _section(title: str, lines: Sequence[str], *, numbered: bool = False) -> list[RenderableType]:
    if not lines:
        return []
    table = Table.grid(padding=(0, 1))
    for number, line in enumerate(lines, 1):
        table.add_row(Text(f"{number}." if numbered else "•", style="dim"), Text(line))
    return [Text(f"\n{title}", style="underline"), Padding(table, (0, 0, 0, 2))]


def listing(found: Iterable[Incident]) -> Table:
    """One line an incident."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("id", "detected", "state", "severity", "category", "job", "attempt", "who", "waiting"):
        table.add_column(column, justify="right" if column == "waiting" else "left", no_wrap=column == "id")
    for one in found:
        who = ", ".join(node_name(node) for node in one.culprits)
        if not who:
            who = "one of " + ", ".join(node_name(node) for node in one.candidates)
        table.add_row(
            one.id, one.detected[:19].replace("T", " "), one.state,
            Text(one.severity, style=_COLOUR[one.severity]), one.category, shown(one.job), shown(one.attempt),
            shown(who),
            str(one.waiting),
        )  # fmt: skip
    return table
