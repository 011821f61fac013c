"""python -m benchmarks.matrix: run the fault matrix and print its table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

from benchmarks.matrix.cells import SEVERITIES, SLOW, STALLS, TOPOLOGIES, Cell, cells
from benchmarks.matrix.score import Score
from benchmarks.matrix.table import by_visibility, table
from benchmarks.matrix.trial import run, run_slow
from collectors.testbed.errors import TestbedError
from collectors.testbed.plan import NETWORKS
from mycroft.local.alerts import Alerts, wait_watching
from mycroft.local.slowness import Heard
from mycroft.local.stack import Stack


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, or 1 where somebody was wrongly accused."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix", description=__doc__)
    parser.add_argument(
        "--slow",
        action="store_true",
        help="jobs made slow instead, judged by their windows without a trigger",
    )
    parser.add_argument("--severities", nargs="+", default=["gross"], choices=("mild", "gross"))
    parser.add_argument("--faults", nargs="+", choices=(*STALLS, *SLOW), metavar="FAULT")
    parser.add_argument("--topologies", nargs="+", default=list(TOPOLOGIES), choices=list(TOPOLOGIES))
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--tier", default="flows", choices=("ops", "flows", "kernel"))
    parser.add_argument(
        "--seed", type=int, default=1, help="decides the culprits; with a cell's name repeats it"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, help="jobs at a time; more than the machine bears blurs times"
    )
    parser.add_argument("--json", type=Path, help="also write every trial there")
    parser.add_argument(
        "--verbose", action="store_true", help="what was told of each trial that is not right"
    )
    given = parser.parse_args(arguments)
    faults = given.faults or (SLOW if given.slow else STALLS)
    if any((fault in SEVERITIES) != given.slow for fault in faults):
        parser.error("--slow is for faults that make a job slow, and only for those")
    tried = list(
        cells(
            tuple(faults), tuple(given.topologies), tuple(given.networks), given.repetitions,
            given.seed, given.tier, tuple(given.severities) if given.slow else ("",),
        )
    )  # fmt: skip
    results: list[tuple[Cell, Score]] = []
    with tempfile.TemporaryDirectory(prefix="mycroft-matrix-") as folder, Stack(Path(folder)) as stack:
        assert stack.addresses is not None
        kafka = stack.addresses.kafka
        wait_watching(kafka)
        with (
            Alerts(kafka) as alerts,
            Heard(kafka) if given.slow else nullcontext() as heard,
            ThreadPoolExecutor(given.at_once) as pool,
        ):
            for number, (cell, outcome) in enumerate(
                pool.map(lambda cell: (cell, _tried(cell, kafka, heard or alerts, given.verbose)), tried), 1
            ):
                print(f"[{number}/{len(tried)}] {_line(cell, outcome)}", flush=True)
                if outcome is not None:
                    results.append((cell, outcome))
    print(by_visibility(results), table(results), sep="\n\n")
    if given.json:
        given.json.write_text(
            "\n".join(json.dumps({**asdict(cell), **asdict(outcome)}) for cell, outcome in results) + "\n"
        )
    return int(any(outcome.wrong for _, outcome in results))


def _tried(cell: Cell, kafka: str, heard: Alerts | Heard, verbose: bool) -> Score | None:
    try:
        if isinstance(heard, Heard):
            outcome, told, lost = run_slow(cell, kafka, heard)
            print(f"    {cell.fault} {cell.severity}: the job lost {lost:.0%} of its pace", flush=True)
        else:
            outcome, told = run(cell, kafka, heard)
    except TestbedError as error:
        print(f"{cell}: {error}", file=sys.stderr)
        return None
    if verbose and (not outcome.named or outcome.wrong or not outcome.right_category):
        for each in told:
            incident = each.incident
            print(
                f"    {each.after_s:6.2f} s {incident.state} {incident.category} {incident.confidence} "
                f"{incident.summary} | {'; '.join(incident.evidence[:3])}"
            )
    return outcome


def _line(cell: Cell, outcome: Score | None) -> str:
    name = f"{cell.fault} {cell.topology} {cell.network} {cell.injected()}"
    if outcome is None:
        return f"{name}: not run"
    if outcome.seconds is None:
        return f"{name}: {'the job went on' if outcome.went_on else 'NOTHING TOLD'}"
    answer = "named" if outcome.named else f"among {outcome.candidates}" if outcome.offered else "MISSED"
    wrong = f", WRONGLY ACCUSED {outcome.wrong}" if outcome.wrong else ""
    early = ", TOLD BEFORE" if outcome.early else ""
    category = outcome.category if outcome.right_category else f"{outcome.category} (WRONG)"
    return f"{name}: {answer}, {category}, {outcome.seconds:.1f} s{wrong}{early}"


if __name__ == "__main__":
    sys.exit(main())
