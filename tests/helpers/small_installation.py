"""An installation in few objects on a fake API server, and runs of ``harbourmaster uninstall``."""

from __future__ import annotations

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    DEFINITIONS,
    DEPLOYMENTS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOKS,
)
from harbourmaster.cli.installed import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONTROLLER,
    DEFAULT_NAMESPACE,
    WEBHOOK,
)
from harbourmaster.cli.uninstall import run as uninstall
from harbourmaster.cli.uninstall.removal import Options

OURS = {"app.kubernetes.io/name": "harbourmaster"}
POLICY_CRD = "clusterpodschedulingpolicies.kupid.gardener.cloud"


def put(api, resource, name, *, namespace=DEFAULT_NAMESPACE, labels=OURS, **rest):
    metadata = {"name": name, "labels": labels, **rest.pop("metadata", {})}
    if resource.namespaced:
        metadata["namespace"] = namespace
    return api.put(resource, {"metadata": metadata, **rest})


def calls(namespace=DEFAULT_NAMESPACE, service=WEBHOOK, name="pods.harbourmaster.dev"):
    reference = {"namespace": namespace, "name": service}
    return {"name": name, "clientConfig": {"service": reference}}


def install(api):
    """Install as much as shows the order."""
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


async def assert_uninstalled(client, code=0, **options):
    """Run the command, assert its exit code, and return its output."""
    exit_code, told = await run(client, **options)
    assert exit_code == code
    return told
