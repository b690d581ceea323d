"""The steps of both demos, on a stand-in for the control plane."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import pytest
import yaml

from harbourmaster.placement.model import Application
from harbourmaster.playground import demo, tour
from harbourmaster.playground.capabilities import COMPONENTS, overlay
from harbourmaster.playground.demo import SAMPLE_SERVER, SAMPLES, Demo
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.tour import APPLICATION, MEMBERS, Tour
from helpers.manifests import kustomize, of_kind, parse, settings_of


class Plane:
    """Stands for a control plane with these pods; our application is on the clusters ``where``."""

    kubeconfig = "/plane/kubeconfig"

    def __init__(self, *pods, where=()):
        self.pods = pods
        self.where = where
        self.applied = []

    def kubectl(self, *arguments, stdin=None):
        if stdin is not None:
            self.applied.append(stdin)
        output = "done\n"
        if "deployments" in arguments:
            here = any(f"/{name}/" in arguments[0] for name in self.where)
            output = f"{APPLICATION} 0/1\n" if here else ""
        elif "-o=json" in arguments:
            output = json.dumps({"items": self.pods})
        return CompletedProcess(arguments, 0, output, "")


def pod(version, phase="Pending", name="old"):
    metadata = {"name": name, "annotations": {"keptn.sh/version": version}}
    return {"metadata": metadata, "status": {"phase": phase}}


def make_demo(*pods):
    plane, lines = Plane(*pods), []
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


FERRY = list(yaml.safe_load_all((SAMPLES / "demo" / "ferry.yaml").read_text()))


@pytest.fixture
def start_tour(monkeypatch):
    """Returns the tour of a plane, the lines that it says, and our commands that it runs."""

    def start(plane):
        lines, ours = [], []

        def run(command, **_):
            ours.append(command[4:])
            return CompletedProcess(command, 0, "said\n", "")

        monkeypatch.setattr("harbourmaster.playground.capabilities.run_captured", run)
        members = {name: f"/members/{name}/kubeconfig" for name in MEMBERS}
        return Tour(plane, lines.append, members), lines, ours

    return start


def test_the_overlay_turns_on_what_is_shown(tmp_path):
    manifests = list(parse(kustomize(overlay(tmp_path / "overlay"))))
    (controller,) = [
        deployment
        for deployment in of_kind(manifests, "Deployment")
        if deployment["metadata"]["name"] == "harbourmaster-controller"
    ]
    settings = settings_of(controller)
    assert all(getattr(settings, name).enabled for name in COMPONENTS)


def test_the_sample_goes_where_the_metrics_of_the_members_say():
    provider, *metrics, application = FERRY
    assert {metric["metadata"]["name"] for metric in metrics} == set(MEMBERS.values())
    assert provider["spec"]["static"]["metrics"].keys() == set(MEMBERS.values())
    assert {metric["spec"]["provider"]["name"] for metric in metrics} == {"weather"}
    assert {obj["metadata"]["namespace"] for obj in FERRY} == {Tour.namespace}
    assert application["metadata"]["name"] == APPLICATION
    decoded = msgspec.convert(application, Application)
    assert decoded.spec is not None


def test_a_pod_whose_check_fails_is_asked_about(start_tour):
    steps, lines, ours = start_tour(Plane(pod("1.0")))
    steps.fail()
    why = ["why", "pod", "--namespace=shop", "-l=app=till"]
    assert ours == [["gate", "list", "-A"], why]
    assert lines.count("  said") == 2
    assert f"$ harbourmaster {' '.join(why)}" in lines


def test_the_sample_of_the_check_is_what_the_tour_rolls_out():
    manifest = yaml.safe_load_all((SAMPLES / "evaluation" / "few-errors.yaml").read_text())
    *_, deployment = manifest
    assert deployment["metadata"] == {"name": Tour.name, "namespace": Tour.namespace}
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations["keptn.sh/version"] == demo.FIRST


def test_the_samples_fill_both_nodes_and_leave_no_room_for_the_add_on():
    reports, dns = (
        yaml.safe_load((SAMPLES / "demo" / name).read_text())
        for name in ("reports.yaml", "dns.yaml")
    )
    assert reports["metadata"]["namespace"] == Tour.namespace
    assert reports["spec"]["replicas"] == 2
    requests = [
        spec["containers"][0]["resources"]["requests"]["cpu"]
        for spec in (reports["spec"]["template"]["spec"], dns["spec"])
    ]
    # Each node has 32 CPUs.
    assert max(requests) <= 32 < sum(requests)
    assert "scheduler.alpha.kubernetes.io/critical-pod" in dns["metadata"]["annotations"]


def test_every_step_is_shown_with_its_number(start_tour, monkeypatch):
    monkeypatch.setattr(tour.api, "why_not_ready", lambda _: None)
    canary = (pod("1.2", "Running"), pod("1.2"))
    plane = Plane(pod("1.0"), pod("1.1", "Running"), *canary, where=("north",))
    steps, lines, ours = start_tour(plane)
    first = (steps.fail, steps.succeed, steps.stage, steps.wait)
    for step in (*first, steps.add_fields, steps.place):
        step()
    plane.where = ("south",)
    for step in (steps.move, steps.make_room, steps.leave_waiting):
        step()
    steps.show_pages("http://127.0.0.1:1/", Path("/nowhere/kubectl"))
    headlines = [line for line in lines if line.startswith("\n== ")]
    assert [line.split()[1] for line in headlines] == [str(n + 1) for n in range(tour.STEPS)]
    assert ["why", "pod", "shop/ledger"] in ours
    assert any(line.startswith("$ kubectl -n kube-system wait pod/dns") for line in lines)


def test_each_member_is_made_known_by_our_own_command(start_tour):
    plane = Plane(where=("north",))
    steps, lines, ours = start_tour(plane)
    steps.place()
    made = [command for command in ours if command[:3] == ["placement", "new", "cluster"]]
    assert [(command[3], command[-2]) for command in made] == list(MEMBERS.items())
    assert plane.applied == ["said\n"] * len(MEMBERS)
    assert sum(line.endswith("| kubectl apply -f -") for line in lines) == len(MEMBERS)
    assert ours[-1] == ["why", "application", f"{Tour.namespace}/{APPLICATION}"]


@pytest.mark.parametrize("phases", [["Pending", "Pending"], ["Running", "Running"]])
def test_a_canary_that_is_not_alone_ends_the_demo(start_tour, phases):
    steps, *_ = start_tour(Plane(*(pod("1.2", phase) for phase in phases)))
    number = phases.count("Running")
    with pytest.raises(PlaygroundError, match=rf"{number} pods of version 1.2 run instead of 1"):
        steps.stage()


def test_the_sample_of_the_canary_has_too_many_errors():
    sample = (SAMPLES / "demo" / "canary.yaml").read_text()
    provider, template, definition = yaml.safe_load_all(sample)
    (objective,) = definition["spec"]["objectives"]
    assert objective["analysisValueTemplateRef"]["name"] == template["metadata"]["name"]
    query = template["spec"]["query"].replace("{{.version}}", tour.CANARY)
    assert provider["spec"]["static"]["metrics"][query] > 0.05


@pytest.mark.parametrize("where", [(), ("south",), ("north", "south")])
def test_an_application_in_the_wrong_place_ends_the_demo(start_tour, where):
    steps, *_ = start_tour(Plane(where=where))
    with pytest.raises(PlaygroundError, match="ferry should be on north alone"):
        steps.place()


def test_a_command_of_ours_that_can_t_be_used_ends_the_demo(monkeypatch):
    failed = CompletedProcess([], 2, "", "harbourmaster: no cluster\n")
    monkeypatch.setattr(
        "harbourmaster.playground.capabilities.run_captured", lambda *_, **__: failed
    )
    with pytest.raises(PlaygroundError, match="gate list failed: harbourmaster: no cluster"):
        Tour(Plane(), [].append, {}).harbourmaster("gate", "list")


def test_the_address_the_token_and_the_account_are_shown(start_tour, monkeypatch):
    asked = []
    monkeypatch.setattr(tour.api, "why_not_ready", asked.append)
    steps, lines, _ = start_tour(Plane())
    steps.show_pages("http://127.0.0.1:1/", Path("/nowhere/kubectl"))
    assert asked == ["http://127.0.0.1:1/login"]
    assert "\nThe dashboard: http://127.0.0.1:1/" in lines
    page = "http://127.0.0.1:1/applications/shop/till?version=done"
    assert f"The release that failed: {page}" in lines
    assert lines[-1] == (
        "$ /nowhere/kubectl --kubeconfig=/plane/kubeconfig create token visitor -n shop"
    )
    assert any("--clusterrole=harbourmaster-dashboard-viewer" in line for line in lines)


def test_a_dashboard_that_does_not_answer_ends_the_demo(monkeypatch):
    monkeypatch.setattr(tour.api, "why_not_ready", lambda _: "nobody listens")
    with pytest.raises(PlaygroundError, match="does not answer: nobody listens"):
        Tour(Plane(), [].append, {}).show_pages("http://127.0.0.1:1/", Path("/nowhere/kubectl"))
