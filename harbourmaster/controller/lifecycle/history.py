"""Deletes old versions of apps and workloads when a version ends (keptn-spec 3.13)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.controller.lifecycle import caches as by
from harbourmaster.controller.lifecycle.owners import versions_of_revisions
from harbourmaster.lifecycle.history import surplus_versions
from harbourmaster.lifecycle.model import PROGRESSING, WorkloadVersion
from harbourmaster.lifecycle.subjects import state_of
from harbourmaster.lifecycle.workloads import names_of, recorded_owners

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.model import App, Version

_MOST: Final = 20
"""Maximum versions that are deleted in one pass."""
_PAUSE: Final = 1.0
"""Seconds until the next pass over an app with more versions to delete."""


class HistoryReconciler:
    """Deletes the versions beyond the limit of one app and its workloads; keys are the app's.

    Tasks, evaluations and Jobs go with the version that they belong to.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return all keys, because only the caches show whether an app has too many versions."""
        return list(self._context.caches.apps.store.keys()) if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Delete the oldest surplus versions of one app. Raises ApiError."""
        caches, settings = self._context.caches, self._context.settings
        app = caches.apps.store.get(key)
        if app is None or not settings.history_limit:
            return None
        namespace, surplus = app.metadata.namespace, self._surplus(app)
        of_workloads = (version for version in surplus if isinstance(version, WorkloadVersion))
        if any(map(caches.find_owner, chain.from_iterable(map(recorded_owners, of_workloads)))):
            # Only live ControllerRevisions show whether a rollback of these may lead to them.
            by_tag = settings.version_from_tag
            names = await versions_of_revisions(self._context.client, namespace, by_tag=by_tag)
            surplus = [version for version in surplus if version.metadata.name not in names]
        for version in surplus[:_MOST]:
            resource = WORKLOAD_VERSIONS if isinstance(version, WorkloadVersion) else APP_VERSIONS
            name, uid = version.metadata.name, version.metadata.uid
            await self._context.client.delete(resource, name, namespace, uid=uid, missing_ok=True)
        return _PAUSE if len(surplus) > _MOST else None

    def _surplus(self, app: App) -> list[Version]:
        caches, namespace, name = self._context.caches, app.metadata.namespace, app.metadata.name
        store, place = caches.workload_versions.store, (namespace, name)
        used = {names_of(name, entry.name, entry.version).version for entry in app.spec.workloads}
        groups: list[Iterable[Version]] = [caches.app_versions.store.by_index(by.BY_APP, place)]
        workloads = dict.fromkeys(v.spec.workload_name for v in store.by_index(by.BY_APP, place))
        groups += [store.by_index(by.BY_WORKLOAD, (namespace, workload)) for workload in workloads]
        return [
            version
            for group in groups
            for version in surplus_versions(group, self._context.settings.history_limit)
            if version.metadata.name not in used and not self._is_used(version)
        ]

    def _is_used(self, version: Version) -> bool:
        """Whether its app or workload, a pod, a running check or a ReplicaSet needs it."""
        caches, metadata = self._context.caches, version.metadata
        place, uid = (metadata.namespace, metadata.name), metadata.uid
        owners = recorded_owners(version) if isinstance(version, WorkloadVersion) else ()
        checks: list[Any] = [*caches.tasks.store.by_index(by.BY_PARENT, uid)]
        checks += caches.evaluations.store.by_index(by.BY_PARENT, uid)
        return bool(
            caches.apps.store.by_index(by.BY_CURRENT, place)
            or caches.workloads.store.by_index(by.BY_CURRENT, place)
            or caches.app_versions.store.by_index(by.BY_LISTED, place)
            or caches.pods.store.by_index(by.BY_VERSION, place)
            or any(state_of(check) == PROGRESSING for check in checks)
            or any(caches.replica_sets.store.by_index(by.BY_UID, owner) for owner in owners)
        )
