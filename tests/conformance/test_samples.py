"""The samples of the originals have their effects (kupid-spec 7.2), and ours similar ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml

from harbourmaster.cli.offline import replay_case
from harbourmaster.webhook.sources import Sources, load
from helpers.objects import review
from helpers.oracles import apply_patch

DATA = yaml.load(Path(__file__).with_name("sample-outcomes.yaml").read_text(), yaml.CSafeLoader)
DEPLOY = Path(__file__).parents[2] / "deploy"


def stateful_set(labels):
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    head = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}}
    return {**head, "spec": {"template": pod}}


def inject(policies, document):
    case = {
        "id": "sample",
        "namespaces": [{"metadata": {"name": "ns1"}}],
        "policies": policies,
        "review": review(document),
    }
    response = json.loads(bytes(replay_case(json.dumps(case).encode()).response))
    assert "warnings" not in response
    after = apply_patch(copy.deepcopy(document), response)["spec"]["template"]["spec"]
    return {name: value for name, value in after.items() if name != "containers"}


@pytest.mark.parametrize("sample", DATA["samples"], ids=lambda sample: sample["sample"])
def test_an_original_sample_injects_what_it_did(sample):
    metadata = {"name": sample.get("name", sample["sample"])}
    if sample["kind"] == "PodSchedulingPolicy":
        metadata["namespace"] = "ns1"
    policy = {
        "apiVersion": "kupid.gardener.cloud/v1alpha1",
        "kind": sample["kind"],
        "metadata": metadata,
        "spec": sample["spec"],
    }
    assert sample["target"] in DATA["targets"]
    for role, labels in DATA["targets"].items():
        expected = sample["injected"] if role == sample["target"] else {}
        assert inject([policy], stateful_set(labels)) == expected


def test_there_are_fifteen():
    assert len(DATA["samples"]) == 15


def test_our_samples_have_no_problem_and_all_change_something():
    loaded = load(Sources(DEPLOY / "samples"))
    assert loaded.problems == ()
    assert loaded.snapshot.policies.cluster_size == 8
    assert loaded.snapshot.policies.namespaced_size == 7
    workloads = [
        yaml.safe_load((DEPLOY / "samples" / "workloads" / f"ledger-{role}.yaml").read_text())
        for role in ("main", "events")
    ]
    for path in sorted((DEPLOY / "samples").glob("*-*.yaml")):
        manifest = yaml.safe_load(path.read_text())
        if manifest["kind"] == "PodSchedulingPolicy":
            manifest["metadata"]["namespace"] = "ns1"
        before = [workload["spec"]["template"]["spec"] for workload in workloads]
        after = [inject([manifest], workload) for workload in workloads]
        changed = [
            set(spec) - set(old)
            for spec, old in zip(after, before, strict=True)
            if set(spec) - set(old)
        ]
        assert len(changed) == 1, f"{path.name} is for one role"
