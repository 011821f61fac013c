"""Dashboards and provisioning as data: what Grafana needs is there, and leads somewhere."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from queries.grafana.build import FOLDER, dashboards, text

DASHBOARDS = {name: json.loads((FOLDER / name).read_text()) for name in dashboards()}
PROVISIONING = FOLDER.parent / "provisioning"
KINDS = {"table", "timeseries", "stat", "heatmap", "nodeGraph"}
UNITS = {"none", "s", "Bps", "bytes", "rowsps"}


def _provisioned(name: str) -> Any:
    return yaml.safe_load((PROVISIONING / name / "mycroft.yaml").read_text())


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_file_is_what_the_code_makes(name: str) -> None:
    assert (FOLDER / name).read_text() == text(dashboards()[name]), "python -m queries.grafana.build"


def test_nothing_else_lies_there() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(DASHBOARDS)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_what_a_reader_needs(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in KINDS
        assert re.fullmatch(r"[A-Z].*\.", panel["description"]), panel["title"]
        if panel["type"] in ("timeseries", "stat"):
            assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        if panel["type"] == "heatmap":
            assert panel["options"]["cellValues"]["unit"] in UNITS
        if panel["type"] == "stat":
            steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
            assert [step["value"] for step in steps] == [None, 1]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_lie_beside_each_other(name: str) -> None:
    places = [panel["gridPos"] for panel in DASHBOARDS[name]["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        apart = (
            one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        )  # fmt: skip
        assert apart


def test_links_lead_to_dashboards_and_fill_their_variables() -> None:
    variables = {
        made["uid"]: {each["name"] for each in made["templating"]["list"]} for made in DASHBOARDS.values()
    }
    assert len(variables) == len(DASHBOARDS)
    found = re.findall(r"/d/([\w-]+)\?var-(\w+)=", json.dumps(DASHBOARDS))
    assert {uid for uid, _ in found} == {"mycroft-job", "mycroft-incident"}
    assert all(name in variables[uid] for uid, name in found)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_that_is_used_is_chosen_and_quoted(name: str) -> None:
    made = DASHBOARDS[name]
    chosen = {each["name"] for each in made["templating"]["list"]}
    sql = json.dumps(made["panels"]) + json.dumps(made["annotations"]) + json.dumps(made["templating"])
    used = set(re.findall(r"\$\{(\w+):sqlstring\}", sql))
    assert used == chosen
    assert {found for found in re.findall(r"\$\{(\w+)", sql) if not found.startswith("__")} == chosen


def test_every_query_asks_the_data_source_that_is_provisioned() -> None:
    (source,) = _provisioned("datasources")["datasources"]
    wanted = {"type": source["type"], "uid": source["uid"]}
    for made in DASHBOARDS.values():
        sources = [target["datasource"] for panel in made["panels"] for target in panel["targets"]]
        sources += [each["datasource"] for each in made["templating"]["list"] + made["annotations"]["list"]]
        assert all(each == wanted for each in sources)
    assert "password" not in source["jsonData"]
    assert source["secureJsonData"]["password"].startswith("$")


def test_alert_rules_have_conditions_and_words() -> None:
    (group,) = _provisioned("alerting")["groups"]
    rules = group["rules"]
    assert len({rule["uid"] for rule in rules}) == len(rules) >= 4
    for rule in rules:
        by_ref = {query["refId"]: query for query in rule["data"]}
        condition = by_ref[rule["condition"]]
        assert condition["model"]["expression"] in by_ref
        assert by_ref[condition["model"]["expression"]]["datasourceUid"] == "mycroft"
        assert set(rule["annotations"]) == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert "$" not in json.dumps(rule), "Grafana would take it for a variable of its environment"


def test_dashboards_are_found_where_provisioning_looks() -> None:
    (provider,) = _provisioned("dashboards")["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    assert Path(FOLDER).name == "dashboards"
