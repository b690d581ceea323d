"""Definitions, the namespace and nodes: what of them uninstall keeps, deletes or frees."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import (
    APPS,
    CLUSTERS,
    DEFINITIONS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    SECRETS,
    TASK_DEFINITIONS,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.cli.installed import DEFAULT_NAMESPACE, WEBHOOK
from harbourmaster.rescheduling.model import RESERVATIONS
from helpers.small_installation import (
    OURS,
    POLICY_CRD,
    assert_uninstalled,
    calls,
    install,
    names,
    put,
    run,
)


async def test_definitions_go_with_the_flag(api, client):
    install(api)
    told = await assert_uninstalled(client, delete_definitions=True)
    assert f"definitions: deleted {POLICY_CRD}" in told
    assert names(api, DEFINITIONS) == []


async def test_definitions_that_kupid_uses_stay(api, client):
    install(api)
    kupid = calls("kupid", "gardener-extension-kupid", "mutate.kupid.gardener.cloud")
    put(api, MUTATING_WEBHOOKS, "gardener-extension-kupid", labels={}, webhooks=[kupid])
    told = await assert_uninstalled(client, delete_definitions=True, code=1)
    assert f"left: definition {POLICY_CRD}: kupid is registered and uses it" in told
    assert names(api, DEFINITIONS) == [POLICY_CRD]
    assert names(api, MUTATING_WEBHOOKS) == ["gardener-extension-kupid"]


APPS_CRD = f"{APPS.plural}.{APPS.group}"


def put_converted(api, service, namespace=DEFAULT_NAMESPACE):
    client = {"service": {"name": service, "namespace": namespace}, "caBundle": "eA=="}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client}}
    spec = {"group": APPS.group, "conversion": conversion}
    put(api, DEFINITIONS, APPS_CRD, labels={}, spec=spec)


async def test_kept_definitions_are_read_without_us(api, client):
    install(api)
    put_converted(api, WEBHOOK)
    put(api, APPS, "ledger", namespace="shop", labels={})
    told = await assert_uninstalled(client)
    assert f"conversions: turned off {APPS_CRD}" in told
    assert api.get(DEFINITIONS, APPS_CRD)["spec"]["conversion"] == {"strategy": "None"}
    kept = "1 policy and 1 object of Keptn's kinds"
    assert f"definitions: kept 2, with {kept}; --delete-crds deletes them all" in told
    assert names(api, APPS) == ["ledger"]


async def test_conversions_go_before_the_webhook_that_makes_them(api, client):
    install(api)
    put_converted(api, WEBHOOK)
    await run(client)
    paths = [seen.path for seen in api.seen("*", "customresourcedefinitions/|deployments/harbour")]
    assert paths.index(next(path for path in paths if path.endswith(APPS_CRD))) < paths.index(
        next(path for path in paths if path.endswith(WEBHOOK))
    )


async def test_conversions_of_others_stay(api, client):
    put_converted(api, "lifecycle-webhook-service", "keptn-system")
    told = await assert_uninstalled(client)
    assert not any(line.startswith("conversions") for line in told)
    assert api.get(DEFINITIONS, APPS_CRD)["spec"]["conversion"]["strategy"] == "Webhook"


async def test_a_dry_run_turns_no_conversion_off(api, client):
    put_converted(api, WEBHOOK)
    _, told = await run(client, dry_run=True)
    assert f"conversions: would turn off {APPS_CRD}" in told
    assert {seen.method for seen in api.requests} == {"GET"}


async def test_definitions_that_keptn_uses_stay(api, client):
    install(api)
    put_converted(api, WEBHOOK)
    entry = calls("keptn-system", "metrics-webhook-service", "vkeptnmetric.kb.io")
    put(api, VALIDATING_WEBHOOKS, "metrics", labels={}, webhooks=[entry])
    told = await assert_uninstalled(client, delete_definitions=True, code=1)
    assert f"left: definition {APPS_CRD}: Keptn is registered and uses it" in told
    assert names(api, DEFINITIONS) == [APPS_CRD]


async def test_shared_definitions_of_users_keep_our_namespace(api, client):
    install(api)
    put(api, TASK_DEFINITIONS, "shared", labels={})
    told = await assert_uninstalled(client, code=1)
    kept = f"namespace {DEFAULT_NAMESPACE}: it holds KeptnTaskDefinition shared"
    assert f"left: {kept}" in told


async def test_others_in_the_namespace_keep_it(api, client):
    install(api)
    put(api, SECRETS, "token-of-the-team", labels={})
    put(api, SECRETS, "kube-root-ca.crt", labels={})
    told = await assert_uninstalled(client, code=1)
    assert f"left: namespace {DEFAULT_NAMESPACE}: it holds Secret token-of-the-team" in told
    assert names(api, NAMESPACES) == [DEFAULT_NAMESPACE]
    assert names(api, SECRETS) == ["token-of-the-team", "kube-root-ca.crt"]


@pytest.mark.parametrize("name", ["kube-system", "shop"])
async def test_a_namespace_of_others_stays_with_its_content(api, client, name):
    put(api, NAMESPACES, name, labels={})
    put(api, SECRETS, "theirs", namespace=name, labels={})
    put(api, SECRETS, "harbourmaster-webhook-cert", namespace=name, labels={})
    told = await assert_uninstalled(client, namespace=name)
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
    told = await assert_uninstalled(client, patience=0.05, code=1)
    assert told[-1].startswith(f"left: namespace {DEFAULT_NAMESPACE}: still terminating")


async def test_our_namespace_stays_where_it_holds_clusters(api, client):
    put(api, NAMESPACES, DEFAULT_NAMESPACE)
    put(api, CLUSTERS, "one", labels={})
    told = await assert_uninstalled(client, code=1)
    assert f"left: namespace {DEFAULT_NAMESPACE}: it holds Cluster one" in told


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
    """Add nodes with marks of a rescheduler, and one that another program keeps."""
    first, second = OTHERS_ON_NODES
    kept_node(api, "n1", [first, OURS_ON_NODES, second], **{RESERVATIONS: "[]"})
    kept_node(api, "n2", [{**OURS_ON_NODES, "key": "example.com/former"}])
    kept_node(api, "n3", [first], **{RESERVATIONS: "no JSON"})
    kept_node(api, "n4", OTHERS_ON_NODES)


def on_nodes(api):
    nodes = (api.get(NODES, name) for name in ("n1", "n2", "n3", "n4"))
    return [
        (node["spec"].get("taints", []), sorted(node["metadata"]["annotations"])) for node in nodes
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
    told = await assert_uninstalled(client)
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
    told = await assert_uninstalled(client, code=1)
    (line,) = [line for line in told if line.startswith("left: reservations: 3 failed")]
    assert "nodes" in line
