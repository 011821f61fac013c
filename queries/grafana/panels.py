"""Grafana's JSON, as little of it as Mycroft needs.

The data source is grafana-clickhouse-datasource. SQL may use its macros ($__timeFilter, $__timeInterval,
$__fromTime, $__toTime) and Grafana's variables, which are quoted by Grafana itself (${job:sqlstring}).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any, Final

SOURCE: Final = {"type": "grafana-clickhouse-datasource", "uid": "mycroft"}
SCHEMA_VERSION: Final = 39
"""Of Grafana 10.4, which later ones migrate by themselves."""
WIDTH: Final = 24

Json = dict[str, Any]

RED, YELLOW, BLUE, GREEN = "red", "yellow", "blue", "green"
SEVERITY_COLOURS: Final = {"critical": RED, "warning": YELLOW, "notice": BLUE}


def target(sql: str, *, table: bool = True, ref: str = "A") -> Json:
    """A query; of a time series the columns are time, name and value."""
    return {
        "datasource": SOURCE,
        "refId": ref,
        "editorType": "sql",
        "queryType": "table" if table else "timeseries",
        "format": 1 if table else 0,
        "rawSql": dedent(sql).strip(),
    }


def panel(
    kind: str,
    title: str,
    description: str,
    targets: Sequence[Json],
    size: tuple[int, int],
    *,
    options: Json | None = None,
    defaults: Json | None = None,
    overrides: Sequence[Json] = (),
) -> Json:
    """A panel of `size` (width of 24, height)."""
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "targets": list(targets),
        "gridPos": {"w": size[0], "h": size[1], "x": 0, "y": 0},
        "options": options or {},
        "fieldConfig": {"defaults": defaults or {}, "overrides": list(overrides)},
    }


def table(title: str, description: str, sql: str, size: tuple[int, int], *overrides: Json) -> Json:
    """Rows as they come."""
    options = {"cellHeight": "sm", "showHeader": True, "footer": {"show": False}}
    return panel("table", title, description, [target(sql)], size, options=options, overrides=overrides)


def series(
    title: str, description: str, sql: str, size: tuple[int, int], unit: str, *, stacked: bool = False
) -> Json:
    """Lines over time, a line a name."""
    custom: Json = {
        "drawStyle": "line",
        "fillOpacity": 10,
        "lineWidth": 1,
        "showPoints": "auto",
        "spanNulls": False,
    }
    if stacked:
        custom |= {"drawStyle": "bars", "fillOpacity": 80, "stacking": {"mode": "normal", "group": "A"}}
    options = {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    defaults = {"unit": unit, "custom": custom, "min": 0}
    return panel(
        "timeseries", title, description, [target(sql, table=False)], size, options=options, defaults=defaults
    )


def heatmap(title: str, description: str, sql: str, size: tuple[int, int], unit: str, scheme: str) -> Json:
    """Rank × time: a row a name."""
    options = {
        "calculate": False,
        "rowsFrame": {"layout": "auto"},
        "cellValues": {"unit": unit},
        "color": {"mode": "scheme", "scheme": scheme, "steps": 64},
        "yAxis": {"axisPlacement": "left", "reverse": True},
        "tooltip": {"mode": "single", "yHistogram": False},
        "legend": {"show": True},
    }
    return panel("heatmap", title, description, [target(sql, table=False)], size, options=options)


def stat(
    title: str,
    description: str,
    sql: str,
    size: tuple[int, int],
    unit: str,
    steps: Sequence[tuple[float | None, str]],
) -> Json:
    """One number; its colour follows the thresholds, the first of which is the base (None)."""
    thresholds = {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}
    options = {
        "colorMode": "background_solid", "graphMode": "none", "textMode": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }  # fmt: skip
    defaults = {"unit": unit, "thresholds": thresholds, "noValue": "0"}
    return panel("stat", title, description, [target(sql)], size, options=options, defaults=defaults)


def column(name: str, **properties: Any) -> Json:
    """An override of a table's column: unit, width, links, colours."""
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()],
    }


def coloured(name: str, colours: Mapping[str, str]) -> Json:
    """An override that colours a column's cells by their text."""
    mapping = {
        text: {"color": colour, "index": index} for index, (text, colour) in enumerate(colours.items())
    }
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [
            {"id": "mappings", "value": [{"type": "value", "options": mapping}]},
            {"id": "custom.cellOptions", "value": {"type": "color-text"}},
        ],
    }


def linked(name: str, dashboard: str, variable: str, title: str) -> Json:
    """An override by which a cell leads to another dashboard, its value in a variable."""
    url = f"/d/{dashboard}?var-{variable}=${{__value.raw:percentencode}}&${{__url_time_range}}"
    return column(name, links=[{"title": title, "url": url}])


def variable(name: str, label: str, description: str, sql: str, *, every: bool = False) -> Json:
    """A choice that a query lists; `every` adds "all", which stands for the empty text."""
    query = dedent(sql).strip()
    return {
        "type": "query", "name": name, "label": label, "description": description, "datasource": SOURCE,
        "query": query, "definition": query, "refresh": 2, "sort": 0, "multi": False, "includeAll": every,
        "allValue": "" if every else None, "current": {}, "options": [],
    }  # fmt: skip


INCIDENTS_AS_ANNOTATIONS: Final = """
    SELECT
        detected AS time,
        ifNull(closed, detected) AS timeEnd,
        summary AS text,
        [severity, category] AS tags
    FROM nccl.incidents FINAL
    WHERE $__timeFilter(detected){job}
    ORDER BY detected
    LIMIT 200
"""


def dashboard(
    uid: str,
    title: str,
    description: str,
    panels: Sequence[Json],
    *,
    variables: Sequence[Json] = (),
    since: str = "now-1h",
    of_job: bool = False,
) -> Json:
    """A dashboard; panels flow from left to right and wrap. `of_job`: annotations are those of ${job}."""
    where = " AND job = ${job:sqlstring}" if of_job else ""
    annotation = {
        "name": "Incidents", "datasource": SOURCE, "enable": True, "iconColor": RED,
        "target": target(INCIDENTS_AS_ANNOTATIONS.format(job=where)),
    }  # fmt: skip
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["mycroft"],
        "editable": True,
        "schemaVersion": SCHEMA_VERSION,
        "timezone": "utc",
        "refresh": "10s",
        "time": {"from": since, "to": "now"},
        "templating": {"list": list(variables)},
        "annotations": {"list": [annotation]},
        "links": [
            {
                "type": "dashboards",
                "title": "Mycroft",
                "tags": ["mycroft"],
                "asDropdown": True,
                "keepTime": True,
            }
        ],
        "panels": _placed(panels),
    }


def _placed(panels: Sequence[Json]) -> list[Json]:
    x = y = row = 0
    placed = []
    for number, each in enumerate(panels, 1):
        width, height = each["gridPos"]["w"], each["gridPos"]["h"]
        if x + width > WIDTH:
            x, y, row = 0, y + row, 0
        placed.append({"id": number, **each, "gridPos": {"w": width, "h": height, "x": x, "y": y}})
        x, row = x + width, max(row, height)
    return placed
