"""Finds the pods that the analysis of a stage compares: those of a version, and the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import PODS
from harbourmaster.controller.objects import decode_metadata
from harbourmaster.gates.owners import REPLICA_SET, pod_name_base
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.analyses import pods_pattern
from harbourmaster.lifecycle.gated_pods import REVISION_LABEL
from harbourmaster.lifecycle.workloads import names_of_pod, recorded_owners

if TYPE_CHECKING:
    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.model import WorkloadVersion


_RANDOM: Final = "[a-z0-9]+"


async def pods_to_compare(
    client: Client, caches: LifecycleCaches, version: WorkloadVersion
) -> dict[str, str]:
    """Return the arguments ``pods`` and ``oldPods``: regular expressions of names.

    The names of the pods of a StatefulSet or DaemonSet do not tell its versions apart: these are
    listed. Raises ApiError.
    """
    owners, recorded = caches.owners_of(version), recorded_owners(version)
    own: set[str] = set()
    former: set[str] = set()
    sets = [owner for kind, owner in owners.values() if kind == REPLICA_SET]
    for owner in sets:
        alike = caches.alike_replica_sets(owner)
        own.add(pod_name_base(owner.metadata.name))
        former |= {
            pod_name_base(sibling.metadata.name)
            for sibling in alike
            if sibling.metadata.uid not in recorded
        }
    if sets or not owners:
        return {"pods": pods_pattern(own, _RANDOM), "oldPods": pods_pattern(former, _RANDOM)}
    namespace = version.metadata.namespace
    page = await client.list(
        PODS, namespace, label_selector=REVISION_LABEL, metadata_only=True, limit=0
    )
    for metadata in map(decode_metadata, page.items):
        if metadata.controller is not None and metadata.controller.uid in owners:
            described = workload_of(metadata.annotations, metadata.labels)
            is_own = described and names_of_pod(described).version == version.metadata.name
            (own if is_own else former).add(metadata.name)
    return {"pods": pods_pattern(own), "oldPods": pods_pattern(former)}
