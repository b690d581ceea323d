"""Objects wait for refused ones that they need, and some are replaced (krake-spec 7.9)."""

from __future__ import annotations

import pytest

from harbourmaster.placement.apply_rules import (
    REPLACE,
    find_missing,
    find_obstacle,
    is_malformed,
    mark_manifest,
    may_replace,
)
from harbourmaster.placement.inventory import ADOPTED, MADE, ObjectRef
from harbourmaster.placement.manifests import Item

RBAC = "rbac.authorization.k8s.io/v1"
HOOKS = "admissionregistration.k8s.io/v1"


def item(kind, name="a", namespace="shop", version="v1", annotations=None, **body):
    ref = ObjectRef(api_version=version, kind=kind, name=name, namespace=namespace)
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    return Item(ref, {"apiVersion": version, "kind": kind, "metadata": metadata, **body})


WEB = item("Deployment", "web", version="apps/v1")
BOAT = item("Boat", "tug", version="example.com/v1")
BOATS = item(
    "CustomResourceDefinition",
    "boats.example.com",
    "",
    "apiextensions.k8s.io/v1",
    spec={
        "group": "example.com",
        "names": {"kind": "Boat"},
        "scope": "Namespaced",
        "versions": [{"name": "v1"}],
    },
)
HOOK = item("ValidatingWebhookConfiguration", "checks", "", HOOKS)


@pytest.mark.parametrize(
    ("needing", "refused", "new", "existing"),
    [
        # What is in a namespace, and what is of a kind.
        (WEB, item("Namespace", "shop", ""), True, True),
        (WEB, item("Namespace", "other", ""), False, False),
        (HOOK, item("Namespace", "shop", ""), False, False),
        (BOAT, BOATS, True, True),
        (item("Boat", "tug", version="example.com/v2"), BOATS, False, False),
        (WEB, BOATS, False, False),
        # What runs may go on, and gets its updates.
        (WEB, item("NetworkPolicy", version="networking.k8s.io/v1"), True, False),
        (BOAT, item("NetworkPolicy", version="networking.k8s.io/v1"), True, False),
        (WEB, item("CiliumNetworkPolicy", version="cilium.io/v2"), True, False),
        (WEB, item("AdminNetworkPolicy", "a", "", "policy.networking.k8s.io/v1"), True, False),
        (WEB, item("ResourceQuota"), True, False),
        (WEB, item("Role", version=RBAC), True, False),
        (WEB, item("RoleBinding", namespace="other", version=RBAC), False, False),
        (WEB, item("ClusterRoleBinding", "a", "", RBAC), True, False),
        (item("ConfigMap"), item("Role", version=RBAC), False, False),
        # A webhook without its server refuses the requests of others.
        (HOOK, WEB, True, False),
        (HOOK, item("Service"), True, False),
        (HOOK, BOATS, True, False),
        (HOOK, item("ConfigMap"), False, False),
        # Everything else.
        (WEB, item("ConfigMap"), False, False),
        (WEB, item("Secret"), False, False),
        (WEB, item("Issuer", "main", "", "demo.example.com/v1"), False, False),
        (item("Service"), WEB, False, False),
    ],
)
def test_what_needs_a_refused_object(needing, refused, new, existing):
    assert find_missing(needing, [refused], is_new=True) == (refused.ref if new else None)
    assert find_missing(needing, [refused], is_new=False) == (refused.ref if existing else None)


def untyped(fault):
    return f"failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): {fault}"


@pytest.mark.parametrize(
    ("needing", "message", "expected"),
    [
        (WEB, untyped('.spec.env: duplicate entries for key [name="FOO"]'), True),
        (WEB, untyped(".spec.foo: field not declared in schema"), True),
        (BOAT, untyped(".spec.foo: field not declared in schema"), False),
        (BOAT, untyped('.spec.list: duplicate entries for key [name="FOO"]'), True),
        (WEB, 'failed calling webhook "checks": duplicate entries for key ', None),
    ],
)
def test_a_manifest_that_no_cluster_takes(needing, message, expected):
    assert is_malformed(needing.ref, message) is expected


REPLACEABLE = {REPLACE: "true"}
JOB = item("Job", version="batch/v1", annotations=REPLACEABLE, spec={"image": "a:2"})
STORED = item(
    "StatefulSet",
    version="apps/v1",
    annotations=REPLACEABLE,
    spec={"volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
)
DATABASE = item("Database", version="example.com/v1", annotations=REPLACEABLE)


def obstacle(replaced, live=None, origin=MADE, stateless=()):
    marked = Item(replaced.ref, mark_manifest(replaced, replaced.body))
    return find_obstacle(marked, live or replaced.body, origin, stateless)


def test_only_a_manifest_that_says_so_is_replaced():
    assert may_replace(JOB)
    for given in ({}, {REPLACE: "True"}, {REPLACE: True}, ["x"], None):
        manifest = {"metadata": {"annotations": given}}
        assert not may_replace(Item(JOB.ref, manifest))
        assert mark_manifest(Item(JOB.ref, manifest), manifest) is manifest
    assert obstacle(JOB) == ""


def test_what_may_hold_data_is_replaced_only_if_volumes_may_be_lost():
    text = "it may hold data: to allow it, set spec.migrationVolumes to Recreate"
    for holder in (STORED, DATABASE):
        assert obstacle(holder) == text
        assert obstacle(holder, stateless=None) == ""
    assert obstacle(DATABASE, stateless=("Database.example.com",)) == ""
    # The object that would be deleted counts as well as its successor.
    emptied = item("StatefulSet", version="apps/v1", annotations=REPLACEABLE, spec={})
    assert obstacle(emptied, live=STORED.body) == text


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("PersistentVolumeClaim", "v1"),
        ("PersistentVolume", "v1"),
        ("VolumeSnapshot", "snapshot.storage.k8s.io/v1"),
        ("Namespace", "v1"),
        ("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
    ],
)
def test_volumes_and_what_takes_its_contents_along_are_never_replaced(kind, version):
    kept = item(kind, "a", "", version, annotations=REPLACEABLE)
    assert obstacle(kept, stateless=None) == f"a {kind} never is"


def test_what_existed_before_is_never_replaced():
    # This is D20.
    assert obstacle(JOB, origin=ADOPTED) == "it existed before the application"


def test_an_object_is_not_replaced_twice_for_one_manifest():
    live = mark_manifest(JOB, JOB.body)
    assert obstacle(JOB, live) == "it has this manifest, and another client changes it"
    newer = item("Job", version="batch/v1", annotations=REPLACEABLE, spec={"image": "a:3"})
    assert obstacle(newer, live) == ""
