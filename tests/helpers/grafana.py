"""Dashboards of Grafana, and parts of their PromQL expressions: metrics, and labels."""

from __future__ import annotations

import json
import re

from helpers.manifests import DEPLOY

RANGE = "5m"
VARIABLES = {"$__rate_interval": RANGE, "$namespace": ".*"}
"""The variables that Grafana replaces, and their values here."""
FUNCTIONS = {
    *("abs", "avg", "avg_over_time", "count", "histogram_quantile", "increase", "max", "min"),
    *("rate", "sum", "topk", "vector", "absent", "by", "on", "and", "or", "without"),
}
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r"[A-Za-z_:][\w:]*")
_GROUPING = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"\{([^}]*)\}")
_RANGE = re.compile(r"\[[^]]*\]")


def filled_in(query):
    """The expression with a value for each of Grafana's variables."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query


def metrics_of(query):
    """The names of series that are asked for."""
    text = _RANGE.sub("", _GROUPING.sub("", _SELECTOR.sub("", _bare(query))))
    return {word for word in _WORD.findall(text) if word not in FUNCTIONS}


def labels_of(query):
    """The labels that are compared or grouped by."""
    text = _bare(query)
    listed = ",".join(_GROUPING.findall(text)).split(",")
    compared = re.findall(r"(\w+)\s*[=!]", ",".join(_SELECTOR.findall(text)))
    return {*filter(None, map(str.strip, listed)), *compared}


def _bare(query):
    return _STRINGS.sub('""', filled_in(query))


FOLDER = DEPLOY / "components/monitoring/dashboards"
DASHBOARDS = sorted(path.stem for path in FOLDER.iterdir())


def panels_of(name):
    return json.loads((FOLDER / f"{name}.json").read_text())["panels"]
