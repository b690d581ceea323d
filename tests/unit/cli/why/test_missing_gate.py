"""Why a pod has no gate, and what a manifest's pods will wait for."""

from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.api.resources import (
    CORE_EVENTS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    TASK_DEFINITIONS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.cli.main import main
from harbourmaster.lifecycle.workloads import OWNERS_KEY
from harbourmaster.registration.break_glass import ANNOTATION
from helpers.explanations import (
    NAMESPACE,
    essence,
    pod,
    put_owner,
    put_registration,
    reference,
    registration,
    template,
)
from helpers.gated import keptn
from helpers.objects import cluster_policy

OPT_IN = "keptn.sh/lifecycle-toolkit"
CREATED = "2026-03-01T12:00:00Z"
LATER = "2026-03-01T13:00:00Z"
RESTART = f"kubectl -n {NAMESPACE} rollout restart deployment/cart"


def space(*, is_in=True, since=None):
    """The namespace; ``since``: when its opt-in was written."""
    metadata = {"name": NAMESPACE, "annotations": {OPT_IN: "enabled"} if is_in else {}}
    if since:
        owned = {"f:metadata": {"f:annotations": {f"f:{OPT_IN}": {}}}}
        others = {"f:status": {}}
        metadata["managedFields"] = [
            {"manager": "kubectl", "time": since, "fieldsV1": owned},
            {"manager": "other", "time": CREATED, "fieldsV1": others},
        ]
    return {"metadata": metadata}


def running(image="registry.example.com/cart:1", owner="ReplicaSet", workload="cart", **keys):
    """A pod that has a node and no gate."""
    pod_object = pod(owner=reference(owner, "cart"), nodeName="n1")
    pod_object["metadata"]["annotations"] = keptn(workload, **keys)
    pod_object["spec"]["containers"][0]["image"] = image
    return {**pod_object, "status": {"phase": "Running"}}


@pytest.fixture
def gate(api, why):
    """Return ``gate(*words)``: the section on the gate, or the one on ``section``."""

    async def ask(*words, section="gate"):
        code, out, err = await why(*words, "-o", "json")
        assert (code, err) == (0, "")
        return next(part for part in json.loads(out)["sections"] if part["name"] == section)

    return ask


def stage(api, given, namespace):
    """Store the pod, its owners and its namespace."""
    api.put(PODS, given)
    api.get(PODS, "cart-1", NAMESPACE)["metadata"]["creationTimestamp"] = CREATED
    put_owner(api, REPLICA_SETS, template(), ownerReferences=[reference("Deployment", "cart")])
    put_owner(api, DEPLOYMENTS, template())
    api.put(NAMESPACES, namespace)


@pytest.mark.parametrize(
    ("given", "namespace"),
    [
        (running(), space(is_in=False)),
        (running(), space(since=LATER)),
        (running(), space(since="2026-03-01T11:00:00Z")),
        (running(workload=""), space()),
        (running(owner="Job"), space()),
    ],
    ids=["no opt-in", "opted in later", "opted in before", "no workload", "of a Job"],
)
async def test_a_pod_without_a_gate_has_a_reason_and_a_step(
    api, gate, assert_golden, given, namespace
):
    stage(api, given, namespace)
    section = await gate("pod", f"{NAMESPACE}/cart-1")
    assert_golden(essence(section))
    assert section["detail"]["report"]["code"] == "not-gated"


async def test_the_failure_policy_and_break_glass_mode_are_told(api, gate, assert_golden):
    stage(api, running(), space())
    put_registration(api, failurePolicy="Ignore")
    section = await gate("pod", f"{NAMESPACE}/cart-1")
    assert section["summary"].endswith("it was not available, failurePolicy is Ignore")
    open_now = put_registration(api, failurePolicy="Ignore")
    open_now["metadata"]["annotations"] = {ANNOTATION: "incident 4711"}
    assert_golden(essence(await gate("pod", f"{NAMESPACE}/cart-1")))


async def test_an_excluded_namespace_is_told_before_its_opt_in(api, gate, assert_golden):
    stage(api, running(), space(is_in=False))
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE]}
    selector = {"matchExpressions": [excluded]}
    api.put(MUTATING_WEBHOOKS, registration(namespaceSelector=selector))
    assert_golden(essence(await gate("pod", f"{NAMESPACE}/cart-1")))


async def test_a_namespace_that_the_settings_deny_is_told(api, gate, assert_golden):
    stage(api, running(), space())
    args = ["webhook", f"--denied-namespaces={NAMESPACE}"]
    spec = {"template": {"spec": {"containers": [{"args": args}]}}}
    metadata = {"name": "harbourmaster-webhook", "namespace": "harbourmaster-system"}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    assert_golden(essence(await gate("pod", f"{NAMESPACE}/cart-1")))


async def test_no_warning_of_admission_misleads_about_a_pod_that_has_a_node(api, why):
    stage(api, running(), space(since=LATER))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "so it can't wait for its checks" not in out
    assert f"next  {RESTART}" in out


async def test_a_workload_that_opted_in_too_late_is_told_as_well(api, gate, assert_golden):
    stage(api, running(), space(since=LATER))
    made = template()
    made["metadata"]["annotations"] = keptn("cart", pre_deployment_tasks="migrate")
    put_owner(api, DEPLOYMENTS, made, creationTimestamp=CREATED)
    api.get(DEPLOYMENTS, "cart", NAMESPACE)["metadata"]["creationTimestamp"] = CREATED
    assert_golden(essence(await gate("deployment", f"{NAMESPACE}/cart")))


# An image that changed without its version.


def put_set(api, name, image, created, version="1.0"):
    made = template()
    made["metadata"]["annotations"] = keptn("cart", version)
    made["spec"]["containers"][0]["image"] = f"registry.example.com/cart:{image}"
    owner = reference("Deployment", "cart")
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]}
    api.put(REPLICA_SETS, {"metadata": metadata, "spec": {"template": made}})
    stored = api.get(REPLICA_SETS, name, NAMESPACE)["metadata"]
    stored |= {"creationTimestamp": created, "uid": f"uid-{name}"}


def put_version(api, version, *sets):
    """A version of which pods of these ReplicaSets are; the newest owner is the last."""
    uids = [f"uid-{name}" for name in sets]
    metadata = {
        "name": f"shop-cart-{version}",
        "namespace": NAMESPACE,
        "annotations": {OWNERS_KEY: ",".join(uids)},
    }
    newest = {"uid": uids[-1], "kind": "ReplicaSet", "name": sets[-1]}
    spec = {
        "app": "shop",
        "version": version,
        "workloadName": "shop-cart",
        "resourceReference": newest,
    }
    api.put(WORKLOAD_VERSIONS, {"metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    "sets",
    [
        [("cart", "1", CREATED), ("cart-b", "2", LATER)],
        [("cart", "2", LATER), ("cart-a", "1", CREATED)],
        [("cart", "2", LATER, "2.0"), ("cart-a", "1", CREATED)],
        [("cart", "2", LATER), ("cart-a", "2", CREATED)],
        [("cart", "2", LATER), ("before-the-opt-in", "1", CREATED)],
    ],
    ids=["rolled back", "changed", "raised", "same image", "never checked"],
)
async def test_an_image_that_changed_without_its_version_is_told(api, gate, assert_golden, sets):
    mine = sets[0]
    running_pod = running(f"registry.example.com/cart:{mine[1]}", version=(*mine, "1.0")[3])
    running_pod["metadata"]["annotations"]["keptn.sh/scheduling-gate-removed"] = "true"
    stage(api, running_pod, space())
    for row in sets:
        put_set(api, *row)
    checked = [row for row in sets if "opt-in" not in row[0]]
    same = [row[0] for row in reversed(checked) if (*row, "1.0")[3] == (*mine, "1.0")[3]]
    put_version(api, (*mine, "1.0")[3], *same)
    assert_golden(essence(await gate("pod", f"{NAMESPACE}/cart-1")))


async def test_a_pod_that_was_released_by_hand_is_not_told_of_its_version(api, gate):
    result = running("registry.example.com/cart:2")
    released = {"gates.harbourmaster.dev/released": "by-hand"}
    result["metadata"]["annotations"] |= released
    stage(api, result, space())
    put_set(api, "cart", "2", LATER)
    put_set(api, "cart-a", "1", CREATED)
    put_version(api, "1.0", "cart-a", "cart")
    assert (await gate("pod", f"{NAMESPACE}/cart-1"))["code"] == "released"


# Manifests.


def manifest(**keys):
    made = template()
    made["metadata"]["annotations"] = keptn("cart", pre_deployment_tasks="migrate", **keys)
    metadata = {"name": "cart", "namespace": NAMESPACE}
    spec = {"template": made}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


DEFINITION = {
    "apiVersion": "lifecycle.keptn.sh/v1",
    "kind": "KeptnTaskDefinition",
    "metadata": {"name": "migrate", "namespace": NAMESPACE},
    "spec": {"container": {"name": "c", "image": "registry.example.com/migrate:1"}},
}
MISSING = "not found: KeptnTaskDefinition migrate"


async def asked(gate, tmp_path, *documents, policies=None):
    path = tmp_path / "all.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return await gate("-f", str(path), *(["--policies", str(policies)] if policies else []))


async def test_a_manifest_is_told_of_its_checks_and_of_what_is_missing(
    api, gate, assert_golden, tmp_path
):
    api.put(NAMESPACES, space())
    section = await asked(gate, tmp_path, manifest())
    section["next"] = section["next"].replace(f"{tmp_path}/", "")
    assert_golden({**essence(section), "checks": section["detail"]["report"]["checks"]})
    assert (await asked(gate, tmp_path, manifest(), DEFINITION))["code"] == "to-be-gated"
    api.put(TASK_DEFINITIONS, DEFINITION)
    assert (await asked(gate, tmp_path, manifest()))["code"] == "to-be-gated"


async def test_a_manifest_for_a_namespace_without_gates_needs_the_opt_in(
    api, gate, assert_golden, tmp_path
):
    api.put(NAMESPACES, space(is_in=False))
    assert_golden(essence(await asked(gate, tmp_path, manifest())))
    opted_in = {"apiVersion": "v1", "kind": "Namespace", **space()}
    section = await asked(gate, tmp_path, opted_in, manifest(), DEFINITION)
    assert section["code"] == "to-be-gated"


def test_without_a_cluster_the_files_count(tmp_path, capsys):
    policies = tmp_path / "policies.yaml"
    policies.write_text(yaml.safe_dump(cluster_policy("disks", nodeSelector={"disk": "ssd"})))
    path = tmp_path / "all.yaml"
    opted_in = {"apiVersion": "v1", "kind": "Namespace", **space()}
    path.write_text(yaml.safe_dump_all([opted_in, manifest()]))
    words = ["why", "-f", str(path), "--policies", str(policies)]
    assert main(words) == 0
    assert f"{MISSING} in these files" in capsys.readouterr().out
    path.write_text(yaml.safe_dump_all([opted_in, manifest(), DEFINITION]))
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "Gate: its pods will wait for their checks\n" in out
    assert "task migrate of the workload: Pending" in out


# Workloads whose pods are not there.

QUOTA = (
    'pods "cart-1" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, '
    "limited: pods=0"
)


def put_workload(api, resource, status, **spec):
    made = template()
    made["metadata"]["annotations"] = keptn("cart", pre_deployment_tasks="migrate")
    put_owner(api, resource, made, creationTimestamp=CREATED)
    stored = api.get(resource, "cart", NAMESPACE)
    stored["metadata"]["creationTimestamp"] = CREATED
    stored["spec"] |= {"selector": {"matchLabels": {"app": "cart"}}, **spec}
    stored["status"] = status


async def test_a_quota_that_keeps_pods_away_is_the_reason(api, gate, assert_golden):
    api.put(NAMESPACES, space(since="2026-03-01T11:00:00Z"))
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    put_workload(api, DEPLOYMENTS, {"conditions": [{**failure, "message": QUOTA}]})
    assert_golden(essence(await gate("deployment", f"{NAMESPACE}/cart", section="pods")))


async def test_an_event_tells_why_a_stateful_set_has_no_pods(api, gate):
    api.put(NAMESPACES, space(since="2026-03-01T11:00:00Z"))
    put_workload(api, STATEFUL_SETS, {})
    event = {
        "metadata": {"name": "cart.1", "namespace": NAMESPACE},
        "involvedObject": {"uid": "uid-cart"},
        "reason": "FailedCreate",
        "message": QUOTA,
    }
    api.put(CORE_EVENTS, event)
    section = await gate("statefulset", f"{NAMESPACE}/cart", section="pods")
    assert (section["code"], section["state"]) == ("pods-refused", "fault")
    assert section["summary"] == f"its pods are not created: {QUOTA}"


@pytest.mark.parametrize(
    ("spec", "code"), [({"replicas": 0}, "scaled-to-zero"), ({"replicas": 2}, "no-pods")]
)
async def test_a_workload_without_pods_missed_no_gate(api, gate, assert_golden, spec, code):
    api.put(NAMESPACES, space(since="2026-03-01T11:00:00Z"))
    api.put(TASK_DEFINITIONS, DEFINITION)
    put_workload(api, DEPLOYMENTS, {"observedGeneration": 1}, **spec)
    section = await gate("deployment", f"{NAMESPACE}/cart", section="pods")
    assert section["code"] == code
    assert_golden(essence(section))
    assert (await gate("deployment", f"{NAMESPACE}/cart"))["code"] == "to-be-gated"


async def test_the_age_of_the_pods_counts_and_not_that_of_their_workload(api, gate):
    api.put(NAMESPACES, space(since=LATER))
    put_workload(api, DEPLOYMENTS, {}, replicas=1)
    api.put(PODS, running())
    stored = api.get(PODS, "cart-1", NAMESPACE)["metadata"]
    codes = []
    for created in (CREATED, LATER, "2026-03-01T14:00:00Z"):
        stored["creationTimestamp"] = created
        section = await gate("deployment", f"{NAMESPACE}/cart")
        codes.append((section["code"], section["summary"].split(" namespace ")[0]))
    assert codes[:2] == [
        ("admitted-before", "admitted before"),
        ("admitted-before", "admitted in the second in which"),
    ]
    assert codes[2][0] == "not-reviewed"


async def test_a_pod_from_before_the_webhook_was_not_missed_by_it(api, gate):
    stage(api, running(), space(since="2026-03-01T11:00:00Z"))
    stored = api.get(MUTATING_WEBHOOKS, "harbourmaster")["metadata"]
    stored["creationTimestamp"] = LATER
    section = await gate("pod", f"{NAMESPACE}/cart-1")
    assert section["code"] == "admitted-before"
    assert section["summary"] == f"admitted before a webhook of ours was registered ({LATER})"


async def test_pods_of_a_former_template_say_nothing_about_the_current_one(api, gate):
    api.put(NAMESPACES, space(since="2026-03-01T11:00:00Z"))
    api.put(TASK_DEFINITIONS, DEFINITION)
    put_workload(api, DEPLOYMENTS, {"conditions": []}, paused=True)
    api.put(PODS, running())
    assert (await gate("deployment", f"{NAMESPACE}/cart", section="pods"))["code"] == "paused"
    assert (await gate("deployment", f"{NAMESPACE}/cart"))["code"] == "to-be-gated"
