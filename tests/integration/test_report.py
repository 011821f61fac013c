"""Reports of incidents that were lived, as `mycroft report` writes them and a browser shows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queries import answers
from queries.client import connect
from queries.report.chain import draw
from queries.report.evidence import gather
from queries.report.page import html
from schemas.incidents import Node
from tests.integration.browser import Browser
from tests.integration.lived_store import LIVE_JOB, Lived
from tests.reports import HOSTILE, hostile_evidence, hostile_incident

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
A4_PX = 794
"""Width of A4 at 96 dots an inch."""
READABLE = 4.5
"""Contrast of text that WCAG 2 asks for (AA)."""


def _report(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MYCROFT_")}
    return subprocess.run(
        [sys.executable, "-m", "mycroft.cli", "report", *arguments], capture_output=True, text=True,
        env={**environment, "PYTHONPATH": str(ROOT), "MYCROFT_DATA": str(folder)}, cwd=folder, check=False,
    )  # fmt: skip


@pytest.fixture
def page(lived: Lived, tmp_path: Path) -> Path:
    """The report of the hang, by the command."""
    target = tmp_path / "incident.html"
    done = _report(tmp_path, lived.hang[:8], "-o", str(target), "--clickhouse", lived.url)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert str(target) in done.stderr
    return target


def test_what_the_store_holds_of_a_hang(lived: Lived) -> None:
    """Rank 1's GPU has stopped; nothing tells it from rank 2 within its host (nccl-profiler-abi)."""
    client = connect(lived.url)
    (incident,) = answers.by_prefix(client, lived.hang)
    evidence = gather(client, incident)
    drawing = draw(evidence.edges)
    assert drawing is not None
    causes = {box.title for box in drawing.boxes if box.cause}
    assert causes == {"rank 1 on host0", "rank 2 on host0"}
    assert any(box.title == "AllReduce 7 of world" for box in drawing.boxes)
    assert {(flow.rank, flow.peer, flow.direction) for flow in evidence.flows} == {
        (7, 0, "send"), (0, 7, "recv"), (3, 4, "send"), (4, 3, "recv"),
    }  # fmt: skip
    assert all(flow.total == 28 for flow in evidence.flows)
    assert evidence.ranks == 8
    # The ranks at the hosts' ends have flows; inner ones launched it and show no more.
    stuck = {(each.place.rank, each.name) for each in evidence.operations if not each.ended and each.seen}
    assert stuck == {(rank, "AllReduce 7 of world") for rank in (0, 3, 4, 7)}
    unseen = {each.place.rank for each in evidence.operations if not each.ended and not each.seen}
    assert unseen == {1, 2, 5, 6}


def test_a_link_has_both_its_ends(lived: Lived) -> None:
    """Rank 1 has handed 6 steps to the network, 4 have arrived at rank 2; ranks 0 and 2 stand."""
    client = connect(lived.url)
    key = {"job": 77, "attempt": 1, "comm": 78}
    wait = {**key, "func": "all_reduce", "seq": 5, "partition": 0, "epoch": 1000}
    standing = {
        **wait, "reason": "in_operation", "waiter_kind": "device", "holder_kind": "operation", "holder": 99,
    }  # fmt: skip
    flow = {**key, "func": "all_reduce", "seq": 5, "kind": "state", "total": 28, "quiet_us": 3_000_000}
    rows = {
        "members": [
            {**key, "job_name": "cable", "attempt_name": "a", "name": "world", "rank": rank,
             "dev": 100 + rank, "world_rank": 10 + rank, "host": f"node-{rank}"}
            for rank in range(3)
        ],
        "waits": [
            {**standing, "waiter": 100}, {**standing, "waiter": 102},
            {**wait, "reason": "not_delivered", "waiter_kind": "operation", "waiter": 99,
             "holder_kind": "link", "holder": 101, "holder_rank": 1, "holder_peer": 102,
             "holder_peer_rank": 2, "total": 28},
            # A second before, rank 0 was waited for.
            {**wait, "epoch": 999, "reason": "not_launched", "waiter_kind": "operation", "waiter": 99,
             "holder_kind": "device", "holder": 100, "holder_rank": 0},
            # The job is ended: its ranks fall silent before the incident is closed, and after it.
            *({**wait, "epoch": epoch, "reason": reason, "waiter_kind": "operation", "waiter": 99,
               "holder_kind": "device", "holder": 100 + rank, "holder_rank": rank}
              for epoch, reason in ((1100, "silent"), (1300, "not_launched")) for rank in range(3)),
        ],
        "flows": [
            {**flow, "dev": 101, "rank": 1, "peer": 2, "direction": "send", "ready": 6,
             "transmitted": 6, "done": 4},
            {**flow, "dev": 102, "rank": 2, "peer": 1, "direction": "recv", "posted": 8, "received": 4,
             "flushed": 4, "consumed": 4},
            {**flow, "dev": 102, "rank": 2, "peer": 1, "direction": "recv", "posted": 3, "channel": 1},
            {**flow, "dev": 102, "rank": 2, "peer": 1, "direction": "recv", "posted": 3, "seq": 4},
        ],
    }  # fmt: skip
    for table, lines in rows.items():
        block = "\n".join(map(json.dumps, lines)).encode()
        client.raw_insert(f"nccl.{table}", insert_block=block, fmt="JSONEachRow")
    nodes = tuple(Node("device", 10 + rank, dev=f"{100 + rank:016x}") for rank in (1, 2))
    evidence = gather(
        client,
        replace(
            hostile_incident(), job="cable", attempt="a", category="link", culprits=nodes, since=None,
            state="closed", closed="1970-01-01T00:20:00.000000Z",
        ),
    )  # fmt: skip
    drawing = draw(evidence.edges)
    assert drawing is not None
    assert {box.title: box.cause for box in drawing.boxes} == {
        "2 ranks: rank 10 on node-0, rank 12 on node-2": False,
        "AllReduce 5 of world": False,
        "link rank 11 on node-1 → rank 12 on node-2": True,
    }
    assert [(flow.rank, flow.peer, flow.channel, dict(flow.counters)) for flow in evidence.flows] == [
        (11, 12, 0, {"ready": 6, "transmitted": 6, "done": 4}),
        (12, 11, 0, {"posted": 8, "received": 4, "flushed": 4, "consumed": 4}),
        (12, 11, 1, {"posted": 3, "received": 0, "flushed": 0, "consumed": 0}),
    ]
    assert evidence.flows[0].quiet_s == 3.0
    assert evidence.operations == ()


def test_dumps_have_a_chain_and_no_flows(lived: Lived) -> None:
    client = connect(lived.url)
    (incident,) = answers.by_prefix(client, lived.late)
    evidence = gather(client, incident)
    drawing = draw(evidence.edges)
    assert drawing is not None
    assert [box.title for box in drawing.boxes if box.cause] == ["rank 3"]
    assert evidence.flows == ()


def _look(browser: Browser, page: Path, scheme: str, media: str = "screen") -> dict[str, Any]:
    browser.emulate(scheme=scheme, media=media)
    browser.open(page)
    found: dict[str, Any] = browser.run(
        """
        const verdict = document.getElementById("verdict"), box = verdict.getBoundingClientRect();
        const middle = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        return {text: verdict.textContent, on_top: middle === verdict, inside: box.bottom < innerHeight,
                ink: getComputedStyle(verdict).color, page: getComputedStyle(document.body).backgroundColor,
                too_wide: document.documentElement.scrollWidth - innerWidth};
        """
    )
    return found


def _luminance(colour: str) -> float:
    """Relative luminance of `rgb(r, g, b)` by WCAG 2."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_verdict_is_seen_and_nothing_is_fetched(
    browser: Browser, page: Path, scheme: str, lived: Lived
) -> None:
    browser.console(), browser.requests()
    seen = _look(browser, page, scheme)
    (incident,) = answers.by_prefix(connect(lived.url), lived.hang)
    assert seen["text"] == incident.summary
    assert seen["on_top"]
    assert seen["inside"]
    assert seen["too_wide"] <= 0
    ink, ground = _luminance(seen["ink"]), _luminance(seen["page"])
    assert (ground > 0.5) == (scheme == "light")
    assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= READABLE
    assert browser.console() == []
    assert browser.requests() == [page.as_uri()]
    for part in ("steps", "chain", "timeline", "flows"):
        assert browser.run(f"return document.getElementById('{part}').getBoundingClientRect().height") > 20


def test_it_prints_dark_on_white_and_within_the_page(browser: Browser, page: Path) -> None:
    browser.width(A4_PX)
    try:
        seen = _look(browser, page, "dark", "print")
    finally:
        browser.width(1050)
    assert seen["too_wide"] <= 0
    assert _luminance(seen["page"]) == pytest.approx(1)
    assert _luminance(seen["ink"]) < 0.1
    printed = browser.pdf()
    assert printed.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    target = tmp_path / "hostile.html"
    target.write_text(html(hostile_incident(), hostile_evidence()), encoding="utf-8")
    browser.console(), browser.requests()
    seen = _look(browser, target, "light")
    assert seen["text"] == HOSTILE
    assert browser.run("return window.harmed === undefined")
    assert (
        browser.run("return document.querySelectorAll('script, img, iframe, a, [onload], [onerror]').length")
        == 0
    )
    assert browser.console() == []
    assert browser.requests() == [target.as_uri()]


def test_markdown_for_a_ticket(lived: Lived, tmp_path: Path) -> None:
    done = _report(tmp_path, lived.late, "--markdown", "--clickhouse", lived.url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## Rank 3 never launched what the others wait in; 3 ranks wait.\n")
    assert "| culprit | rank 3 |" in done.stdout
    assert "\n1. rank 0 waits for rank 2 in AllReduce 2 of DATA\\[3\\]" in done.stdout


def test_without_the_records_the_report_still_tells_the_incident(lived: Lived, tmp_path: Path) -> None:
    """Incidents are kept longer than records."""
    client = connect(lived.url)
    (incident,) = answers.by_prefix(client, lived.hang)
    forgotten = json.loads(json.dumps(incident.to_json())) | {"id": "00000000000000aa", "job": "long-ago"}
    row = {
        name: forgotten[name] for name in ("id", "revision", "state", "job", "attempt", "kind", "category")
    }
    row |= {"detected": forgotten["detected"][:19], "incident": json.dumps(forgotten)}
    client.raw_insert("nccl.incidents", insert_block=json.dumps(row).encode(), fmt="JSONEachRow")
    done = _report(tmp_path, "00000000000000aa", "--clickhouse", lived.url)
    assert done.returncode == 0, done.stderr
    assert incident.summary in done.stdout
    assert "<svg" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told", "status"),
    [
        (("ffffffffffffffff",), "no incident ffffffffffffffff in the store at http://127.0.0.1", 2),
        (("xyz",), "'xyz' is no incident id", 2),
        (("00", "--clickhouse", "http://127.0.0.1:9"), "http://127.0.0.1:9 does not answer", 1),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    lived: Lived, tmp_path: Path, arguments: tuple[str, ...], told: str, status: int
) -> None:
    given = arguments if "--clickhouse" in arguments else (*arguments, "--clickhouse", lived.url)
    done = _report(tmp_path, *given)
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert told in line


def test_a_folder_that_cannot_be_written_is_one_line(lived: Lived, tmp_path: Path) -> None:
    target = tmp_path / "absent" / "incident.html"
    done = _report(tmp_path, lived.hang, "-o", str(target), "--clickhouse", lived.url)
    assert done.returncode == 2
    assert f"cannot write {target}" in done.stderr
    assert LIVE_JOB not in done.stdout
