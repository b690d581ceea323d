"""``harbourmaster check tests``: objects as admission makes them, and as a file expects them."""

from __future__ import annotations

import json
import shutil
from xml.etree import ElementTree as ET

import pytest
import yaml

from harbourmaster.cli.checking import FILE
from harbourmaster.cli.main import main
from helpers.admission import keys, pod
from helpers.manifests import ROOT
from helpers.objects import cluster_policy, policy, required, workload

EXAMPLE = ROOT / "docs/examples/ci"
SSD = {"disk": "ssd"}
SHOP = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "shop", "annotations": {"keptn.sh/lifecycle-toolkit": "enabled"}},
}
TASKS = {"keptn.sh/pre-deployment-tasks": "check", "keptn.sh/workload": "web"}


@pytest.fixture
def run(tmp_path, capsys):
    """Return a function that tests objects: the exit code and the streams."""

    def start(objects, /, *arguments, rules=(), **declared):
        (tmp_path / "policies.yaml").write_text(yaml.safe_dump_all(rules))
        (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
        test = {
            "apiVersion": "cli.harbourmaster.dev/v1alpha1",
            "kind": "Test",
            "policies": ["policies.yaml"],
            "objects": ["objects.yaml"],
            **declared,
        }
        (tmp_path / FILE).write_text(yaml.safe_dump(test, sort_keys=False))
        code = main(["check", "tests", str(tmp_path), *arguments])
        return code, *capsys.readouterr()

    return start


@pytest.fixture
def made(run, tmp_path):
    """Return a function that has the expectations of objects written."""

    def start(*objects, arguments=(), policies=()):
        assert run(objects, "--update", *arguments, rules=policies)[0] == 0
        return yaml.safe_load((tmp_path / FILE).read_text())["expect"]

    return start


def in_shop(given, annotations=None):
    given["metadata"] |= {"namespace": "shop", "annotations": annotations or {}}
    return given


def with_node_selector(**given):
    return {"fields": {"spec": {"template": {"spec": {"nodeSelector": given}}}}}


def test_what_admission_makes_of_objects_is_written(made, run):
    manifest = made(workload(), workload("Pod"), policies=[cluster_policy(nodeSelector=SSD)])
    pod = {"fields": {"spec": {"nodeSelector": SSD}}}
    assert manifest == {"Deployment web": with_node_selector(**SSD), "Pod web": pod}


def test_what_is_expected_succeeds(run):
    expect = {"Deployment web": with_node_selector(**SSD)}
    given = [workload(), workload("Job")]
    policies = [cluster_policy(pods={"app": "web"}, nodeSelector=SSD)]
    code, out, _ = run(given[:1], rules=policies, expect=expect)
    assert (code, out.splitlines()[-1]) == (0, "2 objects, 0 errors, 0 warnings")
    code, out, _ = run(given, rules=policies, expect=expect)
    assert code == 1
    assert "Job web: not as " in out
    assert "Deployment web" not in out


def test_a_difference_is_shown(run):
    expect = {"Deployment web": with_node_selector(disk="hdd", zone="a")}
    code, out, _ = run([workload()], rules=[cluster_policy(nodeSelector=SSD)], expect=expect)
    assert code == 1
    lines = out.splitlines()
    assert lines[0].endswith(": correct what changed, or accept it with --update")
    assert lines[1:3] == ["  --- expected", "  +++ found"]
    assert [line.strip() for line in lines if line.startswith(("  -  ", "  +  "))] == [
        "-          disk: hdd",
        "-          zone: a",
        "+          disk: ssd",
    ]


def test_a_field_that_does_not_change_is_not_expected(run):
    expect = {"Deployment web": with_node_selector(**SSD)}
    assert run([workload(nodeSelector=SSD)], expect=expect)[0] == 1
    assert run([workload(nodeSelector=SSD)])[0] == 0


def test_warnings_are_compared(made, run):
    given = workload(affinity=required({"disk": "hdd"}))
    policies = [cluster_policy(affinity=required(SSD))]
    (warning,) = made(given, policies=policies)["Deployment web"]["warnings"]
    assert "c1 requires disk In [ssd]" in warning
    expect = {"Deployment web": {"warnings": [warning]}}
    code, out, _ = run([given], rules=policies, expect=expect)
    assert (code, warning in out) == (1, False)


def test_what_is_refused_is_compared(made):
    manifest = made(policy(tolerations=[{"operator": "Equals", "key": "a"}]))
    ((name, expected),) = manifest.items()
    assert name == "PodSchedulingPolicy ns1/p1"
    assert "spec.tolerations[0].operator" in expected["denied"][0]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Rollout"])
@pytest.mark.parametrize("of_pods", [True, False])
def test_pods_have_a_gate_by_their_own_keys_and_by_those_of_their_workload(made, kind, of_pods):
    manifest = in_shop(workload("Deployment" if kind == "Rollout" else kind), TASKS)
    if kind == "Rollout":
        manifest |= {"apiVersion": "argoproj.io/v1alpha1", "kind": kind}
    if of_pods:
        manifest["spec"]["template"]["metadata"]["annotations"] = manifest["metadata"].pop(
            "annotations"
        )
    assert made(SHOP, manifest) == {f"{kind} shop/web": {"gated": True}}
    assert made(manifest) == {}


def test_the_label_of_staged_pods_is_expected(made):
    annotations = keys(workload="w", version="1") | {"gates.harbourmaster.dev/stages": "1"}
    staged = in_shop(pod(), annotations)
    staged["metadata"]["name"] = "web"
    expected = made(SHOP, staged)["Pod shop/web"]
    assert expected["fields"]["metadata"]["labels"] == {"gates.harbourmaster.dev/staged": "true"}


def test_no_gate_is_expected_of_pods_without_checks(made):
    assert made(SHOP, in_shop(workload()), in_shop(workload("Job"))) == {}


def test_settings_are_those_of_the_server(made, tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("gating: schedulerName\n")
    manifest = made(SHOP, in_shop(workload(), TASKS), arguments=["--config", str(file)])
    assert manifest == {"Deployment shop/web": {"gated": True}}


def test_an_update_keeps_what_stands_before_the_expectations(tmp_path, run):
    given = "# Why\napiVersion: cli.harbourmaster.dev/v1alpha1\nkind: Test\nobjects: [a.yaml]\n"
    (tmp_path / FILE).write_text(f"{given}expect:\n  Pod gone: {{}}\n")
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(workload()))
    assert main(["check", "tests", str(tmp_path / FILE), "--update"]) == 0
    assert (tmp_path / FILE).read_text() == f"{given}expect: {{}}\n"


def test_an_expectation_of_an_unknown_object_fails(run):
    code, out, _ = run([workload()], expect={"Deployment wep": {}})
    assert code == 1
    assert 'Deployment wep: not among the objects: did you mean "Deployment web"?' in out


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"expct": {}}, "expct: unknown field"),
        ({"kind": "Tests"}, "kind: invalid enum value 'Tests'"),
        ({"expect": {"Pod a": {"gates": []}}}, "unknown field"),
        ({"objects": "a.yaml"}, "objects: expected array, got string"),
    ],
)
def test_a_wrong_test_file_fails(run, declared, text):
    code, out, _ = run([workload()], **declared)
    assert code == 1
    assert text in out
    assert "1 error" in out


def test_an_invalid_policy_fails(run):
    code, out, _ = run([workload()], rules=[cluster_policy(nodeSelecto=SSD)])
    assert code == 1
    assert "policies.yaml:1: error: ClusterPodSchedulingPolicy c1: not as " in out
    assert "  +- 'spec.nodeSelecto: unknown field'" in out


def test_a_test_without_objects_is_not_a_success(tmp_path, capsys, run):
    assert main(["check", "tests", str(tmp_path)]) == 2
    assert f"no {FILE} found: give files or folders" in capsys.readouterr().err
    assert run([workload()], objects=["gone.yaml"])[0] == 2
    (tmp_path / FILE).write_text("")
    assert main(["check", "tests", str(tmp_path)]) == 2
    (tmp_path / FILE).write_text("a: [")
    assert main(["check", "tests", str(tmp_path)]) == 1
    assert "2: error: line 2, column 1: " in capsys.readouterr().out


def test_junit_and_json_have_the_differences(run, tmp_path):
    file = tmp_path / "report.xml"
    policies = [cluster_policy(nodeSelector=SSD)]
    code, out, _ = run([workload()], "--junit", str(file), "-o", "json", rules=policies)
    (suite,) = ET.fromstring(file.read_bytes())  # noqa: S314 - our own
    assert (suite.get("name"), suite.get("failures"), code) == ("harbourmaster check tests", "1", 1)
    (failure,) = suite.iter("failure")
    (document,) = json.loads(out)["findings"]
    assert document["diff"][0] == "--- expected"
    assert failure.text.endswith("\n".join(document["diff"]))


def test_the_example_of_the_manual_succeeds_and_is_up_to_date(tmp_path, capsys):
    folder = shutil.copytree(EXAMPLE, tmp_path / "ci")
    assert main(["check", "tests", str(folder)]) == 0
    assert main(["check", "tests", str(folder), "--update"]) == 0
    assert (folder / FILE).read_text() == (EXAMPLE / FILE).read_text()
    assert main(["check", "manifests", str(folder / "policies"), str(folder / "manifests")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "5 objects, 0 errors, 0 warnings"
    file = folder / "policies/ssd.yaml"
    file.write_text(file.read_text().replace("disk: ssd", "disk: hdd"))
    assert main(["check", "tests", str(folder)]) == 1
    assert "StatefulSet shop/ledger: not as " in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: {0}\nkind: Test\nexpect: {{}}\nobjects: [a.yaml]\n",
        "apiVersion: {0}\nexpect: {{}}\nkind: Test\nobjects: [a.yaml]\n# why\n",
        "{{apiVersion: {0}, kind: Test, objects: [a.yaml], expect: {{}}}}\n",
        "a: 1\n---\napiVersion: {0}\nkind: Test\nobjects: [a.yaml]\nexpect: {{}}\n",
        "apiVersion: {0}\nkind: Test\nobjects: [a.yaml]\nexpect: {{}}\n---\na: 1\n",
    ],
)
def test_an_update_that_would_lose_something_is_refused(tmp_path, capsys, text):
    given = text.format("cli.harbourmaster.dev/v1alpha1")
    (tmp_path / FILE).write_text(given)
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(workload()))
    assert main(["check", "tests", str(tmp_path), "--update"]) == 1
    assert "cannot be updated: let expect be the last key" in capsys.readouterr().out
    assert (tmp_path / FILE).read_text() == given


def test_every_document_of_a_test_file_counts(tmp_path, capsys):
    test = {"apiVersion": "cli.harbourmaster.dev/v1alpha1", "kind": "Test", "objects": ["a.yaml"]}
    wrong = {**test, "expect": {"Deployment web": {"gated": True}}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(workload()))
    for first in ({**test, "kind": "Tests"}, wrong):
        (tmp_path / FILE).write_text(yaml.safe_dump_all([first, test]))
        assert main(["check", "tests", str(tmp_path)]) == 1
        assert "1 object, 1 error" in capsys.readouterr().out


def test_an_object_whose_kind_is_no_string_fails(run):
    code, out, _ = run([{**workload(), "kind": ["a"]}])
    assert code == 1
    assert "objects.yaml:1: error: kind: expected a string" in out


@pytest.mark.parametrize("kind", ["Pod", "Job", "CronJob", "Deployment"])
def test_pods_that_wait_for_objects_are_gated(made, kind):
    waits = {"gates.harbourmaster.dev/wait-for": "job/migrate"}
    given = workload(kind)
    above = {**workload(kind, name="above"), "spec": workload(kind)["spec"]}
    spec = given["spec"]["jobTemplate"]["spec"] if kind == "CronJob" else given["spec"]
    (given if kind == "Pod" else spec["template"])["metadata"]["annotations"] = waits
    manifest = made(given, above)
    assert manifest[f"{kind} web"]["gated"]
    assert f"{kind} above" not in manifest


def test_a_wait_of_the_workload_itself_gates_no_pod(made):
    given = workload()
    given["metadata"]["annotations"] = {"gates.harbourmaster.dev/wait-for": "job/migrate"}
    assert "gated" not in made(given).get("Deployment web", {})
