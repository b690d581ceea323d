"""Takes each version of a workload through its phases, once its app lets it (keptn-spec 3.5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from harbourmaster.api.resources import WORKLOAD_VERSIONS
from harbourmaster.controller.lifecycle.caches import BY_APP, BY_WORKLOAD
from harbourmaster.controller.lifecycle.deployed import Deployed
from harbourmaster.controller.lifecycle.versions import Versions
from harbourmaster.lifecycle.failed_nodes import inheriting
from harbourmaster.lifecycle.model import WorkloadVersion
from harbourmaster.lifecycle.phases import WORKLOAD_DEPLOY
from harbourmaster.lifecycle.steps import Inputs, PhaseNotice
from harbourmaster.lifecycle.waiting import app_version_of, begun, may_begin, obstacle, trace_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import AppVersion

_APP = "app"
_OWNER = "owner"


class WorkloadVersions:
    """Reconciles one KeptnWorkloadVersion; keys are ``namespace/name``."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._context = context
        self._signals = context.signals
        self._app_versions = caches.app_versions.store
        self._deployed = Deployed(context)
        self._versions = Versions(
            context, WORKLOAD_VERSIONS, caches.workload_versions, WorkloadVersion
        )

    def due(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those of the keys that are not over."""
        return self._versions.unfinished(keys)

    async def reconcile(self, key: str) -> float | None:
        """Bring a version as far as it goes. Raises ApiError."""
        version = self._versions.current(key)
        if version is None:
            return None
        if not version.status.current_phase:
            app = self._app_version(version)
            told = None if may_begin(app) else obstacle(app)
            cause = app.metadata.uid if app is not None else ""
            self._versions.tell_once(version, _APP, told, cause)
            if app is None or not may_begin(app):
                await self._versions.note_waiting(version)
                return None
            version = self._inheriting(begun(await self._traced(version, app), app))
        return await self._versions.advance(version, Inputs(), partial(self._look, version))

    def _app_version(self, version: WorkloadVersion) -> AppVersion | None:
        app = (version.metadata.namespace, version.spec.app)
        return app_version_of(version, self._app_versions.by_index(BY_APP, app))

    def _inheriting(self, version: WorkloadVersion) -> WorkloadVersion:
        """The version with the failed nodes of the one before, where they are kept."""
        settings = self._context.scheduler
        if not settings.enabled or not settings.keep_failed_nodes:
            return version
        spec, namespace = version.spec, version.metadata.namespace
        others = self._context.caches.workload_versions.store.by_index(
            BY_WORKLOAD, (namespace, spec.workload_name)
        )
        before = next((each for each in others if each.spec.version == spec.previous_version), None)
        return inheriting(version, before, self._context.now())

    async def _traced(self, version: WorkloadVersion, app: AppVersion) -> WorkloadVersion:
        """The version with the trace of its app in its spec, where there is one."""
        trace = trace_of(app)
        if not self._signals.tracing or version.spec.trace_id or not trace:
            return version
        return await self._versions.patch(version, "/spec/traceId", trace)

    async def _look(self, version: WorkloadVersion) -> bool:
        """Whether the pods are ready; what keeps us from knowing is told once."""
        found = await self._deployed.look(
            version, live=not self._versions.has_told(version, _OWNER)
        )
        told = None
        if found.complaint:
            told = PhaseNotice(
                phase=WORKLOAD_DEPLOY.name,
                state="ReconcileError",
                text=found.complaint,
                warning=True,
            )
        self._versions.tell_once(version, _OWNER, told)
        return found.is_deployed
