from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import msgspec
import pytest
import yaml

from harbourmaster.placement.model import Application
from harbourmaster.playground import tour
from harbourmaster.playground.capabilities import COMPONENTS, overlay
from harbourmaster.playground.demo import NAMESPACE, SAMPLES
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.tour import APPLICATION, MEMBERS, Tour
from helpers.manifests import kustomize, of_kind, parse, settings_of

FERRY = list(yaml.safe_load_all((SAMPLES / "demo" / "ferry.yaml").read_text()))


class Plane:
    """Stands for a control plane; ``where`` are the clusters with our application."""

    kubeconfig = "/plane/kubeconfig"

    def __init__(self, *where, pods=()):
        self.where = where
        self.pods = list(pods)
        self.applied = []

    def kubectl(self, *arguments, stdin=None):
        if stdin is not None:
            self.applied.append(stdin)
        output = "done\n"
        if "deployments" in arguments:
            here = any(f"/{name}/" in arguments[0] for name in self.where)
            output = f"{APPLICATION} 0/1\n" if here else ""
        elif "pods" in arguments:
            output = json.dumps({"items": self.pods})
        return CompletedProcess(arguments, 0, output, "")


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


def pod(name, version):
    return {"metadata": {"name": name, "annotations": {"keptn.sh/version": version}}}


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
    assert {obj["metadata"]["namespace"] for obj in FERRY} == {NAMESPACE}
    assert application["metadata"]["name"] == APPLICATION
    decoded = msgspec.convert(application, Application)
    assert decoded.spec is not None


def test_the_pod_that_waits_is_asked_about(start_tour):
    plane = Plane(pods=[pod("new", "1.1"), pod("old", "1.0")])
    steps, lines, ours = start_tour(plane)
    steps.explain()
    assert ours == [["gate", "list", "-A"], ["why", "pod", f"{NAMESPACE}/old"]]
    assert lines.count("  said") == 2
    assert f"$ harbourmaster why pod {NAMESPACE}/old" in lines


def test_a_missing_waiting_pod_ends_the_demo(start_tour):
    steps, *_ = start_tour(Plane(pods=[pod("new", "1.1")]))
    with pytest.raises(PlaygroundError, match=r"no pod of version 1\.0"):
        steps.explain()


def test_each_member_is_made_known_by_our_own_command(start_tour):
    plane = Plane("north")
    steps, lines, ours = start_tour(plane)
    steps.place()
    made = [command for command in ours if command[:3] == ["placement", "new", "cluster"]]
    assert [(command[3], command[-2]) for command in made] == list(MEMBERS.items())
    assert plane.applied == ["said\n"] * len(MEMBERS)
    assert sum(line.endswith("| kubectl apply -f -") for line in lines) == len(MEMBERS)
    assert ours[-1] == ["placement", "why", f"{NAMESPACE}/{APPLICATION}"]


@pytest.mark.parametrize("where", [(), ("south",), ("north", "south")])
def test_an_application_in_the_wrong_place_ends_the_demo(start_tour, where):
    steps, *_ = start_tour(Plane(*where))
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
    assert lines[-1] == (
        f"$ /nowhere/kubectl --kubeconfig=/plane/kubeconfig create token visitor -n {NAMESPACE}"
    )
    assert any("--clusterrole=harbourmaster-dashboard-viewer" in line for line in lines)


def test_a_dashboard_that_does_not_answer_ends_the_demo(monkeypatch):
    monkeypatch.setattr(tour.api, "why_not_ready", lambda _: "nobody listens")
    with pytest.raises(PlaygroundError, match="does not answer: nobody listens"):
        Tour(Plane(), [].append, {}).show_pages("http://127.0.0.1:1/", Path("/nowhere/kubectl"))
