"""KeptnApps: each generation has a KeptnAppVersion, and ends those before it (keptn-spec 3.1).

A KeptnAppContext counts for a version until one of its pods is released, and is reported then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from harbourmaster.api.resources import APP_CONTEXTS, APP_VERSIONS, APPS
from harbourmaster.controller.lifecycle.caches import BY_APP
from harbourmaster.controller.lifecycle.latest import LatestValues
from harbourmaster.controller.lifecycle.writes import (
    create,
    fetch,
    is_end_of_namespace,
    patch_object,
    write_status,
)
from harbourmaster.kube.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from harbourmaster.lifecycle.apps import (
    awaits_context,
    deprecate_all_phases,
    listed_fields,
    new_version,
    older_checks,
    plan_app,
    with_context,
)
from harbourmaster.lifecycle.machine import retry_changed_checks
from harbourmaster.lifecycle.model import App, AppContext, AppVersion, CurrentVersion
from harbourmaster.lifecycle.waiting import lacks_context

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.apps import AppPlan

LOOK_AGAIN: Final = 10.0
"""Seconds until the reconciler looks again whether the version of a former app is gone."""


class AppReconciler:
    """Reconciles KeptnApps: the version, then the end of earlier ones, then the status.

    Everything it needs is in the objects, so it may stop between any two writes.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._signals = context.signals
        self._context = context
        self._apps = context.caches.newest_apps
        self._versions = context.caches.app_versions.store
        # By key of an app: what is delayed, and since when.
        self._delayed: dict[str, tuple[object, datetime]] = {}
        self._reported: LatestValues[object, None] = LatestValues(4096)

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return all keys, because only the caches show whether an app needs anything."""
        return list(self._apps.keys()) if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Bring the versions of one app up to date. Raises ApiError."""
        app = self._apps.get(key)
        if app is None or app.metadata.deletion_timestamp:
            self._delayed.pop(key, None)
            return None
        try:
            return await self._reconcile_app(app)
        except NotFoundError:
            # Deleted meanwhile; the watch brings it.
            return None
        except ForbiddenError as error:
            if is_end_of_namespace(error):
                return None
            raise

    async def _reconcile_app(self, app: App) -> float | None:
        namespace, name = app.metadata.namespace, app.metadata.name
        versions = self._versions.by_index(BY_APP, (namespace, name))
        todo = plan_app(app, versions)
        if todo.is_blocked:
            text = f"KeptnAppVersion {todo.name} is not of this app: delete it"
            self._signals.emit(app, "CreateAppVersion", "Failed", text)
            return LOOK_AGAIN
        if todo.create:
            # Read live: an app and its context are applied together, and the watch may be behind.
            context = await fetch(self._client, APP_CONTEXTS, AppContext, name, namespace)
            left = self._remaining(app.metadata.key, (app.metadata.uid, todo.name))
            if left and awaits_context(app, context, versions):
                return left
            try:
                is_there = await self._create_version(app, context, todo)
            except (InvalidError, ForbiddenError) as error:
                if not is_end_of_namespace(error):
                    self._signals.emit(app, "CreateAppVersion", "Failed", error.message)
                if isinstance(error, InvalidError):
                    return None
                raise
            if not is_there:
                return LOOK_AGAIN
        if todo.deprecate:
            await self._supersede(app, todo.deprecate)
        if app.status.current_version != app.spec.version:
            status = CurrentVersion(current_version=app.spec.version)
            answer = await write_status(self._client, APPS, app.metadata, status)
            self._apps.put(app.metadata.key, msgspec.json.decode(answer, type=App))
        present = self._versions.get(f"{namespace}/{todo.name}")
        return await self._follow_context(app, present) if present is not None else None

    def _remaining(self, key: str, mark: object) -> float:
        """Return the seconds that are left of the delay, which another mark begins; at least 0."""
        now, delay = self._context.now(), self._context.settings.app_context_delay_seconds
        if key not in self._delayed or self._delayed[key][0] != mark:
            self._delayed[key] = (mark, now)
        elapsed = (now - self._delayed[key][1]).total_seconds()
        # A clock that is set back ends the delay.
        return delay - elapsed if 0 <= elapsed < delay else 0.0

    async def _create_version(self, app: App, context: AppContext | None, todo: AppPlan) -> bool:
        """Create the version with the current context; False if the name is taken."""
        namespace = app.metadata.namespace
        try:
            wish = new_version(app, context)
            version = await create(self._client, APP_VERSIONS, wish, namespace)
        except AlreadyExistsError:
            existing = await fetch(self._client, APP_VERSIONS, AppVersion, todo.name, namespace)
            return existing is not None and not plan_app(app, [existing]).is_blocked
        self._signals.report_created(version)
        if context is not None:
            self._report_ignored(app)
        return True

    def _report_ignored(self, app: App) -> None:
        if ignored := listed_fields(older_checks(app)):
            text = f"KeptnAppContext {app.metadata.name} counts, so these are ignored: {ignored}"
            self._signals.emit(app, "CreateAppVersion", "ChecksIgnored", text)

    async def _follow_context(self, app: App, version: AppVersion) -> float | None:
        """Give the version a context that is created or changed later, or report that one."""
        namespace, name = app.metadata.namespace, app.metadata.name
        caches = self._context.caches
        context = caches.app_contexts.store.get(app.metadata.key)
        workloads = caches.workload_versions.store.by_index(BY_APP, (namespace, name))
        if context is None or with_context(version, context) == version.spec:
            if status := retry_changed_checks(version):
                await write_status(self._client, APP_VERSIONS, version.metadata, status)
        elif not lacks_context(version, context, workloads):
            return self._report_late(app, version, context)
        elif live := await fetch(self._client, APP_CONTEXTS, AppContext, name, namespace):
            # Only a live one, because the version may have been created with a newer one.
            operation = {"op": "add", "path": "/spec", "value": with_context(version, live)}
            await patch_object(self._client, APP_VERSIONS, version.metadata, [operation])
            self._report_ignored(app)
        return None

    def _report_late(self, app: App, version: AppVersion, context: AppContext) -> float | None:
        """Report a context that counts from the next version on, if none comes within the delay."""
        namespace, name, own = app.metadata.namespace, app.metadata.name, context.metadata
        mark = (version.metadata.name, own.uid, own.generation)
        left = self._remaining(app.metadata.key, mark)
        # The end of a request may bring the next version.
        if left or app.metadata.key in self._context.caches.creation_requests.store:
            return left or None
        if self._reported.add(mark, None):
            change = json.dumps({"spec": {"revision": app.spec.revision + 1}})
            text = (
                f"came too late for version {version.spec.version} of KeptnApp {name}, and counts "
                "from the next one on; to run its checks for this version, run "
                f"kubectl -n {namespace} patch keptnapp {name} --type merge -p '{change}'"
            )
            self._signals.emit(context, "AppContext", "Late", text)
        return None

    async def _supersede(self, app: App, versions: Iterable[AppVersion]) -> None:
        live = await fetch(self._client, APPS, App, app.metadata.name, app.metadata.namespace)
        # One of these may be of a later generation, which the watch is yet to bring.
        if live is not None and live.metadata.generation == app.metadata.generation:
            for version in versions:
                await self._deprecate(app, version)

    async def _deprecate(self, app: App, version: AppVersion) -> None:
        status = deprecate_all_phases(version.status)
        try:
            await write_status(self._client, APP_VERSIONS, version.metadata, status)
        except NotFoundError:
            return
        except ForbiddenError as error:
            self._signals.emit(app, "DeprecateAppVersion", "Failed", error.message)
            raise
        self._signals.report_deprecated(structs.replace(version, status=status))
