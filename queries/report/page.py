"""The report as text: HTML in one file, or Markdown. Names come from jobs and hosts: nothing trusts them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from queries.report import chain, timeline
from queries.report.evidence import Evidence
from queries.report.steps import next_steps
from schemas.incidents import Incident, Node

_CERTAINTY = {
    "proven": "proven by its own records",
    "likely": "likely",
    "candidates": "candidates only: the records do not decide it",
}
_MARKDOWN = re.compile(r"([\\`*_{}\[\]#!|~]|^[+-])")


def html(incident: Incident, evidence: Evidence) -> str:
    """One page without scripts, fonts, images or links to fetch."""
    return _render("incident.html", incident, evidence)


def markdown(incident: Incident, evidence: Evidence) -> str:
    """The same in words, for a ticket."""
    return _render("incident.md", incident, evidence)


def _render(template: str, incident: Incident, evidence: Evidence) -> str:
    environment = Environment(
        loader=PackageLoader("queries.report", "templates"),
        autoescape=select_autoescape(("html",)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"md": escape_markdown, "node": node_name, "clock": clock}
    return environment.get_template(template).render(
        incident=incident,
        certainty=_CERTAINTY[incident.confidence],
        drawing=chain.draw(evidence.edges),
        box=(chain.BOX_W, chain.BOX_H),
        flows=evidence.flows,
        timeline=timeline.lay_out(evidence.operations, evidence.ranks),
        lane=(timeline.WIDTH, timeline.LANE_H, timeline.LABEL_W),
        steps=next_steps(incident),
    )


def escape_markdown(text: object) -> str:
    """Text that Markdown shows as it is, on one line.

    >>> escape_markdown("<b>*x*</b>\\n# y")
    '&lt;b&gt;\\\\*x\\\\*&lt;/b&gt; \\\\# y'
    """
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", plain)


def node_name(node: Node) -> str:
    """`rank 5 · node-3 · pid 4711 · GPU 2`, with what is known."""
    parts: Sequence[str | None] = (
        f"rank {node.rank}" if node.rank is not None else f"device {node.dev}",
        node.host,
        f"pid {node.pid}" if node.pid is not None else None,
        f"GPU {node.gpu}" if node.gpu is not None else None,
    )
    return " · ".join(part for part in parts if part)


def clock(moment: str | None) -> str:
    """A time to the second, in UTC.

    >>> clock("2026-03-01T03:12:09.123456Z")
    '2026-03-01 03:12:09 UTC'
    """
    return "unknown" if moment is None else f"{moment[:19].replace('T', ' ')} UTC"
