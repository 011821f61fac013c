"""The pictures of the documentation: `python -m tests.integration.screenshots` (make screenshots).

Lives the recorded run of lived_store.py, writes the report of its incident and opens it in Chromium.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from queries import answers
from queries.client import connect
from queries.report.evidence import gather
from queries.report.page import html
from tests.integration.browser import browsing
from tests.integration.lived_store import living

_IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


def main() -> None:
    """Write docs/images/report-light.png and report-dark.png."""
    _IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mycroft-") as folder, browsing() as browser:
        page = Path(folder, "incident.html")
        with living(Path(folder, "lived")) as store:
            client = connect(store.url)
            (incident,) = answers.by_prefix(client, store.hang)
            page.write_text(html(incident, gather(client, incident)), encoding="utf-8")
        for scheme in ("light", "dark"):
            browser.emulate(scheme=scheme)
            browser.open(page)
            target = _IMAGES / f"report-{scheme}.png"
            target.write_bytes(browser.screenshot())
            print(target)


if __name__ == "__main__":
    main()
