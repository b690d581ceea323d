"""Custom kinds that pods wait for, and definitions, with the setting and the right for them."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import Resource
from helpers.flow.manifests import condition_of, pod, stay_waiting, until_noted, until_waiting

KINDS = "jobs.batch,configmaps,customresourcedefinitions.apiextensions.k8s.io,secrets"
FLAGS = (f"--lifecycle-wait-kinds={KINDS},widgets.v1.waits.example.com",)
WIDGETS = Resource("waits.example.com", "v1", "widgets", "Widget")
ACCOUNT = {
    "kind": "ServiceAccount",
    "name": "harbourmaster-controller",
    "namespace": "harbourmaster-system",
}
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def controller_flags():
    return FLAGS


@pytest.fixture
def opts_in():
    return False


def definition(resource):
    """A definition that takes any object."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": resource.plural, "kind": resource.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }


def right(name, group, plural):
    """A role to watch a kind, and its binding to the controller."""
    rule = {"apiGroups": [group], "resources": [plural], "verbs": ["get", "list", "watch"]}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
    return [
        {**head, "kind": "ClusterRole", "rules": [rule]},
        {**head, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [ACCOUNT]},
    ]


@pytest.fixture
def apply(harbour):
    """Create objects of the cluster, which go after the test."""
    made = []

    async def create(*manifests):
        for manifest in manifests:
            made.append(manifest)
            await asyncio.to_thread(
                harbour.plane.kubectl, "create", "-f=-", stdin=json.dumps(manifest)
            )

    yield create
    for obj in reversed(made):
        name = f"{obj['kind']}/{obj['metadata']['name']}"
        harbour.plane.kubectl("delete", name, "--wait=false", "--ignore-not-found")


def widget(name):
    return {
        "apiVersion": WIDGETS.api_version,
        "kind": WIDGETS.kind,
        "metadata": {"name": name},
    }


async def test_a_custom_kind_is_waited_for_by_condition_and_by_field(flow, client, apply):
    kind = "widgets.waits.example.com"
    await apply(*right("waits-widgets", WIDGETS.group, WIDGETS.plural))
    await flow.create(
        pod("definition", f"crd/{kind}"),
        pod("exists", f"{kind}/w"),
        pod("ready", f"{kind}/w#condition=Ready"),
        pod("unready", f"{kind}/w#condition=Ready:False"),
        pod("active", f"{kind}/w#field=status.phase:Active"),
        pod("other", "widgets.other.example.com/w"),
    )
    await until_noted(flow, "GateWaiting", "exists", f"the API server has no {kind}")
    await until_noted(flow, "GateBlocked", "other", "add it to lifecycle.waitKinds")
    await apply(definition(WIDGETS))
    await flow.until_released("definition")
    created = False
    while not created:
        try:
            await client.create(WIDGETS, widget("w"), flow.namespace)
            created = True
        except Exception:  # noqa: BLE001 - it is served a moment later
            await asyncio.sleep(0.05)
    await flow.until_released("exists")
    await stay_waiting(flow, "ready", "unready", "active", "other")

    async def report(**status):
        await client.patch(
            WIDGETS, "w", MergePatch({"status": status}), flow.namespace, subresource="status"
        )

    await report(phase="Starting", conditions=[condition_of("Ready=False")])
    await flow.until_released("unready")
    await stay_waiting(flow, "ready", "active")
    await report(phase="Active")
    await flow.until_released("active")
    await stay_waiting(flow, "ready")
    await report(conditions=[condition_of("Ready")])
    await flow.until_released("ready")
    await stay_waiting(flow, "other")


async def test_a_kind_without_the_right_is_told_and_met_once_it_is_granted(flow, client, apply):
    await flow.create(pod("web", "secret/token"))
    await until_noted(flow, "GateBlocked", "web", "not allowed to watch secrets: allow it")
    await client.create(
        Resource("", "v1", "secrets", "Secret"), {"metadata": {"name": "token"}}, flow.namespace
    )
    await stay_waiting(flow, "web")
    await apply(*right(f"waits-secrets-{uuid.uuid4().hex[:6]}", "", "secrets"))
    await flow.until_released("web", patience=150)


async def test_kinds_that_the_setting_leaves_out_are_blocked(flow):
    await flow.create(pod("web", "deployment/db"))
    await until_waiting(flow, "web")
    await until_noted(flow, "GateBlocked", "web", 'kind "deployment" cannot be waited for')
