"""Every hung job of tests/cases.py and every recorded set, judged by the pure functions alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from collectors.flight_recorder.snapshot import read_snapshot
from schemas.incidents import Incident
from schemas.snapshots import SnapshotEnd
from streams.diagnosis import diagnose
from streams.report import Occasion, incidents, knowledge
from streams.snapshots import judge
from tests.cases import CASES, Answer, Case
from tests.recordings import RECORDED, recorded


def answer(folder: Path) -> list[Incident]:
    """Incidents in a folder of dumps, without Kafka."""
    snapshot = read_snapshot(folder, "job")
    judged = judge(
        snapshot.announcements, [*snapshot.done, snapshot.pending, snapshot.positions],
        snapshot.job_id, snapshot.attempt_id,
    )  # fmt: skip
    occasion = Occasion("job", "a", snapshot.job_id, snapshot.attempt_id, time.time_ns(), snapshot.blind)

    def precedence(device: int) -> int:
        rank = judged.facts.world_rank(device)
        return 1 << 32 if rank is None else rank

    end = SnapshotEnd(1, "job", "a", 1, 0, 0, snapshot.ranks, tuple(snapshot.silent), snapshot.blind)
    known = knowledge(judged.waits, judged.facts, occasion, end)
    findings = diagnose(judged.waits, known=known, precedence=precedence)
    return incidents(occasion, judged.facts, findings)


def summary(found: list[Incident]) -> set[tuple[str, tuple[int | None, ...], tuple[int | None, ...]]]:
    """Categories with their ranks."""
    return {
        (one.category, tuple(node.rank for node in one.culprits), tuple(node.rank for node in one.candidates))
        for one in found
    }


def expected(answers: tuple[Answer, ...]) -> set[tuple[str, tuple[int | None, ...], tuple[int | None, ...]]]:
    """The same of a case."""
    return {(one.category, one.culprits, one.candidates) for one in answers}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case, tmp_path: Path) -> None:
    found = answer(case.write(tmp_path))
    assert summary(found) == expected(case.answers)
    assert len(found) == len(case.answers)
    for wanted in case.answers:
        if wanted.waiting is not None:
            (one,) = [
                one
                for one in found
                if one.category == wanted.category
                and tuple(node.rank for node in one.culprits) == wanted.culprits
            ]
            assert one.waiting == wanted.waiting


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name: str) -> None:
    folder, answers = recorded(name)
    assert summary(answer(folder)) == expected(answers)
