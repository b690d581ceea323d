"""``make demo-evaluation`` as a user runs it."""

from __future__ import annotations

import json

import pytest

from harbourmaster.playground.build import ensure_prometheus
from harbourmaster.playground.group import living
from helpers.command import demonstrating, kubectl_of

# A first run builds Prometheus.
pytestmark = pytest.mark.timeout(900)
RECORDS = ("pids.json", "harbourmaster.json", "prometheus/prometheus.json")
KEPT = r"Everything keeps running until Ctrl-C: export KUBECONFIG=(.*)\n"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A demo that has shown all and runs on."""
    ensure_prometheus()
    directory = tmp_path_factory.mktemp("demo") / "harbour"
    with demonstrating(directory, "demo-evaluation", KEPT) as demo:
        assert demo.matched, demo.text
        yield demo


def test_a_failed_evaluation_holds_the_pod_back_and_a_met_one_lets_it_run(demo):
    failed, succeeded = demo.rows("get pods")
    assert [(row[0], row[1]) for row in failed[1:]] == [("1.0", "Pending")]
    assert "SchedulingGated" in failed[1]
    assert ("1.1", "Running") in [(row[0], row[1]) for row in succeeded[1:]]


def test_the_message_of_the_evaluation_says_why(demo):
    assert "value '0' did not meet objective '>0'" in demo.text
    assert "value '1' met objective '>0'" in demo.text


def test_what_is_kept_answers_and_ctrl_c_ends_all_of_it(demo):
    kubeconfig = demo.matched[1]
    result = kubectl_of(kubeconfig)("get", "pods", "--namespace=market", "--output=json")
    phases = {pod["status"]["phase"] for pod in json.loads(result.stdout)["items"]}
    assert "Running" in phases
    assert all(living(demo.directory / name) for name in RECORDS)
    assert demo.end() == 0
    assert not any(living(demo.directory / name) for name in RECORDS)
