"""Takes each version of a workload through its phases, once its app lets it (keptn-spec 3.5)."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import WORKLOAD_VERSIONS
from harbourmaster.controller.lifecycle.caches import (
    BY_APP,
    BY_OWNER,
    BY_VERSION,
    BY_WORKLOAD,
    alike_replica_sets,
    is_newest,
)
from harbourmaster.controller.lifecycle.held_stages import HeldStages
from harbourmaster.controller.lifecycle.owners import Owner, OwnerGoneError, next_names
from harbourmaster.controller.lifecycle.versions import PhaseRunner
from harbourmaster.controller.lifecycle.writes import fetch
from harbourmaster.gates.owners import DAEMON_SET, REPLICA_SET, ROLLOUT, SUPPORTED
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.lifecycle.failed_nodes import with_inherited_nodes
from harbourmaster.lifecycle.gated_pods import workload_mark
from harbourmaster.lifecycle.machine import supersede
from harbourmaster.lifecycle.model import WorkloadVersion
from harbourmaster.lifecycle.phases import WORKLOAD_DEPLOY
from harbourmaster.lifecycle.steps import Inputs, PhaseNotice
from harbourmaster.lifecycle.waiting import (
    app_obstacle,
    app_version_of,
    lacks_context,
    may_begin,
    trace_of,
    with_app_metadata,
)
from harbourmaster.lifecycle.workload_owners import current_versions, owned_versions
from harbourmaster.lifecycle.workloads import (
    Rollout,
    has_observed,
    is_deployed,
    is_of_pods,
    recorded_owners,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import AppVersion, Workload

_HEALTHY: Final = "Healthy"


class DeploymentCheck:
    """Finds out from the owners of pods whether a version is deployed."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._client = context.client
        self._is_complete_wanted = context.settings.deployed_when == "Complete"
        self._workloads = caches.workloads.store
        self._versions = caches.workload_versions.store
        self._pods = caches.pods.store
        self._replica_sets = caches.replica_sets.store
        self._siblings = partial(alike_replica_sets, self._replica_sets)
        self._rollouts = caches.rollouts.store
        self._owners = caches.owners
        self._owners_of = caches.owners_of

    async def look(self, version: WorkloadVersion, *, live: bool = True) -> tuple[bool, str]:
        """Return whether every owner has all its pods ready, and why that cannot be known.

        Without ``live``, an owner that is not cached counts as missing. Raises ApiError.
        """
        reference = version.spec.resource_reference
        if reference.kind not in self._owners:
            known = ", ".join(self._owners)
            return False, (
                f"{reference.kind} {reference.name} owns the pods, and only these kinds can be "
                f"followed: {known}"
            )
        owners = self._owners_of(version)
        if not owners and live:
            owner = await self._live(version, reference.kind, reference.name)
            if owner is not None and owner.metadata.uid in recorded_owners(version):
                owners = {owner.metadata.uid: (reference.kind, owner)}
        if not owners:
            missing = f"{reference.kind} {reference.name} not found"
            return False, f"{missing}; waiting for it to be created"
        return await self._are_deployed(version, owners), ""

    async def _are_deployed(
        self, version: WorkloadVersion, owners: dict[str, tuple[str, Owner]]
    ) -> bool:
        """Whether all owners are deployed that are not replaced; if all are, whether one was."""
        current = [pair for pair in owners.values() if not self._is_replaced(version, *pair)]
        if not current:
            return any(self._is_deployed(version, *pair) for pair in owners.values())
        for kind, owner in current:
            present: Owner | None = owner
            if kind != REPLICA_SET and self._is_deployed(version, kind, owner):
                # Its template may have changed, and the watch be behind.
                present = await self._live(version, kind, owner.metadata.name)
            if present is None or not self._is_deployed(version, kind, present):
                return False
        return True

    def resumed(self, version: WorkloadVersion) -> str | None:
        """Return when the Rollout of a version went on after its last pause, see ``Inputs``."""
        owners = self._owners_of(version).values()
        rollouts = [rollout for _, owner in owners for rollout in self._rollouts_of(owner)]
        times = [rollout.status.resumed for rollout in rollouts if rollout]
        return max(times, key=lambda time: "paused" if time is None else time, default="")

    async def is_replaced(self, version: WorkloadVersion) -> bool:
        """Whether the workload is gone, or has other versions for which all owners work.

        A StatefulSet that keeps pods of its former template works for both. Raises ApiError.
        """
        reference, workload = version.spec.resource_reference, self._workload(version)
        if reference.kind not in self._owners or workload is None:
            return False
        if version.spec.version in current_versions(workload):
            return await self.is_gone(workload)
        owners = self._owners_of(version)
        if not owners:
            # The watch may be behind.
            return await self._live(version, reference.kind, reference.name) is None
        return all(
            self._is_replaced(version, kind, owner) and owner.spec.kept_pods == 0
            for kind, owner in owners.values()
        )

    def _is_replaced(self, version: WorkloadVersion, kind: str, owner: Owner) -> bool:
        """Whether the owner works for another version now, or another ReplicaSet in its place."""
        if kind == REPLICA_SET:
            return not is_newest(self._replica_sets, owner)
        workload = self._workload(version)
        owned = owned_versions(workload).get(owner.metadata.uid) if workload is not None else None
        return owned is not None and owned.version != version.spec.version

    async def is_gone(self, workload: Workload) -> bool:
        """Whether all owners work for other workloads, and have no pods of this one left.

        A Deployment that is scaled to zero still works for its workload. Raises ApiError.
        """
        namespace, name = place = (workload.metadata.namespace, workload.metadata.name)
        pods = self._pods.by_index(BY_VERSION, (namespace, workload_mark(name)))
        if pods or not is_of_pods(workload):
            return False
        # Of all versions, because a rollback may have returned to the owner of an earlier one.
        versions, current = self._versions.by_index(BY_WORKLOAD, place), workload.spec.version
        followed = {}
        for version in sorted(versions, key=lambda version: version.spec.version != current):
            for kind, owner in self._owners_of(version).values():
                newest = self._newest(name, kind, owner)
                if newest is None:
                    return False
                followed[newest.uid] = newest
        try:
            names = [await next_names(self._client, namespace, own) for own in followed.values()]
        except OwnerGoneError:
            # The watch brings what follows.
            return False
        return bool(names) and all(own is None or own.workload != name for own in names)

    def _newest(self, workload: str, kind: str, owner: Owner) -> OwnerReference | None:
        """Return what works in place of an owner without pods of the workload, if there is any."""
        metadata, status = owner.metadata, owner.status
        if kind == REPLICA_SET:
            alike: tuple[Owner, ...] = (owner, *self._siblings(owner))
            newest = max(alike, key=lambda alike: alike.metadata.annotations.revision)
            is_left = newest is not owner and not (_desired_replicas(owner) or status.replicas)
            metadata = newest.metadata
        else:
            others = self._versions.by_index(BY_OWNER, (metadata.namespace, kind, metadata.name))
            is_left = (
                any(other.spec.workload_name != workload for other in others)
                and has_observed(metadata.generation, status.observed_generation)
                and status.updated_replicas >= status.replicas
                and status.updated_number_scheduled >= status.desired_number_scheduled
            )
        if not is_left:
            return None
        return OwnerReference(
            api_version="apps/v1", kind=kind, name=metadata.name, uid=metadata.uid
        )

    def has_no_pods(self, version: WorkloadVersion) -> bool:
        """Whether all known owners of its pods are scaled to zero, or are older ReplicaSets."""
        owners = self._owners_of(version).values()
        return bool(owners) and not any(
            is_newest(self._replica_sets, owner) and (owner.wants_pods or owner.status.replicas)
            for _, owner in owners
        )

    async def _live(self, version: WorkloadVersion, kind: str, name: str) -> Owner | None:
        namespace = version.metadata.namespace
        return await fetch(self._client, SUPPORTED[kind], Owner, name, namespace)

    def _is_deployed(self, version: WorkloadVersion, kind: str, owner: Owner) -> bool:
        if kind == REPLICA_SET:
            return self._is_replica_set_deployed(version, owner)
        status, kept = owner.status, owner.spec.kept_pods
        if kind == DAEMON_SET:
            wanted, ready = status.desired_number_scheduled, status.number_ready
            updated = status.updated_number_scheduled
        else:
            wanted, ready = _desired_replicas(owner), status.available_replicas
            updated = status.updated_replicas
        return is_deployed(
            Rollout(
                generation=owner.metadata.generation,
                observed_generation=status.observed_generation,
                wanted=wanted,
                ready=ready,
                updated=wanted if kept is None else updated + kept,
                is_superseded=self._is_replaced(version, kind, owner),
            )
        )

    def _is_replica_set_deployed(self, version: WorkloadVersion, owner: Owner) -> bool:
        """Decide by the ReplicaSet's own status, or by that of its Rollout if it has one.

        With no replicas it is deployed only if no other ReplicaSet has replaced it. One with stages
        has all its pods at the end of the last of them.
        """
        is_complete_wanted = self._is_complete_wanted or bool(version.spec.stages)
        metadata, status, wanted = owner.metadata, owner.status, _desired_replicas(owner)
        rollouts = self._rollouts_of(owner)
        own = Rollout(
            generation=metadata.generation,
            observed_generation=status.observed_generation,
            wanted=wanted,
            ready=wanted if rollouts else status.available_replicas,
            updated=wanted,
            is_superseded=wanted == 0 and any(map(_desired_replicas, self._siblings(owner))),
        )
        if not rollouts or not is_deployed(own):
            return is_deployed(own) and not (is_complete_wanted and self._has_others(owner))
        rollout = rollouts[0]
        return rollout is not None and is_deployed(
            Rollout(
                generation=rollout.metadata.generation,
                observed_generation=rollout.status.observed_generation,
                wanted=rollout.status.replicas,
                ready=rollout.status.updated_replicas,
                updated=rollout.status.updated_replicas,
                is_healthy=rollout.status.phase == _HEALTHY,
            )
        )

    def _rollouts_of(self, replica_set: Owner) -> list[Owner | None]:
        """Return the Rollout that owns a ReplicaSet, if one does; None if it is not cached."""
        metadata = replica_set.metadata
        names = [above.name for above in metadata.owner_references if above.kind == ROLLOUT]
        return [self._rollouts.get(f"{metadata.namespace}/{name}") for name in names]

    def _has_others(self, owner: Owner) -> bool:
        """Whether the Deployment has other pods, or is to have more of these."""
        wants_more = _desired_replicas(owner) < owner.metadata.annotations.desired_replicas
        return wants_more or any(
            sibling.status.replicas or _desired_replicas(sibling)
            for sibling in self._siblings(owner)
        )

    def _workload(self, version: WorkloadVersion) -> Workload | None:
        key = f"{version.metadata.namespace}/{version.spec.workload_name}"
        return self._workloads.get(key)


def _desired_replicas(owner: Owner) -> int:
    """Return the number of replicas; the API's default is one."""
    return 1 if owner.spec.replicas is None else owner.spec.replicas


_APP = "app"
_OWNER = "owner"
_STAGE = "stage"


class WorkloadVersionReconciler:
    """Reconciles one KeptnWorkloadVersion; keys are ``namespace/name``."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._context = context
        self._signals = context.signals
        self._app_versions = caches.app_versions.store
        self._deployed = DeploymentCheck(context)
        self._staged = caches.staged_releases
        self._held = HeldStages(context)
        self._versions = PhaseRunner(
            context, WORKLOAD_VERSIONS, caches.workload_versions, WorkloadVersion
        )

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return those of the keys whose version is unfinished."""
        return self._versions.map_unfinished(keys)

    async def reconcile(self, key: str) -> float | None:
        """Bring a version as far as it goes. Raises ApiError."""
        version = self._versions.current(key)
        if version is None:
            return None
        if (
            not version.status.is_finished
            and not self._has_waiting_pods(version)
            and await self._deployed.is_replaced(version)
        ):
            await self._held.report_stuck(version)
            status = supersede(version, self._context.now())
            with suppress(NotFoundError):
                written = await self._versions.patch(version, "/status", status, "status")
                self._signals.report_deprecated(written)
            return None
        app, status = self._app_version(version), version.status
        is_ready = app is not None and self._is_ready(app)
        # An app whose deployment has begun checks again only for a context that came later.
        is_back = not is_ready and app is not None and bool(app.status.workload_status)
        if not status.current_phase or (is_back and not status.deployment_start_time):
            notice = None if is_ready else app_obstacle(app)
            cause = app.metadata.uid if app is not None else ""
            self._versions.report_once(version, _APP, notice, cause)
            if app is None or not is_ready:
                await self._versions.note_waiting(version)
                return None
            version = self._with_inherited_nodes(
                with_app_metadata(await self._with_trace(version, app), app)
            )
        return await self._versions.advance(version, Inputs(), partial(self._look, version))

    def _has_waiting_pods(self, version: WorkloadVersion) -> bool:
        """Whether pods wait for this version: a rollback may need them."""
        place = (version.metadata.namespace, version.metadata.name)
        return bool(self._context.caches.pods.store.by_index(BY_VERSION, place))

    def _app_version(self, version: WorkloadVersion) -> AppVersion | None:
        app = (version.metadata.namespace, version.spec.app)
        return app_version_of(version, self._app_versions.by_index(BY_APP, app))

    def _is_ready(self, app: AppVersion) -> bool:
        """Whether the app's checks passed, and no changed context is about to add others."""
        place, caches = (app.metadata.namespace, app.spec.app_name), self._context.caches
        context = caches.app_contexts.store.get("/".join(place))
        workloads = caches.workload_versions.store.by_index(BY_APP, place)
        return may_begin(app) and not lacks_context(app, context, workloads)

    def _with_inherited_nodes(self, version: WorkloadVersion) -> WorkloadVersion:
        """Return the version with the failed nodes of the previous one, if settings keep them."""
        settings = self._context.scheduler
        if not settings.enabled or not settings.keep_failed_nodes:
            return version
        spec, namespace = version.spec, version.metadata.namespace
        versions = self._context.caches.workload_versions.store.by_index(
            BY_WORKLOAD, (namespace, spec.workload_name)
        )
        previous = (v for v in versions if v.spec.version == spec.previous_version)
        before = next(previous, None)
        return with_inherited_nodes(version, before, self._context.now())

    async def _with_trace(self, version: WorkloadVersion, app: AppVersion) -> WorkloadVersion:
        """Return the version with the trace of its app in its spec, if there is one."""
        trace = trace_of(app)
        if not self._signals.is_tracing or version.spec.trace_id or not trace:
            return version
        return await self._versions.patch(version, "/spec/traceId", trace)

    async def _look(self, version: WorkloadVersion, inputs: Inputs) -> Inputs:
        """Add whether the pods are ready; report once why that is unknown."""
        is_deployed, complaint = await self._deployed.look(
            version, live=not self._versions.has_reported(version, _OWNER)
        )
        notice = None
        # A failed version no longer waits for its owner.
        if complaint and not version.status.is_finished:
            notice = PhaseNotice(
                phase=WORKLOAD_DEPLOY.name,
                state="ReconcileError",
                text=complaint,
                warning=True,
            )
        self._versions.report_once(version, _OWNER, notice)
        resumed = "" if complaint else self._deployed.resumed(version)
        pods = None
        if version.spec.stages:
            pods = await self._staged.look(version, is_deployed=is_deployed)
            self._versions.report_once(version, _STAGE, await self._held.look(version))
        return replace(inputs, is_deployed=is_deployed, resumed=resumed, pods=pods)
