from __future__ import annotations

import json
from subprocess import CompletedProcess

import pytest
import yaml

from harbourmaster.playground import demo
from harbourmaster.playground.demo import SAMPLE_SERVER, SAMPLES, Demo
from harbourmaster.playground.errors import PlaygroundError


class Plane:
    """Stands for a control plane whose pods are as told; notes each command of kubectl."""

    def __init__(self, pods):
        self.pods = pods
        self.commands = []
        self.applied = []

    def kubectl(self, *arguments, stdin=None):
        self.commands.append(arguments)
        if stdin is not None:
            self.applied.append(stdin)
        output = json.dumps({"items": self.pods}) if "-o=json" in arguments else "done\n"
        return CompletedProcess(arguments, 0, output, "")


def pod(version, phase):
    annotations = {"keptn.sh/version": version}
    return {"metadata": {"annotations": annotations}, "status": {"phase": phase}}


def make_demo(*pods):
    plane, lines = Plane(pods), []
    return plane, Demo(plane, lines.append), lines


def test_the_provider_of_the_sample_becomes_the_one_of_this_machine():
    plane, steps, lines = make_demo()
    steps.measure("http://127.0.0.1:20001")
    _, provider, metric, definition = yaml.safe_load_all(plane.applied[0])
    assert provider["spec"]["targetServer"] == "http://127.0.0.1:20001"
    assert metric["spec"]["provider"]["name"] == provider["metadata"]["name"]
    (objective,) = definition["spec"]["objectives"]
    assert objective["keptnMetricRef"]["name"] == metric["metadata"]["name"]
    assert any(f"sed 's|{SAMPLE_SERVER}|http://127.0.0.1:20001|'" in line for line in lines)


def test_the_sample_deployment_waits_for_the_sample_evaluation():
    manifests = [
        yaml.safe_load_all((SAMPLES / "evaluation" / name).read_text())
        for name in ("metric.yaml", "stall.yaml")
    ]
    definition, deployment = [list(manifest)[-1] for manifest in manifests]
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {
        "keptn.sh/workload": demo.NAME,
        "keptn.sh/version": demo.FIRST,
        "keptn.sh/pre-deployment-evaluations": definition["metadata"]["name"],
    }
    assert deployment["metadata"]["name"] == demo.NAME
    assert deployment["metadata"]["namespace"] == demo.NAMESPACE


def test_both_runs_are_shown_with_their_commands():
    _, steps, lines = make_demo(pod("1.0", "Pending"), pod("1.1", "Running"))
    for step in (steps.fail, steps.mend, steps.succeed):
        step()
    assert [line for line in lines if line.startswith("\n")] == [
        "\n== 1 of 4: version 1.0 is rolled out, and its evaluation fails",
        "\n== 2 of 4: the missing scheduling policy is created",
        "\n== 3 of 4: version 1.1 is rolled out, and its evaluation succeeds",
    ]
    commands = [line for line in lines if line.startswith("$ ")]
    assert all(line.startswith("$ kubectl -n market ") for line in commands)
    assert lines.count("  done") == len(commands)


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        ([pod("1.0", "Running")], "version 1.0 is Running instead of Pending"),
        ([pod("1.0", "Pending"), pod("1.0", "Running")], "is Pending, Running instead of Pending"),
        ([pod("1.1", "Pending")], "version 1.0 is missing instead of Pending"),
    ],
)
def test_a_pod_that_is_not_held_back_fails_the_demo(pods, said):
    _, steps, _ = make_demo(*pods)
    with pytest.raises(PlaygroundError, match=said):
        steps.fail()


def test_a_pod_that_does_not_run_fails_the_demo():
    _, steps, _ = make_demo(pod("1.0", "Running"), pod("1.1", "Pending"))
    with pytest.raises(PlaygroundError, match=r"version 1.1 is Pending instead of Running"):
        steps.succeed()


def test_a_path_is_shown_from_where_the_user_stands(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert demo.shorten(tmp_path / "a" / "b.yaml") == "a/b.yaml"
    assert demo.shorten(SAMPLES) == str(SAMPLES)
