from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from harbourmaster.playground.build import ensure_prometheus
from helpers.grafana import DASHBOARDS, filled_in, panels_of
from helpers.manifests import objects, one

CASES = Path(__file__).with_name("deploy_alerts.yaml")
# A first run builds promtool, and prometheus with it.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def assert_promtool_passes(tmp_path_factory):
    """Return a function that runs promtool where the rules are."""
    directory = tmp_path_factory.mktemp("rules")
    rule = one(objects("default", "monitoring"), "PrometheusRule")
    (directory / "rules.yaml").write_text(yaml.safe_dump(rule["spec"]))
    shutil.copy(CASES, directory)
    program = ensure_prometheus("promtool")

    def run(*arguments):
        result = subprocess.run(
            [program, *arguments], cwd=directory, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr

    return run


def test_the_rules_are_valid(assert_promtool_passes):
    assert_promtool_passes("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml")


def test_alerts_fire_when_they_should_and_only_then(assert_promtool_passes):
    assert_promtool_passes("test", "rules", CASES.name)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_of_a_grafana_dashboard_is_promql(name, assert_promtool_passes, tmp_path):
    rules = [
        {"record": f"panel_{panel['id']}:{target['refId']}", "expr": filled_in(target["expr"])}
        for panel in panels_of(name)
        for target in panel["targets"]
    ]
    assert len(rules) >= 5
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": name, "rules": rules}]}))
    assert_promtool_passes("check", "rules", path)


def test_every_alert_is_tried_both_ways():
    groups = one(objects("default", "monitoring"), "PrometheusRule")["spec"]["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule}
    tried = {True: set(), False: set()}
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        for obj in case["alert_rule_test"]:
            tried[bool(obj.get("exp_alerts"))].add(obj["alertname"])
    assert tried[True] == alerts
    # In the cases of these two, another series of the same metric must stay silent.
    assert alerts - tried[False] == {"HarbourmasterFight", "HarbourmasterControllerFails"}
