"""KeptnAppCreationRequests: each creates or updates an app and is deleted (keptn-spec 3.2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import APP_CREATION_REQUESTS, APPS, WORKLOADS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.controller.lifecycle.workload_versions import DeploymentCheck
from harbourmaster.controller.lifecycle.writes import (
    create,
    fetch,
    is_end_of_namespace,
    patch_object,
)
from harbourmaster.gates.names import workload_name
from harbourmaster.kube.errors import ForbiddenError, GoneError, InvalidError, NotFoundError
from harbourmaster.kube.reading import readable
from harbourmaster.lifecycle.apps import (
    APP_TYPE_KEY,
    SINGLE_SERVICE,
    change_operations,
    is_managed,
    new_app,
)
from harbourmaster.lifecycle.functions import is_name
from harbourmaster.lifecycle.model import App, Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.kube import reading
    from harbourmaster.lifecycle.model import AppCreationRequest

LOOK_AGAIN: Final = 10.0
"""Seconds until an app is looked at again whose workloads the API server has, and no cache."""
_decode: Final = msgspec.json.Decoder(Workload).decode


class CreationRequestReconciler:
    """Reconciles creation requests. The app comes first, then the deletion of the request.

    An app without a request is reconciled, by the key of its requests, for workloads that are gone.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._requests = context.caches.newest_requests
        self._apps = context.caches.newest_apps
        self._workloads = context.caches.workloads.store
        self._deployed = DeploymentCheck(context)
        # By key of an app: since when it lists workloads that are gone.
        self._gone_since: dict[str, float] = {}

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return all keys, because only the caches show what an app needs."""
        return {*self._requests.keys(), *self._apps.keys()} if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Fulfil one request; return the seconds until it is due. Raises ApiError."""
        request = self._requests.get(key)
        if request is None or request.metadata.deletion_timestamp:
            try:
                return await self._follow_workloads(key)
            except NotFoundError:
                return None
        try:
            return await self._reconcile_request(request)
        except ForbiddenError as error:
            if is_end_of_namespace(error):
                return None
            self._report_failure(request, error.message)
            raise

    async def _reconcile_request(self, request: AppCreationRequest) -> float | None:
        namespace, name = request.metadata.namespace, request.spec.app_name
        if not is_name(name):
            self._report_failure(request, f'"{name}" is not a valid app name')
            return None
        app, requeue_after = self._apps.get(f"{namespace}/{name}"), self._remaining(request)
        if requeue_after <= 0 or not (app is None or is_managed(app)):
            # Read live: an app that a person created must not be taken for a missing one.
            app = await fetch(self._client, APPS, App, name, namespace)
        if app is None or is_managed(app):
            if requeue_after > 0:
                return requeue_after
            try:
                await self._update(namespace, name, app, request.metadata.annotations)
            except InvalidError as error:
                self._report_failure(request, error.message)
                # An existing app may have changed meanwhile.
                if app is not None:
                    raise
                return None
        metadata = request.metadata
        await self._client.delete(
            APP_CREATION_REQUESTS, metadata.name, namespace, uid=metadata.uid, missing_ok=True
        )
        self._requests.put(metadata.key, None)
        return None

    def _remaining(self, request: AppCreationRequest) -> float:
        metadata = request.metadata
        if metadata.annotations.get(APP_TYPE_KEY) == SINGLE_SERVICE:
            return 0.0
        timeout = timedelta(seconds=self._context.configuration.current.creation_request_timeout)
        due = parse_rfc3339(metadata.creation_timestamp) + timeout
        return (due - self._context.now()).total_seconds()

    async def _follow_workloads(self, key: str) -> float | None:
        """Update a managed app whose workloads are gone, but not while they may be recreated."""
        app, now = self._apps.get(key), asyncio.get_running_loop().time()
        if app is None or not is_managed(app) or not await self._lists_gone(app):
            self._gone_since.pop(key, None)
            return None
        timeout = self._context.configuration.current.creation_request_timeout
        left = self._gone_since.setdefault(key, now) + timeout - now
        if left > 0:
            return left
        del self._gone_since[key]
        await self._update(app.metadata.namespace, app.metadata.name, app, {})
        return LOOK_AGAIN

    async def _lists_gone(self, app: App) -> bool:
        """Whether the app lists nothing, or a workload that is gone, and is not being deleted."""
        namespace, name = app.metadata.namespace, app.metadata.name
        for entry in app.spec.workloads:
            workload = self._workloads.get(f"{namespace}/{workload_name(name, entry.name)}")
            if workload is None or await self._deployed.is_gone(workload):
                return not app.metadata.deletion_timestamp
        return not (app.spec.workloads or app.metadata.deletion_timestamp)

    async def _update(
        self, namespace: str, name: str, app: App | None, annotations: Mapping[str, str]
    ) -> None:
        """Bring a managed app, or a missing one, up to date; delete one without workloads."""
        workloads, key = await self._workloads_of(name, namespace), f"{namespace}/{name}"
        if app is None and workloads:
            wish = new_app(name, namespace, annotations, workloads)
            app = await create(self._client, APPS, wish, namespace)
            self._apps.put(key, app)
            self._context.signals.report_created(app)
        elif app is not None and not workloads:
            # A user who has taken it over meanwhile has changed it.
            uid, version = app.metadata.uid, app.metadata.resource_version
            await self._client.delete(APPS, name, namespace, uid=uid, resource_version=version)
            text = "has been deleted: its workloads are gone, or their owners name others"
            self._context.signals.emit(app, "DeleteApp", "Finished", text)
        elif app is not None and (operations := change_operations(app, workloads)):
            answer = await patch_object(self._client, APPS, app.metadata, operations)
            self._apps.put(key, msgspec.json.decode(answer, type=App))

    async def _workloads_of(self, app: str, namespace: str) -> list[Workload]:
        """Read the app's current workloads from the API server, because the watch may be behind."""
        workloads: list[Workload] = []
        token = ""
        while True:
            try:
                page = await self._client.list(WORKLOADS, namespace, continue_token=token)
            except GoneError:
                if not token:
                    raise
                workloads, token = [], ""
                continue
            workloads += [
                workload
                for workload in readable(page.items, _decode, self._skip)
                if workload.spec.app == app and not workload.metadata.deletion_timestamp
                if not await self._deployed.is_gone(workload)
            ]
            token = page.continue_token
            if not token:
                return workloads

    def _skip(self, metadata: reading.Metadata, error: Exception) -> None:
        text = f"skipped, because it cannot be read: {error}: correct or delete it"
        about = Metadata(name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)
        self._context.signals.emit(Reference(WORKLOADS, about), "ReadWorkload", "Failed", text)

    def _report_failure(self, request: AppCreationRequest, text: str) -> None:
        self._context.signals.emit(request, "CreateApp", "Failed", text)
