"""A preview of a real cluster says what then happens, and reads no more than the caller may."""

from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.cli.main import main
from harbourmaster.playground.control_plane import ControlPlane
from helpers import rights
from helpers.cluster import eventually, selecting
from helpers.manifests import DEPLOY
from helpers.objects import cluster_policy
from helpers.patience import WAIT
from helpers.preview_cluster import deployment

BERTH = "example.com/preview"


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory):
    """One of its own, for policies that other tests left would count, too."""
    with ControlPlane(tmp_path_factory.mktemp("preview")) as plane:
        plane.kubectl("apply", "--server-side", f"--kustomize={DEPLOY / 'crds'}")
        plane.kubectl("wait", "--for=condition=Established", WAIT, "crd", "--all")
        yield plane


@pytest.fixture
def shop(kubectl, control_plane, namespace):
    """A namespace with a Deployment of two pods that have a node, and one node they could go to."""
    (node,) = control_plane.add_nodes(1, labels={BERTH: "here"})
    made = deployment("web", place=namespace, cpu="10m", nodeSelector={BERTH: "here"})[0]
    del made["metadata"]["uid"]
    made["spec"] |= {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}
    kubectl("create", "-f=-", stdin=json.dumps(made))
    nodes_of = ("get", "pods", f"--namespace={namespace}", "-o=jsonpath={.items[*].spec.nodeName}")
    eventually(
        lambda: kubectl(*nodes_of),
        is_right=lambda answer: answer.stdout.split() == [node, node],
    )
    yield namespace
    kubectl("delete", "deployment", "web", f"--namespace={namespace}", "--wait=false")
    kubectl("delete", "node", node, "--wait=false")


def policy_for(namespace, **spec):
    manifest = cluster_policy(f"preview-{namespace}", **spec)
    manifest["spec"]["namespaceSelector"] = selecting(namespace)
    return manifest


@pytest.fixture
def preview(tmp_path, capsys):
    """Return a function that previews a policy as whoever a kubeconfig names."""

    def start(kubeconfig, policy, *arguments):
        file = tmp_path / "policy.yaml"
        file.write_text(yaml.safe_dump(policy))
        command = ["preview", "-f", str(file), "--cluster", "--kubeconfig", str(kubeconfig)]
        code = main([*command, "-o", "json", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return start


def test_what_would_change_and_who_would_find_no_node(control_plane, kubectl, shop, preview):
    def workloads(answer):
        return [workload for workload in answer["workloads"] if workload["namespace"] == shop]

    here = policy_for(shop, nodeSelector={BERTH: "here"}, tolerations=[{"operator": "Exists"}])
    code, answer, err = preview(control_plane.kubeconfig, here, "--fail-on=unschedulable")
    assert (code, err) == (0, "")
    (workload,) = workloads(answer)
    assert (workload["kind"], workload["name"], workload["pods"]) == ("Deployment", "web", 2)
    assert [change["field"] for change in workload["changes"]] == ["tolerations"]
    assert workload["fit"] == {
        "pods": 2,
        "lost": 0,
        "already": 0,
        "gained": 0,
        "unjudged": 0,
        "reasons": {},
    }

    away = policy_for(shop, nodeSelector={"example.com/disk": "none"})
    code, answer, err = preview(control_plane.kubeconfig, away, "--fail-on=unschedulable")
    assert code == 1
    assert "2 pods would no longer fit any node" in err
    assert workloads(answer)[0]["fit"]["lost"] == 2

    # Once it is there, the same policy is no news.
    kubectl("apply", "-f=-", stdin=json.dumps(away))
    try:
        code, answer, _ = preview(control_plane.kubeconfig, away, "--fail-on=changed")
        assert (code, workloads(answer)) == (0, [])
        assert answer["policies"]["changed"] == []
    finally:
        kubectl("delete", "-f=-", stdin=json.dumps(away))


def test_a_dump_by_kubectl_says_the_same_as_the_cluster(
    control_plane, kubectl, shop, preview, tmp_path, capsys
):
    away = policy_for(shop, nodeSelector={"example.com/disk": "none"})
    _, live, _ = preview(control_plane.kubeconfig, away)
    kinds = "pods,nodes,namespaces,deployments,replicasets"
    dump = tmp_path / "dump.json"
    dump.write_text(kubectl("get", kinds, "--all-namespaces", "-o=json").stdout)
    policy = tmp_path / "policy.yaml"
    assert main(["preview", "-f", str(policy), "--dump", str(dump), "-o", "json"]) == 0
    obj = json.loads(capsys.readouterr().out)
    assert [workload for workload in obj["workloads"] if workload["namespace"] == shop] == [
        workload for workload in live["workloads"] if workload["namespace"] == shop
    ]


def test_without_rights_it_is_one_line(control_plane, kubectl, namespace, preview, tmp_path):
    token = kubectl("create", "token", "default", f"--namespace={namespace}").stdout.strip()
    path = tmp_path / "kubeconfig"
    path.write_text(rights.kubeconfig(control_plane.kubeconfig, token=token))
    code, answer, err = preview(path, policy_for(namespace, nodeSelector={"a": "b"}))
    assert (code, answer) == (2, None)
    assert err.startswith("harbourmaster: no preview: missing permission to read policies: ")
    assert err.count("\n") == 1
