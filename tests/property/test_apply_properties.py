"""Properties of applying where a cluster refuses some objects (krake-spec 7.9)."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.resources import Resource
from harbourmaster.controller.placement.applying import apply
from harbourmaster.controller.placement.sending import Claim
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.placement.manifests import ManifestOwner, ManifestTarget, prepare
from harbourmaster.placement.rollout import Done
from helpers.properties import cases

SCOPES = {
    ("v1", "Namespace"): False,
    ("v1", "ConfigMap"): True,
    ("v1", "Service"): True,
    ("v1", "ResourceQuota"): True,
    ("apps/v1", "Deployment"): True,
    ("batch/v1", "Job"): True,
    ("networking.k8s.io/v1", "NetworkPolicy"): True,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): False,
    ("rbac.authorization.k8s.io/v1", "Role"): True,
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): False,
    ("example.com/v1", "Boat"): True,
    ("example.org/v1", "Issuer"): False,
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): False,
}
GUARDS = {"ResourceQuota", "NetworkPolicy", "ClusterRole", "Role"}
RUN = {"Deployment", "Job", "Boat"}
SERVERS = RUN | {"Service", "CustomResourceDefinition"}
NAMESPACES = ("one", "two")
BOATS = {"group": "example.com", "names": {"kind": "Boat"}, "scope": "Namespaced",
         "versions": [{"name": "v1"}]}  # fmt: skip
OWNER = ManifestOwner("uid", "team", "app")


def manifest(version, kind, namespace=""):
    name = namespace if kind == "Namespace" else "a"
    place = {"namespace": namespace} if SCOPES[version, kind] else {}
    spec = {"spec": BOATS} if kind == "CustomResourceDefinition" else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place}, **spec}


MANIFESTS = [
    manifest(version, kind, namespace)
    for version, kind in SCOPES
    for namespace in (NAMESPACES if SCOPES[version, kind] or kind == "Namespace" else ("",))
]
PREPARED = prepare(MANIFESTS, OWNER, ManifestTarget(SCOPES, allow_cluster_scoped=True))
INDICES = st.sets(st.sampled_from(range(len(PREPARED.items))))


ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}


class MemberCluster:
    """A session with a cluster that has some objects, and refuses some."""

    def __init__(self, existing, refused):
        self.existing, self.refused = existing, refused
        self.applied = []
        self.client = self.discovery = self
        self.watches = SimpleNamespace(
            follow=lambda _resource: None, get=lambda _resource, _ref: None, tests_by_owner={}
        )

    async def resource(self, api_version, kind):
        group, _, version = api_version.rpartition("/")
        return Resource(group, version, kind, kind, SCOPES[api_version, kind])

    def forget(self, api_version):
        assert api_version == "example.com/v1"

    async def get(self, resource, name, namespace, *, metadata_only):
        assert metadata_only
        if (resource.kind, namespace or "", name) not in self.existing:
            raise NotFoundError("not found", status=404)
        return json.dumps({"metadata": {"name": name, "uid": "u", "labels": OWNER.labels}}).encode()

    async def patch(self, resource, name, patch, namespace):
        key = (resource.kind, namespace or "", name)
        if key in self.refused:
            raise ForbiddenError("refused", status=403)
        self.applied.append(key)
        return json.dumps({**patch.value, "status": ESTABLISHED}).encode()


def key_of(item):
    return item.ref.kind, item.ref.namespace, item.ref.name


def must_wait(key, absent, existing):
    """Whether an object needs one that is absent, in the words of the issue."""
    kind, namespace, _ = key
    guards = {other for other in absent if other[0] in GUARDS and other[1] in {"", namespace}}
    return (
        ("Namespace", "", namespace) in absent
        or (kind == "Boat" and any(other[0] == "CustomResourceDefinition" for other in absent))
        or (kind in RUN and key not in existing and bool(guards))
        or (
            kind.endswith("WebhookConfiguration")
            and key not in existing
            and any(other[0] in SERVERS for other in absent)
        )
    )


@settings(max_examples=cases(2000))
@given(INDICES, INDICES)
def test_exactly_what_needs_no_refused_object_is_applied(refused, existing):
    keys = [key_of(item) for item in PREPARED.items]
    refused, existing = {keys[index] for index in refused}, {keys[index] for index in existing}
    cluster = MemberCluster(existing, refused)
    report = asyncio.run(apply(cluster, PREPARED, Claim(OWNER), ()))
    absent = set()
    # What is waited for comes first.
    for key in keys:
        if key in refused or must_wait(key, absent, existing):
            absent.add(key)
    assert set(cluster.applied) == set(keys) - absent
    assert len(cluster.applied) == len(set(cluster.applied))
    assert sorted(map(key_of, report.applied)) == sorted(cluster.applied)
    assert report.is_whole is not bool(absent)
    assert (report.outcome.done is Done.YES) is not bool(absent)
