"""The JSON of a dashboard, in the classic form that every Grafana since 8 reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deploy.grafana.panel import Panel

SCHEMA_VERSION: Final = 39
"""That of Grafana 10.4; newer ones carry it over when they read it."""
COLUMNS: Final = 24
_HEIGHTS: Final = {"stat": 4, "timeseries": 8, "table": 8}
_WIDTHS: Final = {"stat": 4, "timeseries": 8, "table": 12}
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(name: str, title: str, panels: Sequence[Panel]) -> dict[str, Any]:
    """The JSON of one dashboard."""
    return {
        "uid": f"harbourmaster-{name}",
        "title": title,
        "tags": ["harbourmaster"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "Harbourmaster",
                "tags": ["harbourmaster"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {"list": [_data_source(), _namespace()]},
        "panels": _laid_out(panels),
    }


def _data_source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
    }


def _namespace() -> dict[str, Any]:
    query = "label_values(harbourmaster_build_info, namespace)"
    return {
        "name": "namespace",
        "label": "Namespace of the installation",
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "namespace"},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
        "hide": 0,
    }


def _laid_out(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """The panels from left to right; a new line where one is full, or another kind begins."""
    found = []
    x = y = height = 0
    kind = ""
    for number, panel in enumerate(panels, start=1):
        width = _WIDTHS[panel.kind]
        if x + width > COLUMNS or panel.kind != kind:
            x, y = 0, y + height
        kind, height = panel.kind, _HEIGHTS[panel.kind]
        place = {"x": x, "y": y, "w": width, "h": height}
        found.append(_panel(number, panel, place))
        x += width
    return found


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    is_table = panel.kind == "table"
    found: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
                **({"instant": True, "format": "table"} if is_table else {"range": True}),
            }
            for index, (query, legend) in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                **({"min": 0} if panel.kind == "timeseries" and panel.unit != "s" else {}),
                **({} if panel.warn is None else {"thresholds": _thresholds(panel)}),
            },
            "overrides": [],
        },
    }
    if panel.kind == "stat":
        found["options"] = {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value" if panel.warn is None else "background",
            "graphMode": "area",
        }
    elif is_table:
        hidden = {"excludeByName": {"Time": True}}
        found["transformations"] = [{"id": "organize", "options": hidden}]
    else:
        found["options"] = {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    return found


def _thresholds(panel: Panel) -> dict[str, Any]:
    warn, bad = panel.warn, panel.bad
    if warn is None or bad is None:
        raise ValueError(f"{panel.title}: give both limits")
    if bad < warn:
        colours: list[tuple[str, float | None]] = [("red", None), ("orange", bad), ("green", warn)]
    elif bad == warn:
        colours = [("green", None), ("red", bad)]
    else:
        colours = [("green", None), ("orange", warn), ("red", bad)]
    return {
        "mode": "absolute",
        "steps": [{"color": colour, "value": value} for colour, value in colours],
    }
