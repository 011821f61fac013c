"""What Grafana and its ClickHouse plugin do to a query before it is sent: macros and variables become SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

INTERVAL_S = 10

_MACROS = {
    "timeFilter": "({0} >= toDateTime({begin}) AND {0} <= toDateTime({end}))",
    "timeInterval": f"toStartOfInterval(toDateTime({{0}}), INTERVAL {INTERVAL_S} second)",
}
_CALL = re.compile(r"\$__(\w+)\(([^()]*)\)")
_WORD = re.compile(r"\$__(fromTime|toTime|interval_s)\b")
_VARIABLE = re.compile(r"\$\{(\w+):sqlstring\}")


@dataclass(frozen=True)
class Query:
    """A query of a dashboard: where it stands, the SQL, whether it is a time series."""

    where: str
    sql: str
    series: bool


def expand(sql: str, begin: int, end: int, values: Mapping[str, str]) -> str:
    """The SQL that the server gets, for a time range in seconds since the epoch.

    >>> expand("SELECT 1 WHERE $__timeFilter(t) AND job = ${job:sqlstring}", 1, 2, {"job": "it's"})
    "SELECT 1 WHERE (t >= toDateTime(1) AND t <= toDateTime(2)) AND job = 'it''s'"
    """
    words = {
        "fromTime": f"toDateTime({begin})",
        "toTime": f"toDateTime({end})",
        "interval_s": str(INTERVAL_S),
    }
    sql = _CALL.sub(lambda found: _MACROS[found[1]].format(found[2], begin=begin, end=end), sql)
    sql = _WORD.sub(lambda found: words[found[1]], sql)
    sql = _VARIABLE.sub(lambda found: "'" + values[found[1]].replace("'", "''") + "'", sql)
    if "$" in sql:
        raise ValueError(f"something is left to expand: {sql}")
    return sql


def queries(dashboard: Mapping[str, Any]) -> Iterator[Query]:
    """Every query of a dashboard: panels, variables, annotations."""
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield Query(f"panel {panel['title']} {target['refId']}", target["rawSql"], target["format"] == 0)
    for variable in dashboard["templating"]["list"]:
        yield Query(f"variable {variable['name']}", variable["query"], False)
    for annotation in dashboard["annotations"]["list"]:
        yield Query(f"annotation {annotation['name']}", annotation["target"]["rawSql"], False)
