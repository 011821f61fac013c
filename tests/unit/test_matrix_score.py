"""Judging what alerts said of a broken job: who may be named, offered, and what counts as an accusation."""

from __future__ import annotations

from benchmarks.matrix.cells import SLOW, TOPOLOGIES, Cell, cells
from benchmarks.matrix.score import Score, Told, score
from benchmarks.matrix.table import by_visibility, table
from collectors.testbed.faults import KINDS, check_fault, parse_fault
from collectors.testbed.plan import Plan
from collectors.testbed.truth import truth_of
from schemas.incidents import Incident, Node

EIGHT = Plan(ranks=8, ranks_per_host=1)
TWO_HOSTS = Plan(ranks=8, ranks_per_host=4, tp=4)


def incident(
    category: str, culprits: tuple[int, ...] = (), candidates: tuple[int, ...] = (), identity: str = "a"
) -> Incident:
    def nodes(ranks: tuple[int, ...]) -> tuple[Node, ...]:
        return tuple(Node("device", rank) for rank in ranks)

    return Incident(
        identity * 16, "job", "0", "stall", category, "notice", "likely" if culprits else "candidates", "",
        nodes(culprits), nodes(candidates), 1, (), (), (), (), None, "2026-01-01T00:00:00Z",
    )  # fmt: skip


def judged(fault: str, *told: tuple[float, Incident], plan: Plan = EIGHT) -> Score:
    return score([Told(*each) for each in told], truth_of(parse_fault(fault), plan), plan)


def test_the_culprit_named() -> None:
    found = judged("kill@3", (1.5, incident("process-dead", (3,))))
    assert (found.seconds, found.named, found.right_category, found.wrong) == (1.5, True, True, ())


def test_an_innocent_named_is_an_accusation_whatever_comes_later() -> None:
    found = judged(
        "kill@3", (1.0, incident("gpu-hang", (4,))), (2.0, incident("process-dead", (3,), (), "b"))
    )
    assert found.wrong == (4,)


def test_candidates_must_hold_the_culprit() -> None:
    assert judged("gpu-hang@3", (2.0, incident("gpu-hang", (), (2, 3)))).offered
    missed = judged("gpu-hang@3", (2.0, incident("gpu-hang", (), (2, 4))))
    assert not missed.found
    assert missed.wrong == ()


def test_what_is_known_later_counts_for_the_answer_and_the_first_alert_for_the_time() -> None:
    found = judged(
        "late-launch@3",
        (2.0, incident("gpu-hang", (), (1, 2, 3))),
        (3.0, incident("late-launch", (3,))),
    )
    assert (found.seconds, found.named, found.category) == (2.0, True, "late-launch")


def test_nothing_told() -> None:
    assert judged("kill@3") == Score(None, "", False, False, False, 0, ())


def test_what_was_told_before_the_fault_is_early() -> None:
    found = judged("kill@3", (-1.0, incident("gpu-hang", (), (0, 1))), (1.0, incident("process-dead", (3,))))
    assert found.early
    assert found.named


def test_between_two_hosts_the_other_end_of_the_link_is_no_accusation() -> None:
    both = incident("link", tuple(range(8)))
    assert judged("nic-down@5", (2.0, both), plan=TWO_HOSTS).wrong == ()
    assert judged("nic-down@5", (2.0, incident("link", (1, 5)))).wrong == (1,)


def test_cells_repeat_by_their_seed_and_leave_out_what_a_network_cannot_do() -> None:
    every = list(cells(tuple(KINDS), ("dp8",), ("sockets", "credits"), 1, 7, "flows"))
    assert all(cell.network == "credits" for cell in every if cell.fault == "lost-credit")
    cell = Cell("kill", "dp8", "sockets", 0, 7)
    assert cell.injected() == Cell("kill", "dp8", "sockets", 0, 7).injected()
    drawn = {Cell("kill", "dp8", "sockets", number, 7).injected().target for number in range(40)}
    assert len(drawn) > 4
    assert all(Cell("kill", name, "sockets", 0, 7).plan.ranks >= 8 for name in TOPOLOGIES)


def test_the_table_counts_each_trial_once() -> None:
    cell = Cell("kill", "dp8", "sockets", 0, 1)
    named = Score(1.0, "process-dead", True, True, False, 0, ())
    missed = Score(None, "", False, False, False, 0, (), went_on=True)
    lines = table([(cell, named), (cell, missed)]).splitlines()
    assert lines[2] == "| kill | dp8 | sockets | 2 | 1 | 1 | 0 | 1 | 0 | 1.0 | 1.0 | 1.0 | 0 |"
    assert lines[3].startswith("| all |")


def test_the_percentile_leaves_the_slowest_of_a_hundred_out() -> None:
    cell = Cell("kill", "dp8", "sockets", 0, 1)
    times = [float(second) for second in range(1, 101)]
    scores = [Score(second, "process-dead", True, True, False, 0, ()) for second in reversed(times)]
    line = table([(cell, score) for score in scores]).splitlines()[2]
    assert line == "| kill | dp8 | sockets | 100 | 0 | 100 | 0 | 100 | 0 | 50.5 | 99.0 | 100.0 | 0 |"


def test_topologies_of_one_visibility_share_a_line() -> None:
    named = Score(1.0, "process-dead", True, True, False, 0, ())
    tried = [Cell("kill", topology, "sockets", 0, 1) for topology in ("dp8", "ep8", "tp4-dp2")]
    lines = by_visibility([(cell, named) for cell in tried]).splitlines()
    assert lines[2] == "| kill | one | 2 | 0 | 2 | 0 | 2 | 0 | 1.0 | 1.0 | 1.0 | 0 |"
    assert lines[3] == "| kill | several | 1 | 0 | 1 | 0 | 1 | 0 | 1.0 | 1.0 | 1.0 | 0 |"


def test_every_fault_that_makes_slow_has_its_severities() -> None:
    slow = {name for name, kind in KINDS.items() if kind.kind == "slow"}
    assert set(SLOW) == slow
    for cell in cells(SLOW, ("dp8",), ("sockets",), 1, 1, "flows", ("mild", "gross")):
        fault = cell.injected()
        assert fault.values, "each is told how much"
        check_fault(fault, cell.plan.ranks, cell.plan.hosts, cell.network)
    mild, gross = (
        Cell("slow-gpu", "dp8", "sockets", 0, 1, severity=severity).injected()
        for severity in ("mild", "gross")
    )
    assert mild.target == gross.target, "the seed decides the culprit, whatever the severity"
    assert mild.values != gross.values
