"""``harbourmaster uninstall`` against a real API server, whatever state the installation is in."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.cli.cluster_commands import add_uninstall
from harbourmaster.cli.installed import CONTROLLER, DEFAULT_NAMESPACE, WEBHOOK
from harbourmaster.cli.live.cluster import REQUEST_SECONDS
from harbourmaster.cli.uninstall import run as uninstall
from harbourmaster.cli.uninstall.marks import MIRRORED
from harbourmaster.cli.uninstall.removal import Options, Removal
from harbourmaster.cli.uninstall.run import ControllerStopper
from harbourmaster.gates.gate import GATE, SCHEDULER_NAME
from harbourmaster.gates.metadata import REMOVED_KEY as RELEASED
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection_sources import connect
from harbourmaster.playground.control_plane import ControlPlane
from helpers import rights
from helpers.cluster import bare_pod, eventually, rule, webhook_configuration
from helpers.objects import cluster_policy, policy
from helpers.patience import DROPPED, WAIT
from helpers.processes import Controller
from helpers.schemas import CRDS, definition, keptn_object

pytestmark = pytest.mark.timeout(2 * DROPPED)

DEPLOY = Path(__file__).parents[2] / "deploy/default"
LEASE_SECONDS = 16
# Within that a controller that may do so has restored a configuration.
RESTORED_SECONDS = 5
OPTIONS = Options(DEFAULT_NAMESPACE, patience=DROPPED)
ALL_KINDS = (
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,"
    "clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
)


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """A control plane of this module's own: what is uninstalled here would be missed elsewhere."""
    with ControlPlane(tmp_path_factory.mktemp("uninstall")) as control_plane:
        control_plane.add_nodes(2)
        yield control_plane


@pytest.fixture
def kubectl(plane):
    return plane.kubectl


@pytest.fixture
async def client(plane):
    async with Client(connect(str(plane.kubeconfig)), timeout=REQUEST_SECONDS) as client:
        yield client


def configuration(kind):
    """The controller's configuration in short; its Service has no endpoints."""
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
    others["values"] = [DEFAULT_NAMESPACE, "kube-system"]
    return webhook_configuration(
        kind,
        name="harbourmaster",
        webhook="pods.harbourmaster.dev",
        clientConfig={"service": {"namespace": DEFAULT_NAMESPACE, "name": WEBHOOK}},
        rules=[rule(["pods"])],
        timeoutSeconds=1,
        namespaceSelector={"matchExpressions": [others]},
    )


CONFIGURATIONS = (
    (MUTATING_WEBHOOKS, configuration("Mutating")),
    (VALIDATING_WEBHOOKS, configuration("Validating")),
)


def pod(name, *gates, annotations=None):
    names = [{"name": gate} for gate in gates]
    return bare_pod(name, {"annotations": annotations or {}}, schedulingGates=names)


def refusal(kubectl, namespace):
    """Why the API server refuses pods; it hears of each configuration a moment later."""
    manifest = json.dumps(pod("tried"))
    options = ("--dry-run=server", "-f=-", f"-n={namespace}")
    return kubectl("create", *options, stdin=manifest, check=False).stderr


def list_of(*objects):
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})


API_SERVICES = tuple(f"{version}.custom.metrics.k8s.io" for version in ("v1beta1", "v1beta2"))
SHIPPED = len(list(CRDS.glob("*s.yaml")))


@pytest.fixture
def installation(kubectl):
    """Everything that an installation has, with all that the controller makes at run time."""
    kubectl("apply", f"--kustomize={DEPLOY}")
    kubectl("wait", "--for=condition=Established", WAIT, "crd", "--all")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "harbourmaster-webhook-cert", "namespace": DEFAULT_NAMESPACE},
    }
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": CONTROLLER, "namespace": DEFAULT_NAMESPACE},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    }
    kubectl("apply", "-f=-", stdin=list_of(secret, lease))
    for name in (CONTROLLER, WEBHOOK):
        kubectl("rollout", "status", f"deployment/{name}", f"-n={DEFAULT_NAMESPACE}", WAIT)
    kubectl("apply", "-f=-", stdin=list_of(*(obj for _, obj in CONFIGURATIONS)))
    yield
    # After a failure they would still be there, and namespaces could not be deleted.
    kubectl("delete", "apiservices", "--ignore-not-found", *API_SERVICES)
    kubectl("delete", "crd", "--all", f"--timeout={DROPPED:.0f}s")


@pytest.fixture
def users_namespace(kubectl, request):
    """A user's namespace, annotated for gates and so labelled by the controller."""
    name = "ledger"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, f"{MIRRORED}=true")
    kubectl("annotate", "namespace", name, "keptn.sh/lifecycle-toolkit=enabled")
    kubectl("wait", "--for=create", WAIT, "serviceaccount/default", f"-n={name}")
    yield name
    kubectl("delete", "namespace", name, f"--timeout={DROPPED:.0f}s")


@pytest.fixture
def silenced(kubectl, installation, users_namespace):
    """The installation without webhooks, once the API server asks them no more."""
    for kind in ("mutating", "validating"):
        kubectl("delete", f"{kind}webhookconfiguration", "harbourmaster")
    eventually(lambda: refusal(kubectl, users_namespace), is_right=lambda said: not said)


def ours_in(kubectl):
    """Every object of ours that the cluster still has, but definitions."""
    result = kubectl("get", ALL_KINDS, "-o=name").stdout.split()
    result += kubectl(
        "get",
        "all,secrets,configmaps,leases,roles,rolebindings,serviceaccounts,poddisruptionbudgets",
        f"--namespace={DEFAULT_NAMESPACE}",
        "-o=name",
        check=False,
    ).stdout.split()
    result += kubectl("get", "namespaces", "-o=name").stdout.split()
    return [name for name in result if "harbourmaster" in name]


def arguments(plane, *flags):
    parser = argparse.ArgumentParser()
    add_uninstall(parser)
    given = (f"--kubeconfig={plane.kubeconfig}", "--yes", f"--timeout={DROPPED}")
    return parser.parse_args([*given, *flags])


def test_everything_goes_though_the_webhook_is_dead_and_refuses_all(
    plane, kubectl, users_namespace, installation, capsys
):
    assert "pods.harbourmaster.dev" in eventually(lambda: refusal(kubectl, users_namespace))
    assert uninstall.run(arguments(plane)) == 0
    assert ours_in(kubectl) == []
    eventually(lambda: refusal(kubectl, users_namespace), is_right=lambda said: not said)
    out = capsys.readouterr().out.splitlines()
    first = [line.partition(": deleted")[0] for line in out[:3]]
    assert first == [
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "webhook configurations",
    ]
    assert any(line.startswith(f"definitions: kept {SHIPPED}") for line in out)
    assert out[-1] == "Harbourmaster is uninstalled."
    # Once more: there is nothing to do, and that is well.
    assert uninstall.run(arguments(plane)) == 0


def test_policies_go_only_with_the_flag(plane, kubectl, users_namespace, installation, capsys):
    policies = list_of(
        cluster_policy("ssd", nodeSelector={"disk": "ssd"}),
        policy("ledger", users_namespace, nodeSelector={"disk": "ssd"}),
    )
    kubectl("delete", "validatingwebhookconfiguration", "harbourmaster")
    kubectl("apply", "-f=-", stdin=policies)
    app = keptn_object(definition("keptnapps"), "ledger", users_namespace)
    kubectl("create", "-f=-", stdin=json.dumps(app))
    assert uninstall.run(arguments(plane)) == 0
    kept = f"kept {SHIPPED}, with 2 policies and 1 object of Keptn's kinds"
    assert f"{kept}; --delete-crds deletes them all" in capsys.readouterr().out
    # Nobody converts any more, and every version can be read.
    kubectl("get", "keptnapps.v1alpha3.lifecycle.keptn.sh", "ledger", f"-n={users_namespace}")
    assert kubectl("get", "-f=-", "-o=name", stdin=policies).stdout.split() == [
        "clusterpodschedulingpolicy.kupid.gardener.cloud/ssd",
        "podschedulingpolicy.kupid.gardener.cloud/ledger",
    ]
    assert uninstall.run(arguments(plane, "--delete-crds")) == 0
    assert kubectl("get", "crd", "-o=name").stdout == ""


def test_gated_pods_are_let_go_and_only_our_gate_is_taken(
    plane, kubectl, users_namespace, silenced
):
    pods = [
        pod("ours", GATE, annotations={"gates.harbourmaster.dev/parent": "unresolved", "a": "b"}),
        pod("both", "example.com/quota", GATE, "example.com/other"),
        pod("theirs", "example.com/quota"),
    ]
    kubectl("create", "-f=-", f"-n={users_namespace}", stdin=list_of(*pods))
    assert uninstall.run(arguments(plane)) == 0
    items = json.loads(kubectl("get", "pods", f"-n={users_namespace}", "-o=json").stdout)["items"]
    gates = {
        item["metadata"]["name"]: [gate["name"] for gate in item["spec"].get("schedulingGates", [])]
        for item in items
    }
    assert gates == {
        "ours": [],
        "both": ["example.com/quota", "example.com/other"],
        "theirs": ["example.com/quota"],
    }
    notes = {item["metadata"]["name"]: item["metadata"].get("annotations", {}) for item in items}
    assert notes == {
        "ours": {"a": "b"},
        "both": {},
        "theirs": {},
    }
    labels = json.loads(kubectl("get", "namespace", users_namespace, "-o=json").stdout)
    assert MIRRORED not in labels["metadata"]["labels"]
    assert labels["metadata"]["annotations"]["keptn.sh/lifecycle-toolkit"] == "enabled"


def test_no_object_keeps_a_key_of_ours_but_those_that_users_write(
    plane, kubectl, users_namespace, silenced
):
    users = {"keptn.sh/workload": "ledger", "gates.harbourmaster.dev/mine": "x", "a": "b"}
    written = {
        "gates.harbourmaster.dev/app-type": "single-service",
        "gates.harbourmaster.dev/released": "by-hand",
        "gates.harbourmaster.dev/released-by": "alice",
        "gates.harbourmaster.dev/released-reason": "urgent",
        "gates.harbourmaster.dev/checks": "passed",
        RELEASED: "true",
    }
    pods = [
        pod("runs", annotations={**users, **written}),
        pod("waits", GATE, annotations={**users, "gates.harbourmaster.dev/parent": "unresolved"}),
    ]
    kubectl("create", "-f=-", f"-n={users_namespace}", stdin=list_of(*pods))
    kubectl("wait", "--for=condition=Ready", WAIT, "pod/runs", f"-n={users_namespace}")
    consent = ("configmap", "kube-root-ca.crt", f"-n={users_namespace}")
    kubectl("annotate", *consent, "harbourmaster.dev/allow-from=*")
    assert uninstall.run(arguments(plane, "--delete-crds")) == 0
    assert keys_of_ours(kubectl) == {
        ("ConfigMap", "kube-root-ca.crt", "harbourmaster.dev/allow-from"),
        ("Pod", "runs", "gates.harbourmaster.dev/mine"),
        ("Pod", "waits", "gates.harbourmaster.dev/mine"),
    }
    items = json.loads(kubectl("get", "pods", f"-n={users_namespace}", "-o=json").stdout)["items"]
    assert [users.items() <= item["metadata"]["annotations"].items() for item in items] == [
        True
    ] * 2


def test_beside_keptn_a_pod_keeps_only_the_key_that_keptn_reads(
    plane, kubectl, users_namespace, silenced
):
    parent = {"gates.harbourmaster.dev/parent": "unresolved"}
    released = {"gates.harbourmaster.dev/released": "expired", RELEASED: "true"}
    pods = [pod("waits", GATE, annotations=parent), pod("runs", annotations=released)]
    kubectl("create", "-f=-", f"-n={users_namespace}", stdin=list_of(*pods))
    service = {"namespace": "keptn-system", "name": "lifecycle-webhook-service"}
    keptn = webhook_configuration(
        "Mutating",
        name="keptn",
        webhook="mpod.keptn.sh",
        clientConfig={"service": service},
        rules=[rule(["pods"])],
        failurePolicy="Ignore",
        timeoutSeconds=1,
    )
    kubectl("apply", "-f=-", stdin=json.dumps(keptn))
    try:
        assert uninstall.run(arguments(plane)) == 0
    finally:
        kubectl("delete", "mutatingwebhookconfiguration", "keptn")
    assert {key for key in keys_of_ours(kubectl) if key[0] == "Pod"} == {("Pod", "runs", RELEASED)}
    (waits,) = json.loads(
        kubectl("get", "pod", "waits", f"-n={users_namespace}", "-o=json").stdout
    )["spec"]["schedulingGates"]
    assert waits["name"] == GATE


def keys_of_ours(kubectl):
    """Labels, annotations and finalizers of ours on any object: its kind, its name and the key."""
    kinds = kubectl("api-resources", "--verbs=list", "-o=name").stdout.split()
    everything = json.loads(kubectl("get", ",".join(kinds), "-A", "-o=json").stdout)["items"]
    return {
        (obj["kind"], obj["metadata"]["name"], key)
        for obj in everything
        for part in ("labels", "annotations", "finalizers")
        for key in obj["metadata"].get(part, ())
        if "harbourmaster.dev/" in key or key == RELEASED
    }


def test_pods_in_the_scheduler_are_made_anew_by_their_owner_and_others_named(
    plane, kubectl, users_namespace, silenced, capsys
):
    labels = {"example.com/app": "ledger"}
    tracked = {"keptn.sh/workload": "ledger", "keptn.sh/version": "3"}
    waiting = [pod(name, annotations=tracked) for name in ("ours", "lonely")]
    for obj in waiting:
        obj["spec"]["schedulerName"] = SCHEDULER_NAME
    waiting[0]["metadata"]["labels"] = labels
    # It adopts the one that is there already, as admission would have changed it.
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "ledger"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": tracked},
                "spec": pod("x")["spec"],
            },
        },
    }
    kubectl("create", "-f=-", f"-n={users_namespace}", stdin=list_of(*waiting))
    kubectl("create", "-f=-", f"-n={users_namespace}", stdin=list_of(owner))
    adopted = "--for=jsonpath={.metadata.ownerReferences[0].name}=ledger"
    kubectl("wait", adopted, WAIT, "pod/ours", f"-n={users_namespace}")
    assert uninstall.run(arguments(plane, "--dry-run")) == 0
    would = f"pods in {SCHEDULER_NAME}: would delete 1 pod, for their owners to recreate; 1 pod "
    assert f"{would}that no owner recreates: {users_namespace}/lonely" in capsys.readouterr().out
    assert uninstall.run(arguments(plane)) == 1
    out = capsys.readouterr().out.splitlines()
    left = f"left: 1 pod in {SCHEDULER_NAME}, which gets no answers now: {users_namespace}/lonely"
    assert [line.startswith(left) for line in out if line.startswith("left:")] == [True]
    assert ours_in(kubectl) == []
    kubectl(
        "wait", "--for=condition=Ready", WAIT, "pod", "-l=example.com/app", f"-n={users_namespace}"
    )
    items = json.loads(kubectl("get", "pods", f"-n={users_namespace}", "-o=json").stdout)["items"]
    schedulers = {
        item["metadata"]["generateName"]: item["spec"]["schedulerName"]
        for item in items
        if "generateName" in item["metadata"]
    }
    assert schedulers == {"ledger-": "default-scheduler"}
    kubectl("delete", "pod", "lonely", f"-n={users_namespace}")
    assert uninstall.run(arguments(plane)) == 0


async def test_a_living_controller_outside_of_the_cluster_restores_nothing(
    plane, client, kubectl, installation, capsys
):
    # With every right, so that only the Lease can stop it.
    controller = await controller_at_work(kubectl, plane.kubeconfig)
    try:
        code = await uninstall.uninstall(client, OPTIONS)
        said = capsys.readouterr().out
        assert code == 0, said
        assert "took the Lease from" in said
        assert ours_in(kubectl) == []
        # The controller does not restart either once its Lease would have expired.
        await nothing_returns(client, LEASE_SECONDS)
    finally:
        controller.stop()


async def test_a_living_controller_that_keeps_its_lease_loses_its_rights(
    plane, client, kubectl, installation, tmp_path, monkeypatch
):
    async def none(_self):
        return ""

    monkeypatch.setattr(ControllerStopper, "_take_lease", none)
    controller = await controller_at_work(kubectl, write_kubeconfig(plane, tmp_path / "kubeconfig"))
    try:
        removal = Removal(client, OPTIONS)
        await ControllerStopper(removal).stop()
        await removal.delete_configurations()
        await nothing_returns(client, RESTORED_SECONDS)
    finally:
        controller.stop()
    assert await uninstall.uninstall(client, OPTIONS) == 0


async def controller_at_work(kubectl, kubeconfig):
    """A controller process that has the configurations as it wants them."""
    controller = Controller(kubeconfig, DEFAULT_NAMESPACE)
    bundle = "--for=jsonpath={.webhooks[0].clientConfig.caBundle}"
    for resource, _ in CONFIGURATIONS:
        kubectl("wait", f"{resource.plural}/harbourmaster", bundle, WAIT)
    return controller


async def nothing_returns(client, seconds):
    """Fail if a configuration appears meanwhile."""
    page = await client.list(MUTATING_WEBHOOKS)
    assert page.items == ()
    events = client.watch(
        MUTATING_WEBHOOKS,
        resource_version=page.resource_version,
        timeout_seconds=seconds,
        idle_timeout=2 * seconds,
        bookmarks=False,
    )
    async for event in events:
        pytest.fail(f"{event.type} {bytes(event.object)}")


def write_kubeconfig(plane, path):
    """A kubeconfig of the controller's ServiceAccount, written to ``path``."""
    token = plane.kubectl("create", "token", CONTROLLER, f"-n={DEFAULT_NAMESPACE}").stdout.strip()
    path.write_text(rights.kubeconfig(plane.kubeconfig, token=token))
    return path
