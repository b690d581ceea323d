"""Objects are applied in order, each with its owner (krake-spec 7.5)."""

from __future__ import annotations

import pytest

from harbourmaster.placement.inventory import ADOPTED, MADE, ObjectRef
from harbourmaster.placement.manifests import (
    ADOPTED_ANNOTATION,
    DEEPEST,
    FIELD_MANAGER,
    NAME_LABEL,
    NAMESPACE_LABEL,
    UID_LABEL,
    ManifestOwner,
    ManifestTarget,
    OwnerReference,
    Present,
    definitions,
    for_deletion,
    is_of_others,
    kinds,
    label_value,
    origin,
    prepare,
    rank,
    release_patch,
    stranger,
)

OWNER = ManifestOwner("uid-1", "shop", "web")
SCOPES = {
    ("v1", "ConfigMap"): True,
    ("v1", "Service"): True,
    ("v1", "Namespace"): False,
    ("apps/v1", "Deployment"): True,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): False,
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): False,
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): False,
}
UNKNOWN = (
    "the cluster does not serve kind Boat in example.com/v1: install its CustomResourceDefinition"
)
FORBIDDEN = "is cluster-scoped, which its Cluster does not allow (spec.allowClusterScoped)"
FREE = ManifestTarget(SCOPES, "team", allow_cluster_scoped=True)
STRICT = ManifestTarget(SCOPES, "team")


def manifest(kind="ConfigMap", name="one", version="v1", **metadata):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


def faults(*manifests, target=STRICT):
    prepared = prepare(manifests, OWNER, target)
    assert not prepared.items
    return prepared.faults


BOATS = {
    **manifest("CustomResourceDefinition", "boats.example.com", "apiextensions.k8s.io/v1"),
    "spec": {
        "group": "example.com",
        "names": {"kind": "Boat"},
        "scope": "Namespaced",
        "versions": [{"name": "v1"}, {"name": "v2"}],
    },
}


def test_each_object_carries_its_owner_and_a_namespace():
    prepared = prepare([manifest(labels={"a": "b"}), manifest(namespace="other")], OWNER, STRICT)
    first, second = (item.body["metadata"] for item in prepared.items)
    owned = {UID_LABEL: "uid-1", NAMESPACE_LABEL: "shop", NAME_LABEL: "web"}
    assert first == {"name": "one", "namespace": "team", "labels": {"a": "b", **owned}}
    assert second == {"name": "one", "namespace": "other", "labels": owned}
    assert prepared.refs == (
        ObjectRef(api_version="v1", kind="ConfigMap", name="one", namespace="team"),
        ObjectRef(api_version="v1", kind="ConfigMap", name="one", namespace="other"),
    )


def test_given_manifests_stay_and_server_fields_are_removed():
    given = {
        **manifest(uid="x", resourceVersion="1", managedFields=[], annotations={"a": "b"}),
        "data": {"a": "b"},
        "status": {"phase": "Active"},
    }
    before = repr(given)
    (item,) = prepare([given], OWNER, STRICT).items
    assert repr(given) == before
    assert item.body.keys() == {"apiVersion", "kind", "metadata", "data"}
    assert item.body["metadata"].keys() == {"name", "namespace", "labels", "annotations"}


def test_the_order_of_application_and_of_deletion():
    wanted = [
        manifest("Namespace", "shop"),
        BOATS,
        manifest("ClusterRole", "reader", "rbac.authorization.k8s.io/v1"),
        manifest("ConfigMap", "settings"),
        manifest("Service", "web"),
        manifest("Deployment", "web", "apps/v1"),
        manifest("Boat", "tug", "example.com/v1"),
        manifest("ValidatingWebhookConfiguration", "checks", "admissionregistration.k8s.io/v1"),
    ]
    names = [wanted_manifest["kind"] for wanted_manifest in wanted]
    shuffled = wanted[::-2] + wanted[::2]
    ranks = [rank(reference) for reference in prepare(shuffled, OWNER, FREE).refs]
    assert ranks == sorted(ranks)
    refs = prepare(wanted, OWNER, FREE).refs
    assert [ref.kind for ref in refs] == names
    assert [ref.kind for ref in for_deletion(refs)] == names[::-1]


def test_a_kind_that_the_manifests_bring_needs_not_be_there():
    assert definitions([BOATS]) == {
        ("example.com/v1", "Boat"): True,
        ("example.com/v2", "Boat"): True,
    }
    prepared = prepare([manifest("Boat", "tug", "example.com/v2"), BOATS], OWNER, FREE)
    assert [ref.kind for ref in prepared.refs] == ["CustomResourceDefinition", "Boat"]


def test_all_faults_are_reported_at_once():
    assert faults(
        "text",
        {"kind": "ConfigMap", "metadata": {"name": "x"}},
        {"apiVersion": "v1", "metadata": {"name": "x"}},
        {"apiVersion": "v1", "kind": "ConfigMap"},
        manifest(name=""),
        manifest(namespace=7),
        manifest(labels=["a"]),
        manifest("Boat", "tug", "example.com/v1"),
        manifest("List", "all"),
        manifest(),
        manifest(namespace="team"),
        manifest("Namespace", "shop"),
    ) == (
        "manifests[0]: is not an object",
        "manifests[1]: apiVersion is missing",
        "manifests[2]: kind is missing",
        "manifests[3]: ConfigMap: metadata is missing",
        "manifests[4]: metadata.name is missing",
        "manifests[5]: ConfigMap one: metadata.namespace is not a string",
        "manifests[6]: ConfigMap one: metadata.labels is not a mapping",
        "manifests[7]: Boat tug: " + UNKNOWN,
        "manifests[8]: List all: give its items as separate manifests",
        "manifests[10]: ConfigMap team/one repeats manifests[9]",
        "manifests[11]: Namespace shop: " + FORBIDDEN,
    )


def test_a_cluster_scoped_object_has_no_namespace():
    (fault,) = faults(manifest("Namespace", "shop", namespace="x"), target=FREE)
    assert fault.endswith("is cluster-scoped and cannot have a namespace")


def test_an_object_of_a_kind_that_another_manifest_brings_waits_for_it():
    template = manifest("ConstraintTemplate", "labels", "templates.gatekeeper.sh/v1")
    constraint = manifest("Labels", "owner", "constraints.gatekeeper.sh/v1beta1")
    scopes = {**SCOPES, ("templates.gatekeeper.sh/v1", "ConstraintTemplate"): False}
    target = ManifestTarget(scopes, "team", allow_cluster_scoped=True)
    prepared = prepare([constraint, template, manifest()], OWNER, target)
    assert [ref.kind for ref in prepared.refs] == ["ConstraintTemplate", "ConfigMap"]
    (text,) = prepared.awaited
    unserved = "the cluster does not serve kind Labels in constraints.gatekeeper.sh/v1beta1"
    assert text == f"Labels owner: {unserved}: install its CustomResourceDefinition"
    scopes["constraints.gatekeeper.sh/v1beta1", "Labels"] = False
    served = prepare([constraint, template], OWNER, target)
    assert len(served.items) == 2
    assert served.awaited == ()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (manifest("List", "all"), True),
        (manifest(name="a/b"), True),
        (manifest(name=".."), True),
        (manifest(labels=["a"]), True),
        # Another cluster may take these.
        (manifest("Namespace", "shop"), False),
        (manifest("Boat", "tug", "example.com/v1"), False),
    ],
)
def test_some_manifests_are_taken_by_no_cluster(given, expected):
    assert prepare([manifest(), given], OWNER, STRICT).is_malformed is expected


def test_a_network_policy_of_any_kind_comes_before_workloads():
    policy = ObjectRef(api_version="cilium.io/v2", kind="CiliumNetworkPolicy", name="a",
                       namespace="shop")  # fmt: skip
    workload = ObjectRef(api_version="apps/v1", kind="Deployment", name="a", namespace="shop")
    assert rank(policy) < rank(workload)


def test_two_versions_of_a_kind_are_one_object():
    scopes = {("apps/v1", "Deployment"): True, ("apps/v1beta1", "Deployment"): True}
    prepared = prepare(
        [manifest("Deployment", version=version) for version in ("apps/v1", "apps/v1beta1")],
        OWNER,
        ManifestTarget(scopes),
    )
    assert prepared.faults == ("manifests[1]: Deployment default/one repeats manifests[0]",)


def test_kinds_of_whatever_stands_there():
    given = [manifest(), manifest(name="two"), {"kind": 1, "apiVersion": "v1"}, {}]
    assert kinds(given) == {("v1", "ConfigMap")}


@pytest.mark.parametrize(
    ("labels", "whose"),
    [
        (None, ""),
        ({}, ""),
        (OWNER.labels, ""),
        ({"app.kubernetes.io/managed-by": "Helm"}, ""),
        (ManifestOwner("uid-2", "shop", "other").labels, "shop/other (uid uid-2)"),
        ({UID_LABEL: "x"}, "?/? (uid x)"),
    ],
)
def test_whose_an_object_is(labels, whose):
    assert stranger(labels, "uid-1") == whose


def test_long_names_become_labels_that_differ():
    names = ["a" * 63, "a" * 64, "a" * 65, "a" * 52 + "." + "b" * 60]
    label_values = [label_value(name) for name in names]
    assert label_values[0] == names[0]
    assert len(set(label_values)) == len(names)
    assert all(len(value) <= 63 and value[-1].isalnum() for value in label_values)


@pytest.mark.parametrize(
    "strange",
    [
        None,
        1,
        [],
        {"spec": 1},
        {"spec": {"names": [], "versions": {}}},
        {"spec": {"names": {}, "versions": [1, {}]}},
    ],
)
def test_strange_definitions_are_faults_and_no_crash(strange):
    given = strange if not isinstance(strange, dict) else {**BOATS, **strange}
    assert isinstance(prepare([given], OWNER, FREE).faults, tuple)


def test_only_a_real_definition_brings_a_kind():
    stranger = {**BOATS, "apiVersion": "example.com/v1"}
    assert definitions([stranger]) == {}


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        (DEEPEST - 1, ()),
        (DEEPEST, ("manifests[0]: ConfigMap one: is nested more than 100 levels deep",)),
        (5000, ("manifests[0]: ConfigMap one: is nested more than 100 levels deep",)),
    ],
)
def test_a_manifest_has_so_many_levels(levels, expected):
    deep = []
    for _ in range(levels - 1):
        deep = [deep]
    assert prepare([{**manifest(), "data": deep}], OWNER, STRICT).faults == expected


DATED_OWNER = ManifestOwner("app-uid", "team", "shop", "2026-01-01T00:00:10Z")
OURS = {UID_LABEL: "app-uid"}
APPLIED = {"manager": FIELD_MANAGER, "operation": "Apply"}
STATUS = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"}
NAMESPACED = {("apps", "ReplicaSet"), ("", "ConfigMap")}


def present(**fields):
    known = {
        "name": "a",
        "uid": "1",
        "labels": OURS,
        "creation_timestamp": "2026-01-01T00:00:10Z",
        "managed_fields": (APPLIED, STATUS),
    }
    return Present(**{**known, **fields})


def ref_with(**fields):
    return ObjectRef(api_version="v1", kind="ConfigMap", name="a", namespace="team", **fields)


@pytest.mark.parametrize(
    ("live", "ref", "expected"),
    [
        # What is not there is made.
        (None, None, MADE),
        (None, ref_with(uid="1", origin=ADOPTED), MADE),
        # What was there without our label is adopted.
        (present(labels=None), None, ADOPTED),
        (present(labels={UID_LABEL: ""}), ref_with(), ADOPTED),
        (present(labels=None, uid="2"), ref_with(uid="1", origin=MADE), ADOPTED),
        # A record of the very object decides, whoever took our label off.
        (present(labels=None), ref_with(uid="1", origin=MADE), MADE),
        (present(), ref_with(uid="1", origin=ADOPTED), ADOPTED),
        (present(managed_fields=(APPLIED, {"manager": "kubectl"})), ref_with(uid="1", origin=MADE),
         MADE),
        # A process died between applying and recording.
        (present(), ref_with(), MADE),
        (present(annotations={ADOPTED_ANNOTATION: "true"}), ref_with(), ADOPTED),
        # An earlier version recorded no origin.
        (present(), ref_with(uid="1"), MADE),
        (present(managed_fields=None), ref_with(uid="1"), MADE),
        (present(labels=None), ref_with(uid="1"), ADOPTED),
        (present(managed_fields=(APPLIED, {"manager": "kubectl"})), ref_with(uid="1"), ADOPTED),
        (present(creation_timestamp="2026-01-01T00:00:09Z"), ref_with(uid="1"), ADOPTED),
        # A user deleted and recreated it with the same labels.
        (present(uid="2", managed_fields=({"manager": "kubectl"},)),
         ref_with(uid="1", origin=MADE), ADOPTED),
    ],
)  # fmt: skip
def test_the_origin_of_an_object(live, ref, expected):
    assert origin(live, ref, DATED_OWNER) == expected


def fields_of_owned(api_version, kind):
    return {
        "owner_references": (OwnerReference(api_version=api_version, kind=kind),),
        "labels": None,
    }


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("ConfigMap", {"labels": None}, True),
        ("ConfigMap", {"labels": {UID_LABEL: "another"}}, True),
        ("ConfigMap", {}, False),
        ("ConfigMap", {"labels": None, "deletion_timestamp": "2026-01-01T00:00:11Z"}, False),
        ("PodMetrics", {"labels": None, "uid": ""}, False),
        ("ConfigMap", {"labels": None, "name": "kube-root-ca.crt"}, False),
        ("Secret", {"labels": None, "name": "kube-root-ca.crt"}, True),
        ("ServiceAccount", {"labels": None, "name": "default"}, False),
        # A part of something that a namespace holds is not counted for itself.
        ("Pod", fields_of_owned("apps/v1", "ReplicaSet"), False),
        ("Pod", fields_of_owned("v1", "Node"), True),
        ("Secret", fields_of_owned("example.com/v1", "ReplicaSet"), True),
    ],
)
def test_what_others_would_miss(kind, fields, expected):
    assert is_of_others(kind, present(**fields), DATED_OWNER, NAMESPACED) is expected


def test_a_released_object_keeps_its_values_and_other_managers():
    theirs = {"manager": "kubectl", "fieldsV1": {"f:data": {}}}
    adopted = present(resource_version="7", managed_fields=(theirs, APPLIED))
    metadata = release_patch(adopted, DATED_OWNER)["metadata"]
    assert metadata["managedFields"] == [theirs]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("1", "7")
    assert metadata["labels"] == dict.fromkeys(DATED_OWNER.labels)
    assert metadata["annotations"] == {ADOPTED_ANNOTATION: None}
    assert release_patch(present(managed_fields=(APPLIED,)), DATED_OWNER)["metadata"][
        "managedFields"
    ] == [{}]
