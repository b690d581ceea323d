"""Takes each version of an app through its phases (keptn-spec 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.api.resources import APP_VERSIONS
from harbourmaster.controller.lifecycle.versions import Versions
from harbourmaster.gates.names import version_name, workload_name
from harbourmaster.lifecycle.model import AppVersion
from harbourmaster.lifecycle.steps import Inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import WorkloadEntry


class AppVersions:
    """Reconciles one KeptnAppVersion; keys are ``namespace/name``."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._workloads = caches.workload_versions.store
        self._versions = Versions(context, APP_VERSIONS, caches.app_versions, AppVersion)

    def due(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those of the keys that are not over."""
        return self._versions.unfinished(keys)

    async def reconcile(self, key: str) -> float | None:
        """Bring a version as far as it goes. Raises ApiError."""
        version = self._versions.current(key)
        if version is None:
            return None
        return await self._versions.advance(version, Inputs(workloads=self._states(version)))

    def _states(self, version: AppVersion) -> dict[WorkloadEntry, str]:
        """What the workloads that the app lists are in, if there are such."""
        app, namespace = version.spec.app_name, version.metadata.namespace
        states = {}
        for entry in version.spec.workloads:
            name = version_name(workload_name(app, entry.name), entry.version)
            found = self._workloads.get(f"{namespace}/{name}")
            if found is not None and found.spec.app == app:
                states[entry] = found.status.status
        return states
