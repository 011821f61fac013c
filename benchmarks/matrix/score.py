"""Whether what the alerts said of one job is right: pure, from incidents and the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectors.testbed.plan import Plan
from collectors.testbed.truth import Truth, may_be_named, names, offers, right_categories
from schemas.incidents import Incident


@dataclass(frozen=True)
class Told:
    """One revision of an incident, and how long after the fault it was on the topic, s."""

    after_s: float
    incident: Incident


@dataclass(frozen=True)
class Score:
    """`seconds` from fault to first alert, None where there was none. Of the first incident, once
    it has settled, `named`: its culprits are right; `offered`: they are among its candidates, so many.
    `wrong`: devices named at likely or proven at any time that are not at fault.
    """

    seconds: float | None
    category: str
    right_category: bool
    named: bool
    offered: bool
    candidates: int
    wrong: tuple[int, ...]
    early: bool = False
    """Something was told before the fault."""
    went_on: bool = False
    """Nothing was told, and the job trained on: the next operation had filled the gap of one left out."""

    @property
    def found(self) -> bool:
        """Whether the culprit was named, or offered among candidates."""
        return self.named or self.offered


def score(told: Sequence[Told], truth: Truth, plan: Plan) -> Score:
    """Judge the revisions of all incidents of one job, in the order of their sending."""
    allowed = may_be_named(truth, plan)
    after = [each for each in told if each.after_s >= 0]
    wrong = sorted(
        {
            rank
            for each in told
            for rank in _ranks(each.incident, "culprits") - allowed
            if each.incident.state == "open"
        }
    )
    if not after:
        return Score(None, "", False, False, False, 0, tuple(wrong), bool(told))
    first = after[0]
    last = [each for each in after if each.incident.id == first.incident.id and each.incident.state == "open"]
    settled = last[-1].incident if last else first.incident
    culprits, candidates = _ranks(settled, "culprits"), _ranks(settled, "candidates")
    return Score(
        first.after_s, settled.category, settled.category in right_categories(truth),
        names(truth, plan, culprits), offers(truth, plan, candidates), len(candidates),
        tuple(wrong), len(after) < len(told),
    )  # fmt: skip


def _ranks(incident: Incident, which: str) -> set[int]:
    return {node.rank for node in getattr(incident, which) if node.rank is not None}
