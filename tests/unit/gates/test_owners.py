"""Tests of the owner that counts, and of those that pods inherit from (keptn-spec 2.3, 2.4)."""

from __future__ import annotations

import pytest

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.gates.owners import (
    is_parent,
    is_replica_set,
    parent_of,
    supported_owner,
    workload_above,
)

APPS = "apps/v1"
ARGO = "argoproj.io/v1alpha1"


def owner(kind, api_version=APPS, name="web"):
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid="u")


@pytest.mark.parametrize(
    "kind", ["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Rollout"]
)
def test_pods_of_these_kinds_are_gated(kind):
    assert supported_owner([owner(kind)]) == owner(kind)


@pytest.mark.parametrize("kind", ["Job", "CronJob", "ReplicationController", "Node", ""])
def test_c04_pods_of_others_never_are(kind):
    assert supported_owner([owner(kind)]) is None


def test_c04_nor_is_a_bare_pod():
    assert supported_owner([]) is None


def test_c05_the_last_supported_owner_counts():
    first, last = owner("ReplicaSet", name="a"), owner("StatefulSet", name="b")
    supported = supported_owner([owner("Job"), first, owner("Job"), last, owner("Node")])
    assert supported == last


def test_a_namesake_of_another_group_is_gated_by_its_own_metadata_and_inherits_nothing():
    foreign_set = owner("StatefulSet", "apps.example.com/v1")
    assert supported_owner([foreign_set]) == foreign_set
    assert not is_parent(foreign_set)
    assert not is_replica_set(owner("ReplicaSet", "apps.example.com/v1"))


@pytest.mark.parametrize("api_version", ["apps/v1", "apps/v1beta2", "extensions/v1beta1", ""])
@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_stateful_and_daemon_sets_are_parents_themselves(kind, api_version):
    assert is_parent(owner(kind, api_version))


@pytest.mark.parametrize("kind", ["Deployment", "Rollout", "ReplicaSet", "Job"])
def test_others_are_not(kind):
    assert not is_parent(owner(kind))


def test_the_pods_of_a_replica_set_inherit_from_its_deployment_or_rollout():
    assert is_replica_set(owner("ReplicaSet"))
    assert parent_of([owner("Deployment")]) == owner("Deployment")
    assert parent_of([owner("Rollout", ARGO)]) == owner("Rollout", ARGO)


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [owner("Job")],
        [owner("StatefulSet")],
        [owner("Rollout", APPS)],
        [owner("Deployment", "apps.example.com/v1")],
    ],
)
def test_those_of_another_replica_set_inherit_nothing(owners):
    assert parent_of(owners) is None


@pytest.mark.parametrize(
    ("labels", "kind", "name", "workload"),
    [
        ({"pod-template-hash": "7d9"}, "ReplicaSet", "web-7d9", ("Deployment", "web")),
        ({"rollouts-pod-template-hash": "7d9"}, "ReplicaSet", "web-7d9", ("Rollout", "web")),
        ({"pod-template-hash": "7d9"}, "ReplicaSet", "web", ("ReplicaSet", "web")),
        ({}, "ReplicaSet", "web-7d9", ("ReplicaSet", "web-7d9")),
        ({"pod-template-hash": "7d9"}, "StatefulSet", "web-7d9", ("StatefulSet", "web-7d9")),
    ],
)
def test_the_workload_of_a_replica_set_is_known_by_its_pods_labels(labels, kind, name, workload):
    assert workload_above(owner(kind, name=name), labels) == workload
