from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import NAME_LABEL
from harbourmaster.webhook.sources import Sources, load
from harbourmaster.webhook.verdict import MUTATED
from helpers.objects import cluster_policy, policy, review, workload


def write(directory, name, *documents):
    path = directory / name
    path.write_text("---\n".join(yaml.safe_dump(document) for document in documents))
    return path


def decide(loaded, document, **options):
    body = json.dumps(review(document, **options)).encode()
    return answer(body, Engine(loaded.snapshot, AdmissionSettings()))[1].verdict


def problems(loaded):
    return [str(problem) for problem in loaded.problems]


def test_good_documents_serve_beside_bad_ones(tmp_path):
    bad = cluster_policy("bad", nodeName=3)
    invalid = cluster_policy("invalid", nodeName="Not A Name", tolerations=[{"key": "a b"}])
    write(tmp_path, "a.yaml", bad, cluster_policy("good", nodeSelector={"a": "b"}), invalid)
    loaded = load(Sources(tmp_path))
    reported = problems(loaded)
    assert reported[0] == (
        f"{tmp_path}/a.yaml, document 1: spec.nodeName: expected string, got integer"
    )
    assert reported[1].startswith(f"{tmp_path}/a.yaml, document 3: spec.nodeName: Invalid value")
    assert reported[2].startswith(f"{tmp_path}/a.yaml, document 3: spec.tolerations[0].key")
    decision = decide(loaded, workload())
    assert decision.outcome == MUTATED
    assert decision.codes == ("policy-invalid", "policy-invalid")


def test_an_unknown_field_is_a_problem_and_the_rest_of_the_policy_serves(tmp_path):
    document = cluster_policy(nodeSelector={"a": "b"}, nodeSelecto={"c": "d"})
    path = write(tmp_path, "a.yaml", document)
    loaded = load(Sources(tmp_path))
    assert problems(loaded) == [f"{path}, document 1: spec.nodeSelecto: unknown field"]
    assert decide(loaded, workload()).outcome == MUTATED


def test_a_namespaced_policy_without_namespace_lives_in_default(tmp_path):
    document = policy(nodeName="n1")
    del document["metadata"]["namespace"]
    write(tmp_path, "a.yaml", document)
    loaded = load(Sources(tmp_path))
    assert problems(loaded) == []
    assert decide(loaded, workload(), namespace="default").outcome == MUTATED
    assert decide(loaded, workload(), namespace="ns1").outcome != MUTATED


def test_the_first_of_two_policies_of_one_name_counts(tmp_path):
    write(tmp_path, "a.yaml", cluster_policy(nodeName="n1"), cluster_policy(nodeName="n2"))
    loaded = load(Sources(tmp_path))
    assert "ClusterPodSchedulingPolicy c1 was defined before: ignored" in problems(loaded)[0]
    assert loaded.snapshot.policies.cluster_size == 1


def test_foreign_kinds_are_named_and_kustomizations_passed_over(tmp_path):
    write(tmp_path, "kustomization.yaml", {"kind": "Kustomization", "resources": []})
    write(tmp_path, "w.yaml", workload())
    (problem,) = problems(load(Sources(tmp_path)))
    assert "expected PodSchedulingPolicy or ClusterPodSchedulingPolicy" in problem
    assert "got apps/v1, Kind=Deployment" in problem


def test_without_a_namespaces_file_every_namespace_has_its_name_label(tmp_path):
    asked = cluster_policy(namespaces={NAME_LABEL: "ns7"}, nodeName="n1")
    loaded = load(Sources(write(tmp_path, "a.yaml", asked)))
    assert decide(loaded, workload(), namespace="ns7").outcome == MUTATED
    assert decide(loaded, workload(), namespace="ns8").outcome != MUTATED


def test_with_a_namespaces_file_only_those_in_it_exist(tmp_path):
    namespaces = write(
        tmp_path,
        "namespaces.yaml",
        {"kind": "Namespace", "metadata": {"name": "ns1", "labels": {"env": "prod"}}},
        {"kind": "Namespace", "metadata": {"labels": {}}},
        {"kind": "Pod", "metadata": {"name": "x"}},
        {"kind": "Namespace", "metadata": {"name": 5}},
    )
    (tmp_path / "p").mkdir()
    write(tmp_path / "p", "a.yaml", cluster_policy(namespaces={"env": "prod"}, nodeName="n1"))
    loaded = load(Sources(tmp_path / "p", namespaces))
    assert decide(loaded, workload()).outcome == MUTATED
    assert decide(loaded, workload(), namespace="ns2").codes == ("namespace-unknown",)
    assert [text.partition(", ")[2] for text in problems(loaded)] == [
        "document 2: metadata.name: required",
        "document 3: kind: expected Namespace, got Pod",
        "document 4: metadata.name: expected string, got integer",
    ]


@pytest.mark.parametrize("which", ["policies", "namespaces", "parents"])
def test_a_source_that_is_not_there_ends_the_start(tmp_path, which):
    paths = dict.fromkeys(("policies", "namespaces", "parents"), tmp_path)
    paths[which] = tmp_path / "absent"
    with pytest.raises(StartError, match="absent: no such file or directory"):
        load(Sources(**paths))


def test_bad_parents_are_reported(tmp_path):
    parents = write(tmp_path, "parents.yaml", workload())
    parents.write_text(parents.read_text() + "---\n[\n")
    (tmp_path / "p").mkdir()
    loaded = load(Sources(tmp_path / "p", None, parents))
    assert loaded.parents == 1
    assert "parents.yaml, document 2" in problems(loaded)[0]
