"""Finds the pods that the analysis of a stage compares: those of a version, and the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import PODS
from harbourmaster.gates.owners import REPLICA_SET
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.analyses import names_pattern, replica_sets_pattern
from harbourmaster.lifecycle.gated_pods import REVISION_LABEL
from harbourmaster.lifecycle.workloads import names_of_pod, recorded_owners

if TYPE_CHECKING:
    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.model import WorkloadVersion


class _Pod(Struct, frozen=True, gc=False):
    metadata: Metadata


_decode: Final = msgspec.json.Decoder(_Pod).decode


async def pods_to_compare(
    client: Client, caches: LifecycleCaches, version: WorkloadVersion
) -> dict[str, str]:
    """Return the arguments ``pods`` and ``oldPods``: regular expressions of names.

    The names of the pods of a StatefulSet or DaemonSet do not tell its versions apart: these are
    listed. Raises ApiError.
    """
    owners, recorded = caches.owners_of(version), recorded_owners(version)
    sets = [owner for kind, owner in owners.values() if kind == REPLICA_SET]
    if sets or not owners:
        former = {
            other.metadata.name
            for owner in sets
            for other in caches.alike_replica_sets(owner)
            if other.metadata.uid not in recorded
        }
        own = replica_sets_pattern(owner.metadata.name for owner in sets)
        return {"pods": own, "oldPods": replica_sets_pattern(former)}
    pods: dict[bool, set[str]] = {True: set(), False: set()}
    token = ""
    while True:
        page = await client.list(
            PODS,
            version.metadata.namespace,
            label_selector=REVISION_LABEL,
            metadata_only=True,
            continue_token=token,
        )
        for raw in page.items:
            metadata = _decode(raw).metadata
            if metadata.controller is not None and metadata.controller.uid in owners:
                described = workload_of(metadata.annotations, metadata.labels)
                name = names_of_pod(described).version if described is not None else ""
                pods[name == version.metadata.name].add(metadata.name)
        token = page.continue_token
        if not token:
            return {"pods": names_pattern(pods[True]), "oldPods": names_pattern(pods[False])}
