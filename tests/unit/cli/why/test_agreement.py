"""``why review`` says of every recorded review what the server answers to it, and nothing else."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import jsonpatch
import pytest
import yaml

from harbourmaster.cli.main import main
from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.cases import DEFAULTS, read_case
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.parents import parents_of
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import namespaces_of, read_policy
from harbourmaster.webhook.verdict import MALFORMED

TESTS = Path(__file__).parents[3]
FIXTURES = TESTS / "fixtures"
SAMPLES = TESTS.parent / "deploy/samples"
WORKLOADS = sorted(FIXTURES.glob("*.json"))
PODS = sorted((FIXTURES / "reviews").glob("*.json"))
GOLDEN = json.loads((TESTS / "conformance/kupid-golden.json").read_text())["cases"]
OWNED = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
CHANGES = ("added", "replaced", "multiplied")


def documents(path):
    return [document for document in yaml.load_all(path.read_text(), yaml.CSafeLoader) if document]


def sample_policies():
    """All policies of the samples, as a case carries them."""
    kinds = ("ClusterPodSchedulingPolicy", "PodSchedulingPolicy")
    result = [document for path in sorted(SAMPLES.glob("*.yaml")) for document in documents(path)]
    return [document for document in result if document.get("kind") in kinds]


def explained(capsysbinary, *arguments):
    """The reports, of which several follow each other."""
    assert main(["why", "review", *map(str, arguments), "-o", "json"]) == 0
    text = capsysbinary.readouterr().out.decode()
    decoder = json.JSONDecoder()
    reports = []
    while text.strip():
        report, end = decoder.raw_decode(text.lstrip())
        reports.append(report)
        text = text.lstrip()[end:]
    return reports


def answered(line):
    """The server's answer to a case, and the policies that it counts as matching."""
    case = read_case(json.dumps(line).encode())
    snapshot = Snapshot(
        policy_set(read_policy(policy)[0] for policy in case.policies),
        namespaces_of(case.namespaces),
        case.excluded,
        parents_of(case.parents),
    )
    engine = Engine(snapshot, case.settings or DEFAULTS, hashed=case.hash)
    result, decision = answer(bytes(case.review), engine, may_patch=case.may_patch)
    return json.loads(result)["response"], decision.verdict


def pod_spec_of(document):
    """The pod spec, or nothing where the object has none."""
    result = document.get("spec") or {}
    if document.get("kind") == "Pod":
        return result
    if "jobTemplate" in result:
        result = (result["jobTemplate"] or {}).get("spec") or {}
    return (result.get("template") or {}).get("spec") or {}


def check(report, answer_of_server, document):
    """The report against the server's own answer."""
    response, verdict = answer_of_server
    (section,) = report["sections"]
    detail = section["detail"]
    operations = json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
    assert detail["patch"] == operations
    assert detail["warnings"] == response.get("warnings", [])
    assert detail["outcome"] == verdict.outcome
    matched = [policy["reference"] for policy in detail["policies"] if policy["matched"]]
    assert matched == list(verdict.policies)
    assert (detail["outcome"] in {"denied", "invalid", "malformed"}) is not response["allowed"]
    if document is None or not detail["policies"]:
        return
    # Each field that is told of is there after the patch, and none is there that isn't told of.
    after = pod_spec_of(jsonpatch.apply_patch(document, operations))
    told = {field["path"].rpartition("spec.")[2]: field["value"] for field in detail["fields"]}
    selector = after.get("nodeSelector") or {}
    assert {path: value for path, value in told.items() if path.startswith("nodeSelector[")} == {
        f'nodeSelector["{key}"]': value for key, value in selector.items()
    }
    for name in ("nodeName", "schedulerName"):
        if detail["waits"] != "scheduler" or name == "nodeName":
            assert told.get(name) == (after.get(name) or None)
    tolerations = after.get("tolerations") or []
    assert [told[f"tolerations[{at}]"] for at in range(len(tolerations))] == tolerations
    assert f"tolerations[{len(tolerations)}]" not in told
    node = (after.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    )
    required = [value for path, value in told.items() if path.endswith(".nodeSelectorTerms")]
    assert required == ([terms] if terms else [])


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_why_agrees_on_every_recorded_workload(path, capsysbinary):
    (report,) = explained(capsysbinary, path, "--policies", SAMPLES)
    review = json.loads(path.read_text())
    names = [{"metadata": {"name": review["request"].get("namespace") or "default"}}]
    response = answered({"review": review, "policies": sample_policies(), "namespaces": names})
    check(report, response, review["request"]["object"])
    assert report["kind"] == review["request"]["kind"]["kind"]


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_why_agrees_on_every_recorded_pod_of_an_owner(path, capsysbinary):
    namespaces, parents = path.parent / "namespaces.yaml", path.parent / "parents.yaml"
    (report,) = explained(
        capsysbinary,
        path,
        "--policies",
        SAMPLES,
        "--namespaces",
        namespaces,
        "--parents",
        parents,
    )
    review = json.loads(path.read_text())
    response = answered(
        {
            "review": review,
            "policies": sample_policies(),
            "namespaces": documents(namespaces),
            "parents": documents(parents),
        }
    )
    check(report, response, review["request"]["object"])
    is_gated = any(
        "schedulingGates" in operation["path"]
        for operation in report["sections"][0]["detail"]["patch"]
    )
    assert (report["sections"][0]["detail"]["waits"] == "gate") == is_gated


def test_why_agrees_on_every_recorded_case(capsysbinary):
    path = FIXTURES / "cases.jsonl"
    cases = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    reports = explained(capsysbinary, path)
    assert len(reports) == len(cases)
    for report, case in zip(reports, cases, strict=True):
        check(report, answered(case), case["review"]["request"].get("object"))


def test_why_agrees_on_every_case_recorded_from_the_original(tmp_path, capsysbinary):
    lines = [
        {
            "id": case["name"],
            "namespaces": [case["given"]["namespace"]] if case["given"]["namespace"] else [],
            "policies": case["given"]["clusterPolicies"] + case["given"]["policies"],
            "review": case["given"]["admissionReview"],
        }
        for case in GOLDEN
    ]
    answers = [answered(line) for line in lines]
    # What is no review is said to be none, and the server refuses it.
    asked = [
        (line, result)
        for line, result in zip(lines, answers, strict=True)
        if result[1].outcome != MALFORMED
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line, _ in asked))
    reports = explained(capsysbinary, path)
    assert len(reports) == len(asked) > len(GOLDEN) - 10
    for report, (line, result) in zip(reports, asked, strict=True):
        document = (line["review"].get("request") or {}).get("object")
        check(report, result, document if isinstance(document, dict) else None)
