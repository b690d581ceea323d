"""Takes each version of an app through its phases (keptn-spec 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from harbourmaster.api.resources import APP_VERSIONS
from harbourmaster.controller.lifecycle.versions import PhaseRunner
from harbourmaster.controller.lifecycle.workload_versions import DeploymentCheck
from harbourmaster.lifecycle.applications import DEPLOYED_KEY
from harbourmaster.lifecycle.model import (
    DEPRECATED,
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    AppVersion,
    is_generated,
)
from harbourmaster.lifecycle.reruns import is_rerun_wanted
from harbourmaster.lifecycle.steps import Inputs
from harbourmaster.lifecycle.workloads import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import WorkloadEntry


class AppVersionReconciler:
    """Reconciles one KeptnAppVersion; keys are ``namespace/name``."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._is_idle = caches.is_idle
        self._workloads = caches.workload_versions.store
        self._deployed = DeploymentCheck(context)
        self._versions = PhaseRunner(context, APP_VERSIONS, caches.app_versions, AppVersion)

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return those of the keys whose version is unfinished."""
        return self._versions.map_unfinished(keys)

    async def reconcile(self, key: str) -> float | None:
        """Bring a version as far as it goes. Raises ApiError."""
        version = self._versions.current(key)
        if version is None:
            return None
        is_deployed = DEPLOYED_KEY in version.metadata.annotations
        if version.is_of_application and not is_deployed and is_rerun_wanted(version):
            # One that was reverted is deployed again before the checks after that are repeated.
            status = replace(version.status, workload_overall_status=PENDING)
            version = replace(version, status=status)
        return await self._versions.advance(version, Inputs(workloads=self._states(version)))

    def _states(self, version: AppVersion) -> dict[WorkloadEntry, str]:
        """Return the states of those workloads that the app lists and that exist.

        One that wants no pods counts as deployed: its own checks run for its first pod.
        """
        if version.is_of_application:
            state = SUCCEEDED if DEPLOYED_KEY in version.metadata.annotations else PROGRESSING
            return dict.fromkeys(version.spec.workloads, state)
        app, namespace = version.spec.app_name, version.metadata.namespace
        is_open, states = not version.status.is_finished, {}
        for entry in version.spec.workloads:
            names = names_of(app, entry.name, entry.version)
            workload = self._workloads.get(f"{namespace}/{names.version}")
            if workload is not None and workload.spec.app == app and is_generated(workload):
                # Of one that was replaced, the app may still want another one in this version.
                state = workload.status.status
                if state == FAILED and is_open and self._deployed.has_no_pods(workload):
                    state = PENDING
                states[entry] = PENDING if state == DEPRECATED else state
            if states.get(entry, PENDING) == PENDING and self._is_idle(namespace, names):
                states[entry] = SUCCEEDED
        return states
