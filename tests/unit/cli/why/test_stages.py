"""``why`` says the same of a version that is released in stages and of its pods."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import DEPLOYMENTS, NAMESPACES, PODS, WORKLOAD_VERSIONS
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.stages import STAGES_KEY
from helpers.gated import CHECKED, PROD, deployment, keptn, pod, put
from helpers.lifecycle_objects import owners

STAGED = {"gates.harbourmaster.dev/staged": "true"}
PROMOTE = "harbourmaster gate promote keptnworkload/shop-waiter -n prod --reason"


def version(state, **more):
    stage = {"number": 2, "of": 3, "state": state, "wanted": 12, "allowed": 3, "released": 3}
    reference = {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-rs"}
    return {
        "metadata": {"name": "shop-waiter-1.0", "namespace": PROD, **owners()},
        "spec": {
            "app": "shop",
            "version": "1.0",
            "workloadName": "shop-waiter",
            "resourceReference": reference,
            "stages": "1, 25%",
            "stageAnalyses": ["error-rate"],
        },
        "status": {
            **CHECKED,
            "currentPhase": "WorkloadDeploy",
            "stage": {**stage, **more},
            "stageAnalysisStatus": [{"definitionName": "error-rate", "status": "Progressing"}],
        },
    }


@pytest.mark.parametrize(
    ("state", "urgency", "text"),
    [
        ("Checking", "waits", "stage 2 of 3: 3 of 12 pods released, analysis error-rate"),
        ("Held", "fault", "Blocked: stage 2 of 3 is held: error-rate failed; 3 of 12 pods"),
    ],
)
async def test_a_version_and_its_pods_say_the_same_of_their_stage(api, why, state, urgency, text):
    put(api, PODS, pod(labels=STAGED))
    put(api, WORKLOAD_VERSIONS, version(state, message="error-rate failed"))
    for subject in (("kwv", f"{PROD}/shop-waiter-1.0"), ("pod", f"{PROD}/waiter-1")):
        _, out, _ = await why(*subject, "-o", "json")
        sections = {section["name"]: section for section in json.loads(out)["sections"]}
        section = sections.get("progress") or sections["gate"]
        assert section["code"] == ("stage-held" if state == "Held" else "stage-pending")
        assert (section["state"], text in section["summary"]) == (urgency, True)
        if state == "Held":
            assert PROMOTE in section["next"]
        lines = [line["text"] for line in section["lines"]]
        assert "analysis error-rate of the workload: Progressing" in lines


async def test_a_running_workload_says_what_keeps_its_stages_from_working(api, why):
    api.put(NAMESPACES, {"metadata": {"name": PROD, "annotations": {OPT_IN_KEY: OPT_IN}}})
    annotations = {**keptn(), STAGES_KEY: "10%, 50%"}
    template = {"metadata": {"labels": {"app": "web"}, "annotations": annotations}}
    template["spec"] = {"containers": [{"name": "main", "image": "registry.example.com/main:1"}]}
    obj = deployment("web")
    obj["spec"] = {"template": template, "strategy": {"type": "Recreate"}, "replicas": 4}
    put(api, DEPLOYMENTS, obj)
    _, out, _ = await why("deployment", f"{PROD}/web")
    assert "stages have no effect with Recreate, which deletes all old pods first" in out
