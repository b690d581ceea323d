"""``harbourmaster uninstall`` step by step, against an API server that misbehaves on demand."""

from __future__ import annotations

import argparse
import json

import pytest

from harbourmaster.api.resources import (
    API_SERVICES,
    APPLICATIONS,
    APPS,
    CLUSTER_POLICIES,
    CLUSTERS,
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    TASK_DEFINITIONS,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.cli.installed import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_WIDE,
    CONTROLLER,
    DEFAULT_NAMESPACE,
    HELD_BY_USERS,
    IN_NAMESPACE,
    KEPTN_ADDRESS,
    METRICS,
    WEBHOOK,
)
from harbourmaster.cli.uninstall import commands, undoing
from harbourmaster.cli.uninstall import run as uninstall
from harbourmaster.cli.uninstall.releasing import MIRRORED
from harbourmaster.cli.uninstall.removal import Options
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import REMOVED_KEY as RELEASED
from harbourmaster.kube.errors import UnreachableError
from harbourmaster.rescheduling.model import RESERVATIONS
from helpers.fake_api import FakeApi
from helpers.patience import PATIENCE

OURS = {"app.kubernetes.io/name": "harbourmaster"}
OPTIONS = Options(DEFAULT_NAMESPACE, patience=PATIENCE)
POLICY_CRD = "clusterpodschedulingpolicies.kupid.gardener.cloud"


@pytest.fixture(autouse=True)
def _fields_unknown_to_the_fake(monkeypatch):
    monkeypatch.setattr(undoing, "_WAITING", "")


@pytest.fixture
async def api():
    async with FakeApi() as found:
        for resource in (*IN_NAMESPACE, *CLUSTER_WIDE, *HELD_BY_USERS):
            found.define(resource)
        yield found


@pytest.fixture
async def client(api):
    async with api.client() as found:
        yield found


def put(api, resource, name, *, namespace=DEFAULT_NAMESPACE, labels=OURS, **rest):
    metadata = {"name": name, "labels": labels, **rest.pop("metadata", {})}
    if resource.namespaced:
        metadata["namespace"] = namespace
    return api.put(resource, {"metadata": metadata, **rest})


def calls(namespace=DEFAULT_NAMESPACE, service=WEBHOOK, name="pods.harbourmaster.dev"):
    reference = {"namespace": namespace, "name": service}
    return {"name": name, "clientConfig": {"service": reference}}


def install(api):
    """As much as shows the order."""
    put(api, NAMESPACES, DEFAULT_NAMESPACE)
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        put(api, resource, "harbourmaster", labels={}, webhooks=[calls()])
    put(api, DEPLOYMENTS, WEBHOOK)
    put(
        api,
        DEPLOYMENTS,
        CONTROLLER,
        labels={**OURS, "app.kubernetes.io/component": "controller"},
    )
    put(api, SERVICES, WEBHOOK)
    put(api, SECRETS, "harbourmaster-webhook-cert", labels={})
    put(api, LEASES, CONTROLLER, labels={}, spec={"holderIdentity": ""})
    put(api, CLUSTER_ROLES, CONTROLLER)
    account = {"kind": "ServiceAccount", "name": CONTROLLER, "namespace": DEFAULT_NAMESPACE}
    put(api, CLUSTER_ROLE_BINDINGS, CONTROLLER, subjects=[account])
    group = {"group": "kupid.gardener.cloud"}
    put(api, DEFINITIONS, POLICY_CRD, spec=group)
    put(api, CLUSTER_POLICIES, "ssd", labels={})


def names(api, resource):
    return [name for _, name in api.objects.all(resource)]


async def run(client, **options):
    told = []
    options = Options(**{"namespace": DEFAULT_NAMESPACE, "patience": 0.5, **options})
    code = await uninstall.uninstall(client, options, told.append)
    return code, told


async def done(client, code=0, **options):
    """What a run says that ends with this code."""
    found, told = await run(client, **options)
    assert found == code
    return told


async def test_the_order(api, client):
    install(api)
    code, told = await run(client)
    assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
    deleted = [seen.path.rpartition("/")[0].rpartition("/")[2] for seen in api.seen("delete")]
    assert deleted == [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "clusterrolebindings",
        "deployments",
        "deployments",
        "services",
        "secrets",
        "leases",
        "clusterroles",
        "namespaces",
    ]
    assert names(api, CLUSTER_POLICIES) == ["ssd"]
    assert "definitions: kept 1, with 1 policy; --delete-crds deletes them all" in told


async def test_what_leads_to_us_goes_before_what_it_leads_to(api, client):
    install(api)
    api.define(API_SERVICES)
    put(api, SERVICES, METRICS)
    for name, namespace in (
        ("v1beta1.custom.metrics.k8s.io", DEFAULT_NAMESPACE),
        ("v1beta2.custom.metrics.k8s.io", DEFAULT_NAMESPACE),
        ("v1beta1.external.metrics.k8s.io", "keda"),
    ):
        service = {"namespace": namespace, "name": METRICS}
        put(api, API_SERVICES, name, labels={}, spec={"service": service})
    # Built into the API server.
    put(api, API_SERVICES, "v1.apps", labels={}, spec={})
    code, told = await run(client)
    assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
    assert sorted(names(api, API_SERVICES)) == ["v1.apps", "v1beta1.external.metrics.k8s.io"]
    deleted = [seen.path for seen in api.seen("delete")]
    first = min(at for at, path in enumerate(deleted) if "/services/" in path)
    assert all(first > at for at, path in enumerate(deleted) if "/apiservices/" in path)


@pytest.mark.parametrize(("labels", "stays"), [(OURS, False), ({"app": "keptn"}, True)])
async def test_keptn_s_address_goes_where_it_is_ours(api, client, labels, stays):
    install(api)
    namespace, name = KEPTN_ADDRESS
    put(api, SERVICES, name, labels=labels, namespace=namespace)
    await done(client)
    assert ((namespace, name) in api.objects.all(SERVICES)) is stays


async def test_nothing_installed_is_nothing_left(client):
    assert (await run(client))[0] == 0


async def test_a_dry_run_only_reads(api, client):
    install(api)
    put(api, LEASES, CONTROLLER, labels={}, spec={"holderIdentity": "pod-1_x"})
    told = await done(client, dry_run=True, delete_definitions=True)
    assert {seen.method for seen in api.requests} == {"GET"}
    assert f"namespace: would delete {DEFAULT_NAMESPACE}" in told
    assert f"definitions: would delete {POLICY_CRD}" in told
    assert any("would take the Lease from pod-1_x" in line for line in told)


async def test_definitions_go_with_the_flag(api, client):
    install(api)
    told = await done(client, delete_definitions=True)
    assert f"definitions: deleted {POLICY_CRD}" in told
    assert names(api, DEFINITIONS) == []


async def test_definitions_that_kupid_uses_stay(api, client):
    install(api)
    kupid = calls("kupid", "gardener-extension-kupid", "mutate.kupid.gardener.cloud")
    put(api, MUTATING_WEBHOOKS, "gardener-extension-kupid", labels={}, webhooks=[kupid])
    told = await done(client, delete_definitions=True, code=1)
    assert f"left: definition {POLICY_CRD}: kupid is registered and uses it" in told
    assert names(api, DEFINITIONS) == [POLICY_CRD]
    assert names(api, MUTATING_WEBHOOKS) == ["gardener-extension-kupid"]


APPS_CRD = f"{APPS.plural}.{APPS.group}"


def converted(api, service, namespace=DEFAULT_NAMESPACE):
    client = {"service": {"name": service, "namespace": namespace}, "caBundle": "eA=="}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client}}
    spec = {"group": APPS.group, "conversion": conversion}
    put(api, DEFINITIONS, APPS_CRD, labels={}, spec=spec)


async def test_kept_definitions_are_read_without_us(api, client):
    install(api)
    converted(api, WEBHOOK)
    put(api, APPS, "ledger", namespace="shop", labels={})
    told = await done(client)
    assert f"conversions: turned off {APPS_CRD}" in told
    assert api.get(DEFINITIONS, APPS_CRD)["spec"]["conversion"] == {"strategy": "None"}
    kept = "1 policy and 1 object of Keptn's kinds"
    assert f"definitions: kept 2, with {kept}; --delete-crds deletes them all" in told
    assert names(api, APPS) == ["ledger"]


async def test_conversions_go_before_the_webhook_that_makes_them(api, client):
    install(api)
    converted(api, WEBHOOK)
    await run(client)
    paths = [seen.path for seen in api.seen("*", "customresourcedefinitions/|deployments/harbour")]
    assert paths.index(next(path for path in paths if path.endswith(APPS_CRD))) < paths.index(
        next(path for path in paths if path.endswith(WEBHOOK))
    )


async def test_conversions_of_others_stay(api, client):
    converted(api, "lifecycle-webhook-service", "keptn-system")
    told = await done(client)
    assert not any(line.startswith("conversions") for line in told)
    assert api.get(DEFINITIONS, APPS_CRD)["spec"]["conversion"]["strategy"] == "Webhook"


async def test_a_dry_run_turns_no_conversion_off(api, client):
    converted(api, WEBHOOK)
    _, told = await run(client, dry_run=True)
    assert f"conversions: would turn off {APPS_CRD}" in told
    assert {seen.method for seen in api.requests} == {"GET"}


async def test_definitions_that_keptn_uses_stay(api, client):
    install(api)
    converted(api, WEBHOOK)
    entry = calls("keptn-system", "metrics-webhook-service", "vkeptnmetric.kb.io")
    put(api, VALIDATING_WEBHOOKS, "metrics", labels={}, webhooks=[entry])
    told = await done(client, delete_definitions=True, code=1)
    assert f"left: definition {APPS_CRD}: Keptn is registered and uses it" in told
    assert names(api, DEFINITIONS) == [APPS_CRD]


async def test_shared_definitions_of_users_keep_our_namespace(api, client):
    install(api)
    put(api, TASK_DEFINITIONS, "shared", labels={})
    told = await done(client, code=1)
    kept = f"namespace {DEFAULT_NAMESPACE}: it holds KeptnTaskDefinition shared"
    assert f"left: {kept}" in told


async def test_what_is_forbidden_is_one_line_and_the_rest_goes(api, client):
    install(api)
    api.forbid("delete", SERVICES)
    api.forbid("list", NAMESPACES)
    told = await done(client, code=1)
    (line,) = [line for line in told if line.startswith("services: 1 failed")]
    assert 'cannot delete resource "services"' in line
    assert any(line.startswith("labels: failed: list /api/v1/namespaces: 403") for line in told)
    assert names(api, DEPLOYMENTS) == []
    assert "left: Service harbourmaster-webhook" in told
    # And once it is allowed, the same command does the rest.
    api.heal()
    await done(client)


OURS_ON_NODES = {"key": "CriticalAddonsOnly", "value": "resched.01234567", "effect": "NoSchedule"}
OTHERS_ON_NODES = [
    {"key": "CriticalAddonsOnly", "value": "true", "effect": "NoExecute"},
    {"key": "example.com/other", "value": "resched", "effect": "NoSchedule"},
]


def kept_node(api, name, taints, **annotations):
    spec = {"spec": {"taints": taints}} if taints else {"spec": {}}
    metadata = {"annotations": {"example.com/own": "yes", **annotations}}
    return put(api, NODES, name, labels={}, metadata=metadata, **spec)


def keep_nodes(api):
    """Nodes with what a rescheduler left, and one that is kept by somebody else."""
    first, second = OTHERS_ON_NODES
    kept_node(api, "n1", [first, OURS_ON_NODES, second], **{RESERVATIONS: "[]"})
    kept_node(api, "n2", [{**OURS_ON_NODES, "key": "example.com/former"}])
    kept_node(api, "n3", [first], **{RESERVATIONS: "no JSON"})
    kept_node(api, "n4", OTHERS_ON_NODES)


def on_nodes(api):
    found = (api.get(NODES, name) for name in ("n1", "n2", "n3", "n4"))
    return [
        (each["spec"].get("taints", []), sorted(each["metadata"]["annotations"])) for each in found
    ]


async def test_nodes_that_were_kept_for_add_ons_are_free(api, client):
    install(api)
    keep_nodes(api)
    untouched = api.get(NODES, "n4")
    code, told = await run(client, dry_run=True)
    assert (code, "nodes kept for critical add-ons: would free 3 nodes" in told) == (0, True)
    assert not api.seen("patch", "/nodes/")
    # Another writer is faster once.
    conflict = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid"}
    body = json.dumps({**conflict, "details": {}}).encode()
    api.fail_next("patch", "/nodes/n1$", status=422, body=body)
    told = await done(client)
    assert "nodes kept for critical add-ons: freed 3 nodes" in told
    own = ["example.com/own"]
    first = OTHERS_ON_NODES[0]
    assert on_nodes(api) == [
        (OTHERS_ON_NODES, own),
        ([], own),
        ([first], own),
        (OTHERS_ON_NODES, own),
    ]
    assert api.get(NODES, "n4") == untouched
    _, told = await run(client)
    assert not [line for line in told if line.startswith("nodes kept")]


async def test_nodes_that_cannot_be_freed_are_reported(api, client):
    install(api)
    keep_nodes(api)
    api.forbid("patch", NODES)
    told = await done(client, code=1)
    (line,) = [line for line in told if line.startswith("left: reservations: 3 failed")]
    assert "nodes" in line


async def test_a_server_that_goes_away_ends_it(api, client):
    install(api)
    api.fail_next("delete", "deployments", kind="reset", count=None)
    api.fail_next("get", "version", kind="reset", count=None)
    told = []
    with pytest.raises(UnreachableError):
        await uninstall.uninstall(client, OPTIONS, told.append)
    assert told[-1].startswith("controller: failed: delete ")


async def test_others_in_the_namespace_keep_it(api, client):
    install(api)
    put(api, SECRETS, "token-of-the-team", labels={})
    put(api, SECRETS, "kube-root-ca.crt", labels={})
    told = await done(client, code=1)
    assert f"left: namespace {DEFAULT_NAMESPACE}: it holds Secret token-of-the-team" in told
    assert names(api, NAMESPACES) == [DEFAULT_NAMESPACE]
    assert names(api, SECRETS) == ["token-of-the-team", "kube-root-ca.crt"]


@pytest.mark.parametrize("name", ["kube-system", "shop"])
async def test_a_namespace_of_others_stays_with_its_content(api, client, name):
    put(api, NAMESPACES, name, labels={})
    put(api, SECRETS, "theirs", namespace=name, labels={})
    put(api, SECRETS, "harbourmaster-webhook-cert", namespace=name, labels={})
    told = await done(client, namespace=name)
    assert f"namespace: kept {name}, which was not created for Harbourmaster" in told
    assert names(api, SECRETS) == ["theirs"]


@pytest.mark.parametrize("name", ["default", "kube-system"])
async def test_no_label_makes_a_namespace_of_the_cluster_ours(api, client, name):
    put(api, NAMESPACES, name, labels=OURS)
    _, told = await run(client, namespace=name)
    assert f"namespace: kept {name}, which was not created for Harbourmaster" in told
    assert names(api, NAMESPACES) == [name]


async def test_a_namespace_that_does_not_end_is_left(api, client):
    put(api, NAMESPACES, DEFAULT_NAMESPACE, metadata={"finalizers": ["example.com/slow"]})
    told = await done(client, patience=0.05, code=1)
    assert told[-1].startswith(f"left: namespace {DEFAULT_NAMESPACE}: still terminating")


async def test_a_configuration_shared_with_others_is_left_to_them(api, client):
    other = calls("shop", "quota", "quota.example.com")
    put(api, MUTATING_WEBHOOKS, "shared", labels={}, webhooks=[calls(), other])
    put(api, MUTATING_WEBHOOKS, "by-hand", labels={}, webhooks=[calls()])
    put(api, MUTATING_WEBHOOKS, "theirs", labels={}, webhooks=[other])
    told = await done(client, code=1)
    assert names(api, MUTATING_WEBHOOKS) == ["shared", "theirs"]
    (left,) = [line for line in told if line.startswith("left:")]
    assert "shared is not ours but calls our Service in pods.harbourmaster.dev" in left


async def test_on_a_gardener_seed_our_service_has_another_name(api, client):
    put(api, NAMESPACES, "gardener-extension-kupid")
    put(api, SERVICES, "gardener-extension-kupid", namespace="gardener-extension-kupid")
    entry = calls("gardener-extension-kupid", "gardener-extension-kupid")
    put(api, MUTATING_WEBHOOKS, "by-hand", labels={}, webhooks=[entry])
    await done(client, namespace="gardener-extension-kupid")
    for resource in (MUTATING_WEBHOOKS, SERVICES, NAMESPACES):
        assert names(api, resource) == []


def pod(api, name, *gates, annotations=None):
    spec = {"schedulingGates": [{"name": gate} for gate in gates]}
    return api.put(
        PODS,
        {
            "metadata": {"name": name, "namespace": "shop", "annotations": annotations or {}},
            "spec": spec,
        },
    )


def gates(api, name):
    found = api.get(PODS, name, "shop")
    return [gate["name"] for gate in found["spec"].get("schedulingGates", [])]


async def test_gates_go_from_every_page_and_others_stay(api, client):
    for number in range(600):
        pod(api, f"ledger-{number}", "example.com/quota", GATE)
    told = await done(client)
    assert "gates: released 600 pods" in told
    assert all(gates(api, name) == ["example.com/quota"] for name in names(api, PODS))
    assert api.get(PODS, "ledger-7", "shop")["metadata"]["annotations"] == {RELEASED: "true"}


async def test_a_pod_that_changes_meanwhile_is_looked_at_again(api, client):
    pod(api, "moved", "example.com/quota", GATE)
    pod(api, "gone", GATE)
    listed = client.list

    async def list_then_change(resource, *args, **options):
        page = await listed(resource, *args, **options)
        if resource is PODS and args == (None,) and "gone" in names(api, PODS):
            pod(api, "moved", GATE)
            api.remove(PODS, "gone", "shop")
        return page

    client.list = list_then_change
    await done(client)
    assert gates(api, "moved") == []


async def test_gates_are_left_to_a_registered_keptn(api, client):
    entry = calls("keptn-system", "lifecycle-webhook-service", "mpod.keptn.sh")
    put(api, MUTATING_WEBHOOKS, "keptn", labels={}, webhooks=[entry])
    pod(api, "ledger", GATE)
    told = await done(client)
    assert "gates: left to Keptn, whose webhook is registered" in told
    assert gates(api, "ledger") == [GATE]


WORKLOAD = {"keptn.sh/workload": "ledger", "keptn.sh/version": "3"}
MADE = {"kind": "ReplicaSet", "name": "ledger-1", "controller": True}


def scheduled(api, name, *, annotations=WORKLOAD, owners=(MADE,), **spec):
    """A pod in our scheduler, unless the spec says otherwise."""
    metadata = {"name": name, "namespace": "shop", "annotations": annotations}
    metadata["ownerReferences"] = list(owners)
    return api.put(
        PODS, {"metadata": metadata, "spec": {"schedulerName": "keptn-scheduler", **spec}}
    )


async def test_pods_in_the_scheduler_are_deleted_if_their_owner_recreates_them(api, client):
    scheduled(api, "ledger-1")
    scheduled(api, "provisional", annotations={"gates.harbourmaster.dev/parent": "unresolved"})
    scheduled(api, "bound", nodeName="n1")
    scheduled(api, "elsewhere", schedulerName="default-scheduler")
    code, told = await run(client)
    assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
    assert "pods in keptn-scheduler: deleted 2 pods, for their owners to recreate" in told
    assert sorted(names(api, PODS)) == ["bound", "elsewhere"]
    code, told = await run(client)
    assert (code, [line for line in told if "keptn-scheduler" in line]) == (0, [])


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"owners": ()}, id="nobody makes it anew"),
        pytest.param({"owners": ({**MADE, "controller": False},)}, id="nor who only has it"),
        pytest.param({"owners": ({**MADE, "kind": "Job"},)}, id="one that counts it as failed"),
        pytest.param({"annotations": {}}, id="it names the scheduler itself"),
    ],
)
async def test_others_in_the_scheduler_stay_and_are_named(api, client, given):
    scheduled(api, "lonely", **given)
    told = await done(client, code=1)
    assert "pods in keptn-scheduler: 1 pod that no owner recreates: shop/lonely" in told
    assert told[-1] == (
        "left: 1 pod in keptn-scheduler, which gets no answers now: shop/lonely: delete them, and "
        "remove schedulerName keptn-scheduler from what creates them"
    )
    assert names(api, PODS) == ["lonely"]


async def test_a_pod_that_returns_to_the_scheduler_is_named(api, client):
    scheduled(api, "ledger-1")
    deleted = client.delete

    async def make_anew(resource, name, *args, **options):
        await deleted(resource, name, *args, **options)
        if resource is PODS:
            scheduled(api, "ledger-2")

    client.delete = make_anew
    told = await done(client, code=1)
    assert told[-1].startswith("left: 1 pod in keptn-scheduler")
    assert "shop/ledger-2" in told[-1]


async def test_a_dry_run_tells_of_both_and_another_scheduler_can_be_named(api, client):
    scheduled(api, "ledger-1")
    scheduled(api, "lonely", owners=())
    told = await done(client, dry_run=True)
    assert (
        "pods in keptn-scheduler: would delete 1 pod, for their owners to recreate; "
        "1 pod that no owner recreates: shop/lonely"
    ) in told
    for other in ("packer", ""):
        code, told = await run(client, scheduler=other)
        assert (code, told[-1]) == (0, "Harbourmaster is uninstalled.")
        assert sorted(names(api, PODS)) == ["ledger-1", "lonely"]


async def test_the_scheduler_is_left_to_a_registered_keptn(api, client):
    entry = calls("keptn-system", "lifecycle-webhook-service", "mpod.keptn.sh")
    put(api, MUTATING_WEBHOOKS, "keptn", labels={}, webhooks=[entry])
    scheduled(api, "ledger-1")
    told = await done(client)
    assert "pods in keptn-scheduler: left to Keptn, whose webhook is registered" in told
    assert names(api, PODS) == ["ledger-1"]


async def test_only_our_finalizers_and_labels_go(api, client):
    finalizers = ["example.com/a", "placement.harbourmaster.dev/b", "harbourmaster.dev/c"]
    put(api, CLUSTER_POLICIES, "ssd", labels={"team": "a"}, metadata={"finalizers": finalizers})
    put(api, NAMESPACES, "shop", labels={MIRRORED: "true", "team": "a"})
    told = await done(client)
    assert api.get(CLUSTER_POLICIES, "ssd")["metadata"]["finalizers"] == ["example.com/a"]
    assert api.get(NAMESPACES, "shop")["metadata"]["labels"] == {"team": "a"}
    assert "labels: cleared 1 namespace" in told


async def test_placement_lets_its_objects_go_and_tells_what_stays_on_members(api, client):
    held = {"finalizers": ["placement.harbourmaster.dev/deployed", "example.com/a"]}
    objects = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}]
    status = {
        "inventory": [{"cluster": "one", "objects": objects}],
        "pendingCleanup": [{"cluster": "two", "objects": objects}],
    }
    put(api, APPLICATIONS, "web", namespace="shop", metadata=held, status=status)
    put(api, APPLICATIONS, "idle", namespace="shop")
    put(api, CLUSTERS, "one", namespace="shop", metadata=held)
    told = await done(client)
    for resource, name in ((APPLICATIONS, "web"), (CLUSTERS, "one")):
        assert api.get(resource, name, "shop")["metadata"]["finalizers"] == ["example.com/a"]
    assert "finalizers of applications: freed 1 object" in told
    stays = "objects on member clusters: those of 1 application stay on shop/one, shop/two"
    assert stays in told
    assert api.get(APPLICATIONS, "web", "shop")["status"] == status


async def test_an_application_that_cannot_be_read_is_named_and_hides_no_other(api, client, capsys):
    for name, inventory in (("broken", "broken"), ("web", [{"cluster": "one"}])):
        put(api, APPLICATIONS, name, namespace="shop", status={"inventory": inventory})
    told = await done(client)
    assert "objects on member clusters: those of 1 application stay on shop/one" in told
    err = capsys.readouterr().err
    assert "Application shop/broken is skipped, because it cannot be read: " in err


async def test_our_namespace_stays_where_it_holds_clusters(api, client):
    put(api, NAMESPACES, DEFAULT_NAMESPACE)
    put(api, CLUSTERS, "one", labels={})
    told = await done(client, code=1)
    assert f"left: namespace {DEFAULT_NAMESPACE}: it holds Cluster one" in told


async def test_roles_of_others_stay_whatever_their_labels(api, client):
    put(api, CLUSTER_ROLES, "team-role")
    put(api, CLUSTER_ROLES, "harbourmaster-of-the-team", labels={})
    put(api, CLUSTER_ROLES, "harbourmaster-policy-editor")
    await done(client)
    assert names(api, CLUSTER_ROLES) == ["team-role", "harbourmaster-of-the-team"]


async def test_the_lease_is_taken_and_a_configuration_that_returns_goes_again(
    api, client, monkeypatch
):
    monkeypatch.setattr("harbourmaster.cli.uninstall.stopping.QUIET_SECONDS", 0.2)
    install(api)
    put(api, LEASES, CONTROLLER, labels={}, spec={"holderIdentity": "elsewhere_x"})
    created = client.patch

    async def restore_on_takeover(resource, name, *args, **options):
        answer = await created(resource, name, *args, **options)
        if resource is LEASES:
            lease = json.loads(answer)["spec"]
            assert lease["holderIdentity"] == "harbourmaster uninstall"
            assert lease["leaseDurationSeconds"] == 600
            put(api, MUTATING_WEBHOOKS, "harbourmaster", labels={}, webhooks=[calls()])
        return answer

    client.patch = restore_on_takeover
    told = await done(client)
    (again,) = [line for line in told if line.startswith("webhook configurations again")]
    assert again.endswith("MutatingWebhookConfiguration harbourmaster, restored meanwhile")


def parsed(*given):
    parser = argparse.ArgumentParser()
    commands.add_parser(parser.add_subparsers())
    return parser.parse_args(["uninstall", *given])


def test_the_arguments_name_the_function_and_bad_ones_are_refused(capsys):
    arguments = parsed("--kubeconfig=x", "--yes")
    assert arguments.command == "harbourmaster.cli.uninstall.run:run"
    assert (arguments.namespace, arguments.delete_crds) == (DEFAULT_NAMESPACE, False)
    assert arguments.scheduler == "keptn-scheduler"
    for bad in ("0", "nan", "soon"):
        with pytest.raises(SystemExit):
            parsed(f"--timeout={bad}")
    assert "seconds" in capsys.readouterr().err.lower()
