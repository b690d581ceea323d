"""``harbourmaster check manifests``: what is wrong with manifests, and how it is printed."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree as ET

import pytest
import yaml

from harbourmaster.cli.main import main
from helpers.manifests import ROOT
from helpers.objects import cluster_policy, policy, required, workload
from helpers.stubs import write_program

SAMPLES = ROOT / "deploy/samples"
TASKS = "keptn.sh/pre-deployment-tasks"


@pytest.fixture
def validate(tmp_path, capsys):
    """Return a function that checks a text, or objects, and returns the code and the streams."""

    def start(given, *arguments):
        file = tmp_path / "given.yaml"
        if isinstance(given, list):
            given = yaml.safe_dump_all(given, sort_keys=False)
        file.write_bytes(given if isinstance(given, bytes) else given.encode())
        code = main(["check", "manifests", str(file), *arguments])
        out, err = capsys.readouterr()
        return code, out.replace(f"{file}:", ""), err

    return start


def keptn(kind, **spec):
    return {
        "apiVersion": f"{'metrics' if kind == 'KeptnMetric' else 'lifecycle'}.keptn.sh/v1",
        "kind": kind,
        "metadata": {"name": "a", "namespace": "ns1"},
        "spec": spec,
    }


def with_tasks(given, value="check", key=TASKS):
    given["spec"]["template"]["metadata"]["annotations"] = {key: value}
    return given


def test_nothing_is_found_in_the_samples(capsys):
    objects = 0
    # Those of two folders are applied apart, and some have the same names.
    for folder in (SAMPLES, *(path for path in SAMPLES.rglob("*") if path.is_dir())):
        assert main(["check", "manifests", str(folder)]) == 0
        out = capsys.readouterr().out
        assert out.endswith(" objects, 0 errors, 0 warnings\n")
        objects += int(out.split()[0])
    assert objects > 40


def test_each_finding_has_its_line_object_field_and_remedy(validate):
    manifest = policy(nodeName="a", nodeSelecto={"disk": "ssd"})
    code, out, err = validate(f"# policies\n{yaml.safe_dump_all([workload(), manifest])}")
    assert (code, err) == (1, "")
    text = 'spec.nodeSelecto: unknown field: did you mean "nodeSelector"?'
    line = 2 + len(yaml.safe_dump(workload()).splitlines()) + 1
    assert out.splitlines() == [
        f"{line}: error: PodSchedulingPolicy ns1/p1: {text}",
        "PodSchedulingPolicy ns1/p1: matches no object",
        "2 objects, 1 error, 0 warnings",
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: [\n", 2, "line 2, column 1: did not find expected node content"),
        ("kind: A\n---\na: b: c\n", 3, "line 3, column 5: mapping values are not allowed"),
        ("# a\nkind: Pod\n", 2, "apiVersion: required"),
        ("\n- a\n", 2, "expected an object with apiVersion and kind"),
        (b"a: \xff", 1, "unacceptable character #x00ff: invalid leading UTF-8 octet"),
        ("a: 1\na: 2\n", 1, 'line 2: key "a" twice'),
    ],
)
def test_what_is_no_manifest_is_an_error_with_its_line(validate, text, line, message):
    code, out, _ = validate(text)
    assert code == 1
    assert f"{line}: error: {message}" in out


def test_items_of_a_list_have_lines_of_their_own(validate):
    items = [workload(name="a"), {**workload(), "metadata": {}}]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    _, out, _ = validate(text)
    line = text.splitlines().index("- apiVersion: apps/v1", 3) + 1
    assert out.startswith(f"{line}: error: Deployment ...: metadata.name: Required value: set it\n")


def placed(**spec):
    """A Cluster of placement."""
    return {**keptn("Cluster", **spec), "apiVersion": "placement.harbourmaster.dev/v1alpha1"}


def evaluated(**fields):
    """A definition of an evaluation with one objective."""
    objective = {"keptnMetricRef": {"name": "m"}, "evaluationTarget": ">1"}
    return keptn("KeptnEvaluationDefinition", **{"objectives": [objective], **fields})


def metric(**fields):
    spec = {"provider": {"name": "p"}, "query": "a", "fetchIntervalSeconds": 5.0, "range": None}
    return keptn("KeptnMetric", **{**spec, **fields})


def waiting(kind, **annotations):
    """A Namespace, and a workload in it whose pods wait for an object of no kind."""
    given = workload(kind)
    spec = given["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else given["spec"]
    waits = {"gates.harbourmaster.dev/wait-for": "jbo/migrate"}
    (given if kind == "Pod" else spec["template"])["metadata"]["annotations"] = waits
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    space["metadata"]["annotations"] = annotations
    return space, given


def in_group(version, kind, **spec):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}


def shared(name, version, **annotations):
    """A Deployment whose pods have the workload of a chart."""
    given = workload(name=name, labels={"app.kubernetes.io/name": "redis"})
    keys = {"app.kubernetes.io/version": version, **annotations}
    given["spec"]["template"]["metadata"]["labels"] |= keys
    return given


def staged(stages="1, 25%", head=None, **annotations):
    """A Deployment, or another kind, whose pods are released in stages."""
    given = {**workload(), **(head or {})}
    keys = {"stages": stages, **annotations}
    given["spec"] |= {"replicas": 12, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}
    given["spec"]["template"]["metadata"]["annotations"] = {
        "keptn.sh/workload": "web",
        "example.com/stage-tasks": "theirs",
        **{f"gates.harbourmaster.dev/{key.replace('_', '-')}": text for key, text in keys.items()},
    }
    return given


def rollout():
    given = staged(head={"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"})
    given["spec"]["strategy"] = {"canary": {"steps": []}}
    return given


CHECK = keptn("KeptnTaskDefinition", container={"name": "a", "image": "a"})
CHECK["metadata"]["name"] = "check"
ENABLED = {"keptn.sh/lifecycle-toolkit": "enabled"}
MISSPELT = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "a", "annotations": {"keptn.sh/lifecycle-toolkit": "on"}},
}
SSD, HDD = ({"affinity": required({"disk": value})} for value in ("ssd", "hdd"))
OBJECTS = {
    "an unknown kind": [{**policy(), "kind": "PodSchedulingPolice"}],
    "a kind in a wrong group of ours": [in_group("lifecycle.keptn.sh/v1", "AnalysisDefinition")],
    "a kind in a group that is not there": [in_group("keptn.sh/v1", "KeptnConfig")],
    "a kind without a group": [in_group("v1", "KeptnApp")],
    "a kind of others with a name of ours": [in_group("argoproj.io/v1alpha1", "Application")],
    "a field that is deno now": [keptn("KeptnTaskDefinition", function={"inline": {}})],
    "fields that are in the context now": [
        keptn("KeptnTask", taskDefinition="t", app="a", appVersion="1", workload="w")
    ],
    "an older field that is deno now": [
        in_group("lifecycle.keptn.sh/v1alpha2", "KeptnTaskDefinition", function={"inline": {}})
    ],
    "an unknown version": [{**policy(), "apiVersion": "kupid.gardener.cloud/v1"}],
    "an unknown field": [policy(namespaceSelector={})],
    "a number as a string": [cluster_policy(tolerations=[{"key": 5}])],
    "an unsupported value": [cluster_policy(tolerations=[{"operator": "Equals"}])],
    "a missing field": [keptn("KeptnMetric", query="a", fetchIntervalSeconds=5)],
    "a boolean as a number": [keptn("KeptnTaskDefinition", container={}, retries=True)],
    "a misspelt field of the metadata": [
        {**keptn("KeptnApp", version="1"), "metadata": {"name": "a", "lables": {}}}
    ],
    "a string as a list": [workload(tolerations="all")],
    "a weight below its minimum": [
        placed(metrics=[{"name": "a", "weight": -1}, {"name": "b", "weight": 1}])
    ],
    "a factor below its minimum": [placed(backoff={"factor": 0.5})],
    "a limit below its minimum": [placed(backoff={"factor": 1, "limit": -2})],
    "a value that is not in an enum": [
        placed(metrics=[{"name": "a", "weight": 1, "scope": "All"}])
    ],
    "a text that does not match its pattern": [evaluated(retryInterval="soon")],
    "two objects of one name": [workload(), workload(kind="StatefulSet"), workload()],
    "two objects without a name": [
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"generateName": "a-"}}
    ]
    * 2,
    "an unknown key of Keptn's": [with_tasks(workload(), key="keptn.sh/pre-deploymnt-tasks")],
    "a key that names no check": [
        {**with_tasks(workload(), " ,"), "apiVersion": "argoproj.io/v1", "kind": "Rollout"}
    ],
    "keys on a kind that is never checked": [
        with_tasks(workload("Job"), "keptn", "keptn.sh/workload")
    ],
    "a namespace that does not get gates": [MISSPELT],
    "a policy that contradicts a workload": [cluster_policy(**SSD), workload(**HDD)],
    "two versions of a workload": [
        waiting("Pod", **ENABLED)[0],
        shared("a", "1"),
        shared("b", "2"),
    ],
    "a version that two Deployments share": [
        shared("a", "1", **{"keptn.sh/app": "shop"}),
        shared("b", "1", **{"keptn.sh/app": "shop"}),
        shared("c", "1", **{"keptn.sh/workload": "c"}),
    ],
    "a workload that is not gated": [shared("a", "1"), shared("b", "2")],
    "a task that is not among the files": [with_tasks(workload())],
    "a task that is among the files": [with_tasks(workload()), CHECK],
    "a promotion task that is not among the files": [
        keptn("KeptnAppContext", promotionTasks=["a"])
    ],
    "stages with a strategy that does not suit them": [
        staged(stage_pause="Manual", stage_tasks="check"),
        CHECK,
    ],
    "stages that cannot be read": [staged("50%, 25%")],
    "checks of stages that are not among the files": [
        staged("100%", stage_tasks="t", stage_evaluations="e", stage_analysis="a")
    ],
    "stages of a Rollout": [rollout()],
    "a metric that is not among the files": [evaluated()],
    "a metric of placement that is not among the files": [
        placed(metrics=[{"name": "m", "weight": 1, "scope": "Namespaced"}])
    ],
    "a null, which is absent": [metric()],
    "a null in the place of a required field": [metric(query=None)],
    "a null in a list": [evaluated(objectives=[None])],
    "a kind that is no string": [{**workload(), "kind": ["a"]}],
    "an apiVersion that is no string": [{**workload(), "apiVersion": ["a"]}],
    "a name that is no string": [{**workload("Job"), "metadata": {"name": 5}}],
    "a pod that cannot be read": [{**workload("Pod"), "spec": "x"}],
    "an object of others": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": 1}}
    ],
    **{
        f"a wait that cannot be read of a {kind}{' with gates' * bool(annotations)}": waiting(
            kind, **annotations
        )
        for kind in ("Pod", "Job", "CronJob", "Deployment")
        for annotations in ({}, ENABLED)
    },
}


@pytest.mark.parametrize("objects", OBJECTS.values(), ids=OBJECTS)
def test_what_is_found(validate, objects, assert_golden):
    code, out, err = validate(list(objects))
    assert (code, err) == (": error: " in out, "")
    assert_golden(out.splitlines())


def listing(*versions, name="shop"):
    entries = [{"name": "cart", "version": version} for version in versions]
    app = keptn("KeptnApp", version="1", workloads=entries)
    return {**app, "metadata": {"name": name, "namespace": "ns1"}}


def of_image(image, namespace="ns1", **keys):
    given = workload("Deployment")
    given["metadata"]["namespace"] = namespace
    annotations = {"app": "shop", "workload": "cart", "container": "c", **keys}
    template = given["spec"]["template"]
    template["metadata"]["annotations"] = {
        f"keptn.sh/{key}": value for key, value in annotations.items()
    }
    template["spec"]["containers"] = [{"name": "c", "image": image}]
    return given


DIGEST = "registry.example.com/cart:main@sha256:1a2b3c4d5e6f7a8b"


@pytest.mark.parametrize(
    ("app", "image", "keys"),
    [
        (listing("main-1a2b3c4d5e6f"), DIGEST, {}),
        (listing("main"), DIGEST, {"version": "main"}),
        (listing("main"), "registry.example.com/cart:main", {}),
        (listing("main", name="other"), DIGEST, {}),
        (listing("main"), DIGEST, {"namespace": "ns2"}),
        (listing("main"), DIGEST, {"workload": "other"}),
    ],
    ids=["both", "explicit version", "no digest", "other app", "other namespace", "other workload"],
)
def test_an_app_that_lists_the_version_of_its_pods_is_fine(validate, app, image, keys):
    assert "is the tag alone" not in validate([app, of_image(image, **keys)])[1]


def test_an_app_that_lists_the_tag_alone_is_told_the_version(validate):
    """The pods of the workload would wait, and nothing in the files said why."""
    broken = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": 5}}
    out = validate([broken, listing("main"), of_image(DIGEST)], "-o", "json")[1]
    findings = json.loads(out)["findings"]
    (finding,) = [item for item in findings if "is the tag alone" in item["message"]]
    assert (finding["severity"], finding["field"]) == ("warning", "spec.workloads[0].version")
    assert (finding["object"], finding["remedy"]) == (
        "KeptnApp ns1/shop",
        'write "main-1a2b3c4d5e6f"',
    )


def test_a_finding_has_its_message_and_its_remedy_apart(validate):
    _, out, _ = validate([cluster_policy(tolerations=[{"operator": "Equals"}])], "-o", "json")
    _, finding, *_ = json.loads(out)["findings"]
    assert (finding["severity"], finding["field"]) == ("error", "spec.tolerations[0].operator")
    assert finding["message"] == 'Unsupported value: "Equals"'
    assert finding["remedy"] == 'supported values: "Equal", "Exists"'


def test_junit_has_a_test_case_for_each_object(validate, tmp_path):
    file = tmp_path / "report.xml"
    wrong = policy(podSelectr={}, nodeSelecto={})
    code, out, _ = validate([wrong, with_tasks(workload()), workload("Job")], "--junit", str(file))
    (suite,) = ET.fromstring(file.read_bytes())  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures"), code) == ("3", "1", 1)
    properties, result, two, three = suite
    assert [(item.get("name"), item.get("value")) for item in properties] == [
        ("objects matched by PodSchedulingPolicy ns1/p1", "0")
    ]
    assert [testcase.get("name") for testcase in (result, two, three)] == [
        "PodSchedulingPolicy ns1/p1",
        "Deployment web",
        "Job web",
    ]
    lines = result.find("failure").text.replace(f"{result.get('classname')}:", "").splitlines()
    assert lines == out.splitlines()[:2]
    assert "KeptnTaskDefinition" in two.find("system-out").text
    assert list(three) == []


def test_nothing_to_check_is_not_a_success(tmp_path, capsys):
    assert main(["check", "manifests"]) == 2
    assert "no manifest found: give files" in capsys.readouterr().err
    assert main(["check", "manifests", str(tmp_path / "gone")]) == 2
    assert "gone: no such file or directory" in capsys.readouterr().err


def test_standard_input_is_read(monkeypatch, capsys):
    data = yaml.safe_dump(policy(podSelectr={})).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["check", "manifests", "-"]) == 1
    assert capsys.readouterr().out.startswith("standard input:1: error: PodSchedulingPolicy ns1/p1")


def test_a_kustomization_is_built(tmp_path, monkeypatch, capsys):
    script = f"test $2 = {tmp_path} && cat {tmp_path}/built.yaml"
    built = write_program(tmp_path / "kubectl", script)
    (tmp_path / "built.yaml").write_text(yaml.safe_dump(policy(podSelectr={})))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["check", "manifests", "-k", str(tmp_path)]) == 1
    assert f"{tmp_path}:1: error: PodSchedulingPolicy ns1/p1: " in capsys.readouterr().out
    built.write_text("#!/bin/sh\necho no such overlay >&2\nexit 1\n")
    assert main(["check", "manifests", "-k", "a"]) == 2
    assert capsys.readouterr().err == "harbourmaster: a: no such overlay\n"
    built.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["check", "manifests", "-k", "a"]) == 2
    assert "kubectl: No such file or directory" in capsys.readouterr().err


def test_keys_are_strings_as_kubectl_reads_them(validate):
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {true: b, 1: c}}\n"
    assert validate(text)[0] == 0
    code, out, _ = validate(text.replace("true", "null"))
    assert (code, out.splitlines()[0]) == (1, "1: error: line 3: a key is null: put it in quotes")


def test_labels_and_annotations_that_are_no_strings_are_errors(validate):
    template = "metadata: {annotations: {keptn.sh/version: 1.0, other: null}}"
    deployment = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: till, labels: {{tier: 3}}}}
spec:
  template:
    {template}
"""
    cron_job = f"""
apiVersion: batch/v1
kind: CronJob
metadata: {{name: nightly}}
spec: {{jobTemplate: {{spec: {{template: {{{template}}}}}}}}}
"""
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: bare, annotations: {keptn.sh/pre-deployment-tasks: [migrate]}}
"""
    code, out, _ = validate(f"{deployment}---{cron_job}---{pod}")
    assert code == 1
    faults = [line.partition(": error: ")[2] for line in out.splitlines() if ": error: " in line]
    version = "metadata.annotations[keptn.sh/version]: Invalid value: 1"
    tasks = 'metadata.annotations[keptn.sh/pre-deployment-tasks]: Invalid value: ["migrate"]'
    quote = "put it in quotes"
    strings = "annotations are strings"
    assert faults == [
        f"Deployment till: metadata.labels[tier]: Invalid value: 3: {quote}, labels are strings",
        f"Deployment till: spec.template.{version}: {quote}, {strings}",
        f"CronJob nightly: spec.jobTemplate.spec.template.{version}: {quote}, {strings}",
        f"Pod bare: {tasks}: {quote}, {strings}",
    ]
