"""``harbourmaster why`` says what the installed server did, and one line where it can't say it."""

from __future__ import annotations

import json

import pytest

from helpers.cluster import (
    delete_namespace,
    eventually,
    fresh_namespace,
    selecting,
    tried_pod,
    workload,
)
from helpers.command import harbourmaster
from helpers.objects import cluster_policy, policy, required
from helpers.rights import kubeconfig as as_somebody


def why(kubeconfig, *words):
    """The exit code, and both streams, of a process of its own."""
    return harbourmaster("why", *words, f"--kubeconfig={kubeconfig}")


def policies_of(done):
    assert done.returncode == 0, done.stderr
    sections = json.loads(done.stdout)["sections"]
    (detail,) = [section["detail"] for section in sections if section["name"] == "policies"]
    return detail


def fields_by_path(detail):
    """The fields by their paths below the pod spec."""
    return {field["path"].partition("spec.")[2]: field for field in detail["fields"]}


@pytest.fixture
def place(request, harbour):
    """A namespace with a policy of each kind in force; the name, and the cluster policy's."""
    kubectl = harbour.plane.kubectl
    name = fresh_namespace(kubectl, request.node.name[:30])
    wide = cluster_policy(
        name,
        nodeSelector={"disk": "ssd"},
        schedulerName="packer",
        affinity=required({"zone": "a"}, {"zone": "b"}),
    )
    wide["spec"]["namespaceSelector"] = selecting(name)
    local = policy(
        "local",
        name,
        tolerations=[{"key": "pool", "operator": "Exists"}],
        nodeSelector={"disk": "hdd", "rack": "1"},
    )
    manifest = policy("other", name, pods={"example.com/app": "till"}, nodeName="n1")
    items = {"apiVersion": "v1", "kind": "List", "items": [wide, local, manifest]}
    kubectl("create", "-f=-", stdin=json.dumps(items))
    eventually(lambda: (tried_pod(kubectl, name).get("nodeSelector") or {}).keys() >= {"rack"})
    yield name
    kubectl("delete", "clusterpodschedulingpolicy", name, "--wait=false")
    delete_namespace(kubectl, name)


def test_a_manifest_is_told_what_the_server_makes_of_it(harbour, place, tmp_path):
    kubectl = harbour.plane.kubectl
    for kind in ("Pod", "Deployment", "CronJob"):
        manifest = workload(kind, place, nodeSelector={"zone": "a"})
        path = tmp_path / f"{kind}.json"
        path.write_text(json.dumps(manifest))
        detail = policies_of(why(harbour.plane.kubeconfig, "-f", str(path), "-o=json"))
        stored = json.loads(
            kubectl("create", "--dry-run=server", "-o=json", "-f=-", stdin=path.read_text()).stdout
        )
        spec = stored["spec"]
        if kind != "Pod":
            spec = spec["jobTemplate"]["spec"] if kind == "CronJob" else spec
            spec = spec["template"]["spec"]
        fields = {
            path.rpartition("spec.")[2]: change["value"]
            for path, change in fields_by_path(detail).items()
        }
        assert spec["nodeSelector"] == {"disk": "ssd", "rack": "1", "zone": "a"}
        assert {key for key in fields if key.startswith("nodeSelector")} == {
            f'nodeSelector["{key}"]' for key in spec["nodeSelector"]
        }
        assert fields["schedulerName"] == spec["schedulerName"] == "packer"
        assert fields["tolerations[0]"] in spec["tolerations"]
        (terms,) = (value for key, value in fields.items() if key.endswith("nodeSelectorTerms"))
        node = spec["affinity"]["nodeAffinity"]
        assert terms == node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        references = [policy["reference"] for policy in detail["policies"] if policy["matched"]]
        assert references == [
            f"ClusterPodSchedulingPolicy {place}",
            f"PodSchedulingPolicy {place}/local",
        ]


def test_a_running_pod_is_told_who_asks_for_what_it_has(harbour, place):
    plane = harbour.plane
    plane.kubectl("create", "-f=-", stdin=json.dumps(workload("Pod", place)))
    name = f"{place}/ledger"
    detail = policies_of(why(plane.kubeconfig, "pod", name, "-o=json"))
    fields = fields_by_path(detail)
    asked = {path: field.get("askedBy", []) for path, field in fields.items()}
    wide, local = f"ClusterPodSchedulingPolicy {place}", f"PodSchedulingPolicy {place}/local"
    assert asked['nodeSelector["disk"]'] == [wide]
    assert asked['nodeSelector["rack"]'] == [local]
    assert asked["schedulerName"] == [wide]
    assert all(field["setBy"] == [""] for field in fields.values())
    text = why(plane.kubeconfig, "pod", name).stdout
    # The namespaced one asks for another disk than it has.
    assert "2 of 3 select the pod; they change nothing" in text
    wants = 'spec.podSelector.matchLabels["example.com/app"] wants "till", the pod has "ledger"'
    assert f"policy {place}/other {wants}" in " ".join(text.split())
    # Nobody runs that scheduler.
    eventually(lambda: "is packer running?" in why(plane.kubeconfig, "pod", name).stdout)
    # What no policy asked for when the pod came is told apart.
    late = policy("zlate", place, nodeSelector={"late": "1"})
    plane.kubectl("create", "-f=-", stdin=json.dumps(late))
    text = why(plane.kubeconfig, "pod", name).stdout
    assert 'would add  nodeSelector["late"] = 1' in text


def test_who_has_few_rights_gets_what_can_be_told(harbour, place, tmp_path):
    plane = harbour.plane
    kubectl = plane.kubectl
    kubectl("create", "-f=-", stdin=json.dumps(workload("Pod", place)))
    kubectl("create", "serviceaccount", "reader", f"--namespace={place}")
    token = kubectl("create", "token", "reader", f"--namespace={place}").stdout.strip()
    path = tmp_path / "reader"
    path.write_text(as_somebody(plane.kubeconfig, token=token))
    done = why(path, "pod", f"{place}/ledger")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"harbourmaster: Pod {place}/ledger could not be read: "
        f"missing permission to get pods in namespace {place}\n"
    )
    role = ("--role=reader", f"--serviceaccount={place}:reader", f"--namespace={place}")
    kubectl("create", "role", "reader", "--verb=get", "--resource=pods", f"--namespace={place}")
    kubectl("create", "rolebinding", "reader", *role)
    done = eventually(
        lambda: why(path, "pod", f"{place}/ledger"), is_right=lambda done: done.returncode == 0
    )
    plural = "podschedulingpolicies.kupid.gardener.cloud"
    assert (
        "unsure  cluster policies could not be read: missing permission to list cluster"
        in done.stdout
    )
    assert f"missing permission to list {plural} in namespace {place}" in done.stdout
    assert done.stderr == ""
