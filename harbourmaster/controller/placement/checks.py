"""Runs the checks of Applications: binds what passed, and reverts what failed afterwards.

What is to be done follows from the Application, its KeptnAppVersions and its ControllerRevisions,
so each write may be the last one of a term.
"""

from __future__ import annotations

import contextlib
import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata, choose_definition
from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    TASK_DEFINITIONS,
    TASKS,
)
from harbourmaster.controller.lifecycle.caches import BY_APP
from harbourmaster.controller.objects import OwnWrites
from harbourmaster.controller.placement.revisions import Revisions
from harbourmaster.gates.names import NAME_LIMIT, resource_name
from harbourmaster.kube.errors import AlreadyExistsError
from harbourmaster.lifecycle.applications import DEPLOYED_KEY, progress_of
from harbourmaster.lifecycle.check_facts import facts_in
from harbourmaster.lifecycle.model import (
    APPLICATION_PREFIX,
    AppVersion,
    AppVersionSpec,
    WorkloadEntry,
)
from harbourmaster.placement import checking
from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.confirmation import decide_confirmed
from harbourmaster.placement.decision import best, record
from harbourmaster.placement.model import FAILED, PASSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.scheduler import SchedulingContext
    from harbourmaster.controller.placement.snapshots import TimedPass
    from harbourmaster.lifecycle.applications import CheckProgress
    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import Application, ApplicationStatus, CheckedGeneration

SHARED: Final = {
    APP_VERSIONS: "app_versions",
    TASKS: "tasks",
    TASK_DEFINITIONS: "task_definitions",
    EVALUATIONS: "evaluations",
    EVALUATION_DEFINITIONS: "evaluation_definitions",
    KEPTN_METRICS: "metrics",
}
"""The caches of the lifecycle that checks read, by the names under which they are shared."""
_LIFECYCLE_OFF: Final = (
    "the controllers of deployment gates do not run: add lifecycle to controllers, or remove "
    "spec.checks"
)
_MAY_DEPLOY: Final = frozenset((PASSED, checking.DEPLOYING))
_LABELS: Final = 64
_NAME_LEAST: Final = 60


class ApplicationChecks:
    """Decides about Applications with checks; ``caches`` are those of SHARED, or none.

    ``places`` are the namespaces in which definitions are searched after that of an Application.
    """

    def __init__(
        self, context: SchedulingContext, caches: Mapping[str, Any], places: tuple[str, ...]
    ) -> None:
        self._context = context
        self._caches = {kind: caches[name] for kind, name in SHARED.items() if name in caches}
        self._stores = {kind: cache.store for kind, cache in self._caches.items()}
        self._places = places
        self._own_writes = OwnWrites()
        self._revisions = Revisions(context.client)

    @property
    def is_ready(self) -> bool:
        """Whether all definitions are known: a missing one would count as a changed one."""
        return all(cache.synced.is_set() for cache in self._caches.values())

    def forget(self, key: str) -> None:
        """Drop what is known of a deleted Application."""
        self._revisions.forget(key)

    def concern(self, application: Application) -> bool:
        """Return whether an Application has checks, or something is left of earlier ones."""
        status = application.status
        is_checked = application.spec.checks is not None or status.checked or status.proposed
        return bool(is_checked or self._versions(application.metadata))

    async def settle(
        self, application: Application, snapshot: TimedPass
    ) -> tuple[Decision, ApplicationStatus]:
        """Decide about an Application, with the writes that come before that of its status.

        Raises ApiError.
        """
        decision, status = await self._settle(application, snapshot)
        await self._clean(application, status)
        return decision, status

    async def _settle(
        self, application: Application, snapshot: TimedPass
    ) -> tuple[Decision, ApplicationStatus]:
        if application.spec.checks is None:
            status = checking.forget(application.status)
            subject, decision = await self._decide(replace(application, status=status), snapshot)
            return decision, self._context.settle(subject, decision, snapshot.seen)
        status = checking.follow_rollback(application.status, snapshot.seen.now)
        application = replace(application, status=status)
        application, reverted = await self._follow_deployed(application, snapshot)
        if reverted is not None:
            # It is told before anything else is proposed.
            return reverted, application.status
        subject, decision = await self._decide(application, snapshot)
        bound, status = self._context.settle(subject, decision, snapshot.seen), application.status
        now, placed = snapshot.seen.now, (status.scheduled_to, status.scheduled_generation)
        if (bound.scheduled_to, bound.scheduled_generation) == placed:
            is_outdated = self._is_outdated(application, decision, snapshot)
            return decision, checking.conclude(bound, now) if is_outdated else bound
        wanted, reason, text = await self._admit(subject, decision, snapshot)
        if reason in _MAY_DEPLOY:
            return decision, checking.bind(status, bound, wanted, now)
        if reason != checking.CHECKING:
            # No other application waits for one that perhaps never moves.
            snapshot.move_limits.withdraw(application.metadata.key)
        if reason != checking.REVERTED:
            status = checking.propose(status, wanted, now, reason, text)
        if status != application.status:
            proposed = replace(record(decision, snapshot.seen), outcome="Proposed")
            status = replace(status, last_decision=proposed)
        return decision.with_current("Waiting", reason), status

    async def _admit(
        self, application: Application, decision: Decision, snapshot: TimedPass
    ) -> tuple[CheckedGeneration, str, str]:
        """Return what a decision deploys, with the reason and the text of its checks.

        A generation that may be deployed is kept. Raises ApiError.
        """
        wanted = checking.proposal(application, decision)
        if wanted.cause:
            wanted, reason, text = await self._check(application, wanted, snapshot)
            if reason not in _MAY_DEPLOY:
                return wanted, reason, text
        if any(record.generation == wanted.generation for record in application.status.checked):
            return wanted, PASSED, ""
        refusal = await self._revisions.keep(application.metadata)
        return wanted, checking.TOO_LARGE if refusal else PASSED, refusal

    def _is_outdated(
        self, application: Application, decision: Decision, snapshot: TimedPass
    ) -> bool:
        """Whether it stays where it is, although a check for another cluster has passed."""
        status, proposed = application.status, application.status.proposed
        if proposed is None or not status.checked or proposed.generation != decision.generation:
            return False
        if decision.target is not None or decision.current not in best(decision.scores):
            return False
        version = self._version(application, proposed.check)
        return version is None or self._progress(version, snapshot).reason in _MAY_DEPLOY

    async def _decide(
        self, application: Application, snapshot: TimedPass
    ) -> tuple[Application, Decision]:
        """Decide about the deployed generation if it must move, otherwise about the newest one."""
        since = self._context.since()
        decide_on = partial(decide_confirmed, seen=snapshot.seen, since=since)
        deployed = await self._in_generation(application, application.status.scheduled_generation)
        if deployed is not None:
            decision = decide_on(deployed, move_limits=snapshot.move_limits)
            is_forced = decision.target is not None and not decision.is_elective
            if is_forced and not self._gives_way(deployed, decision, application.metadata):
                return deployed, decision
        return application, decide_on(application, move_limits=snapshot.move_limits)

    def _gives_way(self, deployed: Application, decision: Decision, newest: Metadata) -> bool:
        """Whether the check of its move has failed, so that the newest generation is tried."""
        proposed, target = deployed.status.proposed, decision.target
        if proposed is None or target is None or proposed.uid != target.uid:
            return False
        version = self._version(deployed, proposed.check)
        has_failed = version is not None and version.status.status == FAILED
        is_checked = bool(checking.cause_of(deployed, decision))
        return is_checked and (has_failed or proposed.generation == newest.generation)

    async def _in_generation(self, application: Application, generation: int) -> Application | None:
        """Return an Application as an earlier generation of it; None if that is not kept."""
        metadata, checks = application.metadata, application.spec.checks
        is_kept = any(record.generation == generation for record in application.status.checked)
        if checks is None or not is_kept or generation == metadata.generation:
            return None
        spec = await self._revisions.find(metadata, generation)
        if spec is None:
            return None
        metadata = replace(metadata, generation=generation)
        return replace(application, metadata=metadata, spec=replace(spec, checks=checks))

    # The checks before a deployment

    async def _check(
        self, application: Application, wanted: CheckedGeneration, snapshot: TimedPass
    ) -> tuple[CheckedGeneration, str, str]:
        """Return the generation with its check, and the reason and text of its progress.

        Creates the check. Raises ApiError.
        """
        if not self._stores:
            return wanted, checking.LIFECYCLE_OFF, _LIFECYCLE_OFF
        proposed, last = application.status.proposed, application.status.checked[:1]
        for known in filter(None, (proposed, *last)):
            version = self._version(application, known.check)
            if version is None or known.generation != wanted.generation:
                continue
            has_failed = version.status.status == FAILED
            if has_failed and not known.check.endswith(self._seed(application, known)):
                # A definition has changed.
                continue
            if has_failed and known is proposed and known.result == FAILED:
                return known, checking.REVERTED, ""
            if checking.is_same(known, wanted):
                return replace(wanted, check=known.check), *self._progress(version, snapshot)
        return await self._begin(application, wanted)

    async def _begin(
        self, application: Application, wanted: CheckedGeneration
    ) -> tuple[CheckedGeneration, str, str]:
        """Create the check of a generation, if it does not exist. Raises ApiError."""
        metadata, checks = application.metadata, application.spec.checks
        if checks is None:
            return wanted, PASSED, ""
        owner = metadata.as_controller(APPLICATIONS.api_version, APPLICATIONS.kind)
        number, seed = str(wanted.generation), self._seed(application, wanted)
        name = resource_name(NAME_LIMIT, _NAME_LEAST, "application", metadata.name, number, seed)
        version = AppVersion(
            metadata=Metadata(name=name, namespace=metadata.namespace, owner_references=(owner,)),
            spec=AppVersionSpec(
                app_name=f"{APPLICATION_PREFIX}{metadata.name}",
                version=number,
                workloads=(WorkloadEntry(name=metadata.name, version=number),),
                metadata={
                    "cluster": wanted.name,
                    "generation": number,
                    "cause": wanted.cause,
                    **self._cluster_labels(f"{metadata.namespace}/{wanted.name}"),
                },
                pre_deployment_tasks=checks.pre_deployment.tasks,
                pre_deployment_evaluations=checks.pre_deployment.evaluations,
                post_deployment_tasks=checks.post_deployment.tasks,
                post_deployment_evaluations=checks.post_deployment.evaluations,
            ),
        )
        body = {**APP_VERSIONS.type_fields, **msgspec.to_builtins(version)}
        with contextlib.suppress(AlreadyExistsError):
            await self._context.client.create(APP_VERSIONS, body, metadata.namespace)
        return replace(wanted, check=name), checking.CHECKING, ""

    def _cluster_labels(self, cluster_key: str) -> dict[str, str]:
        cluster = self._context.caches.clusters.store.get(cluster_key)
        labels = sorted(cluster.metadata.labels.items()) if cluster is not None else []
        return {f"cluster-label/{key}": value for key, value in labels[:_LABELS]}

    def _seed(self, application: Application, wanted: CheckedGeneration) -> str:
        """Return the end of a check's name: another definition or cluster has another one."""
        checks, namespace = application.spec.checks, application.metadata.namespace
        parts = [application.metadata.uid, wanted.uid]
        for phase in (checks.pre_deployment, checks.post_deployment) if checks else ():
            listed = {TASK_DEFINITIONS: phase.tasks, EVALUATION_DEFINITIONS: phase.evaluations}
            for kind, names in listed.items():
                parts += map(partial(self._version_of, kind, namespace), names)
        return hashlib.sha256("/".join(parts).encode()).hexdigest()[:10]

    def _version_of(self, kind: Resource, namespace: str, name: str) -> str:
        """Return what distinguishes a definition from any other and from itself once changed."""
        store, places = self._stores[kind], dict.fromkeys((namespace, *self._places))
        definition = choose_definition(store.get(f"{place}/{name}") for place in places)
        own = definition.metadata if definition is not None else Metadata()
        return f"{name}:{own.uid}:{own.generation}"

    def _progress(self, version: AppVersion, snapshot: TimedPass) -> CheckProgress:
        namespace = version.metadata.namespace
        places = tuple(dict.fromkeys((namespace, *self._places)))
        facts = facts_in(namespace, places, lambda kind, key: self._stores[kind].get(key))
        return progress_of(version, facts, snapshot.seen.now)

    def _version(self, application: Application, name: str) -> AppVersion | None:
        """Return the version of that name if it is of this Application."""
        store = self._stores.get(APP_VERSIONS)
        version = store.get(f"{application.metadata.namespace}/{name}") if store and name else None
        is_own = version is not None and version.metadata.is_controlled_by(application.metadata)
        return version if is_own else None

    def _versions(self, application: Metadata) -> list[Metadata]:
        store = self._stores.get(APP_VERSIONS)
        place = (application.namespace, f"{APPLICATION_PREFIX}{application.name}")
        named = [version.metadata for version in store.by_index(BY_APP, place)] if store else []
        return [metadata for metadata in named if metadata.is_controlled_by(application)]

    # What follows a deployment

    async def _follow_deployed(
        self, application: Application, snapshot: TimedPass
    ) -> tuple[Application, Decision | None]:
        """Take the deployed generation through the checks after its deployment.

        Returns the decision of a revert as well. Raises ApiError.
        """
        status, now = application.status, snapshot.seen.now
        last = status.checked[0] if status.checked else None
        version = self._version(application, last.check) if last is not None else None
        if last is None or version is None or last.result == PASSED:
            return application, None
        if self._own_writes.hide(version.metadata):
            return application, None
        progress, checks = self._progress(version, snapshot), application.spec.checks
        has_failed = progress.reason == checking.CHECK_FAILED
        if DEPLOYED_KEY not in version.metadata.annotations and not has_failed:
            if checking.is_ready_there(status, last):
                await self._mark(version, "true")
            return application, None
        if progress.reason == PASSED:
            status = checking.record_end(status, now, has_passed=True, text="")
        elif has_failed and last.result != FAILED:
            reverts = checks is not None and checks.on_failure == "Revert"
            reverted = await self._revert(application, snapshot, progress) if reverts else None
            if reverted is not None:
                await self._mark(version, None)
                return reverted
            status = checking.record_end(status, now, has_passed=False, text=progress.text)
        return replace(application, status=status), None

    async def _revert(
        self, application: Application, snapshot: TimedPass, progress: CheckProgress
    ) -> tuple[Application, Decision] | None:
        """Return the Application after a revert; None if no earlier generation is kept."""
        status, seen = application.status, snapshot.seen
        former = next(iter(status.checked[1:]), None)
        if former is None or status.scheduled_to is None:
            return None
        earlier = await self._in_generation(application, former.generation)
        if earlier is None:
            return None
        earlier = replace(earlier, status=replace(status, proposed=former))
        is_elsewhere = former.uid != status.scheduled_to.uid
        leave = "the checks after the deployment failed" if is_elsewhere else ""
        decision = decide(earlier, seen, snapshot.move_limits, leave)
        if decision.target is None or decision.target.uid != former.uid:
            decision = decision.with_current("Stayed", "its checks failed after the deployment")
        bound = self._context.settle(earlier, decision, snapshot.seen)
        status = checking.revert(status, bound, seen.now, progress.text)
        return replace(application, status=status), decision

    async def _mark(self, version: AppVersion, annotation: str | None) -> None:
        metadata = version.metadata
        if metadata.annotations.get(DEPLOYED_KEY) == annotation:
            # An earlier term wrote it: no event would end the wait for ours.
            return
        annotations = {DEPLOYED_KEY: annotation}
        patch = MergePatch({"metadata": {"uid": metadata.uid, "annotations": annotations}})
        await self._context.client.patch(APP_VERSIONS, metadata.name, patch, metadata.namespace)
        self._own_writes.note(metadata)

    # What is kept

    async def _clean(self, application: Application, status: ApplicationStatus) -> None:
        """Delete checks and revisions that neither the stored nor the next status names.

        Raises ApiError.
        """
        before, metadata = application.status, application.metadata
        records = (*before.checked, *status.checked, before.proposed, status.proposed)
        known = [record for record in records if record and application.spec.checks]
        names = {record.check for record in known}
        for own in self._versions(metadata):
            if own.name not in names:
                self._own_writes.forget(own.key)
                await self._context.client.delete(
                    APP_VERSIONS, own.name, own.namespace, uid=own.uid, missing_ok=True
                )
        kept = frozenset(record.generation for record in known)
        await self._revisions.clean(metadata, kept)
