"""``harbourmaster validate``: what is wrong with manifests, and how it is printed."""

from __future__ import annotations

import io
import json
from xml.etree import ElementTree as ET

import pytest
import yaml

from harbourmaster.cli.main import main
from helpers.manifests import ROOT
from helpers.objects import cluster_policy, policy, required, workload

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
        code = main(["validate", str(file), *arguments])
        out, err = capsys.readouterr()
        return code, out.replace(f"{file}:", ""), err

    return start


@pytest.fixture
def findings(validate):
    """Return the severity, object, field, message and remedy of each finding."""

    def start(*given):
        _, out, _ = validate(list(given), "-o", "json")
        names = ("severity", "object", "field", "message", "remedy")
        return [tuple(finding[name] for name in names) for finding in json.loads(out)["findings"]]

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
        assert main(["validate", str(folder)]) == 0
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


@pytest.mark.parametrize(
    ("result", "field", "message", "remedy"),
    [
        (
            {**policy(), "kind": "PodSchedulingPolice"},
            "kind",
            "kupid.gardener.cloud has no kind PodSchedulingPolice",
            'did you mean "PodSchedulingPolicy"?',
        ),
        (
            {**policy(), "apiVersion": "kupid.gardener.cloud/v1"},
            "apiVersion",
            "PodSchedulingPolicy has no version v1",
            "use v1alpha1",
        ),
        (policy(namespaceSelector={}), "spec.namespaceSelector", "unknown field", "remove it"),
        (
            cluster_policy(tolerations=[{"key": 5}]),
            "spec.tolerations[0].key",
            "Invalid value: 5",
            "must be of the type string",
        ),
        (
            cluster_policy(tolerations=[{"operator": "Equals"}]),
            "spec.tolerations[0].operator",
            'Unsupported value: "Equals"',
            'supported values: "Equal", "Exists"',
        ),
        (
            keptn("KeptnMetric", query="a", fetchIntervalSeconds=5),
            "spec.provider",
            "Required value",
            "set it",
        ),
        (
            keptn("KeptnTaskDefinition", container={}, retries=True),
            "spec.retries",
            "Invalid value: true",
            "must be of the type integer",
        ),
        (
            {**keptn("KeptnApp", version="1"), "metadata": {"name": "a", "lables": {}}},
            "metadata.lables",
            "unknown field",
            'did you mean "labels"?',
        ),
        (
            workload(tolerations="all"),
            "spec.template.spec.tolerations",
            "expected array, got string",
            "",
        ),
    ],
)
def test_what_an_api_server_or_admission_refuses_is_an_error(
    findings, result, field, message, remedy
):
    those = [finding[2:] for finding in findings(result) if finding[0] == "error"]
    assert (field, message, remedy) in those
    assert len(those) == len(set(those))


@pytest.mark.parametrize(
    ("spec", "limit"),
    [
        ({"metrics": [{"name": "a", "weight": -1}, {"name": "b", "weight": 1}]}, "minimum is 0"),
        ({"backoff": {"factor": 0.5}}, "minimum is 1"),
        ({"metrics": [{"name": "a", "weight": 1, "scope": "All"}]}, 'enum is ["Global", "Name'),
        ({"backoff": {"factor": 1, "limit": -2}}, "minimum is -1"),
    ],
)
def test_limits_of_a_definition_are_checked(findings, spec, limit):
    manifest = {**keptn("Cluster", **spec), "apiVersion": "placement.harbourmaster.dev/v1alpha1"}
    assert any(finding[4].startswith(limit) for finding in findings(manifest))


def test_a_text_must_match_the_pattern_of_its_definition(findings):
    objective = {"keptnMetricRef": {"name": "m", "namespace": "a"}, "evaluationTarget": ">1"}
    manifest = keptn("KeptnEvaluationDefinition", objectives=[objective], retryInterval="soon")
    assert findings(manifest)[0][2:4] == ("spec.retryInterval", 'Invalid value: "soon"')
    assert findings(manifest)[0][4].startswith('pattern is "^0|')


def test_a_second_object_of_the_same_name_is_an_error(validate, tmp_path):
    _, out, _ = validate([workload(), workload(kind="StatefulSet"), workload()])
    (line,) = [line for line in out.splitlines() if "twice" in line]
    assert line.endswith(": metadata.name: defined twice: remove it here or in 1")
    assert (
        validate([{"kind": "Pod", "apiVersion": "v1", "metadata": {"generateName": "a-"}}] * 2)[0]
        == 0
    )


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        (
            with_tasks(workload(), key="keptn.sh/pre-deploymnt-tasks"),
            "spec.template.metadata.annotations",
            'key "keptn.sh/pre-deploymnt-tasks" is unknown and has no effect',
        ),
        (
            {**with_tasks(workload(), " ,"), "apiVersion": "argoproj.io/v1", "kind": "Rollout"},
            "spec.template.metadata.annotations",
            f'key "{TASKS}" names no check',
        ),
        (
            with_tasks(workload("Job"), "keptn", "keptn.sh/workload"),
            "spec.template.metadata",
            "pods of the kind Job are never checked",
        ),
        (
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "a", "annotations": {"keptn.sh/lifecycle-toolkit": "on"}},
            },
            "",
            'namespace "a" has no gates',
        ),
    ],
)
def test_mistakes_with_gates_are_warnings(validate, findings, given, field, message):
    ((severity, _, *rest, remedy),) = findings(given)
    assert (severity, *rest) == ("warning", field, message)
    assert remedy
    assert validate([given])[0] == 0


def test_a_policy_that_contradicts_a_workload_is_a_warning(findings):
    result, two = ({"affinity": required({"disk": value})} for value in ("ssd", "hdd"))
    ((severity, subject, *_, message, _),) = findings(cluster_policy(**result), workload(**two))
    assert (severity, subject) == ("warning", "Deployment web")
    assert message.endswith(" c1 requires disk In [ssd], the pod disk In [hdd]")


@pytest.mark.parametrize(
    ("given", "field", "name"),
    [
        (
            with_tasks(workload()),
            "spec.template.metadata.annotations",
            'KeptnTaskDefinition "check"',
        ),
        (keptn("KeptnAppContext", promotionTasks=["a"]), "spec.promotionTasks", "KeptnTaskDef"),
        (
            keptn(
                "KeptnEvaluationDefinition",
                objectives=[{"keptnMetricRef": {"name": "m"}, "evaluationTarget": ">1"}],
            ),
            "spec.objectives[0].keptnMetricRef",
            'KeptnMetric "m"',
        ),
        (
            {
                **keptn("Cluster", metrics=[{"name": "m", "weight": 1, "scope": "Namespaced"}]),
                "apiVersion": "placement.harbourmaster.dev/v1alpha1",
            },
            "spec.metrics",
            'Metric "m"',
        ),
    ],
)
def test_a_definition_that_is_not_among_the_files_is_a_warning(findings, given, field, name):
    ((severity, _, *rest, remedy),) = findings(given)
    assert (severity, rest[0]) == ("warning", field)
    assert rest[1].startswith(name)
    assert remedy == "add it, or ignore this"


def test_a_definition_among_the_files_is_not_missed(findings):
    definition = keptn("KeptnTaskDefinition", container={"name": "a", "image": "a"})
    definition["metadata"]["name"] = "check"
    assert findings(with_tasks(workload()), definition) == []


def test_junit_has_a_test_case_for_each_object(validate, tmp_path):
    file = tmp_path / "report.xml"
    wrong = policy(podSelectr={}, nodeSelecto={})
    code, out, _ = validate([wrong, with_tasks(workload()), workload("Job")], "--junit", str(file))
    (suite,) = ET.fromstring(file.read_bytes())  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures"), code) == ("3", "1", 1)
    result, two, three = suite
    assert [testcase.get("name") for testcase in suite] == [
        "PodSchedulingPolicy ns1/p1",
        "Deployment web",
        "Job web",
    ]
    lines = result.find("failure").text.replace(f"{result.get('classname')}:", "").splitlines()
    assert lines == out.splitlines()[:2]
    assert "KeptnTaskDefinition" in two.find("system-out").text
    assert list(three) == []


def test_other_objects_are_left_alone(validate):
    result = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": 1}}
    assert validate([result]) == (0, "1 object, 0 errors, 0 warnings\n", "")


def test_nothing_to_check_is_not_a_success(tmp_path, capsys):
    for arguments in ([], [str(tmp_path)]):
        assert main(["validate", *arguments]) == 2
        assert "no manifest found: give files" in capsys.readouterr().err
    assert main(["validate", str(tmp_path / "gone")]) == 2
    assert "gone: no such file or directory" in capsys.readouterr().err


def test_standard_input_is_read(monkeypatch, capsys):
    data = yaml.safe_dump(policy(podSelectr={})).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["validate", "-"]) == 1
    assert capsys.readouterr().out.startswith("standard input:1: error: PodSchedulingPolicy ns1/p1")


def test_a_kustomization_is_built(tmp_path, monkeypatch, capsys):
    built = tmp_path / "kubectl"
    built.write_text(f"#!/bin/sh\ntest $2 = {tmp_path} && cat {tmp_path}/built.yaml\n")
    built.chmod(0o755)
    (tmp_path / "built.yaml").write_text(yaml.safe_dump(policy(podSelectr={})))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["validate", "-k", str(tmp_path)]) == 1
    assert f"{tmp_path}:1: error: PodSchedulingPolicy ns1/p1: " in capsys.readouterr().out
    built.write_text("#!/bin/sh\necho no such overlay >&2\nexit 1\n")
    assert main(["validate", "-k", "a"]) == 2
    assert capsys.readouterr().err == "harbourmaster: a: no such overlay\n"
    built.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["validate", "-k", "a"]) == 2
    assert "kubectl: No such file or directory" in capsys.readouterr().err


def test_a_null_is_absent_as_for_an_api_server(findings):
    spec = {"provider": {"name": "p"}, "query": "a", "fetchIntervalSeconds": 5.0, "range": None}
    assert [finding[0] for finding in findings(keptn("KeptnMetric", **spec))] == ["warning"]
    those = findings(keptn("KeptnMetric", **{**spec, "query": None}))
    assert [row[2:4] for row in those if row[0] == "error"] == [("spec.query", "Required value")]
    objectives = findings(keptn("KeptnEvaluationDefinition", objectives=[None]))
    assert objectives[0][2:4] == ("spec.objectives[0]", "Invalid value: null")


@pytest.mark.parametrize("field", ["kind", "apiVersion"])
def test_a_kind_that_is_no_string_is_an_error(validate, field):
    code, out, _ = validate([{**workload(), field: ["a"]}])
    assert (code, out.splitlines()[0]) == (1, f"1: error: {field}: expected a string")


def test_a_name_that_is_no_string_is_not_called_missing(findings):
    manifest = findings({**workload("Job"), "metadata": {"name": 5}})
    remedy = "put it in quotes, names are strings"
    assert manifest == [("error", "Job ...", "metadata.name", "Invalid value: 5", remedy)]


def test_a_pod_that_cannot_be_read_has_one_finding(findings):
    manifest = findings({**workload("Pod"), "spec": "x"})
    assert manifest == [("error", "Pod web", "spec", "expected object, got string", "")]


def test_keys_are_strings_as_kubectl_reads_them(validate):
    text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {true: b, 1: c}}\n"
    assert validate(text)[0] == 0
    code, out, _ = validate(text.replace("true", "null"))
    assert (code, out.splitlines()[0]) == (1, "1: error: line 3: a key is null")


@pytest.mark.parametrize("kind", ["Pod", "Job", "CronJob", "Deployment"])
@pytest.mark.parametrize("annotations", [{}, {"keptn.sh/lifecycle-toolkit": "enabled"}])
def test_a_wait_that_cannot_be_read_is_an_error_in_any_namespace(findings, kind, annotations):
    given = workload(kind)
    spec = given["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else given["spec"]
    result = given if kind == "Pod" else spec["template"]
    result["metadata"]["annotations"] = {"gates.harbourmaster.dev/wait-for": "jbo/migrate"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    space["metadata"]["annotations"] = annotations
    ((severity, subject, field, message, _),) = findings(space, given)
    assert (severity, subject) == ("error", f"{kind} web")
    assert field.endswith("metadata.annotations[gates.harbourmaster.dev/wait-for]")
    assert message == '"jbo" is not a kind'
