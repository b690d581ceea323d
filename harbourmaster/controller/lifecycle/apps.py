"""KeptnApps: each generation has a KeptnAppVersion, and ends those before it (keptn-spec 3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from harbourmaster.api.resources import APP_CONTEXTS, APP_VERSIONS, APPS
from harbourmaster.controller.lifecycle.caches import BY_APP
from harbourmaster.controller.lifecycle.writes import (
    create,
    fetch,
    is_end_of_namespace,
    write_status,
)
from harbourmaster.kube.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from harbourmaster.lifecycle.apps import (
    deprecate_all_phases,
    listed_fields,
    new_version,
    older_checks,
    plan_app,
)
from harbourmaster.lifecycle.model import AppContext, AppVersion, CurrentVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.apps import AppPlan
    from harbourmaster.lifecycle.model import App

LOOK_AGAIN: Final = 10.0
"""Seconds until the reconciler looks again whether the version of a former app is gone."""


class AppReconciler:
    """Reconciles KeptnApps: the version, then the end of earlier ones, then the status.

    Everything it needs is in the objects, so it may stop between any two writes.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._signals = context.signals
        self._apps = context.caches.apps.store
        self._versions = context.caches.app_versions.store

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return all keys, because only the caches show whether an app needs anything."""
        return list(self._apps.keys()) if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Bring the versions of one app up to date. Raises ApiError."""
        app = self._apps.get(key)
        if app is None or app.metadata.deletion_timestamp:
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
        todo = plan_app(app, self._versions.by_index(BY_APP, (namespace, name)))
        if todo.is_blocked:
            text = f"KeptnAppVersion {todo.name} is not of this app: delete it"
            self._signals.emit(app, "CreateAppVersion", "Failed", text)
            return LOOK_AGAIN
        if todo.create:
            try:
                is_there = await self._create_version(app, todo)
            except (InvalidError, ForbiddenError) as error:
                if not is_end_of_namespace(error):
                    self._signals.emit(app, "CreateAppVersion", "Failed", error.message)
                if isinstance(error, InvalidError):
                    return None
                raise
            if not is_there:
                return LOOK_AGAIN
        for version in todo.deprecate:
            await self._deprecate(app, version)
        if app.status.current_version != app.spec.version:
            status = CurrentVersion(current_version=app.spec.version)
            await write_status(self._client, APPS, app.metadata, status)
        return None

    async def _create_version(self, app: App, todo: AppPlan) -> bool:
        """Create the version with the current context; False if the name is taken."""
        namespace, name = app.metadata.namespace, app.metadata.name
        # Read live: an app and its context are applied together, and the watch may be behind.
        context = await fetch(self._client, APP_CONTEXTS, AppContext, name, namespace)
        try:
            wish = new_version(app, context)
            version = await create(self._client, APP_VERSIONS, wish, namespace)
        except AlreadyExistsError:
            existing = await fetch(self._client, APP_VERSIONS, AppVersion, todo.name, namespace)
            return existing is not None and not plan_app(app, [existing]).is_blocked
        self._signals.report_created(version)
        if context is not None and (ignored := listed_fields(older_checks(app))):
            text = f"KeptnAppContext {name} counts, so these are ignored: {ignored}"
            self._signals.emit(app, "CreateAppVersion", "ChecksIgnored", text)
        return True

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
