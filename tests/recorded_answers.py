"""What was done to each recorded run, and whether an answer is right.

An answer names exactly who is bad; of a wire at least one end and nobody else; where NCCL shows nothing that
tells some ranks apart, it may offer those as candidates.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.replay.trace import MANIFEST, Line
from schemas.incidents import Incident
from tests.oracle_runs import run_path

_WIRES = frozenset({"link", "nic-send", "nic-recv"})
_ENDS = ("process ends", "remote process", "process exits", "link up", "SIGCONT")


@dataclass(frozen=True)
class Truth:
    """`bad`: world ranks at fault, none in a healthy run; `alike`: those that the tier does not tell from
    them, or the other ends of a wire; `kind`: stall, slow or healthy.
    """

    bad: frozenset[int]
    alike: frozenset[int]
    categories: frozenset[str]
    kind: str

    @property
    def wire(self) -> bool:
        """Whether it is a wire that is at fault."""
        return bool(self.categories & _WIRES)


def truth(name: str, tier: str) -> Truth:
    """What the manifest says of a run at a tier; skips the test where the run is absent."""
    path: Path = run_path(name)
    return read_truth(json.loads((path.parent / MANIFEST).read_bytes())["runs"][name], tier)


def read_truth(entry: dict[str, Any], tier: str) -> Truth:
    """A run's entry in the manifest."""
    category = entry["category"]
    alike = [*entry.get("may_also_name", ())]
    if tier != "kernel":
        alike += entry.get("may_also_name_without_kernelch", ())
    categories = frozenset() if category is None else {category} if isinstance(category, str) else {*category}
    return Truth(
        frozenset(entry["bad"]), frozenset(alike), frozenset(categories), entry.get("kind", "healthy")
    )


def fault_of(truth: Truth, incident: Incident) -> str | None:
    """What is wrong with an answer to a run that stalls, None where it is right."""
    culprits, candidates = named(incident.culprits), named(incident.candidates)
    said = f"{incident.category}, culprits {sorted(culprits)}, candidates {sorted(candidates)}"
    if incident.category not in truth.categories:
        return f"the category is none of {sorted(truth.categories)}: {said}"
    if culprits and truth.wire:
        right = bool(culprits & truth.bad) and culprits <= truth.bad | truth.alike
    elif culprits:
        right = culprits == truth.bad
    else:
        right = bool(truth.alike) and truth.bad <= candidates <= truth.bad | truth.alike
    return None if right else f"bad {sorted(truth.bad)}, alike {sorted(truth.alike)}: {said}"


def named(nodes: Sequence[Any]) -> set[int]:
    """World ranks of culprits or candidates; one whose rank is not known counts as -1."""
    return {-1 if node.rank is None else node.rank for node in nodes}


def happened(lines: Sequence[Line], bad: frozenset[int]) -> int | None:
    """When the first of those at fault met with what was done, ns of the run; None where it does not say."""
    notes = (line for line in lines if line["cb"] == "note" and line["p"] in bad)
    return next((note["t"] for note in notes if not note["what"].startswith(_ENDS)), None)
