"""Reviews that a real API server sent for a pod of each owner kind, answered from files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.sources import Sources, load
from harbourmaster.webhook.verdict import GATED, UNMATCHED
from helpers.admission import GATE, PARENT, ask

REVIEWS = Path(__file__).parents[2] / "fixtures" / "reviews"
KEYS = {
    "keptn.sh/app": "shop",
    "keptn.sh/workload": "cart",
    "keptn.sh/version": "3.1",
    "keptn.sh/pre-deployment-tasks": "migrate, warm-up",
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    policies = tmp_path_factory.mktemp("policies")
    configuration = load(Sources(policies, REVIEWS / "namespaces.yaml", REVIEWS / "parents.yaml"))
    assert configuration.problems == ()
    return configuration


@pytest.fixture
def admit(loaded):
    """Answer a recording, with the owners or without."""

    def answer(name, snapshot=loaded.snapshot):
        question = json.loads((REVIEWS / f"{name}.json").read_text())
        return ask(question, Engine(snapshot, AdmissionSettings()))

    return answer


@pytest.mark.parametrize("name", ["deployment", "rollout"])
def test_a_pod_inherits_from_the_deployment_or_rollout(admit, name):
    answer = admit(name)
    assert answer.verdict.outcome == GATED
    assert answer.gates == [GATE]
    held = answer.before["metadata"].get("annotations", {})
    assert answer.annotations == held | KEYS


@pytest.mark.parametrize("name", ["statefulset", "daemonset"])
def test_a_pod_that_says_all_itself_gets_the_gate(admit, name):
    answer = admit(name)
    assert answer.gates == [GATE]
    assert answer.annotations == answer.before["metadata"].get("annotations")
    assert len(answer.operations) == 1


@pytest.mark.parametrize("name", ["job", "bare"])
def test_c04_jobs_pods_and_bare_pods_are_untouched(admit, name):
    answer = admit(name)
    assert answer.is_untouched
    assert answer.verdict.outcome == UNMATCHED


@pytest.mark.parametrize("name", ["deployment", "rollout"])
def test_without_the_owners_the_gate_is_provisional(admit, tmp_path, name):
    unknown = load(Sources(tmp_path, REVIEWS / "namespaces.yaml")).snapshot
    answer = admit(name, unknown)
    assert answer.gates == [GATE]
    assert answer.annotations[PARENT] == "unresolved"


def test_every_recording_is_looked_at():
    names = {path.stem for path in REVIEWS.glob("*.json")}
    assert names == {"deployment", "rollout", "statefulset", "daemonset", "job", "bare"}
