"""The Grafana dashboards of ``deploy/components/monitoring``."""

from __future__ import annotations

import json

from helpers.manifests import DEPLOY

FOLDER = DEPLOY / "components/monitoring/dashboards"
DASHBOARDS = sorted(path.stem for path in FOLDER.iterdir())


def panels_of(name):
    return json.loads((FOLDER / f"{name}.json").read_text())["panels"]
