"""Objects as a real API server stores them, by every way to write them."""

from __future__ import annotations

import asyncio
import json

import pytest

from helpers.cluster import (
    PATIENCE,
    SERVED,
    create,
    fresh_namespace,
    pod_spec,
    read,
    required_terms,
    workload,
    workloads,
)
from helpers.objects import RESOURCES, policy, required
from helpers.oracles import as_sets
from helpers.patience import WAIT

pytestmark = pytest.mark.gate


CREATE_ONLY = ("Pod", "Job")
TOLERATION = {"key": "example.com/pool", "operator": "Exists", "effect": "NoSchedule"}
OWN_TOLERATION = {"key": "example.com/own", "operator": "Exists", "effect": "NoExecute"}
RULES = {
    "nodeSelector": {"example.com/disk": "ssd"},
    "tolerations": [TOLERATION],
    "affinity": required({"example.com/pool": "ledger"}),
    "schedulerName": "ledger-scheduler",
}
OWN = {
    "nodeSelector": {"example.com/own": "yes"},
    "tolerations": [OWN_TOLERATION],
    "affinity": required({"example.com/zone": "a"}, {"example.com/zone": "b"}),
}
BOTH = required(
    {"example.com/zone": "a", "example.com/pool": "ledger"},
    {"example.com/zone": "b", "example.com/pool": "ledger"},
)


def assert_ruled(spec):
    """The pod spec is OWN merged with RULES, each once."""
    assert spec["nodeSelector"] == {"example.com/own": "yes", "example.com/disk": "ssd"}
    ours = [
        toleration
        for toleration in spec["tolerations"]
        if toleration["key"].startswith("example.com/")
    ]
    assert ours == [OWN_TOLERATION, TOLERATION]
    assert as_sets(spec["affinity"]) == as_sets(BOTH)
    assert len(required_terms(spec)) == 2
    assert spec["schedulerName"] == "ledger-scheduler"


@pytest.fixture(scope="module")
def new_objects(control_plane, server):
    """The stored object of each kind, created with RULES in force."""
    namespace = fresh_namespace(control_plane.kubectl, "created", SERVED)
    server.add_policies(policy("rules", namespace, **RULES))
    manifest = workloads(namespace, **OWN)
    create(control_plane.kubectl, *json.loads(manifest)["items"])
    return read(control_plane.kubectl, manifest)


@pytest.fixture(scope="module")
def touch(control_plane, server):
    """The stored object of each kind before RULES, and after a label and an annotation."""
    kubectl = control_plane.kubectl
    namespace = fresh_namespace(kubectl, "touched", SERVED)
    # Nobody schedules the pod, so only admission could change it.
    manifest = workloads(namespace, **OWN, schedulerName="default-scheduler")
    manifest = manifest.replace(
        '"containers"', '"schedulingGates": [{"name": "x/y"}], "containers"'
    )
    create(kubectl, *json.loads(manifest)["items"])
    before = read(kubectl, manifest)
    server.add_policies(policy("rules", namespace, **RULES))
    kubectl("label", "-f=-", "example.com/touched=yes", stdin=manifest)
    kubectl("annotate", "-f=-", "example.com/touched=twice", stdin=manifest)
    return before, read(kubectl, manifest)


@pytest.mark.parametrize("kind", RESOURCES)
def test_create_stores_the_pod_with_what_the_policy_asks(new_objects, kind):
    assert_ruled(pod_spec(new_objects[kind]))


@pytest.mark.parametrize("kind", [kind for kind in RESOURCES if kind not in CREATE_ONLY])
def test_an_update_gives_a_template_the_policy_that_came_later(touch, kind):
    before, after = touch
    assert pod_spec(before[kind])["schedulerName"] == "default-scheduler"
    assert_ruled(pod_spec(after[kind]))


@pytest.mark.parametrize("kind", CREATE_ONLY)
def test_an_update_leaves_an_immutable_pod_spec_alone(touch, kind):
    before, after = touch
    assert after[kind]["metadata"]["labels"]["example.com/touched"] == "yes"
    assert after[kind]["metadata"]["annotations"]["example.com/touched"] == "twice"
    assert after[kind]["spec"] == before[kind]["spec"]


@pytest.mark.parametrize("kind", CREATE_ONLY)
def test_an_object_with_a_finalizer_goes_though_a_policy_came(
    kubectl, server, served_namespace, kind
):
    manifest = workload(kind, served_namespace)
    manifest["metadata"]["finalizers"] = ["example.com/hold"]
    text = json.dumps(manifest)
    create(kubectl, manifest)
    server.add_policies(policy("rules", served_namespace, **RULES))
    kubectl("delete", "-f=-", "--wait=false", stdin=text)
    patch = '--patch={"metadata":{"finalizers":null}}'
    kubectl("patch", "-f=-", "--type=merge", patch, stdin=text)
    kubectl("wait", "--for=delete", WAIT, "-f=-", stdin=text)
    left = kubectl("get", "-f=-", "--ignore-not-found", "-o=name", stdin=text)
    assert left.stdout == ""


def test_a_dry_run_shows_the_change_and_stores_nothing(kubectl, server, served_namespace):
    server.add_policies(policy("rules", served_namespace, **RULES))
    manifest = workloads(served_namespace, **OWN)
    listed = create(kubectl, *json.loads(manifest)["items"], is_tried=True)
    assert [obj["kind"] for obj in listed] == list(RESOURCES)
    for obj in listed:
        assert_ruled(pod_spec(obj))
    assert read(kubectl, manifest) == {}


@pytest.mark.parametrize("how", ["--server-side=false", "--server-side"])
def test_applying_ten_times_changes_nothing_after_the_first(kubectl, server, served_namespace, how):
    server.add_policies(policy("rules", served_namespace, **RULES))
    manifest = json.dumps(workload("Deployment", served_namespace, **OWN))
    for _ in range(10):
        kubectl("apply", how, "-f=-", stdin=manifest)
    stored = read(kubectl, manifest)["Deployment"]
    assert_ruled(pod_spec(stored))
    assert stored["metadata"]["generation"] == 1


REVISION = "deployment.kubernetes.io/revision"
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
STRIPPED = {"spec": {"template": {"spec": {"nodeSelector": None, "affinity": None}}}}
STRIP = [
    {"op": "remove", "path": "/spec/template/spec/nodeSelector"},
    {"op": "remove", "path": "/spec/template/spec/affinity"},
]


@pytest.fixture
def deployments(server, served_namespace):
    """The path of Deployments in a namespace with RULES."""
    server.add_policies(policy("rules", served_namespace, **RULES))
    return f"/apis/apps/v1/namespaces/{served_namespace}/deployments"


@pytest.fixture
def manifest(served_namespace):
    return workload("Deployment", served_namespace)


async def send(api, method, path, content=None, content_type=JSON, **query):
    """Return the body of an answer that is no error."""
    headers = {"Content-Type": content_type}
    data = None if content is None else json.dumps(content)
    async with api.request(method, path, data=data, headers=headers, params=query) as answer:
        obj = await answer.json()
        assert answer.status < 300, obj
        return obj


async def until_annotated(api, path, key):
    """Return the object when a controller has given it the annotation."""
    async with asyncio.timeout(PATIENCE):
        while True:
            obj = await send(api, "GET", path)
            if key in obj["metadata"].get("annotations", {}):
                return obj
            await asyncio.sleep(0.05)


@pytest.mark.full
async def test_a_replacement_without_the_rules_changes_nothing(api, deployments, manifest):
    await send(api, "POST", deployments, manifest)
    # A replacement without this annotation of the Deployment's controller is a new generation.
    stored = await until_annotated(api, f"{deployments}/ledger", REVISION)
    replaced = json.loads(json.dumps(stored))
    # A controller may have written the status meanwhile.
    del replaced["metadata"]["resourceVersion"]
    for field in ("nodeSelector", "affinity"):
        del pod_spec(replaced)[field]
    await send(api, "PUT", f"{deployments}/ledger", replaced)
    again = await send(api, "GET", f"{deployments}/ledger")
    assert again["spec"] == stored["spec"]
    assert again["metadata"]["generation"] == 1


@pytest.mark.full
@pytest.mark.parametrize(
    ("content_type", "patch"),
    [
        ("application/merge-patch+json", STRIPPED),
        ("application/strategic-merge-patch+json", STRIPPED),
        ("application/json-patch+json", STRIP),
    ],
)
async def test_a_patch_that_takes_the_rules_away_changes_nothing(
    api, deployments, manifest, content_type, patch
):
    stored = await send(api, "POST", deployments, manifest)
    await send(api, "PATCH", f"{deployments}/ledger", patch, content_type)
    again = await send(api, "GET", f"{deployments}/ledger")
    assert again["spec"] == stored["spec"]
    assert again["metadata"]["generation"] == 1


@pytest.mark.full
async def test_another_manager_applies_its_own_field_without_conflict(
    api, deployments, manifest, served_namespace
):
    await send(api, "PATCH", f"{deployments}/ledger", manifest, APPLY, fieldManager="tests")
    scale = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ledger", "namespace": served_namespace},
        "spec": {"minReadySeconds": 7},
    }
    await send(api, "PATCH", f"{deployments}/ledger", scale, APPLY, fieldManager="others")
    stored = await send(api, "GET", f"{deployments}/ledger")
    assert stored["spec"]["minReadySeconds"] == 7
    spec = pod_spec(stored)
    assert spec["nodeSelector"] == RULES["nodeSelector"]
    assert as_sets(spec["affinity"]) == as_sets(RULES["affinity"])
