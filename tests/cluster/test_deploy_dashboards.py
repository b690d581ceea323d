"""A real Prometheus reads every query of our Grafana dashboards."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from harbourmaster.playground.build import ensure_prometheus
from helpers.grafana import DASHBOARDS, filled_in, panels_of

# A first run builds promtool, and prometheus with it.
pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_is_promql(name, tmp_path):
    panels = panels_of(name)
    rules = [
        {"record": f"panel_{panel['id']}:{target['refId']}", "expr": filled_in(target["expr"])}
        for panel in panels
        for target in panel["targets"]
    ]
    assert len(rules) >= 5
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    result = subprocess.run(
        [ensure_prometheus("promtool"), "check", "rules", path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
