"""A KeptnWorkload with several owners comes to rest, whatever pods come in whatever order."""

from __future__ import annotations

import asyncio

import jsonpatch
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.controller.lifecycle.owners import decode_owner, replaced_owners
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.lifecycle.gated_pods import decode_whole
from harbourmaster.lifecycle.model import Workload, WorkloadStatus
from harbourmaster.lifecycle.workload_owners import (
    current_versions,
    follow_operations,
    is_to_follow,
    owned_versions,
    owner_uids,
)
from harbourmaster.lifecycle.workloads import (
    desired_workload,
    new_version,
    new_workload,
    owners_of_pods,
)
from helpers.properties import cases

REVISION = "deployment.kubernetes.io/revision"
VERSIONS = st.sampled_from(["1", "2", "3"])


class Owned(Struct, frozen=True):
    """A ReplicaSet of a Deployment, or a StatefulSet, whose pods have one version or several."""

    above: str
    name: str
    revision: int
    is_gone: bool
    is_cached: bool


class Event(Struct, frozen=True):
    """A pod of one of the owners that is reconciled; ``second`` is when it was created."""

    owner: int
    version: str
    second: int


OWNERS = st.lists(
    st.builds(
        Owned,
        st.sampled_from(["a", "b", ""]),
        st.sampled_from("klmnopq"),
        st.integers(1, 4),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda owned: owned.name,
)
EVENTS = st.lists(
    st.builds(Event, st.integers(0, 5), VERSIONS, st.integers(0, 2)), min_size=1, max_size=10
)


class Cluster:
    """The owners as the API server has them; with one name they are the same object."""

    def __init__(self, owners):
        self._objects = {}
        newest = {}
        for owned in owners:
            newest[owned.above] = max(newest.get(owned.above, 0), owned.revision)
        for above, revision in newest.items():
            metadata = {
                "name": above,
                "uid": f"d-{above}",
                "annotations": {REVISION: str(revision)},
            }
            self._objects[above] = {"metadata": metadata}
        for owned in owners:
            if not owned.is_gone:
                self._objects[owned.name] = self._replica_set(owned)
        self._cached = {f"rs-{owned.name}" for owned in owners if owned.is_cached}

    @staticmethod
    def _replica_set(owned):
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owned.above}
        references = [{**reference, "uid": f"d-{owned.above}"}] if owned.above else []
        metadata = {
            "name": owned.name,
            "uid": f"rs-{owned.name}",
            "annotations": {REVISION: str(owned.revision)},
            "ownerReferences": references,
        }
        return {"metadata": metadata, "spec": {"replicas": owned.revision % 2}}

    async def get(self, _resource, name, _namespace):
        if name not in self._objects:
            raise NotFoundError("not found")
        return msgspec.json.encode(self._objects[name])

    def find(self, uid):
        obj = self._objects.get(uid.removeprefix("rs-"))
        return decode_owner(msgspec.json.encode(obj)) if obj and uid in self._cached else None


def recorded(workload):
    """The workload after the controller recorded its owners in the status."""
    owners = tuple(reference.uid for reference in workload.metadata.owner_references)
    return structs.replace(workload, status=WorkloadStatus(owners=owners))


class World:
    """The workload and its versions; ``writes`` counts the changes of the workload."""

    def __init__(self, owners):
        self.owners, self.cluster = owners, Cluster(owners)
        self.workload, self.versions, self.writes = None, {}, 0

    def reconcile(self, event):
        owned = self.owners[event.owner % len(self.owners)]
        uid = f"rs-{owned.name}"
        reference = OwnerReference(
            api_version="apps/v1", kind="ReplicaSet", name=owned.name, uid=uid
        )
        keys = {"workload": "w", "app": "w", "version": event.version}
        described = workload_of({f"keptn.sh/{key}": value for key, value in keys.items()}, {})
        wish = desired_workload(described, reference, f"2026-01-01T00:00:0{event.second}Z")
        if self.workload is None:
            self.workload = recorded(new_workload(wish, "prod"))
        version = self.versions.get(event.version)
        if not is_to_follow(self.workload, version, wish):
            return
        pod = decode_whole(b'{"metadata":{"name":"p","namespace":"prod"}}')
        replaced = asyncio.run(
            replaced_owners(
                self.cluster,
                pod,
                reference,
                owners_of_pods(self.workload),
                self.cluster.find,
                has_version=version is not None,
            )
        )
        if replaced is None:
            return
        operations = msgspec.to_builtins(follow_operations(self.workload, wish, replaced))
        document = jsonpatch.apply_patch(msgspec.to_builtins(self.workload), operations)
        self.workload = recorded(msgspec.convert(document, Workload))
        self.writes += 1
        for text in current_versions(self.workload):
            self.versions.setdefault(text, new_version(self.workload))


@settings(max_examples=cases(1000), deadline=None)
@given(OWNERS, EVENTS)
def test_any_order_of_pods_comes_to_rest(owners, events):
    world = World(owners)
    # Each write wakes all waiting pods of the workload.
    for _ in range(2 * len(events) + 2):
        before = world.writes
        for event in events:
            world.reconcile(event)
        if world.writes == before:
            break
    else:
        raise AssertionError(f"{world.writes} writes and no end: {world.workload}")
    # The newest owner of each Deployment has a version, once; all that have one are kept.
    alive = [owned for owned in owners if not owned.is_gone]
    seen = {owners[event.owner % len(owners)] for event in events}
    owned = owned_versions(world.workload)
    first = owners[events[0].owner % len(owners)]
    for above in {owned.above for owned in alive} - {""}:
        newest = max(
            (owned for owned in alive if owned.above == above),
            key=lambda owned: (owned.revision, owned.name),
        )
        top = max(owned.revision for owned in owners if owned.above == above)
        if newest in seen and newest.revision == top:
            assert f"rs-{newest.name}" in owned
    assert set(owned) <= {*owner_uids(world.workload), f"rs-{first.name}"}
    tops = [owned.above for owned in alive if f"rs-{owned.name}" in owned_versions(world.workload)]
    assert len(tops) - tops.count("") == len({*tops} - {""})
