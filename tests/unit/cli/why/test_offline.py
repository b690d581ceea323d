"""``why`` of files: what is read, what is passed over, and one line for what is wrong."""

from __future__ import annotations

import io
import json

import pytest
import yaml

from harbourmaster.cli.main import main
from harbourmaster.policies.field_text import format_value
from helpers.objects import cluster_policy, policy, review, workload
from helpers.oracles import NODE_REQUIRED


@pytest.fixture
def policies(tmp_path):
    path = tmp_path / "policies.yaml"
    result = (
        cluster_policy("disks", nodeSelector={"disk": "ssd"}),
        policy("here", "ns1", pods={"app": "other"}),
        policy("there", "ns2"),
    )
    path.write_text(yaml.safe_dump_all(result))
    return str(path)


def written(path, *documents):
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_a_manifest_is_explained_and_kinds_without_pods_are_skipped(tmp_path, policies, capsys):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    manifest = {**workload(), "metadata": {"name": "web", "namespace": "ns1"}}
    path = written(tmp_path / "all.yaml", service, {"kind": "List", "items": [manifest]})
    assert main(["why", "-f", path, "--policies", policies]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Deployment ns1/web\n  as if it were created now, in the namespace ns1\n")
    assert "1 of 3 selects the template and changes 1 field" in out
    assert 'policy ns1/here  spec.podSelector.matchLabels["app"] wants "other"' in out
    assert "and 1 of other namespaces" in out
    assert "Service" not in out


def test_a_pod_whose_annotation_admission_removes_is_explained(tmp_path, policies, capsys):
    """The pods that wait have such annotations."""
    marks = {"gates.harbourmaster.dev/held-by": "shop-till-1.0", "team": "a"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "till", "namespace": "ns1", "annotations": marks},
        "spec": {"containers": []},
    }
    path = written(tmp_path / "pod.yaml", pod)
    assert main(["why", "-f", path, "--policies", policies]) == 0
    assert "invalid" not in capsys.readouterr().out
    assert main(["render", "-f", path, "--policies", policies]) == 0
    (rendered,) = yaml.safe_load_all(capsys.readouterr().out)
    assert rendered["metadata"]["annotations"] == {"team": "a"}


def test_a_rollout_is_explained_by_the_pod_that_it_makes(tmp_path, policies, capsys):
    manifest = {**workload(), "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    path = written(tmp_path / "rollout.yaml", manifest)
    assert main(["why", "-f", path, "--policies", policies, "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    detail = report["sections"][0]["detail"]
    assert detail["remarks"] == ["policies do not change Rollouts: this is the result for its pods"]
    assert detail["patch"] == [
        {"op": "add", "path": "/spec/nodeSelector", "value": {"disk": "ssd"}}
    ]


def test_a_file_without_pods_is_one_line(tmp_path, policies, capsys):
    path = written(tmp_path / "service.yaml", {"apiVersion": "v1", "kind": "Service"})
    assert main(["why", "-f", path, "--policies", policies]) == 1
    err = capsys.readouterr().err
    assert "no pod and no workload in it" in err
    assert err.count("\n") == 1


def test_an_invalid_manifest_is_a_section_and_the_others_are_explained(tmp_path, policies, capsys):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"annotations": "x"}}
    broken = {**workload(), "metadata": {"name": "web", "annotations": "x"}}
    path = written(tmp_path / "all.yaml", space, broken, workload(name="till"))
    assert main(["why", "-f", path, "--policies", policies]) == 0
    out = capsys.readouterr().out
    assert "Gate: the manifest is invalid: annotations: expected object" in out
    assert "next  correct what it names" in out
    assert "Deployment default/till" in out


def test_invalid_policies_are_reported_by_text_and_exit_code(tmp_path, policies, capsys):
    bad = tmp_path / "bad.yaml"
    broken = cluster_policy("bad", nodeSelector=5)
    written(bad, broken)
    path = written(tmp_path / "web.yaml", workload())
    assert main(["why", "-f", path, "--policies", str(bad)]) == 1
    streams = capsys.readouterr()
    assert "the only policy selects the template; it can't be used" in streams.out
    assert streams.err.startswith("harbourmaster: ")
    assert streams.err.count("\n") == 1


def test_an_invalid_document_does_not_affect_others(tmp_path, policies, capsys):
    path = tmp_path / "two.yaml"
    path.write_text(f"a: [\n---\n{yaml.safe_dump(workload())}")
    assert main(["why", "-f", str(path), "--policies", policies]) == 1
    streams = capsys.readouterr()
    assert "two.yaml, document 1" in streams.err or "two.yaml" in streams.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty file"),
        ("nonsense", "invalid JSON object"),
        ("[]", "invalid JSON object"),
        ("{}", "neither an AdmissionReview"),
        ('{"review": {}, "policies": 1}', "policies: expected array"),
        ('{"request": {"object": {}, "kind": 3}}', "invalid AdmissionReview: request.kind"),
    ],
)
def test_an_invalid_review_is_one_line(tmp_path, policies, capsys, text, told):
    path = tmp_path / "review.json"
    path.write_text(text)
    assert main(["why", "review", str(path), "--policies", policies]) == 1
    streams = capsys.readouterr()
    assert streams.out == ""
    assert told in streams.err
    assert streams.err.count("\n") == 1


def test_an_invalid_case_is_named_by_its_line_and_the_others_are_answered(tmp_path, capsys):
    case = {
        "id": "a",
        "review": review(workload()),
        "namespaces": [{"metadata": {"name": "ns1"}}],
        "policies": [cluster_policy(nodeName="n")],
    }
    path = tmp_path / "cases.jsonl"
    path.write_text(f"{json.dumps(case)}\n\nnonsense\n")
    assert main(["why", "review", str(path)]) == 1
    streams = capsys.readouterr()
    assert "case a, as recorded at its CREATE" in streams.out
    assert "adds  nodeName = n" in streams.out
    assert f"{path}, line 3: invalid JSON object" in streams.err


def test_a_review_is_read_from_standard_input(policies, capsys, monkeypatch):
    data = json.dumps(review(workload())).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["why", "--policies", policies, "review", "-"]) == 0
    assert 'adds  nodeSelector["disk"] = ssd' in capsys.readouterr().out


def test_missing_files_are_one_line(policies, capsys):
    for words in (["review", "/nonexistent"], ["-f", "/nonexistent"]):
        assert main(["why", "--policies", policies, *words]) in {1, 2}
        err = capsys.readouterr().err
        assert "/nonexistent" in err
        assert err.count("\n") == 1


def test_an_update_of_a_pod_has_its_reason(tmp_path, policies, capsys):
    manifest = review(workload("Pod"), operation="UPDATE")
    path = tmp_path / "review.json"
    path.write_text(json.dumps(manifest))
    assert main(["why", "review", str(path), "--policies", policies]) == 0
    out = capsys.readouterr().out
    assert (
        "no policy was evaluated: the pod spec of a Pod can't be changed after its creation" in out
    )


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "it is a mirror pod"),
        ({"deletionTimestamp": "2026-03-01T12:00:00Z"}, "it is being deleted"),
    ],
)
def test_a_pod_that_is_left_alone_has_one_reason(tmp_path, policies, capsys, metadata, told):
    manifest = workload("Pod")
    path = written(tmp_path / "pod.yaml", {**manifest, "metadata": {"name": "web", **metadata}})
    assert main(["why", "-f", path, "--policies", policies]) == 0
    out = capsys.readouterr().out
    assert f"no policy was evaluated: {told}" in out
    assert ", or it is" not in out


TERMS = f"spec.affinity.nodeAffinity.{NODE_REQUIRED}.nodeSelectorTerms"


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ('spec.nodeSelector["a"]', "b", "b"),
        ("spec.tolerations[0]", {"operator": "Exists"}, "every taint"),
        (
            "spec.tolerations[0]",
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 3},
            "a=b:NoExecute for 3 s",
        ),
        (
            TERMS,
            [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
                {"matchFields": [{"key": "c", "operator": "NotIn", "values": ["d", "e"]}]},
            ],
            "a=b or c not in (d, e)",
        ),
        (
            TERMS,
            [{"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}],
            "a is not there",
        ),
        (TERMS, [{"future": 1}], '{"future":1}'),
        (
            "spec.affinity.podAffinity.x[0]",
            {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "host"},
            "pods with a=b, by host",
        ),
        (
            "spec.affinity.podAffinity.x[0]",
            {"labelSelector": {}, "topologyKey": "host", "namespaces": ["n"]},
            '{"labelSelector":{},"topologyKey":"host","namespaces":["n"]}',
        ),
    ],
)
def test_values_are_abbreviated_and_unknown_ones_are_json(path, value, text):
    assert format_value(path, value) == text
