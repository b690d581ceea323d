"""``harbourmaster gitops``: its rules, where they stand, and whose policies they are from."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess

import pytest
import yaml
from lupa import lua51

from harbourmaster.api.resources import CLUSTER_POLICIES, MUTATING_WEBHOOKS, POLICIES
from harbourmaster.cli.gitops import HANDLED, INSTALLATION, plural_of
from harbourmaster.cli.main import main
from harbourmaster.cli.offline import render_manifest
from harbourmaster.lifecycle.model import COMPLETED, PENDING, PROGRESSING, UNKNOWN
from harbourmaster.policies.targets import TARGETS_KEY
from harbourmaster.serving.documents import files_in, read_documents
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.sources import Sources, load
from helpers.command import kubeconfig
from helpers.fake_api import FakeApi
from helpers.ignore_rules import forget, without_empty
from helpers.manifests import DEPLOY, objects, of_kind

SAMPLES = DEPLOY / "samples"
WORKLOADS = SAMPLES / "workloads"
STATES = {*COMPLETED, PENDING, PROGRESSING, UNKNOWN}
FORMS = [("argocd", "application"), ("argocd", "system")]
FORMS += [("flux", "kustomization"), ("flux", "helmrelease")]


def policy(name, namespace=None, **spec):
    kind = "PodSchedulingPolicy" if namespace else "ClusterPodSchedulingPolicy"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    spec = {"podSelector": {}, **({} if namespace else {"namespaceSelector": {}}), **spec}
    return {
        "apiVersion": "kupid.gardener.cloud/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


SSD = policy("ssd", nodeSelector={"disk": "ssd"})
SHOP = policy("shop", "shop", schedulerName="packer")
BROKEN = policy("broken", nodeSelector={"": "x"})


@pytest.fixture
def folder(tmp_path):
    def write(*policies):
        path = tmp_path / "policies.yaml"
        path.write_text(yaml.safe_dump_all(policies))
        return str(path)

    return write


def print_rules(capsys, *arguments, code=0):
    """Return the printed YAML, decoded, and the text on standard error."""
    assert main(["gitops", *arguments]) == code
    said = capsys.readouterr()
    return yaml.safe_load(said.out), said.err


def kinds(rules):
    return [(rule["group"], rule["kind"], rule.get("namespace")) for rule in rules]


def test_with_the_rules_the_samples_differ_in_nothing(capsys):
    rules, _ = print_rules(capsys, "argocd", "--policies", str(SAMPLES))
    by_kind = {}
    for rule in rules["ignoreDifferences"]:
        by_kind.setdefault((rule["group"], rule["kind"]), []).extend(rule["jqPathExpressions"])
    engine = Engine(load(Sources(SAMPLES)).snapshot, AdmissionSettings())
    changed = 0
    for file in files_in(WORKLOADS):
        for document in read_documents(file):
            before = document.value
            after, _ = render_manifest(before, engine)
            group = before["apiVersion"].rpartition("/")[0]
            said = by_kind.get((group, before["kind"]), [])
            changed += after != before
            assert forget(after, said) == forget(before, said)
    assert changed > 1


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not on PATH")
def test_jq_reads_the_rules_as_we_do(capsys):
    rules, _ = print_rules(capsys, "argocd", "--policies", str(SAMPLES), "--kind", "StatefulSet")
    said = [
        expression
        for rule in rules["ignoreDifferences"]
        for expression in rule["jqPathExpressions"]
    ]
    engine = Engine(load(Sources(SAMPLES)).snapshot, AdmissionSettings())
    stateful_sets = [
        document.value
        for file in files_in(WORKLOADS)
        for document in read_documents(file)
        if document.value["kind"] == "StatefulSet"
    ]
    assert stateful_sets
    program = " | ".join(f"del({expression})" for expression in said)
    for before in (*stateful_sets, {"spec": {"template": {"spec": None}}}):
        after = render_manifest(before, engine)[0] if "kind" in before else before
        result = subprocess.run(
            ["jq", "-c", program],
            input=json.dumps(after),
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert without_empty(json.loads(result.stdout)) == forget(after, said)


def test_argo_cd_s_own_settings_name_every_kind(capsys, folder):
    config_map, _ = print_rules(capsys, "argocd", "--policies", folder(SSD), "--for", "system")
    prefix = "resource.customizations.ignoreDifferences."
    assert {key for key in config_map["data"] if ".health." not in key} == {
        prefix + (f"{kind.group}_" if kind.group else "") + kind.name for kind in HANDLED
    }


@pytest.fixture
def health(capsys, folder):
    """Return a function that judges an object by the printed rule, in Lua as Argo CD does."""
    config_map, _ = print_rules(capsys, "argocd", "--policies", folder(), "--for", "system")

    def judge(kind, status, group="lifecycle.keptn.sh", generation=1):
        runtime = lua51.LuaRuntime()
        obj = {"kind": kind, "metadata": {"generation": generation}}
        obj |= {} if status is None else {"status": status}
        runtime.globals()["obj"] = runtime.table_from(obj, recursive=True)
        code = config_map["data"][f"resource.customizations.health.{group}_{kind}"]
        return tuple(runtime.execute(code)[key] for key in ("status", "message"))

    return judge


METRICS, PLACEMENT = "metrics.keptn.sh", "placement.harbourmaster.dev"
CHECKING = {"status": "Progressing", "currentPhase": "WorkloadPreDeployTasks"}
NOT_REACHED = {"type": "Reachable", "status": "False", "message": "connection refused"}
SCHEDULED = {"type": "Scheduled", "status": "True", "message": "fits"}
HEALTHS = [
    ("KeptnWorkloadVersion", None, "Progressing", "Pending"),
    ("KeptnWorkloadVersion", {}, "Progressing", "Pending"),
    ("KeptnWorkloadVersion", CHECKING, "Progressing", "Progressing: WorkloadPreDeployTasks"),
    (
        "KeptnWorkloadVersion",
        {**CHECKING, "status": "Failed"},
        "Degraded",
        "Failed: WorkloadPreDeployTasks",
    ),
    ("KeptnWorkloadVersion", {"status": "Deprecated"}, "Healthy", "Deprecated"),
    (
        "KeptnAppVersion",
        {"status": "Succeeded", "currentPhase": "Completed"},
        "Healthy",
        "Succeeded: Completed",
    ),
    ("KeptnAppVersion", {"status": "Failed"}, "Degraded", "Failed"),
    ("KeptnTask", {"status": "Pending"}, "Progressing", "Pending"),
    ("KeptnTask", {"status": "Failed"}, "Degraded", "Failed"),
    ("KeptnEvaluation", {"overallStatus": "Succeeded"}, "Healthy", "Succeeded"),
    ("KeptnEvaluation", {"overallStatus": "Failed"}, "Degraded", "Failed"),
]
OTHER_HEALTHS = [
    (METRICS, "Analysis", {"state": "Progressing"}, "Progressing", "Progressing"),
    (METRICS, "Analysis", {"state": "Completed", "pass": True}, "Healthy", "Completed"),
    (METRICS, "Analysis", {"state": "Completed", "warning": True}, "Healthy", "Completed"),
    (METRICS, "Analysis", {"state": "Completed"}, "Degraded", "Failed"),
    (METRICS, "KeptnMetric", {"value": "", "errMsg": ""}, "Progressing", "Pending"),
    (METRICS, "KeptnMetric", {"value": "3"}, "Healthy", "Succeeded"),
    (METRICS, "KeptnMetric", {"value": "3", "errMsg": "no data"}, "Degraded", "Error: no data"),
    (PLACEMENT, "Application", {"phase": "Running", "observedGeneration": 1}, "Healthy", "Running"),
    (
        PLACEMENT,
        "Application",
        {"phase": "Running", "observedGeneration": 0},
        "Progressing",
        "Pending",
    ),
    (
        PLACEMENT,
        "Application",
        {"phase": "Running", "observedGeneration": 1, "conditions": [SCHEDULED]},
        "Healthy",
        "Running",
    ),
    (PLACEMENT, "Application", {"phase": "Degraded"}, "Degraded", "Degraded"),
    (PLACEMENT, "Cluster", {"state": "Online"}, "Healthy", "Online"),
    (
        PLACEMENT,
        "Cluster",
        {"state": "Offline", "conditions": [SCHEDULED, NOT_REACHED]},
        "Degraded",
        "Offline: connection refused",
    ),
]


@pytest.mark.parametrize(("kind", "status", "expected", "message"), HEALTHS)
def test_argo_cd_knows_the_health_of_keptn_s_kinds(health, kind, status, expected, message):
    assert health(kind, status) == (expected, message)


@pytest.mark.parametrize(("group", "kind", "status", "expected", "message"), OTHER_HEALTHS)
def test_argo_cd_knows_the_health_of_metrics_and_of_placement(
    health, group, kind, status, expected, message
):
    assert health(kind, status, group) == (expected, message)


def test_every_state_of_a_version_has_its_health(health):
    healths = {state: health("KeptnWorkloadVersion", {"status": state})[0] for state in STATES}
    degraded = {state for state, status in healths.items() if status == "Degraded"}
    healthy = {state for state, status in healths.items() if status == "Healthy"}
    assert degraded == {"Failed"}
    assert healthy == COMPLETED - degraded


@pytest.mark.parametrize(("tool", "form"), FORMS)
def test_rules_of_cluster_policies_have_no_namespace_and_others_theirs(
    capsys, folder, tool, form, assert_golden
):
    """Argo CD's own settings know no namespace."""
    arguments = (tool, "--for", form, "--policies", folder(SSD, SHOP), "--kind", "CronJob")
    rules = print_rules(capsys, *arguments)[0]
    for key in [key for key in rules.get("data", {}) if ".health." in key]:
        del rules["data"][key]
    assert_golden(rules)


@pytest.mark.parametrize(("tool", "form"), FORMS)
def test_json_is_the_same_and_a_namespace_leaves_others_out(capsys, folder, tool, form):
    arguments = (tool, "--for", form, "--policies", folder(SSD, SHOP), "-n", "other")
    as_yaml, _ = print_rules(capsys, *arguments)
    assert main(["gitops", *arguments, "-o", "json"]) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert as_json == as_yaml
    assert "packer" not in json.dumps(as_json)
    assert "disk" in json.dumps(as_json)


def test_nothing_is_said_where_nothing_is_set(capsys, folder):
    path = folder(policy("idle"))
    assert main(["gitops", "argocd", "--policies", path]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# nothing has to be ignored: 1 policy, and none sets anything\n")
    assert yaml.safe_load(said) == {"ignoreDifferences": []}


def test_a_policy_of_pods_only_has_no_rules(capsys, folder):
    pods_only = {**SSD, "metadata": {"name": "a", "annotations": {TARGETS_KEY: "Pods"}}}
    for policies, count in (((SSD,), 1), ((pods_only,), 0)):
        rules, _ = print_rules(
            capsys, "argocd", "--kind", "Deployment", "--policies", folder(*policies)
        )
        assert len(kinds(rules["ignoreDifferences"])) == count


def test_a_broken_policy_is_reported_and_the_others_count(capsys, folder):
    rules, said = print_rules(
        capsys, "argocd", "--policies", folder(SSD, BROKEN), "--kind", "Pod", code=1
    )
    assert len(rules["ignoreDifferences"]) == 1
    assert "policies.yaml" in said
    assert "nodeSelector" in said


def test_what_is_written_into_the_installation_can_be_left_alone(capsys, folder):
    rules, _ = print_rules(capsys, "argocd", "--policies", folder(SSD), "--installation")
    own = [rule for rule in rules["ignoreDifferences"] if "caBundle" in str(rule)]
    assert [(rule["group"], rule["kind"]) for rule in own] == [
        (resource.group, resource.kind) for resource in INSTALLATION
    ]
    # Exactly the kinds of the manifests that contain an authority.
    with_authority = {
        obj["kind"]
        for obj in objects("with-certmanager")
        if obj["kind"].endswith(("WebhookConfiguration", "CustomResourceDefinition", "APIService"))
    }
    assert {rule["kind"] for rule in own} == with_authority
    assert of_kind(objects("with-certmanager"), "APIService")


def configuration(*resources):
    rules = [{"apiGroups": [group], "resources": [name]} for group, name in resources]
    return {"metadata": {"name": "harbourmaster"}, "webhooks": [{"rules": rules}]}


@pytest.fixture
def cluster(capsys, tmp_path):
    """Runs the command with the policies of an API server."""

    def run(*arguments, put=(), code=0, faults=()):
        async def ask():
            async with FakeApi() as api:
                for resource, stored in put:
                    api.put(resource, stored)
                for fault in faults:
                    api.fail(**fault)
                return await asyncio.to_thread(
                    main, ["gitops", *arguments, "--kubeconfig", kubeconfig(tmp_path, api.url)]
                )

        assert asyncio.run(ask()) == code
        said = capsys.readouterr()
        return yaml.safe_load(said.out), said.err

    return run


def test_the_policies_of_a_cluster_and_the_kinds_that_are_registered_there(cluster):
    put = [
        (CLUSTER_POLICIES, SSD),
        (POLICIES, SHOP),
        (MUTATING_WEBHOOKS, configuration(("", "pods"), ("apps", "deployments"))),
    ]
    rules, said = cluster("argocd", put=put)
    assert kinds(rules["ignoreDifferences"]) == [
        ("", "Pod", None),
        ("apps", "Deployment", None),
        ("", "Pod", "shop"),
        ("apps", "Deployment", "shop"),
    ]
    assert not said


def test_every_kind_if_the_registration_is_unknown(cluster):
    rules, said = cluster("flux", put=[(CLUSTER_POLICIES, SSD)])
    assert len(rules["ignore"]) == len(HANDLED)
    assert "rules for every kind" in said


def test_a_broken_policy_of_a_cluster_is_named(cluster):
    put = [
        (CLUSTER_POLICIES, SSD),
        (CLUSTER_POLICIES, BROKEN),
        (MUTATING_WEBHOOKS, configuration(("", "pods"))),
    ]
    rules, said = cluster("argocd", put=put, code=1)
    assert len(rules["ignoreDifferences"]) == 1
    assert "ClusterPodSchedulingPolicy broken sets nothing" in said


def test_no_file_is_one_line(capsys):
    assert main(["gitops", "flux", "--policies", "nowhere.yaml"]) == 2
    assert capsys.readouterr().err == "harbourmaster: nowhere.yaml: no such file or directory\n"


def test_the_plurals_are_those_of_the_api():
    page = {
        (group, name)
        for configuration in of_kind(objects("with-certmanager"), "MutatingWebhookConfiguration")
        for entry in configuration["webhooks"]
        for rule in entry["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
        # Requests for repeated checks are only stamped.
        if entry["name"] != "reruns.harbourmaster.dev"
    }
    # Pods are changed, and ReplicaSets only where they are made by hand.
    assert page | {("apps", "replicasets")} == {(kind.group, plural_of(kind)) for kind in HANDLED}
