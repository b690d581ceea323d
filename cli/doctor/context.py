"""What checks look at, read once however many of them ask, with the caller's rights."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import DEPLOYMENTS, LEASES, NAMESPACES, SECRETS
from harbourmaster.cli.cluster import collect, complain
from harbourmaster.cli.doctor.objects import decode_deployment, decode_secret
from harbourmaster.cli.doctor.settings import UnknownSettingsError, running_settings
from harbourmaster.cli.installed import CONTROLLER, WEBHOOK
from harbourmaster.cli.metadata import metadata_in
from harbourmaster.controller.registration.configurations import RESOURCES
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.kube.errors import ApiError, ForbiddenError, NotFoundError
from harbourmaster.kube.lease import decode_lease
from harbourmaster.registration.desired import NAME
from harbourmaster.webhook.settings import WebhookSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.doctor.objects import (
        Deployment,
    )
    from harbourmaster.cli.metadata import Metadata
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.lease import Lease

    T = TypeVar("T")

_WIDTH: Final = 16
"""Requests that are under way at one time."""
_REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def together(*doing: Coroutine[Any, Any, T]) -> list[T]:
    """What all of them give, in their order; where one fails the others are ended."""
    tasks = [asyncio.create_task(each) for each in doing]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Options(Struct, frozen=True):
    """What the caller says; an empty ``canary_namespace`` lets us choose."""

    namespace: str
    canary_namespace: str = ""


class Myself(Struct, frozen=True):
    """Who the API server takes us for; empty, and our own time, where it does not say."""

    name: str
    now: datetime
    is_told: bool = False


class _UserInfo(Struct, frozen=True):
    username: str = ""


class _ReviewMetadata(Struct, frozen=True, rename="camel"):
    creation_timestamp: datetime | None = None


class _ReviewStatus(Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _Review(Struct, frozen=True):
    metadata: _ReviewMetadata = _ReviewMetadata()
    status: _ReviewStatus = _ReviewStatus()


unread_by_check: ContextVar[Callable[[str], object]] = ContextVar("unread", default=complain)
"""Gets the lines on objects that cannot be read, of the check that runs."""
_decode_review: Final = msgspec.json.Decoder(_Review).decode


class Context:
    """One look at one installation."""

    def __init__(self, client: Client, options: Options) -> None:
        self.client = client
        self.options = options
        self.namespace = options.namespace
        self._known: dict[object, asyncio.Task[Any]] = {}
        self._width = asyncio.Semaphore(_WIDTH)

    async def close(self) -> None:
        """Leave nothing under way."""
        for task in self._known.values():
            task.cancel()
        await asyncio.gather(*self._known.values(), return_exceptions=True)

    async def once(self, key: object, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What ``make`` gives, made once; an error is everybody's who asks."""
        if key not in self._known:
            self._known[key] = asyncio.create_task(make())
        found: T = await asyncio.shield(self._known[key])
        return found

    async def get(
        self, resource: Resource, name: str, namespace: str | None = None
    ) -> bytes | None:
        """One object; None where there is none. Raises ApiError."""

        async def ask() -> bytes | None:
            async with self._width:
                try:
                    return await self.client.get(resource, name, namespace)
                except NotFoundError:
                    return None

        return await self.once((resource, namespace, name), ask)

    async def items(
        self,
        resource: Resource,
        pick: Callable[[msgspec.Raw], T | None],
        *,
        namespace: str | None = None,
        **options: Any,  # noqa: ANN401
    ) -> list[T]:
        """What ``pick`` makes of every object; nothing of a kind that is not there."""
        async with self._width:
            try:
                return await collect(
                    self.client,
                    resource,
                    pick,
                    namespace=namespace,
                    unread=unread_by_check.get(),
                    **options,
                )
            except NotFoundError:
                return []

    async def namespaces(self) -> list[Metadata]:
        """The metadata of all namespaces."""

        async def ask() -> list[Metadata]:
            return await self.items(NAMESPACES, metadata_in, metadata_only=True)

        return await self.once("namespaces", ask)

    async def home(self) -> Metadata | None:
        """Our own namespace."""
        body = await self.get(NAMESPACES, self.namespace)
        return metadata_in(body) if body is not None else None

    async def configurations(self) -> dict[Resource, dict[str, Any] | None]:
        """Both webhook configurations as they are stored."""
        bodies = await together(*(self.get(each, NAME) for each in RESOURCES))
        return {
            resource: msgspec.json.decode(body) if body is not None else None
            for resource, body in zip(RESOURCES, bodies, strict=True)
        }

    async def all_configurations(self, resource: Resource) -> list[dict[str, Any]]:
        """All of a cluster, everybody's."""

        async def ask() -> list[dict[str, Any]]:
            return await self.items(resource, msgspec.json.decode)

        return await self.once(("all", resource), ask)

    async def deployment(self, name: str) -> Deployment | None:
        """One of our Deployments."""
        body = await self.get(DEPLOYMENTS, name, self.namespace)
        return decode_deployment(body) if body is not None else None

    async def controller_settings(self) -> ControllerSettings | None:
        """Those of the controller; None where nobody says which it has."""
        return await self._settings(CONTROLLER, ControllerSettings)

    async def webhook_settings(self) -> WebhookSettings | None:
        """Those of the webhook; None where nobody says which it has."""
        return await self._settings(WEBHOOK, WebhookSettings)

    async def _settings(self, name: str, kind: type[T]) -> T | None:
        """Raises UnknownSettingsError where what is said can't be read."""

        async def read() -> T | None:
            try:
                await self.deployment(name)
            except ForbiddenError:
                return None
            return await running_settings(self.get, self.namespace, name, kind)  # type: ignore[type-var]

        return await self.once(("settings", name), read)

    async def known_settings(self) -> ControllerSettings:
        """The controller's settings, by default those that are shipped."""
        try:
            return await self.controller_settings() or ControllerSettings()
        except (UnknownSettingsError, ApiError):
            return ControllerSettings()

    async def secret(self) -> dict[str, bytes] | None:
        """What the Secret of the certificates holds; None where there is none."""
        name = (await self.known_settings()).certificates.secret_name
        body = await self.get(SECRETS, name, self.namespace)
        return (decode_secret(body).data or {}) if body is not None else None

    async def lease(self) -> Lease | None:
        """Who leads."""
        name = (await self.known_settings()).leader_election.lease_name
        body = await self.get(LEASES, name, self.namespace)
        return decode_lease(body) if body is not None else None

    async def is_led(self) -> bool:
        """Whether a controller leads, as far as its Lease tells; without elections, is ready."""
        if not (await self.known_settings()).leader_election.enabled:
            deployment = await self.deployment(CONTROLLER)
            return deployment is not None and deployment.is_ready
        lease = await self.lease()
        return lease is not None and bool(lease.holder) and await self.overdue(lease) is None

    async def overdue(self, lease: Lease) -> timedelta | None:
        """How old a Lease is that has run out; None where it has not, or nobody tells."""
        renewed = _time(lease.spec.renew_time)
        myself = await self.myself()
        if renewed is None or not myself.is_told:
            return None
        age = myself.now - renewed
        return age if age > timedelta(seconds=lease.spec.lease_duration_seconds or 0) else None

    async def myself(self) -> Myself:
        """Who we are, and what time the API server has."""

        async def ask() -> Myself:
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            try:
                answer = await self.client.request(
                    "POST",
                    _REVIEWS,
                    body=msgspec.json.encode(body),
                    content_type="application/json",
                )
                found = _decode_review(answer)
            except (ApiError, msgspec.DecodeError):
                return Myself("", datetime.now(UTC))
            stamp = found.metadata.creation_timestamp
            return Myself(
                found.status.user_info.username, stamp or datetime.now(UTC), stamp is not None
            )

        return await self.once("myself", ask)


def _time(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
