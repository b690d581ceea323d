from __future__ import annotations

import json

import pytest

from helpers.cluster import (
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

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

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
OWNED = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
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
def created(control_plane, server):
    """The stored object of each kind, created with RULES in force."""
    namespace = fresh_namespace(control_plane.kubectl, "created", SERVED)
    server.add_policies(policy("rules", namespace, **RULES))
    manifest = workloads(namespace, **OWN)
    create(control_plane.kubectl, *json.loads(manifest)["items"])
    return read(control_plane.kubectl, manifest)


@pytest.fixture(scope="module")
def touched(control_plane, server):
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
def test_create_stores_the_pod_with_what_the_policy_asks(created, kind):
    assert_ruled(pod_spec(created[kind]))


@pytest.mark.parametrize("kind", [kind for kind in RESOURCES if kind not in CREATE_ONLY])
def test_an_update_gives_a_template_the_policy_that_came_later(touched, kind):
    before, after = touched
    assert pod_spec(before[kind])["schedulerName"] == "default-scheduler"
    assert_ruled(pod_spec(after[kind]))


@pytest.mark.parametrize("kind", CREATE_ONLY)
def test_an_update_leaves_an_immutable_pod_spec_alone(touched, kind):
    before, after = touched
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
