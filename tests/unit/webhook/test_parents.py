"""The owners that pods inherit from, projected."""

from __future__ import annotations

import json
import tracemalloc

import msgspec
import pytest

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.gates.metadata import PRE_TASKS_KEY, Metadata, names_of
from harbourmaster.lifecycle.functions import is_name
from harbourmaster.webhook.parents import (
    ParentObject,
    Parents,
    decode_parent,
    parents_of,
)
from helpers.admission import family, keys, owner, parent

TRACKED = keys(workload="waiter", version="0.4")
MANY = 10_000


def decode(document):
    return decode_parent(json.dumps(document).encode())


def reference(kind="ReplicaSet", name="web-5d9c", **fields):
    return msgspec.convert(owner(kind, name, **fields), OwnerReference)


def parents_from(*documents):
    return parents_of(msgspec.convert(list(documents), list[ParentObject]))


def test_of_metadata_only_keptns_keys_are_kept():
    noise = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 5000}
    labels = {"app.kubernetes.io/name": "w", "team": "blue"}
    owner = decode(parent(annotations=TRACKED | noise, labels=labels))
    assert owner.metadata == Metadata(TRACKED, {"app.kubernetes.io/name": "w"})


def test_empty_values_are_not_kept():
    assert decode(parent(annotations=keys(workload=""))).metadata == Metadata()


@pytest.mark.claim("O11")
def test_a_huge_value_is_not_kept_and_no_check_has_the_name_of_what_is():
    annotations = {**TRACKED, **keys(pre_deployment_tasks="x," * 100_000)}
    kept = decode(parent(annotations=annotations)).metadata.annotations
    assert kept == {**TRACKED, **keys(pre_deployment_tasks="more than 4096 characters")}
    assert names_of(kept[PRE_TASKS_KEY]) == ("more than 4096 characters",)
    assert not is_name(kept[PRE_TASKS_KEY])


def test_of_a_replica_set_its_owner_is_kept():
    replica_set, _ = family()
    assert decode(replica_set).owner == reference("Deployment", "web")
    assert decode(parent("ReplicaSet")).owner is None


def test_metadata_is_enough():
    partial = {"kind": "PartialObjectMetadata", "metadata": parent()["metadata"]}
    assert decode(partial) == decode(parent())


def test_an_owner_of_the_same_name_and_another_uid_is_another():
    parents = parents_from(*family(TRACKED))
    assert not parents.of(reference(uid="younger"), "ns1").is_known
    assert parents.of(reference(uid=""), "ns1").is_known


def test_in_files_the_namespace_may_be_missing():
    documents = family(TRACKED)
    for document in documents:
        del document["metadata"]["namespace"]
    assert parents_from(*documents).of(reference(), "default").metadata == Metadata(TRACKED)


def test_other_kinds_are_passed_over():
    owner = parents_from(parent("Job", "web-5d9c"), *family(TRACKED)).of(reference(), "ns1")
    assert owner.metadata == Metadata(TRACKED)


def test_a_lineage_holds_until_something_in_it_changes():
    kinds = {"ReplicaSet": {}, "Deployment": {}}
    parents = Parents(kinds)
    replica_set, deployment = (msgspec.convert(document, ParentObject) for document in family())
    unknown = parents.of(reference(), "ns1")
    assert unknown.holds()
    kinds["ReplicaSet"][replica_set.key] = replica_set.to_parent()
    assert not unknown.holds()
    kinds["Deployment"][deployment.key] = deployment.to_parent()
    owner = parents.of(reference(), "ns1")
    kinds["Deployment"]["ns1/other"] = deployment.to_parent()
    assert owner.holds()
    kinds["Deployment"][deployment.key] = deployment.to_parent()
    assert not owner.holds()


@pytest.mark.slow
def test_20_000_owners_take_few_bytes_each():
    noise = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 5000}
    texts = []
    for index in range(MANY):
        name, rs = f"service-{index}", f"service-{index}-5d9c7b8f6d"
        annotations = TRACKED | noise if index % 2 else noise
        uid = f"6a4c8a52-2ac5-4d9c-9c43-{index:012d}"
        deployment = parent("Deployment", name, annotations, uid=uid)
        above = owner("Deployment", name, uid=uid)
        texts += [json.dumps(parent("ReplicaSet", rs, owners=[above])), json.dumps(deployment)]
    raws = [text.encode() for text in texts]
    tracemalloc.start()
    kept = [decode_parent(raw) for raw in raws]
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 2 * MANY
    assert size / len(kept) < 600, size
