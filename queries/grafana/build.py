"""Write the dashboards: `python -m queries.grafana.build`."""

from __future__ import annotations

import json
from pathlib import Path

from queries.grafana import communicators, incident, job, overview, pipeline
from queries.grafana.panels import Json

FOLDER = Path(__file__).parent / "dashboards"


def dashboards() -> dict[str, Json]:
    """All of them, by file name."""
    made = {
        "jobs": overview,
        "job": job,
        "incident": incident,
        "communicators": communicators,
        "pipeline": pipeline,
    }
    return {f"{name}.json": module.build() for name, module in made.items()}


def text(dashboard: Json) -> str:
    """As it stands in its file."""
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write them all."""
    for name, dashboard in dashboards().items():
        (FOLDER / name).write_text(text(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
