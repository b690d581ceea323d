"""All dashboards, and the metrics that none of them shows."""

from __future__ import annotations

import json
from typing import Final

from deploy.grafana import admission, gates, metrics, placement, rescheduling, runtime
from deploy.grafana.layout import dashboard

DASHBOARDS: Final = {
    "admission": ("Harbourmaster: admission", admission.PANELS),
    "gates": ("Harbourmaster: gates and phases", gates.PANELS),
    "metrics": ("Harbourmaster: metrics and evaluations", metrics.PANELS),
    "placement": ("Harbourmaster: placement", placement.PANELS),
    "rescheduling": ("Harbourmaster: rescheduling", rescheduling.PANELS),
    "runtime": ("Harbourmaster: runtime of both processes", runtime.PANELS),
}
NOT_SHOWN: Final = {
    "keptn_lifecycle_active_total": "always 1",
    "harbourmaster_bad_documents": "of files, which no cluster has",
}
"""Metrics that no panel shows, and why."""


def files() -> dict[str, str]:
    """What is written, by the file's name."""
    return {
        f"{name}.json": json.dumps(dashboard(name, title, panels), indent=1) + "\n"
        for name, (title, panels) in DASHBOARDS.items()
    }
